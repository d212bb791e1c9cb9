"""JSON text, read strictly and written for people: one line per list of numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from consilience.errors import InvalidInputError

MOST_BYTES = 2**28
"""Maximum size of a file that is read."""
MOST_VALUES = 2**24
"""Maximum number of values, lists and objects in a file."""


def read_text(path: str | Path, what: str = "a saved model") -> str:
    """Return the text of a file that is to be ``what``; raise an error if it is missing, too large or not UTF-8."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInputError(f"the file cannot be read: {error.strerror}; pass the path of {what}") from error
    if len(data) > MOST_BYTES:
        raise InvalidInputError(f"the file has more than {MOST_BYTES:,} bytes, the most that are read")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the file is not text in UTF-8: it is damaged, or not {what}") from error


def parsed(text: str, what: str = "a saved model") -> Any:
    """Return the value of JSON text; raise an error for anything else, a key that occurs twice, and ``NaN``.

    Examples
    --------
    >>> parsed('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> parsed('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: the key 'a' occurs twice in an object: the file is damaged
    """
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


def _plain(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"cannot be saved: {error}; text, finite numbers and booleans can. Convert levels, classes and parameters "
            "of other types, and fit again"
        ) from error


def written(value: Any, indent: str = "") -> str:
    """Return a value as JSON text, with objects and lists of lists indented and other lists on one line.

    Floats are written with the fewest digits that give the same float when they are read.

    Examples
    --------
    >>> print(written({"a": [[0.1, 1e-300], [2.0]], "b": "text"}))
    {
      "a": [
        [0.1, 1e-300],
        [2.0]
      ],
      "b": "text"
    }
    """
    inner = indent + "  "
    if isinstance(value, dict) and value:
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {written(each, inner)}" for key, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, list | dict) for each in value):
        lines = [written(each, inner) for each in value]
    else:
        return _plain(value)
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
