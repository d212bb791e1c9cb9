"""Write-ahead journal of a run: every answer is on disk before it is used, so a killed run resumes by replay.

There are two files. ``PATH`` holds the closed rounds: the question as sent and, for a ``Total``, the sum with a digest
of each site's answer (single answers are not kept), for an ``Each``, the answers. ``PATH.round`` holds the answers of
the current round; it is emptied once the round has been written to ``PATH``.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from consilience._version import __version__
from consilience.errors import JournalError, MessageError
from consilience.messages import Failure, FailureCode
from consilience.messages.codec import Message, is_same_question, message_fingerprint
from consilience.runs.engine import Reply

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
    >>> from consilience.runs import Journal
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

    @contextmanager
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
                    self._check_header(json.loads(split_parts(payload)[0]), header)
                else:
                    _require(kind == ROUND)
                    self.rounds.append(_closed_round(split_parts(payload), sites))
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
                parts = split_parts(payload)
                meta = json.loads(parts[0])
                if meta["number"] != len(self.rounds) + 1:
                    return  # the round was closed, and the file not yet emptied
                if kind == QUESTION:
                    Message.from_bytes(parts[1])
                    self.open_question, self._open_request = parts[1], [str(meta["request"]), list(meta["asked"])]
                else:
                    digests = tuple(bytes.fromhex(digest) for digest in meta["digests"])
                    answered = _sites(meta["sites"], sites)
                    reply = Reply(int(meta["number"]), answered, parts[1], digests, float(meta["seconds"]))
                    self.open_replies.append(reply)

    def fingerprints(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yield the fingerprints of the data in the closed rounds, each with its sites."""
        for closed in self.rounds:
            for sites, message in closed.answers:
                yield sites, message_fingerprint(message)

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
        self._round.append([(ANSWER, [_json(_stated(reply)), reply.message]) for reply in replies])
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


def _stated(reply: Reply) -> dict[str, Any]:
    digests = [digest.hex() for digest in reply.digests]
    return {"number": reply.number, "sites": reply.sites, "digests": digests, "seconds": reply.seconds}


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


@contextmanager
def _understood(path: Path, index: int) -> Iterator[None]:
    """Raise a :class:`~consilience.errors.JournalError` for a record whose content no run writes."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, MessageError) as error:
        raise JournalError(
            f"{path}: record {index} was not written by this library, or was changed; restore the file"
        ) from error


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Lock a journal against other processes; the system releases the lock when this process ends."""
    with explain_errors(path.parent, "made"):
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
    with explain_errors(path, "opened"):
        try:
            return open_for_appending(path)
        except OSError:
            if path.exists():
                return path.open("rb")
            raise


# ---------------------------------------------------------------- the file
#
# A record is mark | kind u8 | length u64 | CRC-32 of these | payload | digest; the digest is over the digest of the
# record before it and all of this one. An interrupted write leaves the beginning of a record at the end of the file and
# nothing else; any other inconsistency is damage.


MARK = b"CNSJ"
HEAD = struct.Struct("<4sBQ")
CRC = struct.Struct("<I")
DIGEST = 16
SEED = b"\0" * DIGEST
OWNER_ONLY = 0o600


def join_parts(parts: Sequence[bytes]) -> bytes:
    """Join parts into one payload."""
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    return lengths + b"".join(parts)


def split_parts(payload: bytes) -> list[bytes]:
    """Split a payload into its parts; raise a :class:`ValueError` if it is not one of :func:`join_parts`."""
    try:
        (count,) = struct.unpack_from("<I", payload)
        lengths = struct.unpack_from(f"<{count}Q", payload, 4)
    except struct.error as error:
        raise ValueError("the payload is too short for its parts") from error
    parts, at = [], 4 + 8 * count
    for length in lengths:
        parts.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise ValueError(f"a payload of {len(payload)} bytes; its parts have {at}")
    return parts


class FrameFile:
    """Append-only file of records, opened for reading and then for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._chain = SEED

    def read(self) -> list[tuple[int, bytes]]:
        """Return all complete records as ``(kind, payload)``; truncate an incomplete end, raise an error for damage."""
        with explain_errors(self.path, "read"):
            data = self.path.read_bytes() if self.path.exists() else b""
        self._chain = SEED
        records: list[tuple[int, bytes]] = []
        at = 0
        while at < len(data):
            record = self._record(data, at, len(records))
            if record is None:
                with explain_errors(self.path, "written"):
                    os.truncate(self.path, at)
                break
            kind, payload, at = record
            records.append((kind, payload))
        return records

    def _record(self, data: bytes, at: int, index: int) -> tuple[int, bytes, int] | None:
        """Return the record at ``at`` and its end, or None if the file ends within it."""
        start = at + HEAD.size + CRC.size
        if not any(data[at:]):  # space that was allocated and never written
            return None
        if not MARK.startswith(data[at : at + len(MARK)]):
            raise JournalError(f"{self.path}: record {index} (byte {at}) is damaged or not a record of a journal")
        if start > len(data):
            return None
        _, kind, length = HEAD.unpack_from(data, at)
        if CRC.unpack_from(data, at + HEAD.size)[0] != zlib.crc32(data[at : at + HEAD.size]):
            raise JournalError(f"{self.path}: the header of record {index} (byte {at}) is damaged; restore the file")
        end = start + length + DIGEST
        if end > len(data):
            return None
        if data[end - DIGEST : end] != self._digest(data[at : end - DIGEST]):
            raise JournalError(f"{self.path}: record {index} (byte {at}) is damaged; restore the file")
        self._chain = data[end - DIGEST : end]
        return kind, data[start : end - DIGEST], end

    def _digest(self, record: bytes) -> bytes:
        return blake2b(self._chain + record, digest_size=DIGEST).digest()

    def append(self, records: Sequence[tuple[int, Sequence[bytes]]]) -> None:
        """Write records ``(kind, parts)`` and fsync the file."""
        with explain_errors(self.path, "written"):
            if self._file is None:
                self._file = open_for_appending(self.path)
                _sync_folder(self.path.parent)
            for kind, parts in records:
                payload = join_parts(parts)
                head = HEAD.pack(MARK, kind, len(payload))
                record = head + CRC.pack(zlib.crc32(head)) + payload
                self._chain = self._digest(record)
                self._file.write(record + self._chain)
            self._file.flush()
            os.fsync(self._file.fileno())

    def restart(self) -> None:
        """Empty the file."""
        self.close()
        with explain_errors(self.path, "written"), open_for_appending(self.path) as file:
            file.truncate(0)
        self._chain = SEED

    def close(self) -> None:
        """Close the file; what could not be written before is not written now."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def open_for_appending(path: Path) -> BinaryIO:
    """Open a file for appending, readable and writable by its owner alone, also if it exists already."""

    def opener(name: str, flags: int) -> int:
        handle = os.open(name, flags, OWNER_ONLY)
        if hasattr(os, "fchmod"):
            os.fchmod(handle, OWNER_ONLY)
        return handle

    return open(path, "ab", opener=opener)


@contextmanager
def explain_errors(path: Path, done: str) -> Iterator[None]:
    """Raise a :class:`~consilience.errors.JournalError` with the system's reason instead of an ``OSError``."""
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"{path} could not be {done} ({error.strerror or error}): check the disk and its permissions, or give "
            "another path; rounds that were written are kept"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Fsync the directory (POSIX)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
