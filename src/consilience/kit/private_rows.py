"""Rows of a table for answers with noise: each row by itself, and no value that stops an answer or changes another row.

A refusal that depends on a value of a row, or a column that is read as text because of one cell, would be an answer
without noise. A cell that does not fit the study therefore makes its row count as zeros, and only the people at the
site are told. What is refused is refused for the form of a table: a column that is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from consilience.columns import Column
from consilience.columns.arrow import TEXT, codes_of
from consilience.data.file_columns import numbers_in
from consilience.errors import InvalidInputError
from consilience.kit.cohort import criteria_of, in_cohort
from consilience.kit.row_tags import missing_in, whole_column
from consilience.kit.study import PersonUnit, Study
from consilience.kit.study_terms import term_matrix
from consilience.model import Groups, Rows
from consilience.numerics.arrays import Array, Mask


@dataclass(frozen=True, eq=False)
class PrivateRows:
    """Rows for answers with noise, and what the people at the site are told about them.

    Parameters
    ----------
    rows : Rows
        Rows with a cell that does not fit are NaN in all columns.
    unfit : mapping of str to int
        Number of cells that do not fit, by column.
    zeros : int
        Number of rows that count as zeros.
    dropped : int
        Number of rows that are left out because a value is missing.
    outside : int
        Number of rows that are not in the cohort.
    further : int
        Number of rows that are left out since enough rows of the same person count.
    """

    rows: Rows
    unfit: Mapping[str, int]
    zeros: int
    dropped: int
    outside: int = 0
    further: int = 0

    @property
    def told(self) -> list[str]:
        """What the people at the site are told; it has counts and does not leave."""
        cells = ", ".join(f"{name} {count:,}" for name, count in self.unfit.items())
        found = [f"{self.zeros:,} of {self.rows.n:,} rows do not fit the study and count as zeros: {cells}."]
        left = [f"{self.dropped:,} rows are left out, since a value is missing."]
        others = [f"{self.outside:,} rows are not in the cohort, and contribute nothing."]
        more = [f"{self.further:,} rows are left out, since enough rows of the same person count."]
        said = ((found, self.zeros), (left, self.dropped), (others, self.outside), (more, self.further))
        return [line for lines, count in said if count for line in lines]


def private_rows(study: Study, table: pa.Table) -> PrivateRows:
    """Read the rows of a table by the rules of a study, each row by itself.

    Raises
    ------
    InvalidInputError
        If the table lacks a column, or has two of its name.
    """
    covariates, response = study.sources.columns, study.response
    criteria = criteria_of(study)
    names = [column.name for column in (*covariates, response, *(each.column for each in criteria))]
    for name in names if study.persons is None else [*names, study.persons.column]:
        if table.column_names.count(name) != 1:
            raise InvalidInputError(f"the table has no column {name!r}, or several: export it once, by this name")
    outside = ~in_cohort(table, criteria)
    dropped, unfit = np.zeros((2, table.num_rows), dtype=bool)
    counts, read = dict[str, int](), dict[str, Array]()
    for column in (*covariates, response):
        classes = study.classes if column is response else None
        values, missing, wrong = read_cells(whole_column(table, column.name), column, classes)
        drops = missing & ~outside & (column.rule.missing == "drop")
        wrong = ~outside & (wrong | (missing & (column.rule.missing == "refuse")))
        if wrong.any():
            counts[column.name] = int(wrong.sum())
        dropped, unfit = dropped | drops, unfit | wrong
        read[column.name] = values.T
    with np.errstate(all="ignore"):  # of cells that do not fit
        terms = term_matrix(study, lambda column: read[column.name])
    found = np.concatenate([terms.T, read[response.name].T])  # (d + 1, n)
    unfit |= ~dropped & ~outside & ~np.all(np.isfinite(found), axis=0)
    found[:, unfit] = np.nan
    kept = ~(dropped | outside)
    further = kept & ~first_rows(table, study.persons, kept)
    kept &= ~further
    inside = np.ascontiguousarray(found[:, kept])
    sizes = (int(np.sum(each)) for each in (unfit & kept, dropped, outside, further))
    return PrivateRows(Rows(inside[:-1].T, inside[-1:].T), counts, *sizes)


def first_rows(table: pa.Table, persons: PersonUnit | None, kept: Mask) -> Mask:
    """Mark the first rows of each person among those that are kept, as many as count; all rows without persons.

    Rows without a label are those of one person.
    """
    if persons is None:
        return kept
    labels = whole_column(table, persons.column).filter(pa.array(kept))
    codes = pc.dictionary_encode(labels, null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    counted = kept.copy()
    counted[kept] = Groups.of(codes).first_of_each(persons.rows)
    return counted


def read_cells(values: pa.Array, column: Column, classes: tuple[object, ...] | None) -> tuple[Array, Mask, Mask]:
    """Read the cells of a column: its covariates ``(terms, n)``, which are missing, and which do not fit, ``(n,)``."""
    missing = missing_in(values)
    if not column.is_category:
        numbers = numbers_in(values, missing)
        filled = missing & (column.rule.fill is not None)
        wrong = ~missing & ~(np.isfinite(numbers) & column.rule.contains(numbers))
        with np.errstate(all="ignore"):
            read = column.rule.values(np.where(wrong, np.nan, numbers))
        return read[None], missing & ~filled, wrong | (~missing & ~np.isfinite(read))
    text = isinstance(column.levels[0], str)
    if not text and str(values.type) in TEXT:
        values = pa.array(numbers_in(values, missing))
    levels = column.levels if classes is None else classes
    codes: NDArray[np.int64] = codes_of(values, levels)  # type: ignore[arg-type]
    wrong = ~missing & (codes < 0)
    places = np.where(codes < 0, 0, codes)
    found = places[None].astype(float) if classes is not None else column.indicators(places).T
    return np.array(found, dtype=float), missing, wrong
