"""Whether the table of a site fits a study: what is wrong, in which column, how often, and what to do. Never a value.

The coordinator of a study states names, kinds, levels and ranges; a site holds its own table against them before
anything is fitted. Findings have counts only, so that they can be shown on a screen that others see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from consilience.columns import Column, Dictionary
from consilience.columns.arrow import TEXT, codes_of
from consilience.data.file_columns import is_number
from consilience.errors import InvalidInputError
from consilience.kit.cohort import Criterion, Flow, in_cohort
from consilience.kit.near_copies import count_near_copies, say_near_copies
from consilience.kit.row_tags import RowTags, missing_in, number_tags, row_tags, tags_in_order, whole_column
from consilience.numerics.arrays import Array

DECIMAL = {"10": 10.0, "100": 100.0, "1000": 1000.0, "0.1": 0.1, "0.01": 0.01, "0.001": 0.001}
"""Factors between decimal prefixes."""
LENGTHS, WEIGHTS = {"2.54": 2.54, "1/2.54": 1 / 2.54}, {"0.4536": 0.4536, "2.2046": 2.2046}
GLUCOSE = {"0.0555": 0.0555, "18.02": 18.02}
"""Factors of inches, of pounds, and of glucose between mg/dl and mmol/l."""
CONFUSED = {
    **dict.fromkeys(("mm", "cm", "m", "in", "inch", "inche"), LENGTHS),
    **dict.fromkeys(("g", "kg", "lb", "pound"), WEIGHTS),
    **dict.fromkeys(("mg/dl", "mmol/l"), GLUCOSE),
}
"""Factors that are often confused in a unit, beside the decimal ones."""
TIMES = {"year": 365.25, "month": 365.25 / 12, "week": 7.0, "day": 1.0, "hour": 1 / 24, "minute": 1 / 1440}
"""Units of time, in days."""
OUTSIDE, INSIDE = 0.02, 0.995
"""Fraction of values outside the range from which a factor is looked for, and inside with it."""
FAR, NEAR = 1.2, 0.6
"""Distance of the median from the centre, in scales of the study, that is not expected, and that is."""
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
    factors : tuple of float
        Factors of units that would mend the column, the likeliest first.
    """

    code: str
    column: str
    rows: int
    said: str
    remedy: str
    is_error: bool = True
    first: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()

    def __str__(self) -> str:
        place = f"column {self.column!r}: " if self.column else ""
        rows = f" (first: row {', '.join(map(str, self.first))} after the names)" if self.first else ""
        return f"{place}{self.said}{rows}. {self.remedy}"


@dataclass(frozen=True)
class Wanted:
    """What a study wants of a table: columns of the model, of clients and persons, numbers of rows, and the cohort."""

    covariates: Dictionary
    response: Column
    exposure: Column | None = None
    clients: str | None = None
    min_rows: int = 1
    max_rows: int = 10**12
    cohort: tuple[Criterion, ...] = ()
    persons: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns with rules: covariates, response and exposure."""
        return (*self.covariates.columns, self.response, *(() if self.exposure is None else (self.exposure,)))

    @property
    def read(self) -> tuple[Column, ...]:
        """All columns that are read, with the names of clients and of persons."""
        return (*self.columns, *(Column(name) for name in (self.clients, self.persons) if name is not None))


@dataclass(frozen=True)
class Examination:
    """Findings about a table, the numbers of rows that were read and that are used, and why others are not."""

    findings: tuple[Finding, ...]
    rows: int
    used: int
    flow: Flow | None = None

    @property
    def fits(self) -> bool:
        """Whether the table can be used."""
        return not any(finding.is_error for finding in self.findings)


def examine_table(table: pa.Table, wanted: Wanted) -> Examination:
    """Hold a table against what a study wants: the columns of the cohort in all rows, the others in its rows."""
    of_cohort = {each.column.name: each.column for each in wanted.cohort}
    of_model = {column.name for column in wanted.columns}
    findings = [
        finding
        for name, column in of_cohort.items()
        for finding in _column_findings(table, column)
        if name not in of_model or finding.code in OF_KIND
    ]
    stopped = any(found.is_error for found in findings)
    kept = np.ones(table.num_rows, dtype=bool) if stopped else in_cohort(table, wanted.cohort)
    rows, places = table.filter(pa.array(kept)), np.flatnonzero(kept) + 1
    if not stopped and wanted.cohort and not kept.any():
        remedy = "Is the mapping right, and the table the right one? The findings above and the rules say what is read"
        findings.append(Finding("EMPTY_COHORT", "", 0, "no row meets the rules of the cohort", remedy))
    said = {(found.code, found.column) for found in findings}
    findings += [
        replace(found, first=tuple(int(places[place - 1]) for place in found.first))
        for column in wanted.columns
        for found in _column_findings(rows, column)
        if (found.code, column.name) not in said and (not stopped or found.code in OF_KIND)
    ]
    findings += _client_findings(rows, wanted.clients)
    if wanted.persons is not None and table.column_names.count(wanted.persons) != 1:
        findings.append(_not_one(table, wanted.persons))
    if any(found.is_error for found in findings):
        return Examination(tuple(findings), table.num_rows, 0)
    flow = Flow.of(table, wanted.cohort, wanted.columns)
    findings += _size_findings(rows.num_rows, flow.used, wanted)
    findings += _copy_findings(prepare_table(table, wanted), wanted)
    return Examination(tuple(findings), table.num_rows, flow.used, flow)


OF_KIND = ("COLUMN_MISSING", "COLUMN_TWICE", "OTHER_TYPE", "DECIMAL_COMMA", "UNKNOWN_LEVEL", "ALL_MISSING")
"""Findings about the kind of a column, which do not depend on the cohort."""


def complete_rows(table: pa.Table, columns: Iterable[Column]) -> np.ndarray:
    """Return which rows are kept: those without a missing value in a column whose rule is to drop them, ``(n,)``."""
    kept = np.ones(table.num_rows, dtype=bool)
    for column in columns:
        if column.rule.missing == "drop":
            kept &= ~missing_in(whole_column(table, column.name))
    return kept


def prepare_table(table: pa.Table, wanted: Wanted) -> pa.Table:
    """Return the columns that are read, of the rows in the cohort that the rules for missing values do not drop."""
    names = list(dict.fromkeys(column.name for column in wanted.read))
    kept = in_cohort(table, wanted.cohort) & complete_rows(table, wanted.columns)
    return table.select(names).filter(pa.array(kept))


# ---------------------------------------------------------------------- findings about columns


def _column_findings(table: pa.Table, column: Column) -> Iterator[Finding]:
    if table.column_names.count(column.name) != 1:
        yield _not_one(table, column.name)
        return
    values = whole_column(table, column.name)
    missing = missing_in(values)
    if len(values) and missing.all():
        remedy = "Export the column again, with values"
        yield Finding("ALL_MISSING", column.name, len(values), "all values are missing", remedy)
        return
    yield from _of_category(values, column) if column.is_category else _of_numbers(values, column)
    if missing.any():
        yield _of_missing(missing, column)


def _client_findings(table: pa.Table, clients: str | None) -> Iterator[Finding]:
    """Yield what is wrong with the column of the names of clients."""
    if clients is None:
        return
    if table.column_names.count(clients) != 1:
        yield _not_one(table, clients)
    elif (missing := missing_in(whole_column(table, clients))).any():
        yield _of_missing(missing, Column(clients))


def _not_one(table: pa.Table, column: str) -> Finding:
    """Return that a table lacks a column, or has several of its name."""
    names: list[str] = table.column_names
    if column in names:
        return Finding("COLUMN_TWICE", column, 0, "the table has several columns of this name", "Rename all but one")
    folded = {name.casefold(): name for name in reversed(names)}
    near = get_close_matches(column.casefold(), folded, n=1, cutoff=0.7)
    hint = f" There is a column of a similar name: {folded[near[0]]!r}." if near else ""
    remedy = f"Add it, or rename yours: names must agree letter by letter.{hint}"
    return Finding("COLUMN_MISSING", column, 0, "the table has no column of this name", remedy)


def _of_missing(missing: NDArray[np.bool_], column: Column) -> Finding:
    rows = int(missing.sum())
    said = f"{rows:,} of {len(missing):,} rows have no value"
    if column.rule.missing == "refuse":
        remedy = "The study refuses missing values: complete them, or leave those rows out and tell the coordinator"
        return Finding("MISSING_VALUES", column.name, rows, said, remedy, first=_first(missing))
    done = "these rows are left out" if column.rule.missing == "drop" else "the study's value takes their place"
    return Finding("MISSING_VALUES", column.name, rows, f"{said}; {done}", "Nothing to do", is_error=False)


def _of_category(values: pa.Array, column: Column) -> Iterator[Finding]:
    text = isinstance(column.levels[0], str)
    if (str(values.type) in TEXT) != text and not pa.types.is_boolean(values.type):
        said = f"the column is of type {values.type}, the study has levels of {'text' if text else 'numbers'}"
        remedy = "Recode the column with the levels of the study"
        yield Finding("OTHER_TYPE", column.name, len(values), said, remedy)
        return
    codes = codes_of(values, column.levels)
    if unknown := int(np.sum(codes == -2)):
        said = f"{unknown:,} of {len(values):,} rows have a level that the study does not list"
        remedy = f"Recode them; the study lists {', '.join(map(str, column.levels))} (case and spaces count)"
        yield Finding("UNKNOWN_LEVEL", column.name, unknown, said, remedy, first=_first(codes == -2))
    absent = [str(level) for i, level in enumerate(column.levels) if not np.any(codes == i)]
    if absent:
        said = f"no row has level {', '.join(absent)}"
        remedy = "Nothing to do if that is so here: other sites may have it"
        yield Finding("ABSENT_LEVEL", column.name, 0, said, remedy, is_error=False)


def _of_numbers(values: pa.Array, column: Column) -> Iterator[Finding]:
    if not is_number(values.type):
        yield _not_numbers(values, column)
        return
    numbers = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    if infinite := int(np.sum(np.isinf(numbers))):
        said, remedy = f"{infinite:,} of {len(values):,} rows are infinite", "Replace them, or mark them as missing"
        yield Finding("INFINITE", column.name, infinite, said, remedy, first=_first(np.isinf(numbers)))
    is_outside = ~column.rule.contains(numbers) & np.isfinite(numbers)
    finite = numbers[np.isfinite(numbers)]
    if outside := int(np.sum(is_outside)):
        factors = likely_factors(finite, column) or nearest_factor(finite, column)
        said = f"{outside:,} of {len(values):,} rows are outside the range {column.rule.range_text}"
        remedy = (
            _ask_units(factors, column, "nearly all would be inside")
            if factors
            else "Correct them, or ask the coordinator about it"
        )
        first, found = _first(is_outside), tuple(factors.values())
        yield Finding("OUT_OF_RANGE", column.name, outside, said, remedy, first=first, factors=found)
    elif factors := centring_factor(finite, column):
        said = "the middle of the column is far from what the study expects"
        remedy, found = _ask_units(factors, column, "it would not be"), tuple(factors.values())
        yield Finding("OTHER_UNITS", column.name, len(values), said, remedy, is_error=False, factors=found)


def _ask_units(factors: Mapping[str, float], column: Column, then: str) -> str:
    return (
        f"After multiplication by {' or '.join(factors)} {then}: is the unit {column.rule.unit or 'that of the study'}?"
    )


def _first(concerned: np.ndarray) -> tuple[int, ...]:
    """Return the places of the first rows concerned, from 1; none if these are half of the rows or more."""
    places = np.flatnonzero(concerned)
    return () if 2 * len(places) >= len(concerned) else tuple(int(place) + 1 for place in places[:SHOWN_ROWS])


def _not_numbers(values: pa.Array, column: Column) -> Finding:
    if pa.types.is_temporal(values.type):
        said = f"the column has dates or times ({values.type})"
        remedy = "Compute a number from them first, such as days since admission"
        return Finding("OTHER_TYPE", column.name, len(values), said, remedy)
    text = values.cast(pa.large_string()).drop_null() if str(values.type) in TEXT else pa.array([], pa.large_string())
    commas = pc.sum(pc.match_substring_regex(text, r"^\s*[+-]?\d+,\d+\s*$")).as_py() or 0
    if commas:
        said = f"{commas:,} of {len(values):,} rows have a decimal comma"
        remedy = "Say decimal = \",\" in a mapping ('consilience site map'), or export the table with decimal points"
        return Finding("DECIMAL_COMMA", column.name, commas, said, remedy)
    numeric = pc.match_substring_regex(text, r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$")
    other = len(text) - (pc.sum(numeric).as_py() or 0) if len(text) else len(values)
    wrong = ~missing_in(values)
    if len(text):
        wrong[wrong] = ~np.asarray(numeric.to_numpy(zero_copy_only=False), dtype=bool)
    said = f"the column is of type {values.type}, and {other:,} of {len(values):,} rows are not numbers"
    remedy = "Export it as numbers, without units, signs such as < or >, or words"
    return Finding("OTHER_TYPE", column.name, other, said, remedy, first=_first(wrong))


def likely_factors(numbers: Array, column: Column) -> dict[str, float]:
    """Return factors of units that bring nearly all values into the range, by their names; none if half are inside."""
    if not len(numbers) or np.mean(column.rule.contains(numbers)) >= 0.5:
        return {}
    known = {
        name: factor
        for name, factor in factors_to(column.rule.unit).items()
        if np.mean(column.rule.contains(numbers * factor)) > 0.95
    }
    of_time = [name for name in known if "(from" in name]
    order = sorted(of_time or known, key=lambda name: _middle(numbers * known[name], column))
    return {name: known[name] for name in order}


def nearest_factor(numbers: Array, column: Column) -> dict[str, float]:
    """Return the factor nearest to 1 that brings nearly all values into the range, if some are outside; or none.

    It is one of units of time, or one that moves the middle of the column towards what the study expects. If most of
    the values outside are the same, they are rather a code of missing values.
    """
    outside = numbers[~column.rule.contains(numbers)]
    if len(outside) < OUTSIDE * len(numbers) or np.max(np.unique(outside, return_counts=True)[1]) > len(outside) / 2:
        return {}
    is_time = _unit_name(column.rule.unit) in TIMES
    known = {
        name: factor
        for name, factor in factors_to(column.rule.unit).items()
        if np.mean(column.rule.contains(numbers * factor)) > INSIDE
        and ("(from" in name if is_time else _middle(numbers * factor, column) < _middle(numbers, column))
    }
    name = min(known, key=lambda each: abs(np.log(known[each])), default="")
    return {name: known[name]} if name else {}


def centring_factor(numbers: Array, column: Column) -> dict[str, float]:
    """Return the factor that brings the middle of a column to what the study expects, if it is far away; or none."""
    if not len(numbers) or not _middle(numbers, column) > FAR:
        return {}
    known = factors_to(column.rule.unit)
    inside = [name for name, factor in known.items() if np.mean(column.rule.contains(numbers * factor)) > INSIDE]
    name = min(inside, key=lambda each: _middle(numbers * known[each], column), default="")
    return {name: known[name]} if name and _middle(numbers * known[name], column) < NEAR else {}


def _middle(numbers: Array, column: Column) -> float:
    """Return how far the median of a column is from its centre, in its scale; 0 if the study states none."""
    rule = column.rule
    inside = numbers[rule.contains(numbers)]
    if (rule.centre, rule.scale) == (0.0, 1.0) or not len(inside):
        return 0.0
    return float(abs(np.median(rule.values(inside))))


def _unit_name(unit: str) -> str:
    """Return a unit as :data:`TIMES` and :data:`CONFUSED` name it."""
    return unit.strip().lower().removesuffix("s")


def factors_to(unit: str) -> dict[str, float]:
    """Return factors to a unit by their names: from other times to a time, else decimal and confused ones.

    Examples
    --------
    >>> list(factors_to("kg"))
    ['10', '100', '1000', '0.1', '0.01', '0.001', '0.4536', '2.2046']
    >>> list(factors_to("hours"))[:3]
    ['10', '0.1', '8766 (from years)']
    """
    name = _unit_name(unit)
    if name not in TIMES:
        is_known = not name or name in CONFUSED or "/" in name
        return DECIMAL | (CONFUSED.get(name, {}) if is_known else LENGTHS | WEIGHTS | GLUCOSE)
    others = {f"{days / TIMES[name]:.4g} (from {each}s)": days / TIMES[name] for each, days in TIMES.items()}
    return {"10": 10.0, "0.1": 0.1} | {name: factor for name, factor in others.items() if factor != 1}


# ---------------------------------------------------------------------- findings about the table


def _size_findings(rows: int, used: int, wanted: Wanted) -> Iterator[Finding]:
    if used < wanted.min_rows:
        said = f"{used:,} of {rows:,} rows can be used, and at least {wanted.min_rows:,} are needed"
        yield Finding("TOO_FEW_ROWS", "", used, said, "The site cannot take part with this table")
    if used > wanted.max_rows:
        said = f"the table has more rows than the {wanted.max_rows:,} of the study"
        yield Finding("TOO_MANY_ROWS", "", used, said, "Ask the coordinator: is it the right table?")


COPIES = "NEAR_COPIES"
"""Code of a finding on near copies among the rows."""


def _copy_findings(table: pa.Table, wanted: Wanted) -> Iterator[Finding]:
    numbers = [column.name for column in wanted.columns if not column.is_category]
    values = [whole_column(table, name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in numbers]
    found = count_near_copies(np.column_stack(values)) if values else 0
    if said := say_near_copies(found, table.num_rows):
        remedy = "Is the table joined twice, or does a person stand in it several times? Then export it again"
        yield Finding(COPIES, "", found, said, remedy, is_error=False)


# ---------------------------------------------------------------- used rows


def check_people(table: pa.Table, people: str) -> None:
    """Raise an error if a table does not say of each row which person it is of, though the policy names the column."""
    if not people:
        return
    if table.column_names.count(people) != 1:
        raise InvalidInputError(
            f"the policy says that column {people!r} tells people apart, and the table lacks it: export it too. It is "
            "compared at the site and never leaves"
        )
    if missing := int(np.count_nonzero(missing_in(whole_column(table, people)))):
        raise InvalidInputError(f"column {people!r} tells people apart and is empty in {missing:,} rows: fill it in")


@dataclass(frozen=True, eq=False)
class UsedRows:
    """The rows of a table that a study uses, with all columns of the table, and their tags.

    The columns that an earlier study read may not be among those of this one: its rows are compared in its columns, as
    long as the table has them.

    Parameters
    ----------
    whole : pyarrow.Table
        The whole table, with the rows that the study drops.
    read : tuple of str
        Names of the columns that the study reads.
    secret : bytes
    kept : (N,) array of bool
        Which rows of the whole table are used.
    people : str
        Name of the column that tells people apart; empty if none is known.
    """

    whole: pa.Table
    read: tuple[str, ...]
    secret: bytes = field(repr=False)
    kept: NDArray[np.bool_]
    people: str = ""
    _known: dict[tuple[str, ...], RowTags] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        table: pa.Table,
        columns: Iterable[Column],
        secret: bytes,
        people: str = "",
        cohort: Sequence[Criterion] = (),
    ) -> UsedRows:
        """Return the rows in the cohort that the rules of the columns for missing values do not drop.

        Raises
        ------
        InvalidInputError
            If the table lacks the column that tells people apart, or if it has missing values there.
        """
        read = tuple(columns)
        check_people(table, people)
        kept = in_cohort(table, cohort) & complete_rows(table, read)
        return cls(table, tuple(column.name for column in read), secret, kept, people)

    @cached_property
    def table(self) -> pa.Table:
        """The rows used, with all columns."""
        return self.whole.filter(pa.array(self.kept))

    @property
    def n(self) -> int:
        """Number of rows used."""
        return int(np.count_nonzero(self.kept))

    def without(self, rows: NDArray[np.bool_]) -> UsedRows:
        """Return the rows used without some rows of the whole table, ``(N,)``."""
        return replace(self, kept=self.kept & ~rows)

    @property
    def people_columns(self) -> tuple[str, ...]:
        """Columns that tell people apart: one or none."""
        return (self.people,) if self.people else ()

    @property
    def people_tags(self) -> RowTags | None:
        """Tags of the people of the rows used; None if no column tells people apart."""
        return self.tags_in(self.people_columns) if self.people else None

    def whole_tags(self, names: tuple[str, ...]) -> NDArray[np.uint64] | None:
        """Return the tags of all rows of the whole table, in their order; None if it lacks a column, or for none."""
        if not names or any(self.whole.column_names.count(name) != 1 for name in names):
            return None
        return tags_in_order(self.whole, names, self.secret)

    def whole_in(self, tags: RowTags) -> NDArray[np.bool_]:
        """Return which rows of the whole table are among others; none if the table lacks one of their columns."""
        mine = self.whole_tags(tags.columns)
        if mine is None:
            return np.zeros(self.whole.num_rows, dtype=bool)
        one, others = number_tags(mine, tags.tags)
        return np.isin(one, others)

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
