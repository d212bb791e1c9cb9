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
from typing import Any

import numpy as np

from consilience._version import __version__
from consilience.errors import JournalError
from consilience.messages.codec import Message
from consilience.messages.failures import Failure, FailureCode
from consilience.runs.engine import Reply
from consilience.runs.journal_file import FrameFile, separated

HEADER, ROUND, QUESTION, ANSWER = range(4)
SAME = 1e-9
"""Relative tolerance, per value, within which a repeated question equals the journaled one."""


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
        else:
            self._check_header(json.loads(separated(records[0][1])[0]), header)
        self.rounds = [_closed_round(separated(payload)) for _, payload in records[1:]]
        self._read_round()

    def _check_header(self, found: dict[str, Any], expected: dict[str, Any]) -> None:
        for name, what in (("study", "study or arguments"), ("sites", "sites")):
            if found[name] != expected[name]:
                raise JournalError(
                    f"{self.path} is the journal of another run: it has other {what} (written by version "
                    f"{found['library']}); resume with the same ones, or give another path"
                )

    def _read_round(self) -> None:
        self.open_question, self.open_replies = None, []
        for kind, payload in self._round.read():
            parts = separated(payload)
            meta = json.loads(parts[0])
            if meta["number"] != len(self.rounds) + 1:
                return  # the round was closed, and the file not yet emptied
            if kind == QUESTION:
                self.open_question, self._open_request = parts[1], [meta["request"], meta["asked"]]
            else:
                digests = tuple(bytes.fromhex(digest) for digest in meta["digests"])
                self.open_replies.append(
                    Reply(meta["number"], tuple(meta["sites"]), parts[1], digests, meta["seconds"])
                )

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
        digests = {s: d.hex() for reply in self.open_replies for s, d in zip(reply.sites, reply.digests, strict=True)}
        meta = {
            "number": number,
            "request": request,
            "asked": list(asked),
            "digests": digests,
            "failures": {site: [f.code.name, f.reference] for site, f in failures.items()},
            "answers": [sites for sites, _ in answers],
        }
        question = self.open_question or b""
        self._closed.append([(ROUND, [_json(meta), question, *(message for _, message in answers)])])
        self.rounds.append(ClosedRound(request, tuple(asked), question, tuple(answers), failures))
        self.open_question, self.open_replies = None, []
        self._round.restart()


def is_same_question(journaled: bytes, question: bytes) -> bool:
    """Whether two encoded questions agree in type and shape, and in every value to ``SAME``.

    Examples
    --------
    >>> from consilience.messages import Summarise, encode
    >>> is_same_question(encode(Summarise(1, 1)), encode(Summarise(2, 1)))
    False
    """
    a, b = Message.from_bytes(journaled), Message.from_bytes(question)
    if a.kind != b.kind or a.head != b.head or a.body.shape != b.body.shape:
        return False
    return bool(np.allclose(a.body, b.body, rtol=SAME, atol=SAME))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _closed_round(parts: list[bytes]) -> ClosedRound:
    meta = json.loads(parts[0])
    answers = tuple((tuple(sites), message) for sites, message in zip(meta["answers"], parts[2:], strict=True))
    failures = {site: Failure(FailureCode[name], reference) for site, (name, reference) in meta["failures"].items()}
    return ClosedRound(meta["request"], tuple(meta["asked"]), parts[1], answers, failures)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Lock a journal against other processes; the system releases the lock when this process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        yield
        return
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"{path} is in use by another process: end it, or give another path") from error
        yield
