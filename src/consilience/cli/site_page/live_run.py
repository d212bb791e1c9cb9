"""The live run on the local page of a site: its mandate, what is asked now, its program, and the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from consilience.cli.output import plain_time
from consilience.errors import ConsilienceError
from consilience.files.json_text import parse_json, read_text
from consilience.kit import serving
from consilience.kit.approvals import approved_in
from consilience.kit.folder import SiteFolder
from consilience.kit.letters import QuestionLetter, RunFile
from consilience.kit.mail_folder import MailFolder
from consilience.kit.mail_run import open_question, read_mail, relayed_line
from consilience.kit.mandate import FILE, Mandate, answered_in
from consilience.kit.site_rounds import answer_entry
from consilience.kit.study import Study
from consilience.report.page import Block, Code, Facts, NextStep, Note, Tag

MODES = {
    "ask": "a person approves each question",
    "mandate": "questions within the limits are answered at once",
    "hold": "questions within the limits are answered after {} minutes, unless somebody pauses the site",
}
NOBODY = Tag("nobody", "care", "It does not count before it is signed as it is now.")


@dataclass(frozen=True, eq=False)
class LiveState:
    """The live run of a site.

    Parameters
    ----------
    mandate : Mandate
    signed_by : tuple of str
        Accounts that signed it as it is.
    used : int
        Questions of the study that were answered or refused.
    program : mapping
        What the program said of itself last; empty if there was none.
    is_paused : bool
    run : RunFile or None
        The run that was fetched, with its study and the latest question to the site.
    study : Study or None
    question : QuestionLetter or None
    is_answered : bool
        Whether this question was answered, or refused by the policy.
    """

    mandate: Mandate
    signed_by: tuple[str, ...]
    used: int
    program: Mapping[str, Any]
    is_paused: bool
    run: RunFile | None = None
    study: Study | None = None
    question: QuestionLetter | None = None
    is_answered: bool = False

    @classmethod
    def read(cls, folder: SiteFolder) -> LiveState | None:
        """Read what the folder of a site has of a live run; None without a mandate that can be read."""
        place = folder.path / serving.PLACE
        if not (folder.path / FILE).is_file():
            return None
        try:
            mandate = Mandate.read(folder.path / FILE)
        except ConsilienceError:  # people write it: the command that signs it says what is wrong
            return None
        entries, program = folder.entries, dict[str, Any]()
        with suppress(ConsilienceError):
            program = dict(parse_json(read_text(place / serving.STATE, "a state"), serving.STATE))
        run, study, question, is_answered = None, None, None, False
        with suppress(ConsilienceError):  # half of a letter, or none
            run, study = read_mail(place / "mail")
            question = open_question(MailFolder(place / "mail"), run, folder.name)
        if question is not None:
            with suppress(ConsilienceError):
                is_answered = answer_entry(folder, question.run, question.number, question.hash) is not None
        signed = tuple(approved_in(entries, {"mandate": mandate.identity}))
        used, paused = answered_in(folder, mandate.study), (place / serving.PAUSE).exists()
        return cls(mandate, signed, used, program, paused, run, study, question, is_answered)

    @property
    def word(self) -> str:
        """The state: what people have done counts before what the program said last."""
        if not self.signed_by:
            return UNSIGNED
        if self.is_paused:
            return serving.PAUSED
        return str(self.program.get("state", UNSERVED)) if self.program else UNSERVED

    @property
    def waits_for_people(self) -> bool:
        """Whether somebody should decide now."""
        return self.word in (UNSIGNED, serving.ASKS, serving.HELD)


UNSIGNED, UNSERVED = "unsigned", "unserved"
"""States that the program does not have: of a mandate that nobody signed, and of a site that no program serves."""


# ---------------------------------------------------------------- facts


def live_blocks(live: LiveState) -> tuple[Block, ...]:
    """Return the mandate, the question that was asked last, and what the program said last."""
    mandate, study = live.mandate, live.study
    mode = MODES[mandate.mode].format(mandate.hold_minutes)
    facts: list[tuple[str, str | Tag]] = [
        ("Study", study.name if study is not None and study.identity == mandate.study else f"{mandate.study[:23]}…"),
        ("Coordinator", mandate.coordinator),
        ("How", mode),
        ("Kinds of questions", ", ".join(mandate.questions)),
        ("Questions", f"{live.used:,} of {mandate.rounds:,} are used"),
        ("ε of the study", f"at most {mandate.epsilon:g}" if mandate.epsilon else "no noise is drawn"),
        ("Until", f"{mandate.until}, the last day"),
        ("Signed by", ", ".join(live.signed_by) or NOBODY),
    ]
    facts += _asked(live)
    seen = plain_time(str(live.program.get("seen", "")))
    tag = WORDS.get(live.word, (Tag(live.word, "note"), _at_rest))[0]
    facts.append(("State", Tag(tag.said, tag.css, f"The program wrote last at {seen} UTC." if seen else "")))
    note = "The program answers nothing outside of the mandate, and the limits of the policy hold in any case."
    return Facts(tuple(facts)), Note(note)


def _asked(live: LiveState) -> list[tuple[str, str | Tag]]:
    """Return what is asked now in words, and for whom."""
    if live.run is None:
        return [("Asked now", "no run has come yet")]
    served = [] if live.run.parent is None else [("For", relayed_line(*live.run.parent))]
    if live.question is None:
        return [*served, ("Asked now", "nothing yet")]
    done = Tag("answered", "yes") if live.is_answered else Tag("open", "care")
    asked = f"Round {live.question.number}: {live.question.disclosed}."
    return [*served, ("Asked last" if live.is_answered else "Asked now", Tag(done.said, done.css, asked))]


# ---------------------------------------------------------------- next step

Command = Callable[..., Code]


def _at_unsigned(_: LiveState, command: Command) -> NextStep:
    said = "A mandate lies in mandate.toml. Read it, change what is too wide, then sign it. Nothing is answered before:"
    return NextStep("A mandate waits for your signature", "care", (said, command("mandate", "--sign")))


def _at_unserved(_: LiveState, command: Command) -> NextStep:
    said = "The mandate is signed, and no program answers yet. It needs the table and the coordinator's file:"
    serve = command("serve", "--table", "TABLE", "--enrolment", "FILE")
    return NextStep("The next step is the program", "note", (said, serve))


def _at_approval(live: LiveState, command: Command) -> NextStep:
    asked = "" if live.question is None else f"Round {live.question.number} asks: {live.question.disclosed}. "
    word = "HASH" if live.question is None else live.question.hash[7:19]
    said = f"{asked}Nothing leaves before you approve it. To say no, do nothing."
    return NextStep("A question waits for your approval", "care", (said, command("approve", "--question", word)))


def _at_held(live: LiveState, command: Command) -> NextStep:
    asked = "" if live.question is None else f"Round {live.question.number} asks: {live.question.disclosed}. "
    said = f"{asked}It is answered {live.mandate.hold_minutes} minutes after it came, unless you stop it:"
    return NextStep("An answer leaves soon", "care", (said, command("pause")))


def _at_paused(_: LiveState, command: Command) -> NextStep:
    return NextStep("The site is paused: nothing is answered", "note", ("To answer again:", command("resume")))


def _at_refused(live: LiveState, command: Command) -> NextStep:
    said = f"{str(live.program.get('reason', 'the log of the program has the reason')).rstrip('.')}."
    more = "Nothing leaves, and the program goes on looking. If people want to answer, they sign another mandate:"
    return NextStep("The question is refused", "no", (said, more, command("mandate", "--sign")))


def _at_failure(live: LiveState, command: Command) -> NextStep:
    said = f"{str(live.program.get('reason', 'the log of the program has the reason')).rstrip('.')}."
    return NextStep("The program cannot work", "no", (said, "It tries again. Where it stands:", command("status")))


def _at_rest(live: LiveState, command: Command) -> NextStep:
    asked = f"Round {live.question.number} is answered. " if live.question is not None and live.is_answered else ""
    is_asked = live.mandate.mode == "ask"
    then = "The next question waits for a person." if is_asked else "The program answers what is within the mandate."
    return NextStep("Nothing waits for you", "yes", (f"{asked}{then} To stop the program:", command("pause")))


def _at_end(_: LiveState, command: Command) -> NextStep:
    said = "The coordinator has ended the run. Where the program stands:"
    return NextStep("Nothing waits for you: the run is finished", "yes", (said, command("status")))


WORDS: Mapping[str, tuple[Tag, Callable[[LiveState, Command], NextStep]]] = {
    UNSIGNED: (Tag("mandate not signed", "care"), _at_unsigned),
    UNSERVED: (Tag("no program yet", "note"), _at_unserved),
    serving.NO_RUN: (Tag("no run yet", "note"), _at_rest),
    serving.WAITS: (Tag("waits for a question", "yes"), _at_rest),
    serving.ANSWERED: (Tag("answered", "yes"), _at_rest),
    serving.ASKS: (Tag("waits for you", "care"), _at_approval),
    serving.HELD: (Tag("answers soon", "care"), _at_held),
    serving.PAUSED: (Tag("paused", "note"), _at_paused),
    serving.REFUSED: (Tag("refused", "no"), _at_refused),
    serving.LINK: (Tag("store not reached", "no"), _at_failure),
    serving.FAULT: (Tag("cannot work", "no"), _at_failure),
    serving.FINISHED: (Tag("run finished", "yes"), _at_end),
}
"""Each state in a few words, and as the box at the top of the page."""


def live_step(live: LiveState, command: Command) -> NextStep:
    """Return the box at the top of the page for a live run."""
    return WORDS.get(live.word, (Tag(live.word, "note"), _at_rest))[1](live, command)
