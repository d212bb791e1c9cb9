"""Canonical bytes of a JSON value, and their hash: the same value has the same bytes on every machine.

Objects are written with sorted keys, without spaces, in UTF-8 and Unicode's normal form C; floats with the fewest
digits that give the same float, as Python's ``repr`` does. These are the bytes that are hashed and signed.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from typing import Any

from consilience.errors import InvalidInputError

DEEPEST = 64
"""Maximum depth of lists and objects in each other."""


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value.

    Examples
    --------
    >>> canonical({"b": [1, 0.1], "a": "é"}).decode()
    '{"a":"é","b":[1,0.1]}'
    """
    return json.dumps(
        _plain(value, 0), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def content_hash(value: Any) -> str:
    """Return the SHA-256 of the canonical bytes, as ``sha256:`` and hexadecimal digits.

    Examples
    --------
    >>> content_hash({"a": 1})[:20]
    'sha256:015abd7f5cc57'
    """
    return f"sha256:{hashlib.sha256(canonical(value)).hexdigest()}"


def _plain(value: Any, depth: int) -> Any:
    """Return the value with text in normal form; raise an error for what has no canonical bytes."""
    if depth > DEEPEST:
        raise InvalidInputError("the value is nested too deeply to be hashed")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        found = {_text(key): _plain(each, depth + 1) for key, each in value.items()}
        if len(found) < len(value):
            raise InvalidInputError("two keys of an object differ only in their Unicode form")
        return found
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
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
