"""A first mapping of an export to a study: similar names and levels, units, codes of missing values.

What is certain is filled in; what is likely is a proposal that a person is asked about.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consilience.columns import Column
from consilience.columns.arrow import TEXT
from consilience.data.file_columns import is_number
from consilience.data.tables import DELIMITERS, read_table
from consilience.errors import InvalidInputError
from consilience.kit.examination import TIMES, likely_factors
from consilience.kit.mapping import NUMBER, WITH_COMMA, FileFormat, MappedColumn
from consilience.kit.row_tags import whole_column
from consilience.kit.study import Level

ENCODINGS = ("utf-8", "cp1252")
"""Encodings that are tried: every file of bytes is some text in the last one."""
SAMPLE = 2**20
"""Number of bytes by which the way of writing is found out."""
SURE, LIKELY = 0.999, 0.6
"""Similarity of names that is taken as the same name, and that is proposed."""
MOST_VALUES = 50
"""Maximum number of different values of a column that is taken for a category."""
CODES = ("-99", "-999", "-9999", "-9", "-1", "99", "999", "9999", "99999")
"""Numbers that often stand for a missing value."""
REPEATED = 2
"""Least number of rows with a code of a missing value that is proposed."""
UNITS: tuple[Mapping[str, float], ...] = (
    TIMES,
    {"mg/l": 1.0, "mg/dl": 10.0, "g/l": 1000.0, "g/dl": 1e4},
    {"mm": 0.1, "cm": 1.0, "inche": 2.54, "inch": 2.54, "meter": 100.0, "metre": 100.0},
    {"kg": 1.0, "lb": 0.45359237, "pound": 0.45359237, "gram": 0.001},
)
"""Sizes of units of one kind that names of columns may state."""
LONG = 3
"""Least length of words that are compared by their beginnings, unless one is a single letter."""


@dataclass(frozen=True)
class ColumnDraft:
    """What is proposed for a column of the study.

    Parameters
    ----------
    column : Column
    candidates : tuple of str
        Columns of the export, the likeliest first.
    is_sure : bool
        Whether the first one has the same name.
    """

    column: Column
    candidates: tuple[str, ...]
    is_sure: bool


def file_format(path: Path, sheet: str = "") -> FileFormat:
    """Find out how a file is written: encoding, delimiter and decimal comma of CSV."""
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind not in ("csv", "tsv") or path.name.lower().endswith(".gz"):
        return FileFormat(sheet=sheet)
    with path.open("rb") as file:
        data = file.read(SAMPLE)
    encoding = _encoding(data)
    lines = data.decode(encoding, errors="replace").splitlines()
    delimiter = max(DELIMITERS, key=lines[0].count) if lines else ","
    cells = [cell.strip().strip('"') for line in lines[1:200] for cell in line.split(delimiter)]
    commas = delimiter != "," and any(_matches(WITH_COMMA, cell) for cell in cells)
    return FileFormat(
        encoding="" if encoding == "utf-8" else encoding,
        delimiter="" if delimiter == "," else delimiter,
        decimal="," if commas else ".",
    )


def _encoding(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    for encoding in ENCODINGS:
        try:
            data[: len(data) - len(data) % 4 - 4 if len(data) == SAMPLE else None].decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return ENCODINGS[-1]


def read_export(path: Path, file: FileFormat) -> pa.Table:
    """Read an export as text, as a mapping does."""
    return read_table(path, as_text=True, table_format=file.table_format)


# ---------------------------------------------------------------- names


def propose_columns(table: pa.Table, columns: Sequence[Column]) -> list[ColumnDraft]:
    """Return for each column of the study the columns of an export that may be meant, the likeliest first.

    Examples
    --------
    >>> export = pa.table({"Age (years)": [40.0], "Sex": ["f"]})
    >>> [draft.candidates for draft in propose_columns(export, [Column("age"), Column("sex", ("female", "male"))])]
    [('Age (years)', 'Sex'), ('Sex', 'Age (years)')]
    """
    return [_proposed(table, column) for column in columns]


def _proposed(table: pa.Table, column: Column) -> ColumnDraft:
    scores = {name: _score(table, name, column) for name in dict.fromkeys(table.column_names)}
    ranked = tuple(sorted(scores, key=lambda name: -scores[name]))
    first = scores[ranked[0]] if ranked else 0.0
    alike = sum(score > SURE for score in scores.values())
    return ColumnDraft(column, ranked, first > SURE and alike == 1)


def _score(table: pa.Table, name: str, column: Column) -> float:
    """Return how likely a column of the export is meant: similarity of names, and of levels."""
    mine, wanted = plain(name), plain(column.name)
    if mine == wanted:
        return 1.0
    score = SequenceMatcher(None, mine, wanted).ratio()
    if len(wanted) >= LONG and (wanted in mine or mine in wanted) and len(mine) >= LONG:
        score = max(score, 0.8)
    if table.column_names.count(name) == 1:
        score += _fitness(whole_column(table, name), column)
    return min(score, SURE - 0.01)


def _fitness(values: pa.Array, column: Column) -> float:
    """Return what the values of a column of the export add to the similarity of its name."""
    if not column.is_category:
        return 0.2 if is_number(values.type) or len(_parsed(values, ",")[0]) > len(values) / 2 else -0.2
    found = _distinct(values)
    if found and all(_level_of(value, column.levels) is not None for value in found):
        return 0.5
    return 0.2 if 0 < len(found) <= len(column.levels) + 2 else -0.2


def plain(text: str) -> str:
    """Return a text in lower case, without accents and all that is no letter or digit."""
    split = unicodedata.normalize("NFKD", text.replace("ß", "ss").casefold())
    return "".join(letter for letter in split if letter.isalnum() and letter.isascii())


# ---------------------------------------------------------------- one column


def propose_rule(table: pa.Table, name: str, column: Column, file: FileFormat) -> MappedColumn:
    """Return how a column of the study is made from one of the export, as far as its values tell.

    Parameters
    ----------
    table : pyarrow.Table
    name : str
        Column of the export.
    column : Column
        Column of the study.
    file : FileFormat
    """
    if table.column_names.count(name) != 1:
        raise InvalidInputError(f"the table has no column {name!r}, or several of this name")
    values = whole_column(table, name)
    if column.is_category:
        return MappedColumn(name=column.name, source=name, levels=propose_levels(values, column.levels) or None)
    missing = propose_codes(values, column, file.decimal)
    factor = _factor(values, column, name, [*file.missing, *missing], file.decimal)
    return MappedColumn(name=column.name, source=name, missing=missing, multiply=factor)


def propose_levels(values: pa.Array, levels: Sequence[Level]) -> dict[str, Level]:
    """Return levels of the study by values of an export that are alike; without those that are equal.

    Examples
    --------
    >>> propose_levels(pa.array(["F", "M", "unknown"]), ("female", "male"))
    {'F': 'female', 'M': 'male'}
    """
    found: dict[str, Level] = {}
    for value in _distinct(values):
        level = _level_of(value, levels)
        if level is not None and str(level) != value:
            found[value] = level
    return found


def unknown_values(export: pa.Table, rule: MappedColumn, column: Column, codes: Sequence[str]) -> list[str]:
    """Return values of a category that are no level, and that are neither recoded nor a code of missing values."""
    if not column.is_category or rule.source not in export.column_names:
        return []
    known = {"", *map(str, column.levels), *(rule.levels or ()), *rule.missing, *codes}
    return [value for value in _distinct(export[rule.source]) if value not in known]


def _distinct(values: pa.Array) -> list[str]:
    """Return the different values of a column as text, at most a few; none of one with more."""
    if is_number(values.type) and not pa.types.is_boolean(values.type):
        numbers = pc.unique(values.drop_null()).to_pylist()
        found = [str(int(each)) if float(each).is_integer() else str(each) for each in numbers[: MOST_VALUES + 1]]
    elif str(values.type) in TEXT or pa.types.is_boolean(values.type):
        text = values.cast(pa.large_string())
        found = pc.unique(pc.utf8_trim_whitespace(text).drop_null()).to_pylist()
    else:
        return []
    return sorted(found) if len(found) <= MOST_VALUES else []


def _level_of(value: str, levels: Sequence[Level]) -> Level | None:
    """Return the level that a value means: the same word, or the only one that begins so or is its beginning."""
    mine = plain(value)
    same = [level for level in levels if plain(str(level)) == mine]
    if len(same) == 1:
        return same[0]
    near = [level for level in levels if mine and _begins_alike(mine, plain(str(level)))]
    return near[0] if len(near) == 1 and not mine.isdigit() else None


def _begins_alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and (len(short) >= LONG or len(one) == 1)


def propose_codes(values: pa.Array, column: Column, decimal: str = ".") -> list[str]:
    """Return what probably stands for a missing value: repeated words among numbers, and usual codes out of range."""
    numbers, words = _parsed(values, decimal)
    counts = {str(each["values"]): int(each["counts"]) for each in words.value_counts().to_pylist()}
    usual = [word for word, count in counts.items() if count >= REPEATED and len(counts) <= len(CODES)]
    outside = [
        code
        for code in CODES
        if np.sum(numbers == float(code)) >= REPEATED and not column.rule.contains(np.array([float(code)])).all()
    ]
    return [*sorted(usual), *outside]


def _parsed(values: pa.Array, decimal: str) -> tuple[np.ndarray, pa.Array]:
    """Return the numbers of a column, and the words among them."""
    if is_number(values.type):
        return np.asarray(values.drop_null().cast(pa.float64(), safe=False)), pa.array([], pa.large_string())
    if str(values.type) not in TEXT:
        return np.empty(0), pa.array([], pa.large_string())
    text = pc.utf8_trim_whitespace(values.cast(pa.large_string())).drop_null()
    text = pc.replace_substring_regex(text, WITH_COMMA, r"\1.\2\3") if decimal == "," else text
    good = pc.match_substring_regex(text, NUMBER)
    bare = pc.replace_substring_regex(text.filter(good), r"^\+", "")
    return np.asarray(bare.cast(pa.float64())), text.filter(pc.invert(good))


def _factor(values: pa.Array, column: Column, name: str, codes: Sequence[str], decimal: str) -> float:
    """Return the factor to the unit of the study, if the name or the range says which unit this is; otherwise 1."""
    for sizes in UNITS:
        unit = _unit_in(column.rule.unit, sizes)
        mine = _unit_in(name, sizes)
        if unit and mine and unit != mine:
            return sizes[mine] / sizes[unit]
    numbers, _ = _parsed(values, decimal)
    known = [float(code) for code in codes if _matches(NUMBER, code)]
    factors = likely_factors(numbers[~np.isin(numbers, known)], column)
    return next(iter(factors.values())) if len(factors) == 1 else 1.0


def _unit_in(text: str, sizes: Mapping[str, float]) -> str:
    """Return the one unit that a text names; empty if it names none or several."""
    words = "".join(letter if letter.isalpha() or letter == "/" else " " for letter in text.casefold()).split()
    found = {word.removesuffix("s") for word in words} & set(sizes)
    return found.pop() if len(found) == 1 else ""


def _matches(pattern: str, text: str) -> bool:
    found: bool = pc.match_substring_regex(pa.scalar(text), pattern).as_py()
    return found


# ---------------------------------------------------------------- what people say


def with_changes(rule: MappedColumn, changes: Mapping[str, object]) -> MappedColumn:
    """Return a rule with what people have said of it; levels are added to those that are known."""
    said = dict(changes)
    if isinstance(levels := said.get("levels"), dict):
        said["levels"] = {**(rule.levels or {}), **levels}
    return MappedColumn.model_validate(rule.model_dump(by_alias=False) | said)
