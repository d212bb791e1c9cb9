"""The ledger of a site: what was fitted, shown, released and refused, in a file that only grows.

Each line is an entry, a JSON object in canonical form with its number, time, kind, a few details, the hash of the entry
before it and its own hash. Whoever changes, removes, repeats or reorders a line breaks the chain, and :func:`verify`
names the line. A ledger that was cut at the end, or written anew from some entry on, is a valid chain: it is found only
by the number and hash of a later entry, which stand in every file that was released.

An entry is written by one write of one line and is on disk before :func:`append` returns. A crash leaves all earlier
entries, and at the worst the beginning of a line at the end, which :func:`repair` drops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from consilience.errors import InvalidInputError
from consilience.site.entries import KINDS, START, Entry, entry_of, head_of, line_of
from consilience.site.private_files import OWNER_ONLY, read_capped, write_once

__all__ = ["KINDS", "START", "Entry", "Verdict", "append", "read", "repair", "verify"]

MOST_BYTES = 2**26
"""Maximum size of a ledger."""


@dataclass(frozen=True)
class Verdict:
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


def verify(path: str | Path, known: Mapping[int, str] | None = None) -> Verdict:
    """Check every line of a ledger, and the chain of their hashes.

    Parameters
    ----------
    path : path
    known : mapping of int to str, optional
        Hashes of entries by their numbers, from released files or notes: if one differs or is absent, the ledger was
        written anew or cut.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ledger.jsonl"
    >>> first = append(path, "init", {"site": "north"})
    >>> str(verify(path)), verify(path).head == first.hash
    ('the ledger is whole: 1 entries', True)
    >>> str(verify(path, {2: first.hash}))
    'the ledger is damaged in line 2: there is no such entry, and a file states its hash: the ledger was cut'
    """
    lines = read_capped(path, MOST_BYTES).split(b"\n")
    rest = lines.pop()
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(entry_of(line, entries))
        except InvalidInputError as error:
            return Verdict(tuple(entries), number, str(error))
    for number, stated in sorted((known or {}).items()):
        if number > len(entries) and not (rest and number == len(entries) + 1):
            return Verdict(
                tuple(entries), number, "there is no such entry, and a file states its hash: the ledger was cut"
            )
        if number <= len(entries) and entries[number - 1].hash != stated:
            return Verdict(
                tuple(entries[: number - 1]),
                number,
                "a file states another hash of this entry: the ledger was written anew from here or before (a fork)",
            )
    if rest:
        return Verdict(
            tuple(entries),
            len(entries) + 1,
            "the last line was not written to its end, as after a crash; repair drops it",
            is_partial=True,
        )
    return Verdict(tuple(entries))


def read(path: str | Path) -> tuple[Entry, ...]:
    """Return the entries of a ledger; raise an error that names the line if it is damaged.

    A last line that was not written to its end is left out: the entries before it are readable.
    """
    found = verify(path)
    if not (found.is_whole or found.is_partial):
        raise InvalidInputError(f"{found}. Restore the file from a backup; nothing is released without a whole ledger")
    return found.entries


# ---------------------------------------------------------------- writing


def append(
    path: str | Path,
    kind: str,
    details: Mapping[str, Any],
    *,
    head: str | None = None,
    now: datetime | None = None,
) -> Entry:
    """Add an entry to a ledger, which is made if there is none and the kind is "init".

    Parameters
    ----------
    path : path
    kind : str
        One of ``KINDS``; "init" for the first entry and no other.
    details : mapping
        JSON values; at most 64 KiB with the rest of the line.
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
    with _alone(goal):
        found = verify(goal) if goal.exists() else Verdict(())
        if not found.is_whole:
            remedy = "Repair it first" if found.is_partial else "Restore the file from a backup"
            raise InvalidInputError(f"{found}. {remedy}")
        if (kind == "init") != (not found.entries):
            raise InvalidInputError("the first entry of a ledger, and no other, has the kind init")
        if head is not None and head != found.head:
            raise InvalidInputError("the ledger has grown since this was decided: decide again")
        line = line_of(kind, details, found.entries, now)
        entry = entry_of(line, found.entries)
        if goal.exists() and goal.stat().st_size + len(line) >= MOST_BYTES:
            raise InvalidInputError(f"the ledger would have more than {MOST_BYTES:,} bytes, the most that are read")
        _write_line(goal, line)
        return entry


def _write_line(path: Path, line: bytes) -> None:
    """Add a line by one write, and wait until it is on disk."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, OWNER_ONLY), "ab", buffering=0) as file:
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
    with _alone(goal):
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


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from writing: a file beside the ledger says that one does."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    except FileExistsError as error:
        raise InvalidInputError(
            f"another process writes to {path.name}, or ended while it did. If none is running, delete {lock.name}"
        ) from error
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be written: {error.strerror}") from error
    os.close(handle)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
