"""Files that people write in TOML: strict entries, a version, and errors that say what is wrong and where."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from consilience.errors import InvalidInputError
from consilience.files.documents import Finite, Part, Text, problems
from consilience.files.toml_text import parsed, read_toml

__all__ = ["Finite", "Part", "Text", "TomlFile", "check_name"]

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
        return cls.from_tables(parsed(text))

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
