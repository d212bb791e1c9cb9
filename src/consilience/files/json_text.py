"""JSON text, read strictly and written for people; its canonical bytes and their hash.

Canonical bytes of a JSON value, and their hash: the same value has the same bytes on every machine.

Objects are written with sorted keys, without spaces, in UTF-8 and Unicode's normal form C; floats with the fewest
digits that give the same float, as Python's ``repr`` does. These are the bytes that are hashed and signed.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from consilience.errors import InvalidInputError

MOST_BYTES = 2**28
"""Maximum size of a file that is read."""
MOST_VALUES = 2**24
"""Maximum number of values, lists and objects in a file."""


def read_capped(path: str | Path, most: int, called: str = "", advice: str = "") -> bytes:
    """Return the bytes of a file; raise an error if there are more than ``most``, or if it cannot be read.

    Errors name the file as ``called``, by default without its folder, and end with the ``advice``.
    """
    name = called or Path(path).name
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InvalidInputError(f"{name} cannot be read: {error.strerror}{advice}") from error
    if len(data) > most:
        raise InvalidInputError(f"{name} has more than {most:,} bytes, the most that are read")
    return data


def read_text(path: str | Path, what: str = "a saved model") -> str:
    """Return the text of a file that is to be ``what``; raise an error if it is missing, too large or not UTF-8."""
    data = read_capped(path, MOST_BYTES, "the file", f"; pass the path of {what}")
    try:
        return data.decode()
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
    goal = Path(path)
    partial = goal.with_name(f".{goal.name}.partial")
    try:
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(goal)
    except (OSError, UnicodeEncodeError) as error:
        partial.unlink(missing_ok=True)
        raise InvalidInputError(f"{path} cannot be written: {error}") from error


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
