"""How far each study is at a site, and the next step as a command: the box at the top of the local page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from consilience.cli.preview import fields_of, final_lines
from consilience.cli.site_page.live_run import live_step
from consilience.cli.site_page.state import SiteState
from consilience.files.json_text import count_numbers
from consilience.kit import ledger
from consilience.kit.private_files import slug
from consilience.kit.release import FitReport
from consilience.kit.study_notes import ReadingNote, StudyNotes
from consilience.report.page import Bullets, Code, NextStep, Tag

SHOWN = 20
"""Maximum number of findings in the box."""


@dataclass(frozen=True)
class Standing:
    """How far a study is at a site.

    Parameters
    ----------
    study : str
    state : str
        One of the keys of :data:`STATES`.
    at : float
        Entry of the ledger since which it is so; a half more for what is not in the ledger.
    time : str
    entry : Entry or None
    """

    study: str
    state: str
    at: float
    time: str
    entry: ledger.Entry | None = None


def standings(state: SiteState) -> list[Standing]:
    """Return how far each study is, the latest first."""
    found: dict[str, Standing] = {}
    for entry in state.entries:
        study = state.study_of(entry)
        if study and entry.kind in STATES:
            found[study] = Standing(study, entry.kind, entry.number, entry.time, entry)
    for study, (_, notes) in state.studies.items():
        reading = "fits" if notes.reading is not None and notes.reading.fits else "misfit"
        for note, state_of in ((notes.reading, reading), (notes.question, "question")):
            at = -1.0 if note is None else note.entry + 0.5
            if note is not None and (study not in found or at >= found[study].at):
                found[study] = Standing(study, state_of, at, note.time)
    return sorted(found.values(), key=lambda each: -each.at)


@dataclass(frozen=True, eq=False)
class Scene:
    """A study at a site, with the commands that may come next."""

    state: SiteState
    stands: Standing | None = None

    @property
    def notes(self) -> StudyNotes | None:
        """The notes on the study."""
        return None if self.stands is None else self.state.studies.get(self.stands.study, (None, None))[1]

    @property
    def reading(self) -> ReadingNote | None:
        """What was read of a table."""
        return None if self.notes is None else self.notes.reading

    @property
    def title(self) -> str:
        """Name of the study."""
        return "" if self.stands is None else self.state.name_of(self.stands.study)

    @property
    def details(self) -> Mapping[str, Any]:
        """Details of the latest entry."""
        return {} if self.stands is None or self.stands.entry is None else self.stands.entry.details

    def command(self, verb: str, *rest: str) -> Code:
        """Return a command of the site."""
        return Code(f"consilience site {verb} {shlex.join([self.state.name, *rest])}{self.state.there}")

    def on_table(self, verb: str) -> Code:
        """Return a command on the files of study and table, as they were named before."""
        files = ("study.toml", "TABLE") if self.reading is None else (self.reading.study_path, self.reading.table_path)
        return self.command(verb, *files)

    @property
    def answer(self) -> Code:
        """The command that answers a question."""
        return self.command("answer", self.notes.question.mailbox if self.notes and self.notes.question else "DIR")


def _at_misfit(scene: Scene) -> NextStep:
    findings = [] if scene.reading is None else scene.reading.findings
    more = f" The first {SHOWN} of {len(findings)} findings:" if len(findings) > SHOWN else ""
    said = "Correct the export, or map it with 'consilience site map'. Then:"
    found = Bullets(tuple(("", each) for each in findings[:SHOWN]))
    blocks = (f"{scene.title}: nothing has left.{more}", found, said, scene.on_table("check"))
    return NextStep("The table does not fit the study", "no", blocks)


def _at_fits(scene: Scene) -> NextStep:
    study = None if scene.stands is None else scene.state.studies.get(scene.stands.study, (None, None))[0]
    if study is not None and not study.is_one_file:
        return _at_question(scene)
    said = f"The table fits {scene.title}. Nothing was fitted, and nothing has left. A fit leaves nothing either:"
    return NextStep("The next step is a fit", "note", (said, scene.on_table("fit")))


def _at_question(scene: Scene) -> NextStep:
    question = None if scene.notes is None else scene.notes.question
    asked = "" if question is None else f" Round {question.number} asks: {question.asked}."
    said = f"{scene.title} asks in rounds.{asked} Nothing leaves before you approve it:"
    return NextStep("A question may wait for your answer", "care", (said, scene.answer))


def _at_fit(scene: Scene) -> NextStep:
    """Return the box of a fit that may be released, or why it may not."""
    state, last = scene.state, scene.state.last
    if last is None or scene.stands is None or last.report.file.study != scene.stands.study:
        said = f"{scene.title}: a fit of another study was made since. Fit again to release this one:"
        return NextStep("A fit waits", "note", (said, scene.on_table("fit")))
    if state.invalid:
        return NextStep("The fit may not be released", "no", (f"{state.invalid}.", scene.on_table("fit")))
    file = ("-o", f"{slug(state.name)}.json")
    if state.released is not None:
        said = f"{scene.title}: these rows were released before (entry {state.released}). The same file is written by:"
        again = scene.command("release", *file)
        return NextStep("Nothing waits for you: the file was released", "yes", (said, again))
    more = [part for entry in state.replaced for part in ("--replaces", str(entry), "--notice", "FILE")]
    return _decision(last.report, scene.command("release", *file, "--by", "your name", *more), scene.stands.state)


def _decision(report: FitReport, command: Code, stands: str) -> NextStep:
    """Return the box of a file that a person may release, or has declined to release."""
    numbers = sum(count_numbers(value) for _, _, value in fields_of(report.file))
    kept = f"all {len(report.checks)} checks of your policy are kept" if report.checks else "its noise is drawn"
    ready = (
        f"{report.study_name} asks for one file with {numbers:,} numbers. It is ready, {kept}, and nothing of it has "
        "left. To release it, read the sections below, then type:"
    )
    then = "The command shows the file once more and asks. Then send the file yourself. To say no, do nothing."
    final, *follows = "\n".join(final_lines(report)).split("\n- ")
    bullets = Bullets(tuple(("", " ".join(each.split())) for each in follows))
    blocks = (ready, command, then, final, bullets)
    if stands == "decline":
        return NextStep("You said no: nothing has left", "note", blocks)
    return NextStep("One decision waits for you", "care", blocks)


def _at_decline(scene: Scene) -> NextStep:
    if "fit" in scene.details:
        return _at_fit(scene)
    again = scene.answer if "run" in scene.details else scene.on_table("fit")
    said = f"{scene.title}: the ledger has your answer, and nobody is told. To decide again:"
    return NextStep("You said no: nothing has left", "note", (said, again))


def _at_refusal(scene: Scene) -> NextStep:
    said = f"{scene.title}: {scene.details.get('reason', 'the ledger has the reason')}. Nobody is told why."
    blocks = (said, "After a change, check again:", scene.on_table("check"))
    return NextStep("Nothing leaves: the site refuses", "no", blocks)


def _at_release(scene: Scene) -> NextStep:
    number = 0 if scene.stands is None else int(scene.stands.at)
    size = f"one file of {scene.state.sizes.get(number, 0):,} bytes"
    said = f"{scene.title}: {size}. Send it. Whether a file is the one that was released, to the byte:"
    verify = scene.command("log verify", f"{slug(scene.state.name)}.json")
    return NextStep("Nothing waits for you: the file was released", "yes", (said, verify))


def _at_answer(scene: Scene) -> NextStep:
    said = f"{scene.title}: nothing waits for you. The next question is answered with:"
    return NextStep(f"Round {scene.details.get('number', 1)} is answered", "yes", (said, scene.answer))


def _at_withdrawal(scene: Scene) -> NextStep:
    return NextStep("The site withdrew from the study", "note", (f"Nothing leaves for {scene.title} any more.",))


STATES: Mapping[str, tuple[Tag, Callable[[Scene], NextStep]]] = {
    "misfit": (Tag("does not fit", "no"), _at_misfit),
    "fits": (Tag("table fits", "note"), _at_fits),
    "fit": (Tag("waits for you", "care"), _at_fit),
    "decline": (Tag("you said no", "note"), _at_decline),
    "refusal": (Tag("refused", "no"), _at_refusal),
    "release": (Tag("file released", "yes"), _at_release),
    "question": (Tag("waits for you", "care"), _at_question),
    "charge": (Tag("noise charged", "note"), _at_question),
    "run": (Tag("run begun", "note"), _at_question),
    "answer": (Tag("answered", "yes"), _at_answer),
    "withdrawal": (Tag("site withdrew", "note"), _at_withdrawal),
}
"""How far a study may be: a kind of entry of the ledger, or what a note says; in a few words, and as the box above."""


def opening_of(state: SiteState, stands: Standing | None) -> NextStep:
    """Return the box at the top: what waits, and the next step as a command."""
    scene, live = Scene(state, stands), state.live
    if live is not None and (live.waits_for_people or stands is None or stands.study == live.mandate.study):
        return live_step(live, scene.command)
    if stands is None:
        said = "No table was held against a study yet:"
        return NextStep("Nothing waits for you", "note", (said, scene.on_table("check")))
    return STATES[stands.state][1](scene)
