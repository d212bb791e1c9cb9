"""The coordinator's page of a run by files: who has answered, who is awaited, what is refused, and the next step.

The page is one file in the coordinator's own folder. It has no script, loads nothing and decides nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from consilience._version import __version__
from consilience.cli.output import PAGE, page_stops_nothing, plain_time
from consilience.files.json_text import parse_json, read_text
from consilience.kit.folder import SiteIdentity
from consilience.kit.ledger import read_time
from consilience.kit.letters import RunFile
from consilience.kit.mail_folder import STUDY, MailFolder, RoundStatus, RunStatus, status_of
from consilience.kit.mail_run import read_mail
from consilience.kit.mail_watch import MailWatch, SiteWait, watch_run
from consilience.kit.mailbox import read_run
from consilience.kit.study import Study
from consilience.kit.study_notes import replace_private
from consilience.kit.study_words import words_of
from consilience.report.page import Block, Code, Facts, Head, NextStep, Note, Section, Table, Tag, render_page

COURIER, RELAY = "post.json", "live.json"
"""What the courier and the program of a region say of themselves, in the coordinator's own folder."""
COORDINATOR_KEY = "coordinator.pem"
"""Key of the coordinator, in the coordinator's own folder."""
MOST_ROWS = 1_000
"""Maximum number of sites, rounds or files that a table of the page lists."""


@dataclass(frozen=True, eq=False)
class RunState:
    """All that the page is made of.

    Parameters
    ----------
    mailbox, own : Path
    run : RunFile
    study : Study
    status : RunStatus
    watch : MailWatch
    courier, relay : mapping
        What the courier, and the program of a region, said of themselves; empty if there was none.
    time : datetime
    """

    mailbox: Path
    own: Path
    run: RunFile
    study: Study
    status: RunStatus
    watch: MailWatch
    courier: Mapping[str, Any]
    relay: Mapping[str, Any]
    time: datetime

    @classmethod
    def read(cls, mailbox: Path, own: Path) -> RunState:
        """Read the folder of a run, and the coordinator's own."""
        run, identity = read_run(mailbox, own), known_key(own)
        study = read_mail(mailbox)[1]
        status, watch = status_of(mailbox, run, identity), watch_run(MailFolder(mailbox), run, identity)
        courier, relay = said_in(own / COURIER), said_in(own / RELAY)
        return cls(mailbox, own, run, study, status, watch, courier, relay, datetime.now(UTC))

    @property
    def refused(self) -> dict[str, str]:
        """Files that were not used or not taken, and why."""
        return {**self.watch.refused, **dict(self.courier.get("refused", {}))}

    @property
    def there(self) -> str:
        """Option by which commands find the coordinator's own folder; empty where they look."""
        usual = self.mailbox.with_name(f"{self.mailbox.name}.coordinator")
        return "" if self.own == usual else f" --own {shlex.quote(str(self.own))}"


def known_key(own: Path) -> SiteIdentity | None:
    """Return the coordinator's key, if it is in the coordinator's own folder."""
    path = own / COORDINATOR_KEY
    return SiteIdentity.load(path) if path.is_file() else None


def said_in(path: Path) -> dict[str, Any]:
    """Return what a program has said of itself; empty if there was none."""
    found = parse_json(read_text(path, "what a program says"), path.name) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def write_run_page(mailbox: Path, own: Path) -> Path:
    """Write the page of a run into the coordinator's own folder, for its owner alone; return its path."""
    replace_private(own / PAGE, run_page(RunState.read(mailbox, own)).encode())
    return own / PAGE


def rewrite_run_page(mailbox: Path, own: Path) -> None:
    """Write the page of a run that has begun; a page that cannot be written stops nothing."""
    with page_stops_nothing():
        write_run_page(mailbox, own)


def run_page(state: RunState) -> str:
    """Return the coordinator's page of a run as HTML."""
    made = f"{state.time:%Y-%m-%d, %H:%M} UTC"
    banner = (
        "This page decides nothing: it has no script and loads nothing. It is written again by 'consilience run' and "
        "'consilience live watch'. It names the sites: do not send it to them."
    )
    head = Head(f"Page of the coordinator · {made}", f"{state.study.name}: who is asked, who has answered", banner, ())
    footer = f"Made by consilience {__version__} for the coordinator of the run {state.run.identity[:19]}…"
    return render_page(head, next_step(state), list(_sections(state)), footer)


# ---------------------------------------------------------------- next step


def next_step(state: RunState) -> NextStep:
    """Return the box at the top: what is awaited, and the next step as a command."""
    if state.status.finished:
        said = "All rounds are over, and the model was written where 'consilience run' was told to."
        return NextStep("Nothing waits for you: the run is finished", "yes", (said,))
    if not state.status.rounds or not state.watch.awaited:
        return _go_on(state)
    if state.courier.get("state") == "fails":
        said = f"{str(state.courier.get('reason', '')).rstrip('.')}. It tries again, ever later. Where it stands:"
        return NextStep("The courier cannot carry letters", "no", (said, _command(state, "watch")))
    names = state.watch.awaited
    some = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    number = state.status.rounds[-1].number
    said = f"Round {number} waits for {some}. The run goes on by itself where 'consilience run --wait' runs."
    title = f"{len(names)} of {state.run.number} sites are awaited"
    if state.refused:
        more = "What they sent cannot be used: tell them the reason, which stands below."
        return NextStep(f"{title}, and files were refused", "care", (said, more, _command(state, "watch")))
    return NextStep(title, "note", (said, _command(state, "watch")))


def _go_on(state: RunState) -> NextStep:
    box = shlex.quote(str(state.mailbox))
    study = shlex.quote(str(state.mailbox / STUDY))
    if state.run.parent is not None:
        said = "The sites of the region have answered: 'consilience live relay' sends their sum upward."
        return NextStep("The region answers", "note", (said, _command(state, "watch")))
    said = "No site is awaited. The next round, or the model, is made by the command that began the run:"
    return NextStep(
        "All answers are there", "care", (said, Code(f"consilience run {study} --mailbox {box}{state.there}"))
    )


def _command(state: RunState, verb: str) -> Code:
    return Code(f"consilience live {verb} {shlex.quote(str(state.mailbox))} --poll 5{state.there}")


# ---------------------------------------------------------------- sections


def _sections(state: RunState) -> Iterator[Section]:
    yield _about(state)
    yield _waits(state)
    yield _rounds(state)
    if state.refused:
        rows = tuple((name, why) for name, why in list(state.refused.items())[:MOST_ROWS])
        table = Table("Files that were not used.", ("file", "why"), rows, note=_cut(len(state.refused)), long=True)
        yield Section("What is refused", "refused", (table,))
    yield _programs(state)


def _about(state: RunState) -> Section:
    """Return what the run is about."""
    run, words = state.run, words_of(state.study)
    facts: list[tuple[str, str | Tag]] = [
        ("Study", f"{state.study.name}: {words.title}"),
        ("Question", words.question or Tag("not stated", "care")),
        ("Hash of the study", run.study),
        ("Run", run.identity),
        ("Your key", run.signer or Tag("none", "care", "Nobody signs the run: whoever can write its folder can ask.")),
        ("Sites", f"{run.number:,}"),
    ]
    facts += [("Wave", run.wave)] if run.wave else []
    if run.parent is not None:
        facts += [("Serves the run", run.parent[0]), ("Its coordinator", run.parent[1])]
    told = "Sites compare your key, and the hash of the study, on another way than the letters."
    return Section("The run", "run", (Facts(tuple(facts)), Note(told)))


def _waits(state: RunState) -> Section:
    """Return each site with its latest question; those that are awaited come first."""
    asked = sorted((each for each in state.watch.sites if each.number), key=lambda each: bool(each.answered))
    if not asked:
        return Section("Who has answered", "sites", ("No site was asked yet.",))
    rows = tuple(_wait_row(state, each) for each in asked[:MOST_ROWS])
    header = ("site", "round", "asked (UTC)", "state", "until (UTC)")
    return Section("Who has answered", "sites", (Table("The sites.", header, rows, (1,), _cut(len(asked)), long=True),))


def _wait_row(state: RunState, each: SiteWait) -> tuple[str | Tag, ...]:
    if each.answered:
        tag = Tag("answered", "yes", plain_time(each.answered))
    else:
        tag = Tag("awaited", "care", f"for {_since(each.asked, state.time)}")
    return each.site, str(each.number), plain_time(each.asked), tag, plain_time(each.due) or "no limit"


def _since(asked: str, now: datetime) -> str:
    """Return in words how long a question has been open."""
    try:
        seconds = (now - read_time(asked)).total_seconds()
    except ValueError:
        return "an unknown time"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return "less than two minutes"


def _rounds(state: RunState) -> Section:
    """Return what each round asks in words, and how many bytes were carried."""
    rows = tuple(_round_row(each) for each in state.status.rounds[-MOST_ROWS:])
    if not rows:
        return Section("What was asked", "rounds", ("Nothing yet.",))
    header = ("", "asks for", "answered", "bytes asked", "bytes answered")
    table = Table("The rounds.", header, rows, (2, 3, 4), _cut(len(state.status.rounds)), long=True)
    return Section("What was asked", "rounds", (table,))


def _round_row(each: RoundStatus) -> tuple[str, ...]:
    answered = f"{len(each.answered):,} of {each.asked:,}"
    return f"round {each.number}", each.asks, answered, f"{each.bytes_sent:,}", f"{each.bytes_received:,}"


def _programs(state: RunState) -> Section:
    """Return what the courier, and the program of a region, said of themselves."""
    blocks: list[Block] = []
    for name, said in (("Courier", state.courier), ("Region", state.relay)):
        if said:
            reason = f" {said['reason']}" if said.get("reason") else ""
            css = "no" if reason else "yes"
            blocks.append(
                Facts(((name, Tag(str(said.get("state")), css, f"{plain_time(str(said.get('seen')))} UTC.{reason}")),))
            )
    if not state.courier:
        blocks.append("No courier was here: people or a sync service carry the folder, or 'consilience live post'.")
    return Section("Programs", "programs", tuple(blocks))


def _cut(count: int) -> str:
    return f"{MOST_ROWS:,} of {count:,} are listed." if count > MOST_ROWS else ""
