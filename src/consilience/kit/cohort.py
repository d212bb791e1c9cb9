"""The cohort of a study at a site: which rows belong to it, and the flow from the rows read to the rows used.

The site sees the flow in full. A released file has the number of rows used and, of each set of rows that is left out, a
number that is rounded at random to a multiple of a width, the least number of rows about which the site's policy lets
something be said: up with the probability of the fraction, otherwise down. The draw is a keyed hash of the set of rows
under the secret of the site. The same set has the same number in every study, so that repeated questions are of no use.
Two sets that differ by one row have numbers whose distributions differ by one in the width, whatever else is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from consilience.columns import Column
from consilience.columns.arrow import TEXT, codes_of
from consilience.data.file_columns import is_number, numbers_in
from consilience.files.site_file import CountDocument, FlowDocument
from consilience.kit.row_tags import missing_in, tags_in_order, whole_column
from consilience.kit.study import CohortRule, Study
from consilience.numerics.arrays import Mask

DRAWS = 2**64


@dataclass(frozen=True)
class Criterion:
    """A rule of a cohort, with the column that it reads."""

    rule: CohortRule
    column: Column

    def holds(self, table: pa.Table) -> Mask:
        """Return which rows meet the rule, ``(n,)``, each by itself; one without a value, or an unreadable one, not."""
        values = whole_column(table, self.column.name)
        missing = missing_in(values)
        if not self.column.is_category:
            return self.rule.holds(numbers_in(values, missing))
        if not isinstance(self.column.levels[0], str) and str(values.type) in TEXT:
            values = pa.array(numbers_in(values, missing))
        codes = codes_of(values, self.column.levels)
        chosen = [i for i, level in enumerate(self.column.levels) if level in (self.rule.one_of or ())]
        return np.isin(codes, chosen)


def criteria_of(study: Study) -> tuple[Criterion, ...]:
    """Return the rules of a study's cohort with their columns."""
    columns = {each.name: each.column() for each in study.columns}
    return tuple(Criterion(rule, columns[rule.column]) for rule in study.cohort or ())


def in_cohort(table: pa.Table, criteria: Sequence[Criterion]) -> Mask:
    """Return which rows meet all rules, ``(n,)``."""
    kept = np.ones(table.num_rows, dtype=bool)
    for criterion in criteria:
        kept &= criterion.holds(table)
    return kept


# ---------------------------------------------------------------- flow


@dataclass(frozen=True, eq=False)
class Flow:
    """From the rows of a table to those that are used, as sets of rows.

    Parameters
    ----------
    excluded : tuple of (str, (n,) array of bool)
        Each rule of the cohort in words, and the rows that meet all rules before it and not this one.
    missing : tuple of (str, (n,) array of bool)
        Each column with a rule for missing values, and the rows of the cohort without a value there.
    left_out : (n,) array of bool
        Rows of the cohort that are left out because a value is missing.
    """

    excluded: tuple[tuple[str, Mask], ...]
    missing: tuple[tuple[str, Mask], ...]
    left_out: Mask

    @classmethod
    def of(cls, table: pa.Table, criteria: Sequence[Criterion], columns: Sequence[Column]) -> Flow:
        """Return the flow of a table that has all columns.

        Parameters
        ----------
        table : pyarrow.Table
        criteria : sequence of Criterion
        columns : sequence of Column
            Those of the model.
        """
        kept, excluded = np.ones(table.num_rows, dtype=bool), []
        for criterion in criteria:
            holds = criterion.holds(table)
            excluded.append((criterion.rule.text, kept & ~holds))
            kept = kept & holds
        incomplete = [
            (column, kept & missing_in(whole_column(table, column.name)))
            for column in columns
            if column.rule.missing != "refuse"
        ]
        left_out = np.zeros(table.num_rows, dtype=bool)
        for column, rows in incomplete:
            left_out |= rows & (column.rule.missing == "drop")
        return cls(tuple(excluded), tuple((column.name, rows) for column, rows in incomplete), left_out)

    @property
    def used(self) -> int:
        """Number of rows used."""
        gone = self.left_out.copy()
        for _, rows in self.excluded:
            gone |= rows
        return int(np.sum(~gone))

    @property
    def lines(self) -> list[str]:
        """The flow in full, for the people at the site."""
        found = [f"{len(self.left_out):,} rows were read."]
        found += [f"{rows.sum():,} are not in the cohort: {said} does not hold." for said, rows in self.excluded]
        found += [f"{rows.sum():,} of the cohort have no {name}." for name, rows in self.missing if rows.any()]
        found += [f"{self.left_out.sum():,} are left out, since a value is missing."] * bool(self.left_out.any())
        return [*found, f"{self.used:,} are used."]

    def document(self, table: pa.Table, width: int, secret: bytes) -> FlowDocument | None:
        """Return what a file says of the flow: numbers of rows that are rounded at random; None if nothing is left out.

        Parameters
        ----------
        table : pyarrow.Table
            The table of the flow: a set is known by the values of its rows, in all columns that can be compared.
        width : int
            Numbers are multiples of it.
        secret : bytes
            Of the site; it decides where to round.
        """
        if not self.excluded and not self.missing:
            return None
        keys = _row_keys(table, secret)
        counts = [
            [CountDocument(of=said, rows=_rounded(rows, keys, width, secret)) for said, rows in part]
            for part in (self.excluded, self.missing)
        ]
        left = _rounded(self.left_out, keys, width, secret)
        return FlowDocument(width=width, excluded=counts[0], missing=counts[1], left_out=left)


def _row_keys(table: pa.Table, secret: bytes) -> list[bytes]:
    """Return a keyed hash of each row, of its values in all columns of numbers and of text."""
    once = sorted(name for name in table.column_names if table.column_names.count(name) == 1)
    values = {name: whole_column(table, name).type for name in once}
    names = tuple(name for name, kind in values.items() if is_number(kind) or str(kind) in TEXT)
    return [tag.tobytes() for tag in tags_in_order(table, names, secret)]


def _rounded(rows: Mask, keys: Sequence[bytes], width: int, secret: bytes) -> int:
    """Return the number of rows, rounded at random to a multiple of the width by a keyed hash of the set."""
    down, over = divmod(int(np.sum(rows)), width)
    drawn = hashlib.blake2b(digest_size=8, key=secret, person=b"consilience-flow")
    for key in sorted(key for key, chosen in zip(keys, rows, strict=True) if chosen):
        drawn.update(key)
    return width * (down + (int.from_bytes(drawn.digest()) * width < over * DRAWS))
