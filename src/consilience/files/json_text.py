"""JSON text, read strictly and written for people; its canonical bytes and their hash.

The same value has the same canonical bytes on every machine. Objects are written with sorted keys, without spaces, in
UTF-8 and Unicode's normal form C; floats with the fewest digits that give the same float, as Python's ``repr`` does.
These are the bytes that are hashed and signed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from consilience.errors import InvalidInputError

MOST_BYTES = 2**28
"""Maximum size of a file that is read."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
MOST_VALUES = 2**24
"""Maximum number of values, lists and objects in a file."""


def read_capped(path: str | Path, most: int, called: str = "", advice: str = "", *, follow: bool = True) -> bytes:
    """Return the bytes of a regular file; raise an error if there are more than ``most``, or if it cannot be read.

    Pipes and devices are refused unread, and so are links unless the reader may ``follow`` them, as in a folder to
    which others write. Errors name the file as ``called``, by default without its folder, and end with the ``advice``.
    """
    name = called or Path(path).name
    waits_not = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # to open a pipe would wait for a writer
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | waits_not | (0 if follow else NO_LINK)), "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise InvalidInputError(f"{name} is not a regular file{advice}")
            data = file.read(most + 1) if state.st_size <= most else b""
    except OSError as error:
        raise InvalidInputError(f"{name} cannot be read: {error.strerror}{advice}") from error
    if max(state.st_size, len(data)) > most:
        raise InvalidInputError(f"{name} has more than {most:,} bytes, the most that are read")
    return data


def read_text(path: str | Path, what: str = "a saved model", *, follow: bool = True) -> str:
    """Return the text of a file that is to be ``what``; raise an error if it is missing, too large or not UTF-8."""
    data = read_capped(path, MOST_BYTES, "the file", f"; pass the path of {what}", follow=follow)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the file is not text in UTF-8: it is damaged, or not {what}") from error


def parse_json(text: str, what: str = "a saved model") -> Any:
    """Return the value of JSON text; raise an error for anything else, a key that occurs twice, and ``NaN``."""
    if sum(text.count(mark) for mark in ",[{") > MOST_VALUES:
        raise InvalidInputError(f"the file has more than {MOST_VALUES:,} values, the most that are read")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refused)
    except InvalidInputError:
        raise
    except RecursionError as error:
        raise InvalidInputError(f"the file is nested too deeply: it is damaged, or not {what}") from error
    except ValueError as error:  # not JSON, or an integer of thousands of digits
        raise InvalidInputError(f"the file is not JSON ({error}): it is damaged, or not {what}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidInputError(f"the key {key[:40]!r} occurs twice in an object: the file is damaged")
        found[key] = value
    return found


def _refused(word: str) -> NoReturn:
    raise InvalidInputError(
        f'the file has the word {word}, which is not JSON: write null for NaN, "Infinity" and "-Infinity"'
    )


def _dump_plain(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"cannot be saved: {error}; text, finite numbers and booleans can. Convert levels, classes and parameters "
            "of other types, and fit again"
        ) from error


def write_json(value: Any, indent: str = "") -> str:
    """Return a value as JSON text, with objects and lists of lists indented and other lists on one line.

    Floats are written with the fewest digits that give the same float when they are read.
    """
    inner = indent + "  "
    if isinstance(value, dict) and value:
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {write_json(each, inner)}" for key, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, list | dict) for each in value):
        lines = [write_json(each, inner) for each in value]
    else:
        return _dump_plain(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    body = ",\n".join(f"{inner}{line}" for line in lines)
    return f"{opening}\n{body}\n{indent}{closing}"


def write_text(path: str | Path, text: str) -> None:
    """Write a file as a whole: if writing fails, an older file of that name is left as it was."""
    try:
        replace_file(path, f"{text}\n".encode())
    except (OSError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"{path} cannot be written: {error}") from error


def replace_file(path: str | Path, data: bytes, mode: int = 0o666) -> None:
    """Write bytes to a new file beside a path and rename it, so that it is whole whenever it is seen.

    The new file has a random name, and no link is followed: who may write to the folder cannot choose what is written.
    """
    goal = Path(path)
    partial = goal.with_name(f".{goal.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(partial, flags, mode), "wb") as file:
            file.write(data)
        partial.replace(goal)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def count_numbers(value: Any) -> int:
    """Count the numbers in a JSON value."""
    if isinstance(value, Mapping):
        return sum(map(count_numbers, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(count_numbers, value))
    return int(isinstance(value, int | float) and not isinstance(value, bool))


# ---------------------------------------------------------------- canonical

DEEPEST = 64
"""Maximum depth of lists and objects in each other."""


def canonical_bytes(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value."""
    return json.dumps(
        _normalise(value, 0), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def content_hash(value: Any) -> str:
    """Return the SHA-256 of the canonical bytes, as ``sha256:`` and hexadecimal digits."""
    return bytes_hash(canonical_bytes(value))


def bytes_hash(data: bytes) -> str:
    """Return the SHA-256 of bytes, as ``sha256:...``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _normalise(value: Any, depth: int) -> Any:
    """Return the value with text in normal form; raise an error for what has no canonical bytes."""
    if depth > DEEPEST:
        raise InvalidInputError("the value is nested too deeply to be hashed")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        found = {_text(key): _normalise(each, depth + 1) for key, each in value.items()}
        if len(found) < len(value):
            raise InvalidInputError("two keys of an object differ only in their Unicode form")
        return found
    if isinstance(value, list | tuple):
        return [_normalise(each, depth + 1) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError("a number that is not finite has no canonical form")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise InvalidInputError(f"a value of type {type(value).__name__} has no canonical form")


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("text has half of a surrogate pair, which is not Unicode") from error
    return unicodedata.normalize("NFC", value)
