"""Table 1: the rows of each site, column by column, from the files, with standardised differences between sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.columns import Column
from consilience.columns.dictionary import INVERSES
from consilience.files.site_file import SiteFile
from consilience.kit.study import Study
from consilience.kit.study_terms import place_of
from consilience.numerics.arrays import Array
from consilience.report.scale import round_to


@dataclass(frozen=True)
class TableOneRow:
    """One line of Table 1.

    Parameters
    ----------
    column : str
        Column of the study; empty for what concerns the site as a whole.
    label : str
        What the line states, with its unit.
    values : tuple of str
        One text for each site.
    differences : tuple of float
        Standardised difference of each site from all others together: of means in pooled standard deviations, or of
        shares in those of a share; NaN where there is none.
    """

    column: str
    label: str
    values: tuple[str, ...]
    differences: tuple[float, ...]

    @property
    def largest(self) -> float:
        """The largest standardised difference, whatever its sign; NaN if there is none."""
        known = [abs(each) for each in self.differences if np.isfinite(each)]
        return max(known, default=float("nan"))


@dataclass(frozen=True)
class TableOne:
    """Table 1 of a study by site.

    Parameters
    ----------
    sites : tuple of str
    rows : tuple of TableOneRow
    """

    sites: tuple[str, ...]
    rows: tuple[TableOneRow, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns of :attr:`cells`."""
        return ("", *self.sites, "largest standardised difference")

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The table as rows of text, the label first and the largest standardised difference last."""
        return [(row.label, *row.values, "" if np.isnan(row.largest) else f"{row.largest:.2f}") for row in self.rows]

    def __str__(self) -> str:
        return "\n".join(align_rows([self.header, *self.cells], 1))


def align_rows(rows: Sequence[Sequence[str]], texts: int) -> list[str]:
    """Return the lines of a table: the first columns, of texts, to the left, and numbers to the right."""
    columns = []
    for j, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        columns.append([cell.ljust(width) if j < texts else cell.rjust(width) for cell in column])
    return ["  ".join(cells) for cells in zip(*columns, strict=True)]


def table_one(study: Study, files: Sequence[SiteFile]) -> TableOne:
    """Return Table 1 of the files of the sites.

    A number has mean and standard deviation; after a transform, the value at its mean and those one standard deviation
    below and above, in the unit of the column. Levels have about how many rows they have, and their share.
    """
    nothing = tuple(float("nan") for _ in files)
    rows = [TableOneRow("", "rows used", tuple(f"{file.fit.summary.weight:,.0f}" for file in files), nothing)]
    for name, label in (("wave", "wave"), ("data_cut", "data until")):
        if any(getattr(file, name) for file in files):
            rows.append(TableOneRow("", label, tuple(getattr(file, name) or "not stated" for file in files), nothing))
    covariates = (column for column in study.sources.columns if place_of(study, column) is not None)
    for column in (study.response, *covariates):
        rows += _level_rows(study, column, files) if column.is_category else [_number_row(study, column, files)]
    rows += _left_out_rows(files, nothing)
    return TableOne(tuple(file.site for file in files), tuple(rows))


def _number_row(study: Study, column: Column, files: Sequence[SiteFile]) -> TableOneRow:
    rule, is_response = column.rule, column.name == study.model.response
    j = 0 if is_response else place_of(study, column)
    summaries = [file.fit.summary for file in files]
    mean = np.array([(each.y_mean if is_response else each.x_mean)[j] for each in summaries]) * rule.scale + rule.centre
    products = [each.y_covariance if is_response else np.diag(each.x_variance) for each in summaries]
    spread = np.sqrt(np.maximum([each[j, j] for each in products], 0.0)) * rule.scale
    return number_row(column, mean, spread, np.array([each.weight for each in summaries]))


def number_row(column: Column, mean: Array, spread: Array, weight: Array) -> TableOneRow:
    """Return the line of a number.

    Parameters
    ----------
    column : Column
    mean, spread : (M,) array
        Mean and standard deviation at each site, after the transform.
    weight : (M,) array
        Rows of each site.
    """
    rule = column.rule
    unit = f", {rule.unit}" if rule.unit else ""
    if rule.transform == "none":
        label = f"{column.name}{unit}: mean (SD)"
        values = tuple(f"{round_to(m)} ({round_to(s)})" for m, s in zip(mean, spread, strict=True))
    else:
        label = f"{column.name}{unit}: middle (middle two thirds), from {rule.transform}"
        ends = [INVERSES[rule.transform](mean + sign * spread) for sign in (0, -1, 1)]
        values = tuple(
            f"{round_to(m)} ({round_to(low)} to {round_to(high)})" for m, low, high in zip(*ends, strict=True)
        )
    return TableOneRow(column.name, label, values, tuple(_of_means(mean, spread, weight)))


def _level_rows(study: Study, column: Column, files: Sequence[SiteFile]) -> Iterator[TableOneRow]:
    """Yield a line for each level; a response of more than two classes has none in the files."""
    weight = np.array([file.fit.summary.weight for file in files])
    if column.name == study.model.response:
        if len(column.levels) != 2 or study.classes is None:
            return
        second = np.array([file.fit.summary.y_mean[0] for file in files])
        shares = {study.classes[0]: 1 - second, study.classes[1]: second}
    else:
        at = place_of(study, column) or 0
        coded = [np.array([file.fit.summary.x_mean[at + k] for file in files]) for k in range(len(column.terms))]
        shares = dict(zip((column.levels[i] for i in column.coded), coded, strict=True))
        reference = next(level for i, level in enumerate(column.levels) if i not in column.coded)
        shares[reference] = 1 - np.sum(coded, axis=0)
    yield from level_rows(column, np.array([shares[level] for level in column.levels]), weight)


def level_rows(column: Column, shares: Array, weight: Array) -> Iterator[TableOneRow]:
    """Yield a line for each level of a category, from the shares ``(levels, M)`` and the rows ``(M,)`` of the sites."""
    for level, found in zip(column.levels, shares, strict=True):
        share = np.clip(found, 0.0, 1.0)
        values = tuple(f"{n * p:,.0f} ({100 * p:.0f} %)" for n, p in zip(weight, share, strict=True))
        spread = np.sqrt(share * (1 - share))
        yield TableOneRow(column.name, f"{column.name} {level}: n (%)", values, tuple(_of_means(share, spread, weight)))


def _of_means(mean: Array, spread: Array, weight: Array) -> Iterator[float]:
    """Yield the difference of each site from the others together, in the root of the mean of both variances."""
    for m in range(len(mean)):
        others = np.arange(len(mean)) != m
        total = weight[others].sum()
        if not total > 0:
            yield float("nan")
            continue
        middle = float(weight[others] @ mean[others] / total)
        variance = float(weight[others] @ (spread[others] ** 2 + (mean[others] - middle) ** 2) / total)
        pooled = np.sqrt((spread[m] ** 2 + variance) / 2)
        yield float((mean[m] - middle) / pooled) if pooled > 0 else float("nan")


def _left_out_rows(files: Sequence[SiteFile], nothing: tuple[float, ...]) -> Iterator[TableOneRow]:
    """Yield about how many rows each rule of the cohort leaves out, and how many lack a value, as the files say."""
    for part, label in (("excluded", "not in the cohort, {}: about"), ("missing", "{} missing: about")):
        names = dict.fromkeys(count.of for file in files if file.flow is not None for count in getattr(file.flow, part))
        for name in names:
            found = [
                {} if file.flow is None else {count.of: count.rows for count in getattr(file.flow, part)}
                for file in files
            ]
            values = tuple(f"{each[name]:,}" if name in each else "not stated" for each in found)
            yield TableOneRow(name if part == "missing" else "", label.format(name), values, nothing)
