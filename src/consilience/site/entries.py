"""Entries of a site's ledger: one line of canonical JSON each, with the hash of the entry before it and its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.canonical import canonical, content_hash
from consilience.files.json_text import parsed

VERSION = 1
KINDS = ("init", "check", "fit", "preview", "decline", "release", "refusal", "run", "answer", "policy", "key", "repair")
"""Kinds of entries."""
START = f"sha256:{64 * '0'}"
"""What stands for the hash before the first entry."""
MOST_LINE = 2**16
"""Maximum size of a line."""
_FIELDS = {"version", "number", "time", "kind", "details", "previous", "hash"}
_TIME = "%Y-%m-%dT%H:%M:%SZ"


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
    moment = datetime.now(UTC) if now is None else now
    if moment.tzinfo is None:
        raise InvalidInputError("the time of an entry needs its zone: datetime.now(UTC)")
    fields = {
        "version": VERSION,
        "number": len(before) + 1,
        "time": moment.astimezone(UTC).strftime(_TIME),
        "kind": kind,
        "details": dict(details),
        "previous": head_of(before),
    }
    return canonical({**fields, "hash": content_hash(fields)})


def entry_of(line: bytes, before: Sequence[Entry]) -> Entry:
    """Return the entry of the line after others; raise an error without the line's number, which the caller knows.

    Examples
    --------
    >>> line = line_of("init", {"site": "north"}, [], datetime(2026, 1, 31, tzinfo=UTC))
    >>> entry_of(line, []).time
    '2026-01-31T00:00:00Z'
    >>> entry_of(line.replace(b"north", b"south"), [])
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: the entry does not have the hash that it states: it was changed
    """
    if len(line) > MOST_LINE:
        raise InvalidInputError(f"it has more than {MOST_LINE:,} bytes")
    try:
        found = parsed(line.decode(), "an entry")
    except UnicodeDecodeError as error:
        raise InvalidInputError("it is not UTF-8") from error
    _check_fields(found)
    if content_hash({name: value for name, value in found.items() if name != "hash"}) != found["hash"]:
        raise InvalidInputError("the entry does not have the hash that it states: it was changed")
    if canonical(found) != line:
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
    texts = [found[name] for name in ("time", "kind", "previous", "hash")]
    if not all(isinstance(text, str) for text in texts) or type(found["number"]) is not int:
        raise InvalidInputError("a field of the entry is of another type than expected")
    if found["kind"] not in KINDS:
        raise InvalidInputError(f"the kind of the entry is none of {', '.join(KINDS)}")
    if not isinstance(found["details"], dict):
        raise InvalidInputError("the details of the entry are not an object")
    _checked_time(found["time"])


def _checked_time(text: str) -> None:
    try:
        datetime.strptime(text, _TIME).replace(tzinfo=UTC)
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
