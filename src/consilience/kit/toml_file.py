"""Files that people write in TOML: read with caps, strict entries, errors that say what is wrong and where."""

from __future__ import annotations

import json
import tomllib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from consilience.errors import InvalidInputError
from consilience.files.documents import Part, problems
from consilience.files.json_text import read_capped

MOST_BYTES = 2**20
"""Maximum size of a study, policy or roster that is read."""


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise an error if it is missing, too large, not UTF-8 or not TOML."""
    data = read_capped(path, MOST_BYTES, str(path))
    try:
        return parse_toml(data.decode("utf-8-sig"))  # some editors begin UTF-8 with a byte order mark
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not text in UTF-8: save it as UTF-8") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of TOML text."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError) as error:  # ValueError: a number or date that is out of range
        raise InvalidInputError(f"the text is not TOML: {error}") from error
    except RecursionError as error:
        raise InvalidInputError("the text is nested too deeply") from error


def write_toml(tables: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return TOML text: plain entries first, then tables, then lists of tables.

    Parameters
    ----------
    tables : mapping
        Text, numbers, booleans, lists of these, mappings of these, and lists of such mappings. None is left out.
    comments : mapping of str to str, optional
        Comments above entries and tables, by their names.
    """
    said = comments or {}
    plain = {key: value for key, value in tables.items() if not _is_table(value)}
    blocks = [_entries(plain, said)] if plain else []
    for key, value in tables.items():
        if isinstance(value, Mapping):
            blocks.append("\n".join([*_comment(key, said), f"[{_key(key)}]", _entries(value, said)]))
        elif _is_table(value):
            first, *rest = (f"[[{_key(key)}]]\n{_entries(each, said)}" for each in value)
            blocks += ["\n".join([*_comment(key, said), first]), *rest]
    return "\n\n".join(blocks)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(each, Mapping) for each in value)
    )


def _entries(table: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    lines = []
    for key, value in table.items():
        if value is not None:
            lines += [*_comment(key, comments), f"{_key(key)} = {_value(value)}"]
    return "\n".join(lines)


def _comment(key: str, comments: Mapping[str, str]) -> list[str]:
    return [f"# {line}" for line in comments[key].split("\n")] if key in comments else []


def _key(key: str) -> str:
    bare = key and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in key)
    return key if bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")  # also TOML, for these


# ---------------------------------------------------------------- toml file

SHOWN = 8
"""Maximum number of problems that an error lists."""


class TomlFile(Part):
    """A whole file. Its class states what it is called, its format, and the newest version that is read."""

    called: ClassVar[str]
    kind: ClassVar[str]
    newest: ClassVar[int] = 1

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the value of TOML text; raise an error that lists what is wrong, and where."""
        return cls.from_tables(parse_toml(text))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the value of a file."""
        return cls.from_tables(read_toml(path))

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> Self:
        """Return the value of parsed TOML."""
        version = tables.get("version")
        if tables.get("format") != cls.kind:
            raise InvalidInputError(
                f'the file is not a {cls.called}: begin it with format = "{cls.kind}" and version = 1'
            )
        if isinstance(version, int) and version > cls.newest:
            raise InvalidInputError(
                f"the {cls.called} has version {version}, and this library reads up to {cls.newest}: install a newer "
                "one"
            )
        try:
            return cls.model_validate(dict(tables))
        except ValidationError as error:
            found = problems(error)
            more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
            lines = "\n".join(f"  {each}" for each in [*found[:SHOWN], *more])
            raise InvalidInputError(f"the {cls.called} is not valid:\n{lines}") from error


def check_name(name: str) -> None:
    """Raise an error for a name with control characters, or one that is not in Unicode's normal form."""
    if any(unicodedata.category(letter)[0] in "CZ" and letter != " " for letter in name):
        raise ValueError(f"name {name!a} has characters that cannot be seen")
    if unicodedata.normalize("NFC", name) != name or name.strip() != name:
        raise ValueError(f"name {name!a} is not in normal form (NFC, no spaces at the ends)")
