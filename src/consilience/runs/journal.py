"""Write-ahead journal of a run: every answer is on disk before it is used, so a killed run resumes by replay.

There are two files. ``PATH`` holds the closed rounds: the question as sent and, for a ``Total``, the sum with a digest
of each site's answer (single answers are not kept), for an ``Each``, the answers. ``PATH.round`` holds the answers of
the current round; it is emptied once the round has been written to ``PATH``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from consilience._version import __version__
from consilience.errors import JournalError, MessageError
from consilience.messages.codec import Message, fingerprint_of, is_same_question
from consilience.messages.failures import Failure, FailureCode
from consilience.runs.engine import Reply
from consilience.runs.journal_file import FrameFile, named, opened_for_appending, separated

HEADER, ROUND, QUESTION, ANSWER = range(4)
DIFFERENCES = {
    "library": "another version of the library",
    "sites": "other sites",
    "study": "another model, method or setting",
}
"""Entries of the header that must be the same, with the words for another one."""


@dataclass(frozen=True, eq=False)
class ClosedRound:
    """A closed round of the journal: its question, its answers (one sum for a ``Total``) and its failures."""

    request: str
    asked: tuple[str, ...]
    question: bytes
    answers: tuple[tuple[tuple[str, ...], bytes], ...]
    failures: dict[str, Failure]


class Journal:
    """The answers of a run, on disk.

    Parameters
    ----------
    path : str or Path
        File to use; created if missing.
    study : str
        Identifier of the run: a hash of its study or of its arguments. A journal of another study is refused.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(Path(folder.name) / "run.journal", study="a trial")
    >>> with journal.opened(("north", "south")):
    ...     journal.rounds
    []
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, study: str = "") -> None:
        self.path = Path(path)
        self.study = study
        self.rounds: list[ClosedRound] = []
        self.open_question: bytes | None = None
        self._open_request: list[Any] = []
        self.open_replies: list[Reply] = []
        self._closed = FrameFile(self.path)
        self._round = FrameFile(self.path.with_name(self.path.name + ".round"))

    # ------------------------------------------------------------------ opening

    @contextlib.contextmanager
    def opened(self, sites: tuple[str, ...]) -> Iterator[None]:
        """Read existing records, lock the files, and close them on exit."""
        with _held(self.path):
            try:
                self.rounds = []
                self._read(sites)
                yield
            finally:
                self._closed.close()
                self._round.close()

    def _read(self, sites: tuple[str, ...]) -> None:
        records = self._closed.read()
        header = {"library": __version__, "study": self.study, "sites": list(sites)}
        if not records:
            self._closed.append([(HEADER, [_json(header)])])
        for index, (kind, payload) in enumerate(records):
            with _understood(self.path, index):
                if index == 0:
                    _require(kind == HEADER)
                    self._check_header(json.loads(separated(payload)[0]), header)
                else:
                    _require(kind == ROUND)
                    self.rounds.append(_closed_round(separated(payload), sites))
        self._read_round(sites)

    def _check_header(self, found: dict[str, Any], expected: dict[str, Any]) -> None:
        for name, what in DIFFERENCES.items():
            if found[name] != expected[name]:
                versions = f" (written by version {found[name]}, this is {__version__})" * (name == "library")
                raise JournalError(
                    f"{self.path} is the journal of another run: it has {what}{versions}; resume with the same, or "
                    "give another path"
                )

    def _read_round(self, sites: tuple[str, ...]) -> None:
        self.open_question, self.open_replies = None, []
        for index, (kind, payload) in enumerate(self._round.read()):
            with _understood(self._round.path, index):
                parts = separated(payload)
                meta = json.loads(parts[0])
                if meta["number"] != len(self.rounds) + 1:
                    return  # the round was closed, and the file not yet emptied
                if kind == QUESTION:
                    Message.from_bytes(parts[1])
                    self.open_question, self._open_request = parts[1], [str(meta["request"]), list(meta["asked"])]
                else:
                    digests = tuple(bytes.fromhex(digest) for digest in meta["digests"])
                    answered = _sites(meta["sites"], sites)
                    self.open_replies.append(
                        Reply(int(meta["number"]), answered, parts[1], digests, float(meta["seconds"]))
                    )

    def fingerprints(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yield the fingerprints of the data in the closed rounds, each with its sites."""
        for closed in self.rounds:
            for sites, message in closed.answers:
                yield sites, fingerprint_of(message)

    # ------------------------------------------------------------------ a round

    def begin(self, number: int, request: str, asked: Sequence[str], question: bytes) -> bytes:
        """Return the question of a round: the journaled bytes if any, otherwise ``question``, which is then written."""
        if number <= len(self.rounds):
            closed = self.rounds[number - 1]
            same = closed.request == request and closed.asked == tuple(asked)
            self._check_question(number, closed.question, question, same)
            return closed.question
        if self.open_question is not None and number == len(self.rounds) + 1:
            self._check_question(number, self.open_question, question, self._open_request == [request, list(asked)])
            return self.open_question
        meta = {"number": number, "request": request, "asked": list(asked)}
        self._round.restart()
        self._round.append([(QUESTION, [_json(meta), question])])
        self.open_question, self.open_replies = question, []
        return question

    def _check_question(self, number: int, journaled: bytes, question: bytes, same: bool) -> None:
        if not (same and is_same_question(journaled, question)):
            raise JournalError(
                f"{self.path} is the journal of another run: its question of round {number} is not the one this run "
                "asks; resume with the same arguments and data, or give another path"
            )

    def answered(self, replies: Sequence[Reply]) -> None:
        """Write replies; they are on disk when this returns."""
        self._round.append(
            [
                (
                    ANSWER,
                    [
                        _json(
                            {
                                "number": reply.number,
                                "sites": reply.sites,
                                "digests": [digest.hex() for digest in reply.digests],
                                "seconds": reply.seconds,
                            }
                        ),
                        reply.message,
                    ],
                )
                for reply in replies
            ]
        )
        self.open_replies.extend(replies)

    def close_round(
        self,
        number: int,
        request: str,
        asked: Sequence[str],
        answers: Sequence[tuple[tuple[str, ...], bytes]],
        failures: dict[str, Failure],
    ) -> None:
        """Write the round as one record and delete its single answers."""
        found = {s: d.hex() for reply in self.open_replies for s, d in zip(reply.sites, reply.digests, strict=True)}
        meta = {
            "number": number,
            "request": request,
            "asked": list(asked),
            "digests": {site: found[site] for site in asked if site in found},  # not in the order of arrival
            "failures": {site: [f.code.name, f.reference] for site, f in failures.items()},
            "answers": [sites for sites, _ in answers],
        }
        question = self.open_question or b""
        self._closed.append([(ROUND, [_json(meta), question, *(message for _, message in answers)])])
        self.rounds.append(ClosedRound(request, tuple(asked), question, tuple(answers), failures))
        self.open_question, self.open_replies = None, []
        self._round.restart()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _closed_round(parts: list[bytes], roster: tuple[str, ...]) -> ClosedRound:
    meta = json.loads(parts[0])
    answers = tuple((_sites(sites, roster), message) for sites, message in zip(meta["answers"], parts[2:], strict=True))
    failures = {site: Failure(FailureCode[name], reference) for site, (name, reference) in meta["failures"].items()}
    _sites([*failures, *meta["asked"]], roster)
    _require(meta["request"] != "Total" or len(answers) == 1)
    _require(all(sites for sites, _ in answers))
    for message in parts[1:]:
        Message.from_bytes(message)
    return ClosedRound(str(meta["request"]), tuple(meta["asked"]), parts[1], answers, failures)


def _sites(names: Sequence[str], roster: tuple[str, ...]) -> tuple[str, ...]:
    _require(set(names) <= set(roster))
    return tuple(names)


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("the record is not one that a run writes")


@contextlib.contextmanager
def _understood(path: Path, index: int) -> Iterator[None]:
    """Raise a :class:`~consilience.errors.JournalError` for a record whose content no run writes."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, MessageError) as error:
        raise JournalError(
            f"{path}: record {index} was not written by this library, or was changed; restore the file"
        ) from error


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Lock a journal against other processes; the system releases the lock when this process ends."""
    with named(path.parent, "made"):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        yield
        return
    with _opened_to_lock(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"{path} is in use by another process: end it, or give another path") from error
        yield


def _opened_to_lock(path: Path) -> BinaryIO:
    """Open a journal, to lock it; one that cannot be written can still be replayed if it is finished."""
    with named(path, "opened"):
        try:
            return opened_for_appending(path)
        except OSError:
            if path.exists():
                return path.open("rb")
            raise
