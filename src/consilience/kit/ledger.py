"""The ledger of a site: what was fitted, shown, released and refused, in a file that only grows.

Each line is an entry, a JSON object in canonical form with its number, time, kind, a few details, the hash of the entry
before it and its own hash. Whoever changes, removes, repeats or reorders a line breaks the chain, and :func:`verify`
names the line. A ledger that was cut at the end, or written anew from some entry on, is a valid chain: it is found only
by the number and hash of a later entry, which stand in every file that was released.

The details of each entry have the version of the kit that wrote it, which is that of this library; entries of earlier
kits have none.

An entry is written by one write of one line and is on disk before :func:`append` returns. A crash leaves all earlier
entries, and at the worst the beginning of a line at the end, which :func:`repair` drops.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from consilience._version import __version__
from consilience.errors import InvalidInputError
from consilience.files.json_text import canonical_bytes, content_hash, parse_json, read_capped
from consilience.kit.private_files import open_for_owner, write_alone, write_once

VERSION = 1
KINDS = (
    "init", "check", "fit", "preview", "decline", "release", "refusal", "run", "answer", "policy", "key", "repair",
    "charge", "retraction", "withdrawal", "approval", "draft",
    "signature",
)  # fmt: skip
"""Kinds of entries."""
LEFT = ("release", "signature", "answer")
"""Kinds of entries by which something left the site."""
KIT = "kit"
"""Name of the version of the kit, in details of entries and in envelopes."""
START = f"sha256:{64 * '0'}"
"""What stands for the hash before the first entry."""
MOST_LINE = 2**16
"""Maximum size of a line."""
_FIELDS = {"version", "number", "time", "kind", "details", "previous", "hash"}
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def time_text(moment: datetime | None = None) -> str:
    """Return a time in UTC as entries state it; that of now by default."""
    return (datetime.now(UTC) if moment is None else moment.astimezone(UTC)).strftime(_TIME)


def read_time(text: str) -> datetime:
    """Return the time that :func:`time_text` has written; raise a ``ValueError`` for another text."""
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)


@dataclass(frozen=True)
class Entry:
    """One entry of a ledger.

    Parameters
    ----------
    number : int
        Its place, from 1; also the number of its line.
    time : str
        Time in UTC, by the clock of the site.
    kind : str
        One of :data:`KINDS`.
    details : mapping
        What the kind of entry needs; never a value of a row.
    previous, hash : str
        Hash of the entry before it, and its own over all other fields.
    """

    number: int
    time: str
    kind: str
    details: Mapping[str, Any]
    previous: str
    hash: str


def head_of(entries: Sequence[Entry]) -> str:
    """Return the hash of the last entry."""
    return entries[-1].hash if entries else START


def line_of(kind: str, details: Mapping[str, Any], before: Sequence[Entry], now: datetime | None = None) -> bytes:
    """Return the line of a new entry after others, without its line break."""
    if now is not None and now.tzinfo is None:
        raise InvalidInputError("the time of an entry needs its zone: datetime.now(UTC)")
    fields = {
        "version": VERSION,
        "number": len(before) + 1,
        "time": time_text(now),
        "kind": kind,
        "details": dict(details),
        "previous": head_of(before),
    }
    return canonical_bytes({**fields, "hash": content_hash(fields)})


def entry_of(line: bytes, before: Sequence[Entry]) -> Entry:
    """Return the entry of the line after others; raise an error without the line's number, which the caller knows."""
    if len(line) > MOST_LINE:
        raise InvalidInputError(f"it has more than {MOST_LINE:,} bytes")
    try:
        found = parse_json(line.decode(), "an entry")
    except UnicodeDecodeError as error:
        raise InvalidInputError("it is not UTF-8") from error
    _check_fields(found)
    if content_hash({name: value for name, value in found.items() if name != "hash"}) != found["hash"]:
        raise InvalidInputError("the entry does not have the hash that it states: it was changed")
    if canonical_bytes(found) != line:
        raise InvalidInputError("the entry is not in canonical form: the line was edited")
    number, previous = len(before) + 1, head_of(before)
    if found["number"] != number or found["previous"] != previous:
        raise InvalidInputError(_broken(found, number, before))
    return Entry(**{name: value for name, value in found.items() if name != "version"})


def _check_fields(found: Any) -> None:
    if not isinstance(found, dict) or found.get("version") is None:
        raise InvalidInputError("it is not an entry of a ledger: expected an object with a version")
    version = found["version"]
    if type(version) is not int or version != VERSION:
        raise InvalidInputError(f"the entry has version {version!a}, this library reads {VERSION}: install a newer one")
    if found.keys() != _FIELDS:
        wrong = ", ".join(ascii(name)[:40] for name in sorted(found.keys() ^ _FIELDS)[:5])
        raise InvalidInputError(f"the entry has unknown fields, or lacks some: {wrong}")
    texts = all(isinstance(found[name], str) for name in ("time", "kind", "previous", "hash"))
    if not texts or type(found["number"]) is not int:
        raise InvalidInputError("a field of the entry is of another type than expected")
    if found["kind"] not in KINDS:
        raise InvalidInputError(f"the kind of the entry is none of {', '.join(KINDS)}")
    if not isinstance(found["details"], dict):
        raise InvalidInputError("the details of the entry are not an object")
    try:
        read_time(found["time"])
    except ValueError as error:
        raise InvalidInputError("the time of the entry is not of the form 2026-01-31T12:00:00Z") from error


def _broken(found: Mapping[str, Any], number: int, before: Sequence[Entry]) -> str:
    """Say how an entry, whole in itself, does not follow from those before it."""
    places = {entry.hash: entry.number for entry in before}
    if found["hash"] in places:
        return f"it repeats entry {places[found['hash']]}"
    if found["previous"] in places and found["previous"] != before[-1].hash:
        return f"it continues entry {places[found['previous']]} and not the one above it: the ledger has a fork"
    if found["number"] > number:
        return f"it has number {found['number']}: lines before it were removed or moved"
    return "it does not continue the entry above it: lines were removed, moved or replaced"


# ---------------------------------------------------------------- ledger

MOST_BYTES = 2**26
"""Maximum size of a ledger."""


@dataclass(frozen=True)
class LedgerCheck:
    """Whether a ledger is whole.

    Parameters
    ----------
    entries : tuple of Entry
        Entries before the first problem.
    line : int, optional
        Line of the first problem.
    said : str
        What is wrong with it; empty if the ledger is whole.
    is_partial : bool
        Whether the only problem is that the last line was not written to its end.
    """

    entries: tuple[Entry, ...]
    line: int | None = None
    said: str = ""
    is_partial: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether there is no problem."""
        return self.line is None

    @property
    def head(self) -> str:
        """Hash of the last entry."""
        return head_of(self.entries)

    def __str__(self) -> str:
        if self.is_whole:
            return f"the ledger is whole: {len(self.entries):,} entries"
        return f"the ledger is damaged in line {self.line}: {self.said}"


# ---------------------------------------------------------------- reading


def verify(path: str | Path, known: Mapping[int, str] | None = None) -> LedgerCheck:
    """Check every line of a ledger, and the chain of their hashes.

    Parameters
    ----------
    path : path
    known : mapping of int to str, optional
        Hashes of entries by their numbers, from released files or notes: if one differs or is absent, the ledger was
        written anew or cut.
    """
    lines = read_capped(path, MOST_BYTES).split(b"\n")
    rest = lines.pop()
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(entry_of(line, entries))
        except InvalidInputError as error:
            return LedgerCheck(tuple(entries), number, str(error))
    for number, stated in sorted((known or {}).items()):
        if number > len(entries) and not (rest and number == len(entries) + 1):
            said = "there is no such entry, and a file states its hash: the ledger was cut"
            return LedgerCheck(tuple(entries), number, said)
        if number <= len(entries) and entries[number - 1].hash != stated:
            said = "a file states another hash of this entry: the ledger was written anew from here or before (a fork)"
            return LedgerCheck(tuple(entries[: number - 1]), number, said)
    if rest:
        said = "the last line was not written to its end, as after a crash; repair drops it"
        return LedgerCheck(tuple(entries), len(entries) + 1, said, is_partial=True)
    return LedgerCheck(tuple(entries))


def read(path: str | Path) -> tuple[Entry, ...]:
    """Return the entries of a ledger; raise an error that names the line if it is damaged.

    A last line that was not written to its end is left out: the entries before it are readable.
    """
    found = verify(path)
    if not (found.is_whole or found.is_partial):
        raise InvalidInputError(f"{found}. Restore the file from a backup; nothing is released without a whole ledger")
    return found.entries


# ---------------------------------------------------------------- writing


def what_left(entry: Entry) -> str:
    """Return what left the site by an entry of a kind of :data:`LEFT`."""
    if entry.kind == "signature":
        return f"file of entry {entry.details['release']}, signed with a new key"
    return "file" if entry.kind == "release" else f"answer of round {entry.details.get('number', '?')}"


def append(
    path: str | Path, kind: str, details: Mapping[str, Any], *, head: str | None = None, now: datetime | None = None
) -> Entry:
    """Add an entry to a ledger, which is made if there is none and the kind is "init".

    Parameters
    ----------
    path : path
    kind : str
        One of ``KINDS``; "init" for the first entry and no other.
    details : mapping
        JSON values; at most 64 KiB with the rest of the line. The version of the kit is added, unless it is stated.
    head : str, optional
        Hash of the entry that must be the last one: what was decided on an older state of the ledger is not recorded.
    now : datetime, optional
        Time of the entry, with its zone.

    Returns
    -------
    Entry
        It is on disk when the function returns.
    """
    goal = Path(path)
    with write_alone(goal):
        found = verify(goal) if goal.exists() else LedgerCheck(())
        if not found.is_whole:
            remedy = "Repair it first" if found.is_partial else "Restore the file from a backup"
            raise InvalidInputError(f"{found}. {remedy}")
        if (kind == "init") != (not found.entries):
            raise InvalidInputError("the first entry of a ledger, and no other, has the kind init")
        if head is not None and head != found.head:
            raise InvalidInputError("the ledger has grown since this was decided: decide again")
        line = line_of(kind, {KIT: __version__, **details}, found.entries, now)
        entry = entry_of(line, found.entries)
        if goal.exists() and goal.stat().st_size + len(line) >= MOST_BYTES:
            raise InvalidInputError(f"the ledger would have more than {MOST_BYTES:,} bytes, the most that are read")
        _write_line(goal, line)
        return entry


def _write_line(path: Path, line: bytes) -> None:
    """Add a line by one write, and wait until it is on disk."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        with os.fdopen(open_for_owner(path, flags), "ab", buffering=0) as file:
            whole = file.write(line + b"\n") == len(line) + 1
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be written: {error.strerror}") from error
    if not whole:
        raise InvalidInputError(f"{path.name} could not be written to the end of the line: make room on the disk")


def repair(path: str | Path) -> bool:
    """Drop a last line that was not written to its end, and nothing else; return whether there was one.

    A last line that lacks only its line break is whole: it gets the line break. Other damage is an error.
    """
    goal = Path(path)
    with write_alone(goal):
        found = verify(goal)
        if found.is_whole:
            return False
        if not found.is_partial:
            raise InvalidInputError(f"{found}. This cannot be repaired: restore the file from a backup")
        data = read_capped(goal, MOST_BYTES)
        kept, rest = data[: data.rfind(b"\n") + 1], data[data.rfind(b"\n") + 1 :]
        with suppress(InvalidInputError):
            entry_of(rest, found.entries)
            kept = data + b"\n"
        partial = goal.with_name(f".{goal.name}.partial")
        partial.unlink(missing_ok=True)
        write_once(partial, kept)
        partial.replace(goal)
        return True
