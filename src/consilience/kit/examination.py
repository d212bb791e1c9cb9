"""Whether the table of a site fits a study: what is wrong, in which column, how often, and what to do. Never a value.

The coordinator of a study states names, kinds, levels and ranges; a site holds its own table against them before
anything is fitted. Findings have counts only, so that they can be shown on a screen that others see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consilience.columns import Column, Dictionary
from consilience.columns.arrow import TEXT, codes_of, decode_dictionary
from consilience.data.file_columns import is_number
from consilience.errors import InvalidInputError
from consilience.kit.row_tags import RowTags, row_tags
from consilience.numerics.arrays import Array

FACTORS = {
    "10": 10.0, "100": 100.0, "1000": 1000.0, "0.1": 0.1, "0.01": 0.01, "0.001": 0.001,
    "2.54": 2.54, "1/2.54": 1 / 2.54, "0.4536": 0.4536, "2.2046": 2.2046, "0.0555": 0.0555, "18.02": 18.02,
}  # fmt: skip
"""Factors between units that are often confused: decimal prefixes, inches, pounds, glucose in mg/dl."""
TIMES = {"year": 365.25, "month": 365.25 / 12, "week": 7.0, "day": 1.0, "hour": 1 / 24, "minute": 1 / 1440}
"""Units of time, in days."""
SHOWN_ROWS = 5
"""Number of rows that are named by their place."""


@dataclass(frozen=True)
class Finding:
    """Something about a table that does not fit the study.

    Parameters
    ----------
    code : str
        Short name of the kind of finding, the same in every version.
    column : str
        Name of the column; empty for the whole table.
    rows : int
        Number of rows concerned; 0 if it does not apply.
    said, remedy : str
        What was found, and what to do.
    is_error : bool
        Whether the table cannot be used as it is.
    first : tuple of int
        Places of the first rows concerned, from 1 for the row after the names; empty if these are most of the rows.
    """

    code: str
    column: str
    rows: int
    said: str
    remedy: str
    is_error: bool = True
    first: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"column {self.column!r}: " if self.column else ""
        rows = f" (first: row {', '.join(map(str, self.first))} after the names)" if self.first else ""
        return f"{place}{self.said}{rows}. {self.remedy}"


@dataclass(frozen=True)
class Wanted:
    """What a study wants of a table: covariates, response, exposure and names of clients, and numbers of rows."""

    covariates: Dictionary
    response: Column
    exposure: Column | None = None
    clients: str | None = None
    min_rows: int = 1
    max_rows: int = 10**12

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns with rules: covariates, response and exposure."""
        return (*self.covariates.columns, self.response, *(() if self.exposure is None else (self.exposure,)))

    @property
    def read(self) -> tuple[Column, ...]:
        """All columns that are read, with the names of clients."""
        return (*self.columns, *(() if self.clients is None else (Column(self.clients),)))


@dataclass(frozen=True)
class Examination:
    """Findings about a table, and the numbers of rows that were read and that are used."""

    findings: tuple[Finding, ...]
    rows: int
    used: int

    @property
    def fits(self) -> bool:
        """Whether the table can be used."""
        return not any(finding.is_error for finding in self.findings)


def examine_table(table: pa.Table, wanted: Wanted) -> Examination:
    """Hold a table against what a study wants."""
    findings = [finding for column in wanted.columns for finding in _column_findings(table, column)]
    findings += _client_findings(table, wanted.clients)
    used = int(np.sum(complete_rows(table, wanted.columns))) if all(not found.is_error for found in findings) else 0
    if all(not found.is_error for found in findings):
        findings += _size_findings(table.num_rows, used, wanted)
    return Examination(tuple(findings), table.num_rows, used)


def complete_rows(table: pa.Table, columns: Iterable[Column]) -> np.ndarray:
    """Return which rows are kept: those without a missing value in a column whose rule is to drop them, ``(n,)``."""
    kept = np.ones(table.num_rows, dtype=bool)
    for column in columns:
        if column.rule.missing == "drop":
            kept &= ~_missing(_array(table, column.name))
    return kept


def prepare_table(table: pa.Table, wanted: Wanted) -> pa.Table:
    """Return the columns that are read, without the rows that the rules for missing values drop."""
    names = list(dict.fromkeys(column.name for column in wanted.read))
    return table.select(names).filter(pa.array(complete_rows(table, wanted.columns)))


# ---------------------------------------------------------------------- findings about columns


def _column_findings(table: pa.Table, column: Column) -> Iterator[Finding]:
    number = table.column_names.count(column.name)
    if number != 1:
        yield _absent(table, column) if number == 0 else _twice(column)
        return
    values = _array(table, column.name)
    missing = _missing(values)
    if len(values) and missing.all():
        yield Finding(
            "ALL_MISSING", column.name, len(values), "all values are missing", "Export the column again, with values"
        )
        return
    yield from _of_category(values, column) if column.is_category else _of_numbers(values, column)
    if missing.any():
        yield _of_missing(int(missing.sum()), len(values), column)


def _client_findings(table: pa.Table, clients: str | None) -> Iterator[Finding]:
    """Yield what is wrong with the column of the names of clients."""
    if clients is None:
        return
    number, column = table.column_names.count(clients), Column(clients)
    if number != 1:
        yield _absent(table, column) if number == 0 else _twice(column)
    elif missing := int(_missing(_array(table, clients)).sum()):
        yield _of_missing(missing, table.num_rows, column)


def _absent(table: pa.Table, column: Column) -> Finding:
    near = get_close_matches(column.name.casefold(), [name.casefold() for name in table.column_names], n=1, cutoff=0.7)
    hint = f" There is a column of a similar name: {_original(near[0], table)!r}." if near else ""
    return Finding(
        "COLUMN_MISSING",
        column.name,
        0,
        "the table has no column of this name",
        f"Add it, or rename yours: names must agree letter by letter.{hint}",
    )


def _original(folded: str, table: pa.Table) -> str:
    names: list[str] = table.column_names
    return next(name for name in names if name.casefold() == folded)


def _twice(column: Column) -> Finding:
    return Finding("COLUMN_TWICE", column.name, 0, "the table has several columns of this name", "Rename all but one")


def _of_missing(missing: int, rows: int, column: Column) -> Finding:
    said = f"{missing:,} of {rows:,} rows have no value"
    if column.rule.missing == "refuse":
        return Finding(
            "MISSING_VALUES",
            column.name,
            missing,
            said,
            "The study refuses missing values: complete them, or leave those rows out and tell the coordinator",
        )
    done = "these rows are left out" if column.rule.missing == "drop" else "the study's value takes their place"
    return Finding("MISSING_VALUES", column.name, missing, f"{said}; {done}", "Nothing to do", is_error=False)


def _of_category(values: pa.Array, column: Column) -> Iterator[Finding]:
    if (str(values.type) in TEXT) != isinstance(column.levels[0], str) and not pa.types.is_boolean(values.type):
        yield Finding(
            "OTHER_TYPE",
            column.name,
            len(values),
            f"the column is of type {values.type}, the study has levels of "
            f"{'text' if isinstance(column.levels[0], str) else 'numbers'}",
            "Recode the column with the levels of the study",
        )
        return
    codes = codes_of(values, column.levels)
    if unknown := int(np.sum(codes == -2)):
        levels = ", ".join(map(str, column.levels))
        yield Finding(
            "UNKNOWN_LEVEL",
            column.name,
            unknown,
            f"{unknown:,} of {len(values):,} rows have a level that the study does not list",
            f"Recode them; the study lists {levels} (case and spaces count)",
        )
    absent = [str(level) for i, level in enumerate(column.levels) if not np.any(codes == i)]
    if absent:
        yield Finding(
            "ABSENT_LEVEL",
            column.name,
            0,
            f"no row has level {', '.join(absent)}",
            "Nothing to do if that is so here: other sites may have it",
            is_error=False,
        )


def _of_numbers(values: pa.Array, column: Column) -> Iterator[Finding]:
    if not is_number(values.type):
        yield _not_numbers(values, column)
        return
    numbers = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    if infinite := int(np.sum(np.isinf(numbers))):
        yield Finding(
            "INFINITE",
            column.name,
            infinite,
            f"{infinite:,} of {len(values):,} rows are infinite",
            "Replace them, or mark them as missing",
            first=_first(np.isinf(numbers)),
        )
    is_outside = ~column.rule.contains(numbers) & np.isfinite(numbers)
    if outside := int(np.sum(is_outside)):
        factors = _factors(numbers[np.isfinite(numbers)], column)
        said = f"{outside:,} of {len(values):,} rows are outside the range {column.rule.range_text}"
        remedy = (
            f"After multiplication by {' or '.join(factors)} nearly all would be inside: is the unit "
            f"{column.rule.unit or 'that of the study'}?"
            if factors
            else "Correct them, or ask the coordinator about it"
        )
        yield Finding("OUT_OF_RANGE", column.name, outside, said, remedy, first=_first(is_outside))


def _first(concerned: np.ndarray) -> tuple[int, ...]:
    """Return the places of the first rows concerned, from 1; none if these are half of the rows or more."""
    places = np.flatnonzero(concerned)
    return () if 2 * len(places) >= len(concerned) else tuple(int(place) + 1 for place in places[:SHOWN_ROWS])


def _not_numbers(values: pa.Array, column: Column) -> Finding:
    if pa.types.is_temporal(values.type):
        return Finding(
            "OTHER_TYPE",
            column.name,
            len(values),
            f"the column has dates or times ({values.type})",
            "Compute a number from them first, such as days since admission",
        )
    text = values.cast(pa.large_string()).drop_null() if str(values.type) in TEXT else pa.array([], pa.large_string())
    commas = pc.sum(pc.match_substring_regex(text, r"^\s*[+-]?\d+,\d+\s*$")).as_py() or 0
    if commas:
        return Finding(
            "DECIMAL_COMMA",
            column.name,
            commas,
            f"{commas:,} of {len(values):,} rows have a decimal comma",
            "Export the table with decimal points",
        )
    numeric = pc.match_substring_regex(text, r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$")
    other = len(text) - (pc.sum(numeric).as_py() or 0) if len(text) else len(values)
    wrong = ~_missing(values)
    if len(text):
        wrong[wrong] = ~np.asarray(numeric.to_numpy(zero_copy_only=False), dtype=bool)
    return Finding(
        "OTHER_TYPE",
        column.name,
        other,
        f"the column is of type {values.type}, and {other:,} of {len(values):,} rows are not numbers",
        "Export it as numbers, without units, signs such as < or >, or words",
        first=_first(wrong),
    )


def _factors(numbers: Array, column: Column) -> list[str]:
    """Return the factors of units that bring nearly all values into the range, if most are outside."""
    if np.mean(column.rule.contains(numbers)) >= 0.5:
        return []
    return [
        name
        for name, factor in _factors_to(column.rule.unit).items()
        if np.mean(column.rule.contains(numbers * factor)) > 0.95
    ]


def _factors_to(unit: str) -> dict[str, float]:
    """Return factors to a unit by their names: from other times to a time, else those that are often confused."""
    time = unit.strip().lower().removesuffix("s")
    if time not in TIMES:
        return FACTORS
    others = {f"{days / TIMES[time]:.4g} (from {each}s)": days / TIMES[time] for each, days in TIMES.items()}
    return {"10": 10.0, "0.1": 0.1} | {name: factor for name, factor in others.items() if factor != 1}


# ---------------------------------------------------------------------- findings about the table


def _size_findings(rows: int, used: int, wanted: Wanted) -> list[Finding]:
    found = []
    if used < wanted.min_rows:
        found.append(
            Finding(
                "TOO_FEW_ROWS",
                "",
                used,
                f"{used:,} of {rows:,} rows can be used, and at least {wanted.min_rows:,} are needed",
                "The site cannot take part with this table",
            )
        )
    if used > wanted.max_rows:
        found.append(
            Finding(
                "TOO_MANY_ROWS",
                "",
                used,
                f"the table has more rows than the {wanted.max_rows:,} of the study",
                "Ask the coordinator: is it the right table?",
            )
        )
    return found


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return decode_dictionary(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))


def _missing(values: pa.Array) -> np.ndarray:
    found: np.ndarray = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return found


# ---------------------------------------------------------------- used rows


@dataclass(frozen=True, eq=False)
class UsedRows:
    """The rows of a table that a study uses, with all columns of the table, and their tags.

    The columns that an earlier study read may not be among those of this one: its rows are compared in its columns, as
    long as the table has them.

    Parameters
    ----------
    table : pyarrow.Table
        The rows used.
    read : tuple of str
        Names of the columns that the study reads.
    secret : bytes
    """

    table: pa.Table
    read: tuple[str, ...]
    secret: bytes = field(repr=False)
    _known: dict[tuple[str, ...], RowTags] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, table: pa.Table, columns: Iterable[Column], secret: bytes) -> UsedRows:
        """Return the rows that the rules of the columns for missing values do not drop."""
        read = tuple(columns)
        names = tuple(column.name for column in read)
        return cls(table.filter(pa.array(complete_rows(table, read))), names, secret)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def tags(self) -> RowTags:
        """Tags in the columns that are read."""
        found = self.tags_in(self.read)
        if found is None:
            raise InvalidInputError("the table lacks a column that the study reads: check the table first")
        return found

    def tags_in(self, columns: Iterable[str]) -> RowTags | None:
        """Return the tags in other columns; None if the table lacks one of them."""
        names = tuple(sorted(set(columns)))
        if any(self.table.column_names.count(name) != 1 for name in names):
            return None
        if names not in self._known:
            self._known[names] = row_tags(self.table, names, self.secret)
        return self._known[names]
