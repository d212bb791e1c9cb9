"""A site that answers a live run by itself: fetch letters, decide by the mandate, answer, deliver, and begin again.

All state is what runs by files keep: the ledger and the stored answers of the site, and its copy of the letters. A
step can be killed at any point and repeated. ``live.json`` is for people; nothing is decided by it.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from consilience.couriers.inbox import Inbox
from consilience.couriers.letter_stores import LetterStore
from consilience.errors import AwaitedError, ConsilienceError, InvalidInputError, RefusedError, StoreError
from consilience.files.json_text import replace_file
from consilience.kit import ledger
from consilience.kit.approvals import approved_in, check_approved
from consilience.kit.folder import LEDGER, MAPPING, SiteFolder
from consilience.kit.letters import RUN, QuestionLetter, RunFile
from consilience.kit.mail_folder import END, STUDY, MailFolder, answer_name
from consilience.kit.mail_run import (
    check_letter,
    check_signed,
    draft_answer,
    finish_answer,
    open_question,
    read_mail,
)
from consilience.kit.mandate import FILE, Mandate, check_mandate
from consilience.kit.mapping import TableMapping, read_mapped
from consilience.kit.policy.policy import Policy, RunRules
from consilience.kit.private_files import slug, write_alone
from consilience.kit.site_rounds import stored_file, table_of_run
from consilience.kit.study import Study

LOG = logging.getLogger("consilience.serve")
PLACE, PAUSE, STATE = "live", "pause", "live.json"
"""Folder of a live run in the folder of a site, the file that pauses it, and the file that says its state."""
NO_RUN, WAITS, ASKS, HELD, ANSWERED = "no-run", "waits", "needs-approval", "held", "answered"
FINISHED, PAUSED, REFUSED, LINK, FAULT = "finished", "paused", "refused", "link-down", "fault"
LATER = (LINK, FAULT)
"""States after which the site waits longer and longer."""
ALARMS = (REFUSED, *LATER)
AGAIN = 600.0
"""Seconds after which an answer to a question that is still open is delivered again: it may have been overwritten."""
TOLD = 60.0
"""Seconds after which the state is written again, so that people see that the program runs."""


@dataclass(frozen=True)
class State:
    """Where a site stands: one word, and what goes with it.

    Parameters
    ----------
    word : str
        One of the states of this module.
    said : mapping
        Details, such as the run and the round.
    """

    word: str
    said: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        found = {"state": self.word, **self.said}
        return " ".join(f"{name}={json.dumps(value) if ' ' in str(value) else value}" for name, value in found.items())


class Served(Protocol):
    """What answers a live run by steps, under a name: a site, or a region."""

    @property
    def name(self) -> str:
        """Name in the roster of the run."""
        ...

    @property
    def place(self) -> Path:
        """Folder of its state."""
        ...

    def begin(self) -> None:
        """Mend what a program that was killed has left."""
        ...

    def step(self) -> State:
        """Do what can be done now, and return the state."""
        ...


@dataclass
class Serving:
    """One site in one live run.

    Parameters
    ----------
    folder : SiteFolder
    store : LetterStore
    table : Path or None
        Table of the site; None for the one with which the run began.
    """

    folder: SiteFolder
    store: LetterStore
    table: Path | None = None
    _sent: tuple[str, float] = field(default=("", 0.0), init=False)
    _rows: tuple[str, pa.Table] | None = field(default=None, init=False)
    _study: tuple[str, RunFile, Study] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._mail = MailFolder(self.place / "mail")
        self._inbox = Inbox(self.store, slug(self.name), self._mail.path)

    @property
    def name(self) -> str:
        """Name of the site."""
        return self.folder.name

    @property
    def place(self) -> Path:
        """Folder of the live run in the folder of the site."""
        return self.folder.path / PLACE

    def begin(self) -> None:
        """Mend a ledger whose last line was half written when the program before ended."""
        if ledger.repair(self.folder.path / LEDGER):
            LOG.warning("site=%s state=repaired reason=%r", slug(self.name), "the last line was half written")

    def step(self) -> State:
        """Do what can be done now, and return the state."""
        if (self.place / PAUSE).exists():
            return State(PAUSED)
        try:
            self._inbox.fetch()
            run, study = self._read()
        except StoreError as error:
            return State(LINK, {"reason": str(error)})
        except AwaitedError as error:
            return State(NO_RUN, {"reason": str(error)})
        try:
            letter = open_question(self._mail, run, self.folder.name)
            return self._after(run, study, letter)
        except StoreError as error:
            return State(LINK, {"reason": str(error)})
        except (RefusedError, InvalidInputError) as error:
            return State(REFUSED, {"run": run.identity[7:19], "reason": str(error)})

    # ------------------------------------------------------------------ letters

    def _read(self) -> tuple[RunFile, Study]:
        """Read run and study once for each version of their files."""
        marks = f"{self._inbox.marks.get(RUN)} {self._inbox.marks.get(STUDY)}"
        if not (self._mail.path / RUN).exists():
            raise AwaitedError(f"there is no {RUN} for this site yet", ())
        if self._study is None or self._study[0] != marks:
            self._study = marks, *read_mail(self._mail.path)
        return self._study[1:]

    # ------------------------------------------------------------------ answers

    def _after(self, run: RunFile, study: Study, letter: QuestionLetter | None) -> State:
        """Answer the latest question, or say what it waits for."""
        about: dict[str, object] = {"run": run.identity[7:19], "round": 0 if letter is None else letter.number}
        if letter is None:
            return State(WAITS, about)
        if self._sent[0] == letter.hash and time.monotonic() - self._sent[1] < AGAIN:  # the ledger is not read
            return State(FINISHED if (self._mail.path / END).exists() else WAITS, about)
        file = stored_file(self.folder, letter.run, letter.number, letter.hash)
        sent = None if file is None else file.decode()
        is_new = sent is None
        if sent is None:
            state = self._permitted(run, study, letter)
            if state is not None:
                return State(state, {**about, "question": letter.hash[7:19], "asks": letter.disclosed[:80]})
            subject, who = self._approved(letter)
            draft = draft_answer(
                self.folder, study, self._table(run, study), run, letter, source=self.table, approved_by=who,
                mapping=self._mapping(),
            )  # fmt: skip
            sent = finish_answer(self.folder, draft, subject)  # ledger and file are on disk before anything leaves
            about["refused"] = bool(draft.reason)
        self._inbox.deliver(answer_name(letter.number, self.folder.name), sent)
        self._sent = letter.hash, time.monotonic()
        return State(ANSWERED, {**about, "new": is_new, "bytes": len(sent)})

    def _permitted(self, run: RunFile, study: Study, letter: QuestionLetter) -> str | None:
        """Return the state in which a question waits, None if it may be answered now; raise an error if it may not."""
        mandate = Mandate.read(self.folder.path / FILE)
        check_letter(self.folder, study, run, letter)
        check_signed(RunRules(signed_by=mandate.coordinator, allow_unsigned=False), run, letter)
        check_mandate(self.folder, mandate, study, run, letter)
        if mandate.mode == "ask":
            subject = {"question": letter.hash}
            if not approved_in(self.folder.entries, subject):
                return ASKS
            check_approved(self.folder, Policy.from_text(self.folder.policy).approval, subject)
        if mandate.mode == "hold" and time.time() < self._seen(letter) + 60 * mandate.hold_minutes:
            return HELD
        return None

    def _seen(self, letter: QuestionLetter) -> float:
        """Return when the site has first seen a question; the file that says so outlives the program."""
        path = self.place / f"{letter.hash.removeprefix('sha256:')}.seen"
        if not path.exists():
            path.touch(mode=0o600)
        return path.stat().st_mtime

    def _approved(self, letter: QuestionLetter) -> tuple[dict[str, str], str]:
        """Return what people have approved, the question or the mandate within which it is answered, and who did."""
        mandate = Mandate.read(self.folder.path / FILE)
        question, signed = {"question": letter.hash}, {"mandate": mandate.identity}
        found = [approved_in(self.folder.entries, subject) for subject in (question, signed)]
        return question if mandate.mode == "ask" else signed, ", ".join(next(filter(None, found), []))

    def _mapping(self) -> TableMapping | None:
        path = self.folder.path / MAPPING
        return TableMapping.read(path) if path.is_file() else None

    def _table(self, run: RunFile, study: Study) -> pa.Table:
        """Read the table once for each version of its file."""
        self.table = self.table or Path(table_of_run(self.folder, run.identity))
        if self.table == Path():
            raise InvalidInputError("this is the first answer in the run: name the table with --table")
        mark = f"{self.table.stat().st_mtime_ns} {study.identity}" if self.table.exists() else ""
        if self._rows is None or self._rows[0] != mark:
            self._rows = mark, read_mapped(self.table, study, self._mapping(), as_text=study.way == "noise")
        return self._rows[1]


def serve(
    one: Served, *, poll: float = 10.0, most: float = 300.0, until: Callable[[State], bool] | None = None
) -> State:
    """Serve until a state says that it is enough; for as long as the process lives, if nothing says when.

    Parameters
    ----------
    one : Served
    poll, most : float
        Seconds between two looks, and the most after failures, each of which doubles them.
    until : callable, optional
        Called with each state; the loop ends when it returns True.

    Returns
    -------
    State
        The last one.
    """
    one.place.mkdir(exist_ok=True, mode=0o700)
    with write_alone(one.place / STATE):
        one.begin()
        last, told, wait = State(""), 0.0, poll
        while True:
            state = _tried(one)
            changed = str(state) != str(last)
            if changed:
                level = logging.WARNING if state.word in ALARMS else logging.INFO
                LOG.log(level, "site=%s %s", slug(one.name), state)
            if changed or time.monotonic() - told > TOLD:
                _tell(one, state)
                told = time.monotonic()
            last = state
            if until is not None and until(state):
                return state
            wait = min(most, 2 * max(wait, poll)) if state.word in LATER else poll
            time.sleep(0.0 if state.word == ANSWERED else wait * random.uniform(0.8, 1.2))  # noqa: S311 - not in step


def is_served(folder: SiteFolder) -> bool:
    """Return whether a program serves a site on this machine, by the lock that it holds for as long as it lives."""
    try:
        with write_alone(folder.path / PLACE / STATE):
            return False
    except InvalidInputError:  # the lock is held, or this account may not know
        return True


def _tried(one: Served) -> State:
    """Take a step; whatever fails is a state."""
    try:
        return one.step()
    except (ConsilienceError, ImportError) as error:
        return State(FAULT, {"reason": str(error)[:500]})
    except OSError as error:
        return State(FAULT, {"reason": f"{type(error).__name__}: {error.strerror}"})


def _tell(one: Served, state: State) -> None:
    """Write the state for people; a full disk does not end the program."""
    said = {"state": state.word, **state.said, "seen": ledger.time_text(), "pid": os.getpid()}
    try:
        replace_file(one.place / STATE, (json.dumps(said, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        LOG.warning("site=%s state=%s reason=%r", slug(one.name), FAULT, f"{STATE}: {error.strerror}")
