"""Tags of the rows that a release or run used: keyed hashes, by which sets of rows are compared and not kept.

The tag of a row is the keyed BLAKE2b hash (16 bytes; :rfc:`7693`, a message authentication code as HMAC is, and faster)
of its values in named columns, under the secret of the site. Values are those of the table, before transforms: a number
as a float64, so that 1 and 1.0 agree and so do 0 and -0.0; text in Unicode's normal form C; a missing value, null or
NaN, has a form of its own. The tags of a table are sorted: they do not depend on the order of rows or columns.

Who has the secret can test guesses of rows against tags. Both stay at the site.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.columns.arrow import TEXT, decode_dictionary
from consilience.data.file_columns import is_number
from consilience.errors import InvalidInputError
from consilience.files.json_text import bytes_hash, canonical_bytes, parse_json, read_capped
from consilience.kit.private_files import write_once

FORMAT = "consilience row tags"
VERSION = 1
SIZE = 16
"""Bytes of a tag."""
SECRET = 32
"""Bytes of a site's secret."""
MOST_ROWS = 2**26
MOST_HEAD = 2**20
BLOCK = 32_768
_FIELDS = {"format", "version", "columns", "rows"}
_MISSING, _NUMBER, _TEXT = range(3)
_CELL = 9  # the kind of a value, and 8 bytes of it


@dataclass(frozen=True, eq=False)
class RowTags:
    """Sorted tags of rows in certain columns.

    Parameters
    ----------
    columns : tuple of str
        Sorted names of the columns.
    tags : ndarray of uint64, shape (n, 2)
        Upper and lower half of each tag, in lexicographic order.
    """

    columns: tuple[str, ...]
    tags: NDArray[np.uint64]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.tags)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowTags) and self.columns == other.columns and np.array_equal(self.tags, other.tags)

    def __hash__(self) -> int:
        return hash((self.columns, self.n))

    @cached_property
    def data(self) -> bytes:
        """The bytes of a file: a line of canonical JSON, then the tags."""
        head = {"format": FORMAT, "version": VERSION, "columns": list(self.columns), "rows": self.n}
        return canonical_bytes(head) + b"\n" + self.tags.astype(">u8").tobytes()

    @property
    def hash(self) -> str:
        """SHA-256 of the bytes of the file, ``sha256:...``."""
        return bytes_hash(self.data)

    def write(self, path: str | Path) -> None:
        """Write a new file."""
        write_once(path, self.data)

    @classmethod
    def read(cls, path: str | Path) -> RowTags:
        """Read a file; raise an error if it is damaged, too large or of another version."""
        data = read_capped(path, MOST_HEAD + SIZE * MOST_ROWS)
        end = data.find(b"\n", 0, MOST_HEAD)
        columns, rows = _head(data[: max(end, 0)], Path(path).name)
        if len(data) != end + 1 + SIZE * rows:
            raise InvalidInputError(f"{Path(path).name} does not have the stated number of tags: it is damaged")
        tags = np.frombuffer(data, dtype=">u8", offset=end + 1).astype(np.uint64).reshape(-1, 2)
        if not np.array_equal(tags, _sorted(tags)):
            raise InvalidInputError(f"{Path(path).name} has tags out of order: it is damaged")
        return cls(columns, tags)


def _head(line: bytes, name: str) -> tuple[tuple[str, ...], int]:
    """Return columns and number of rows of the first line of a file of tags."""
    try:
        head = parse_json(line.decode(), "a file of row tags")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{name} is damaged, or not a file of row tags") from error
    if not isinstance(head, dict) or head.keys() != _FIELDS or head["format"] != FORMAT:
        raise InvalidInputError(f"{name} is not a file of row tags")
    if head["version"] != VERSION:
        raise InvalidInputError(
            f"{name} has version {head['version']!r} and this library reads {VERSION}: install the one that wrote it"
        )
    columns, rows = head["columns"], head["rows"]
    names = isinstance(columns, list) and all(isinstance(each, str) for each in columns)
    if not names or columns != sorted(set(columns)) or type(rows) is not int or not 0 <= rows <= MOST_ROWS:
        raise InvalidInputError(f"{name} is damaged: its first line has no sorted columns, or no number of rows")
    return tuple(columns), rows


def row_tags(table: pa.Table, columns: Iterable[str], secret: bytes) -> RowTags:
    """Compute the sorted tags of all rows of a table in the given columns, as :func:`tags_in_order` does."""
    names = tuple(sorted(set(columns)))
    return RowTags(names, _sorted(tags_in_order(table, names, secret)))


def tags_in_order(table: pa.Table, names: tuple[str, ...], secret: bytes) -> NDArray[np.uint64]:
    """Compute the tags of all rows of a table in the given columns, in the order of the rows, ``(n, 2)``.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of numbers, booleans or text.
    names : tuple of str
        Sorted names of the columns.
    secret : bytes
        Secret of the site, 32 bytes.
    """
    if len(secret) != SECRET:
        raise InvalidInputError(f"the secret of the site has {len(secret)} bytes, expected {SECRET}")
    if table.num_rows > MOST_ROWS:
        raise InvalidInputError(f"the table has more than {MOST_ROWS:,} rows, the most that are compared")
    if not names:
        raise InvalidInputError("rows have no tags without a column: name the columns that are read")
    cells = [_cells(whole_column(table, name), name, secret) for name in names]
    start = hashlib.blake2b(canonical_bytes(list(names)), digest_size=SIZE, key=secret, person=b"consilience-row")
    found = bytearray()
    for at in range(0, table.num_rows, BLOCK):
        block = np.concatenate([cell[at : at + BLOCK] for cell in cells], axis=1)
        found += _hashed(block, start)
    return np.frombuffer(bytes(found), dtype=">u8").astype(np.uint64).reshape(-1, 2)


def _hashed(block: NDArray[np.uint8], start: hashlib.blake2b) -> bytes:
    """Return the tags of the rows of a block, one after the other."""
    width, data = block.shape[1], block.tobytes()
    found = []
    for at in range(0, len(data), width):
        hashing = start.copy()
        hashing.update(data[at : at + width])
        found.append(hashing.digest())
    return b"".join(found)


def whole_column(table: pa.Table, name: str) -> pa.Array:
    """Return the values of a column in one piece, without a dictionary."""
    column = table.column(name)
    return decode_dictionary(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))


def missing_in(values: pa.Array) -> NDArray[np.bool_]:
    """Return which values are missing: null or NaN, ``(n,)``."""
    found: NDArray[np.bool_] = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return found


def _cells(values: pa.Array, name: str, secret: bytes) -> NDArray[np.uint8]:
    """Return the canonical bytes of the values of a column, ``(n, 9)``."""
    cells = np.zeros((len(values), _CELL), dtype=np.uint8)
    missing = missing_in(values)
    if is_number(values.type):
        numeric = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
        numbers = numeric.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype("<f8")
        numbers = np.where(missing, 0.0, numbers) + 0.0  # -0.0 becomes 0.0
        cells[:, 1:] = numbers.astype("<f8").view(np.uint8).reshape(-1, 8)
        cells[:, 0] = np.where(missing, _MISSING, _NUMBER)
    elif str(values.type) in TEXT:
        coded = values.cast(pa.large_string()).dictionary_encode()
        texts = [_text(each, secret) for each in coded.dictionary.to_pylist()]
        known = np.frombuffer(b"".join([*texts, bytes(8)]), dtype=np.uint8).reshape(-1, 8)
        codes = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        cells[:, 1:] = known[codes]
        cells[:, 0] = np.where(missing, _MISSING, _TEXT)
    else:
        raise InvalidInputError(f"column {name!r} is of type {values.type}: rows have tags of numbers and text only")
    return cells


def _text(value: str, secret: bytes) -> bytes:
    normal = unicodedata.normalize("NFC", value).encode()
    return hashlib.blake2b(normal, digest_size=8, key=secret, person=b"consilience-text").digest()


def _sorted(tags: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return tags[np.lexsort((tags[:, 1], tags[:, 0]))]


def count_differences(first: RowTags, second: RowTags) -> int:
    """Count the rows that are in one of two tables and not in the other; a row that occurs twice counts twice."""
    return int(np.abs(_excess(first, second)).sum())


def count_tags_apart(first: RowTags, second: RowTags) -> int:
    """Count the tags that occur more often in one of two tables than in the other: people, if tags are of people."""
    return int(np.count_nonzero(_excess(first, second)))


def _excess(first: RowTags, second: RowTags) -> NDArray[np.intp]:
    """Return how many times more often each tag of two tables occurs in the first."""
    if first.columns != second.columns:
        raise InvalidInputError("tags in different columns cannot be compared")
    one, two = number_tags(first.tags, second.tags)
    size = first.n + second.n
    return np.bincount(one, minlength=size) - np.bincount(two, minlength=size)


def number_tags(*sets: NDArray[np.uint64]) -> list[NDArray[np.intp]]:
    """Return a number in place of each tag, the same for the same tag, for each of several sets ``(n, 2)``."""
    tags = np.concatenate(sets)
    order = np.lexsort((tags[:, 1], tags[:, 0]))
    numbers = np.empty(len(tags), dtype=np.intp)
    numbers[order] = np.cumsum(np.r_[False, np.any(np.diff(tags[order], axis=0) != 0, axis=1)][: len(tags)])
    return np.split(numbers, np.cumsum([len(each) for each in sets])[:-1])
