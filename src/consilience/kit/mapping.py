"""How a site's own export becomes the table of a study: names, levels, units, codes of missing values, dates.

The site writes the mapping and keeps it: its hash is in the ledger, and nothing of it leaves. It has a closed list of
operations on single cells. A cell that an operation cannot read stays as it is, as text, so that the check against the
study names its row: a mapping never turns what it does not know into a missing value, and leaves out no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from consilience.columns import Column
from consilience.columns.arrow import TEXT
from consilience.data.file_columns import is_number
from consilience.data.tables import TableFormat, read_table
from consilience.errors import InvalidInputError
from consilience.files.documents import Finite, Part, Text
from consilience.files.json_text import content_hash
from consilience.kit.row_tags import whole_column
from consilience.kit.study import Level, Study
from consilience.kit.toml_file import TomlFile, write_toml

MOST_CODES = 100
MOST_LEVELS = 10_000
TimeUnit = Literal["years", "months", "weeks", "days", "hours", "minutes"]
SECONDS: dict[str, float] = {
    "years": 365.25 * 86400, "months": 365.25 / 12 * 86400, "weeks": 7 * 86400, "days": 86400, "hours": 3600,
    "minutes": 60,
}  # fmt: skip
DateOrder = Literal["YYYY-MM-DD", "DD.MM.YYYY", "DD/MM/YYYY", "MM/DD/YYYY", "DD-MM-YYYY", "YYYYMMDD"]
DATES: dict[str, str] = {
    "YYYY-MM-DD": "%Y-%m-%d", "DD.MM.YYYY": "%d.%m.%Y", "DD/MM/YYYY": "%d/%m/%Y", "MM/DD/YYYY": "%m/%d/%Y",
    "DD-MM-YYYY": "%d-%m-%Y", "YYYYMMDD": "%Y%m%d",
}  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S")
"""What may follow a date in a cell."""
STORED_DATE = "%Y-%m-%d %H:%M:%S"
"""How a date is read that a workbook has as a date, and not as text."""
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
WITH_COMMA = r"^([+-]?\d*),(\d+)([eE][+-]?\d+)?$"
ISO_DATE = r"^\d{4}-\d{2}-\d{2}$"
Code = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class FileFormat(Part):
    """How the file of an export is written; what is empty is found out.

    Parameters
    ----------
    encoding : str
        Of a CSV file, such as ``"cp1252"``.
    delimiter : str
        Between the cells of a CSV file.
    decimal : str
        Decimal point or comma.
    sheet : str
        Sheet of a workbook.
    missing : list of str
        What stands for a missing value in any column.
    """

    encoding: Annotated[str, StringConstraints(max_length=30)] = ""
    delimiter: Annotated[str, StringConstraints(max_length=1)] = ""
    decimal: Literal[".", ","] = "."
    sheet: Annotated[str, StringConstraints(max_length=100)] = ""
    missing: list[Code] = Field(default_factory=list, max_length=MOST_CODES)

    @property
    def table_format(self) -> TableFormat:
        """What reading the file needs."""
        return TableFormat(self.encoding, self.delimiter, self.sheet)


class MappedColumn(Part):
    """How one column of the study is made from the export.

    Parameters
    ----------
    name : str
        Name in the study.
    source : str
        Name in the export; ``from`` in the file.
    levels : mapping of str to level, optional
        Levels of the study by what stands in the export.
    multiply, add : float
        A number is ``multiply * cell + add``.
    until : str, optional
        With dates: the column of the later date, or a date ``YYYY-MM-DD``. The column is then the time from ``source``
        until there, in ``unit``.
    unit : str, optional
    dates : str
        How dates are written.
    missing : list of str
        What stands for a missing value in this column.
    """

    model_config = ConfigDict(populate_by_name=True)

    name: Text
    source: Annotated[Text, Field(alias="from")]
    levels: Annotated[dict[Code, Level], Field(max_length=MOST_LEVELS)] | None = None
    multiply: Finite = 1.0
    add: Finite = 0.0
    until: Text | None = None
    unit: TimeUnit | None = None
    dates: DateOrder = "YYYY-MM-DD"
    missing: list[Code] = Field(default_factory=list, max_length=MOST_CODES)

    @model_validator(mode="after")
    def _one_operation(self) -> MappedColumn:
        if self.multiply == 0:
            raise ValueError(f"{self.name}: multiply = 0 makes all numbers alike; give the factor of the units")
        if (self.until is None) != (self.unit is None):
            raise ValueError(f"{self.name}: a time needs both, until (a column or a date) and unit")
        if sum([self.levels is not None, (self.multiply, self.add) != (1.0, 0.0), self.until is not None]) > 1:
            raise ValueError(f"{self.name}: give levels, or multiply and add, or until and unit")
        return self


class TableMapping(TomlFile):
    """The mapping of a site's export to a study."""

    called = "mapping"
    kind = "consilience-mapping"
    format: Literal["consilience-mapping"] = "consilience-mapping"
    version: Literal[1] = 1
    study: Text
    file: FileFormat = FileFormat()
    columns: list[MappedColumn] = Field(default_factory=list, max_length=1000)

    @model_validator(mode="after")
    def _each_once(self) -> TableMapping:
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"columns: {name} is made twice")
        return self

    @property
    def identity(self) -> str:
        """Hash of what the mapping says, as ``sha256:...``."""
        return content_hash(self._entries())

    def to_text(self) -> str:
        """Return the mapping as TOML text."""
        return write_toml(self._entries(), COMMENTS)

    def _entries(self) -> dict[str, Any]:
        found = self.model_dump(exclude_defaults=True, by_alias=True)
        return {"format": self.format, "version": self.version} | found

    @property
    def sentences(self) -> list[str]:
        """What the mapping does, in words."""
        return [_sentence(column) for column in self.columns]


COMMENTS = {
    "format": (
        "How the export of this site becomes the table of a study. It stays here: the ledger has its hash, and\n"
        "nothing of it leaves. 'consilience site check' says what still does not fit."
    ),
    "study": "Name of the study.",
    "file": "How the file is written. Codes under missing hold for all columns.",
    "columns": (
        "Each column of the study: its name there, and the column here that it is made from. levels = {...} recodes,\n"
        "multiply and add convert units, until and unit make a time from two dates, missing = [...] lists codes."
    ),
}


def read_mapped(path: Any, study: Study, mapping: TableMapping | None, *, as_text: bool = False) -> pa.Table:
    """Read a table as a study wants it, through the mapping of the site if there is one.

    Parameters
    ----------
    path : path
    study : Study
    mapping : TableMapping or None
    as_text : bool
        As in :func:`~consilience.data.tables.read_table`; through a mapping a table is always read so.
    """
    if mapping is None:
        return read_table(path, as_text=as_text)
    if mapping.study != study.name:
        raise InvalidInputError(
            f"the mapping is for study {mapping.study!a} and this is {study.name!a}: name another one with --mapping"
        )
    table = read_table(path, as_text=True, table_format=mapping.file.table_format)
    return map_table(table, mapping, _columns_of(study))


def _columns_of(study: Study) -> list[Column]:
    persons = None if study.persons is None else study.persons.column
    labels = [Column(name) for name in (study.model.clients, persons) if name is not None]
    return [*(column.column() for column in study.columns), *labels]


def map_table(table: pa.Table, mapping: TableMapping, columns: Sequence[Column]) -> pa.Table:
    """Return a table with the columns of a study, made from those of an export; its other columns stay.

    Parameters
    ----------
    table : pyarrow.Table
    mapping : TableMapping
    columns : sequence of Column
        Those of the study. One that the mapping does not name is read under its own name, if it is there.

    Raises
    ------
    InvalidInputError
        If the mapping names a column that the study or the export does not have.

    Examples
    --------
    >>> mapping = TableMapping(
    ...     study="los",
    ...     columns=[
    ...         MappedColumn(name="los_days", source="hours", multiply=1 / 24),
    ...         MappedColumn(name="sex", source="Geschlecht", levels={"w": "female", "m": "male"}),
    ...     ],
    ... )
    >>> export = pa.table({"hours": ["48", "12"], "Geschlecht": ["w", "m"]})
    >>> columns = [Column("los_days"), Column("sex", ("female", "male"))]
    >>> map_table(export, mapping, columns).select(["los_days", "sex"]).to_pydict()
    {'los_days': [2.0, 0.5], 'sex': ['female', 'male']}
    """
    known = {column.name for column in columns}
    if strange := [each.name for each in mapping.columns if each.name not in known]:
        raise InvalidInputError(f"the mapping makes column {strange[0]!r}, which is not a column of the study")
    made = {each.name: each for each in mapping.columns}
    found: dict[str, pa.Array] = {}
    for column in columns:
        rule = made.get(column.name)
        if rule is not None or table.column_names.count(column.name) == 1:
            rule = rule or MappedColumn(name=column.name, source=column.name)
            found[column.name] = _made(table, rule, column, mapping.file)
    others = [name for name in table.column_names if name not in found and table.column_names.count(name) == 1]
    return pa.table({**found, **{name: table.column(name) for name in others}})


def _made(table: pa.Table, rule: MappedColumn, column: Column, file: FileFormat) -> pa.Array:
    values = _without_codes(_source(table, rule.source, rule.name), [*file.missing, *rule.missing])
    if rule.until is not None and rule.unit is not None:
        return _time(table, values, rule, file)
    if rule.levels is not None:
        return _recoded(values, rule.levels)
    if column.is_category:
        return values if isinstance(column.levels[0], str) else _numbers(values, file.decimal)
    return _scaled(_numbers(values, file.decimal), rule.multiply, rule.add)


def _source(table: pa.Table, name: str, wanted: str) -> pa.Array:
    if table.column_names.count(name) != 1:
        raise InvalidInputError(
            f"the mapping makes column {wanted!r} from {name!r}, and the table has no such column, or several: its "
            f"columns are {', '.join(map(repr, table.column_names[:50]))}"
        )
    values = whole_column(table, name)
    return pc.utf8_trim_whitespace(values.cast(pa.large_string())) if str(values.type) in TEXT else values


def _without_codes(values: pa.Array, codes: Sequence[str]) -> pa.Array:
    """Return values with null where a code of a missing value stands; numbers are compared as numbers."""
    if not codes:
        return values
    if is_number(values.type) and not pa.types.is_boolean(values.type):
        numbers = [float(code) for code in codes if re.match(NUMBER, code)]
        values = values.cast(pa.float64(), safe=False)
        known: pa.Array = pa.array(numbers, pa.float64())
    elif str(values.type) in TEXT:
        known = pa.array(list(codes), pa.large_string())
    else:
        return values
    return pc.if_else(pc.is_in(values, value_set=known), pa.scalar(None, values.type), values)


def _numbers(values: pa.Array, decimal: str) -> pa.Array:
    """Return the numbers of a column of text; the column as text if a cell is no number."""
    if str(values.type) not in TEXT:
        return values
    text = pc.replace_substring_regex(values, WITH_COMMA, r"\1.\2\3") if decimal == "," else values
    good = pc.match_substring_regex(text, NUMBER)
    if pc.all(good, min_count=0).as_py() is False:
        return pc.if_else(good, text, values)
    return pc.replace_substring_regex(text, r"^\+", "").cast(pa.float64())


def _scaled(values: pa.Array, multiply: float, add: float) -> pa.Array:
    """Return ``multiply * values + add``; of text, of the cells that are numbers."""
    if (multiply, add) == (1.0, 0.0):
        return values
    if str(values.type) not in TEXT:
        return pc.add(pc.multiply(values.cast(pa.float64(), safe=False), multiply), add)
    good = pc.match_substring_regex(values, NUMBER)
    bare = pc.replace_substring_regex(pc.if_else(good, values, "0"), r"^\+", "").cast(pa.float64())
    return pc.if_else(good, pc.add(pc.multiply(bare, multiply), add).cast(pa.large_string()), values)


def _recoded(values: pa.Array, levels: dict[str, Level]) -> pa.Array:
    """Return the levels that stand for values; a value that has none stays as it is."""
    if str(values.type) not in TEXT:
        values = pa.array([None if each is None else _as_code(each) for each in values.to_pylist()], pa.large_string())
    coded = values.dictionary_encode()
    found = [levels.get(each, each) for each in coded.dictionary.to_pylist()]
    if all(isinstance(each, int | float) for each in found):
        kept: pa.Array = pa.array([float(each) for each in found], pa.float64())
    else:
        kept = pa.array([str(each) for each in found], pa.large_string())
    return kept.take(coded.indices)


def _as_code(value: Any) -> str:
    """Return a cell as people write it: whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _time(table: pa.Table, begins: pa.Array, rule: MappedColumn, file: FileFormat) -> pa.Array:
    """Return the time from one date until another, in the unit; the text of a cell that is no date stays."""
    begin = _seconds(begins, rule.dates)
    if re.match(ISO_DATE, str(rule.until)):
        ends: pa.Array = pa.array([rule.until] * len(begins), pa.large_string())
        end = _seconds(ends, "YYYY-MM-DD")
        if len(end) and np.isnan(end[0]):
            raise InvalidInputError(f"the mapping of {rule.name!r}: {rule.until!r} is no date")
    else:
        ends = _without_codes(_source(table, str(rule.until), rule.name), [*file.missing, *rule.missing])
        end = _seconds(ends, rule.dates)
    missing = np.asarray(pc.or_(begins.is_null(), ends.is_null()))
    time = (end - begin) / SECONDS[str(rule.unit)]
    wrong = np.isnan(time) & ~missing
    if not wrong.any():
        return pa.array(time, pa.float64(), mask=missing)
    texts = [None if gone else ("no date" if bad else repr(float(value)))
             for gone, bad, value in zip(missing, wrong, time, strict=True)]  # fmt: skip
    return pa.array(texts, pa.large_string())


def _seconds(values: pa.Array, order: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return dates as seconds, ``(n,)``; NaN where a cell is missing or no date."""
    if pa.types.is_temporal(values.type):
        found: pa.Array = values.cast(pa.timestamp("s"), safe=False)
        return _plain(found)
    if str(values.type) not in TEXT:
        return np.full(len(values), np.nan)
    best = np.full(len(values), np.nan)
    for form in [*(DATES[order] + clock for clock in CLOCKS), STORED_DATE]:
        parsed = _plain(pc.strptime(values, format=form, unit="s", error_is_null=True))
        best = np.where(np.isnan(best), parsed, best)
    return best


def _plain(times: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    seconds = times.cast(pa.int64())
    gone = np.asarray(seconds.is_null())
    return np.where(gone, np.nan, np.asarray(pc.fill_null(seconds, 0), dtype=np.float64))


def mapped_by(mapping: TableMapping | None) -> tuple[str, ...]:
    """Return the hash of a mapping and what it does in words; nothing without one."""
    return () if mapping is None else (mapping.identity, *mapping.sentences)


def _sentence(column: MappedColumn) -> str:
    parts = [f"{column.name} from {column.source!r}"]
    if column.until is not None:
        parts.append(f"until {column.until!r}, in {column.unit} (dates {column.dates})")
    if column.multiply != 1:
        parts.append(f"times {column.multiply:g}")
    if column.add != 0:
        parts.append(f"plus {column.add:g}")
    if column.levels is not None:
        parts.append(f"with {len(column.levels)} values recoded")
    if column.missing:
        parts.append(f"with {len(column.missing)} codes of missing values")
    return ", ".join(parts)
