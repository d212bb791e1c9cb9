"""What letters on the columns of sites say, side by side: columns that may be wrong, and Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from consilience.columns import Column
from consilience.errors import InvalidInputError
from consilience.kit.bands import band_labels, banded, edges_of, fit_bands
from consilience.kit.site_comparison import ColumnFinding, Relations, SiteColumns, compare_columns
from consilience.kit.study import Study
from consilience.kit.table_letter import TableLetter, has_sides, letter_columns, letter_pairs
from consilience.kit.table_one import TableOne, TableOneRow, level_rows, number_row
from consilience.numerics.arrays import Array

LARGEST_BALANCE = 0.97
"""Largest difference of the shares of both sides that is counted with."""
CLEAR = 3.0
"""Standard deviations of noise below which a count is shown as 0."""


def compare_letters(study: Study, letters: Sequence[TableLetter]) -> list[ColumnFinding]:
    """Compare the columns of sites by their letters, as those of files are.

    Columns that look shuffled are not named: with this noise relations are too often lost.

    Raises
    ------
    InvalidInputError
        If a letter is for another study, its bands are not those of the study, or two are of one site.
    """
    names = [letter.site for letter in letters]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidInputError(f"there are two letters of {', '.join(sorted(twice))}: pass the newer one")
    columns = tuple(banded(each) or each for each in (study.response, *study.sources.columns))
    found = compare_columns(columns, [LetterReader(study, each).columns for each in letters])
    return [each for each in found if each.what != "shuffled"]


def table_of_letters(study: Study, letters: Sequence[TableLetter]) -> TableOne:
    """Return Table 1 by the letters of sites, without the digits that are noise."""
    readers = [LetterReader(study, letter) for letter in letters]
    weight = np.array([each.n for each in readers])
    nothing = tuple(float("nan") for _ in letters)
    rows = [TableOneRow("", "rows: about", tuple(each.about(each.letter.rows) for each in readers), nothing)]
    for column in letter_columns(study):
        if column.is_category:
            coarse = np.array([[float(each.about(n)) for n in each.counts(column)] for each in readers])[:, :-2]
            shares = coarse / np.maximum(coarse.sum(axis=1, keepdims=True), 1.0)
            rows += level_rows(column, shares.T, coarse.sum(axis=1))
        else:
            moments = np.array([each.columns.moments[column.name] for each in readers])
            rows.append(number_row(column, moments[:, 0], moments[:, 1], weight))
        missing = tuple(each.about(each.counts(column)[-1]) for each in readers)
        if any(map(int, missing)):
            rows.append(TableOneRow(column.name, f"{column.name} missing: about", missing, nothing))
    return TableOne(tuple(letter.site for letter in letters), tuple(rows))


class LetterReader:
    """What a letter says of the columns of its site.

    Parameters
    ----------
    study : Study
    letter : TableLetter

    Raises
    ------
    InvalidInputError
        If the letter is for another study, or its bands are not those of the study.
    """

    def __init__(self, study: Study, letter: TableLetter) -> None:
        if letter.study != study.identity:
            raise InvalidInputError(f"the letter of {letter.site} is for another study, or for another version of it")
        self.study, self.letter = study, letter
        self._known = {column.name: column for column in letter_columns(study)}
        labels = {name: band_labels(column) for name, column in self._known.items()}
        most = {name: len(labels[name]) - 2 for name, column in self._known.items() if has_sides(column)}
        bands = {name: tuple(of for of, _ in found) for name, found in letter.bands.items()}
        fits = bands == labels and list(letter.pairs) == letter_pairs(study) and set(letter.middles) == set(most)
        if not fits or not all(0 < letter.middles[name] < many for name, many in most.items()):
            raise InvalidInputError(
                f"the letter of {letter.site} does not have the bands of the study: another version of the kit wrote "
                "it. Ask for another letter"
            )

    @property
    def n(self) -> float:
        """Number of rows by the letter, at least 1."""
        return float(max(self.letter.rows, 1))

    def about(self, count: float) -> str:
        """Return a count of rows without the digits that are noise."""
        spread = float(self.letter.variances[0]) ** 0.5
        unit = 10 ** max(round(np.log10(max(spread, 1.0))), 0)
        return str(0 if count < CLEAR * spread else round(count / unit) * unit)

    def counts(self, column: Column) -> Array:
        """Return the counts of the bands of a column, with noise."""
        return np.array([rows for _, rows in self.letter.bands[column.name]], dtype=float)

    def shares(self, column: Column) -> Array:
        """Return the share of each level of a category among the rows that have one."""
        counts = np.maximum(self.counts(column)[: len(column.levels)], 1.0)
        return np.asarray(counts / counts.sum())

    @cached_property
    def columns(self) -> SiteColumns:
        """The columns, as they are compared."""
        numbers = [column for column in self._known.values() if not column.is_category]
        variance = float(self.letter.variances[0])
        fitted = {column.name: fit_bands(column, self.counts(column), variance) for column in numbers}
        moments = {name: found for name, (found, _) in fitted.items()}
        errors = {name: found for name, (_, found) in fitted.items()}
        return SiteColumns(self.letter.site, moments, errors, self._relations(moments))

    def _relations(self, moments: Mapping[str, Array]) -> Relations:
        """Return correlations by the pairs: those of normal numbers whose sides agree as often."""
        names, levels = [], []
        for column in self.study.sources.columns:
            if column.name in self._known:
                own = column.coded if len(column.levels) == 2 else range(len(column.levels)) or (-1,)
                names += [column.name] * len(own)
                levels += list(own)
        signs = [
            -1.0 if at == 0 and has_sides(self._known[name]) else 1.0 for name, at in zip(names, levels, strict=True)
        ]
        targets, turned = [*names, self.study.model.response], [*signs, 1.0]
        found = np.array([[self._correlation(one, other, moments) for other in targets] for one in names])
        found = found.reshape(len(names), len(targets), 2)
        values = found[..., 0] * np.outer(signs, turned)
        shares = np.array(
            [self.shares(self._known[name])[at] if at >= 0 else np.nan for name, at in zip(names, levels, strict=True)]
        )
        room = np.maximum(shares * (1 - shares), 1e-3)
        of_shares = 1 / (self.n * room) + self.letter.variances[0] / (self.n * room) ** 2
        return Relations(names, values, found[..., 1], shares, of_shares)

    def _correlation(self, one: str, other: str, moments: Mapping[str, Array]) -> tuple[float, float]:
        """Return Fisher's transform of the correlation of two columns, and its variance; NaN if it is not known."""
        pairs = self.letter.pairs
        excess = pairs.get((one, other), pairs.get((other, one)))
        if excess is None:
            return float("nan"), float("nan")
        (a, has_a), (b, has_b) = (self._balance(self._known[name], moments) for name in (one, other))
        n, room = max(self.n * has_a * has_b, 1.0), (1 - a**2) * (1 - b**2)
        sides = np.clip((excess / n - a * b) / np.sqrt(room), -1.0, 1.0)
        variance = (np.pi / 2) ** 2 * (1 / n + self.letter.variances[1] / n**2) / room
        return float(np.arctanh(np.clip(np.sin(np.pi / 2 * sides), -0.99, 0.99))), float(variance)

    def _balance(self, column: Column, moments: Mapping[str, Array]) -> tuple[float, float]:
        """Return the share of rows above the middle of a column less that below, and that of rows with a value."""
        has_value = 1 - float(np.clip(self.counts(column)[-2:].sum() / self.n, 0.0, 0.9))
        if column.is_category:
            low, high = self.shares(column)
            return float(np.clip(high - low, -LARGEST_BALANCE, LARGEST_BALANCE)), has_value
        mean, spread = (moments[column.name] - (column.rule.centre, 0.0)) / column.rule.scale
        edge = edges_of(column)[self.letter.middles[column.name] - 1]
        found = 1 - 2 * float(ndtr((edge - mean) / spread))
        return float(np.clip(found, -LARGEST_BALANCE, LARGEST_BALANCE)), has_value
