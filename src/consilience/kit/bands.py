"""Public bands of the columns of a study, into which rows are counted, and what counts with noise say of a column.

The bands follow from the study, so that they say nothing about a site. Those of a number are in scales from its centre;
a column without a centre and a scale has them from its range, and one without a range has no bands. Bands reach far,
since a column in other units is far away. The bands of a category are its levels.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtr

from consilience.columns import Column
from consilience.columns.arrow import TEXT, codes_of
from consilience.columns.dictionary import LOWEST, TRANSFORMS
from consilience.data.file_columns import numbers_in
from consilience.kit.row_tags import missing_in
from consilience.numerics.arrays import Array

NEAR = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0)
EDGES = np.array([*(-each for each in reversed(NEAR)), 0.0, *NEAR])
"""Edges of bands, in scales from the centre."""
WITHIN = 6.0
"""Scales in the range of a column that states no centre and scale."""
START_SPREADS = (0.5, 1.0, 2.0)
AROUND = 2.5
"""Bands that count for the moments: so many standard deviations, or scales, around the mean of the fit."""
SMALLEST, LARGEST = 0.1, 50.0
"""Range of standard deviations that are looked for, in scales."""


def banded(column: Column) -> Column | None:
    """Return a column as its bands read it: with a centre and a scale if the study states none; None without bands.

    Examples
    --------
    >>> from consilience.columns import Rule
    >>> found = banded(Column("days", rule=Rule("days", 0.0, 400.0)))
    >>> found.rule.transform, round(found.rule.centre, 2), banded(Column("weight"))
    ('log1p', 3.0, None)
    """
    if column.is_category:
        return column
    rule = replace(column.rule, missing="drop", fill=None)
    if (rule.centre, rule.scale) == (0.0, 1.0):
        if rule.low is None or rule.high is None:
            return None
        transform = "log1p" if rule.is_positive else rule.transform
        low, high = (float(each) for each in TRANSFORMS[transform](np.array([rule.low, rule.high])))
        rule = replace(rule, transform=transform, centre=(low + high) / 2, scale=(high - low) / WITHIN)
    return replace(column, rule=rule)


def edges_of(column: Column) -> Array:
    """Return the edges of a number's bands, in scales from its centre: those that a value can exceed."""
    rule = column.rule
    after = rule.centre + rule.scale * EDGES
    least = LOWEST[rule.transform] if rule.low is None else min(rule.low, 0.0)
    lowest = TRANSFORMS[rule.transform](np.array([least])) if np.isfinite(least) else np.array([-np.inf])
    with np.errstate(all="ignore"):
        return np.asarray(EDGES[after > lowest[0]])


def band_labels(column: Column) -> tuple[str, ...]:
    """Return the bands of a column in words, the last two for other values and for none.

    Examples
    --------
    >>> from consilience.columns import Rule
    >>> age = Column("age", rule=Rule("years", 18.0, 110.0, centre=65.0, scale=15.0))
    >>> [band_labels(age)[i] for i in (0, 1, -3, -1)]
    ['below 5', '5 to 20', '1565 or more', 'no value']
    """
    if column.is_category:
        return (*map(str, column.levels), "another value", "no value")
    rule = column.rule
    ends = [f"{each:.4g}" for each in rule.original(edges_of(column))]
    between = [f"{low} to {high}" for low, high in pairwise(ends)]
    return (f"below {ends[0]}", *between, f"{ends[-1]} or more", "not a number", "no value")


def places_in_bands(column: Column, values: pa.Array) -> NDArray[np.int64]:
    """Return the place of the band of each cell, ``(n,)``, each by itself."""
    missing = missing_in(values)
    if column.is_category:
        L = len(column.levels)
        if not isinstance(column.levels[0], str) and str(values.type) in TEXT:
            values = pa.array(numbers_in(values, missing))
        codes = codes_of(values, column.levels)
        return np.where(missing, L + 1, np.where(codes < 0, L, codes))
    numbers, edges = numbers_in(values, missing), edges_of(column)
    with np.errstate(all="ignore"):
        units = column.rule.values(numbers)
    below = np.isnan(units) & (numbers <= 0)  # outside of the domain of the transform
    found = np.searchsorted(edges, np.where(below, -np.inf, units), side="right")
    B = len(edges) + 1
    return np.where(missing, B + 1, np.where(np.isnan(numbers), B, found))


def fit_bands(column: Column, counts: Array, variance: float) -> tuple[Array, Array]:
    """Estimate mean and standard deviation of a number from the counts of its bands.

    A normal distribution is fitted first, which far bands with nothing but noise hardly move. It says where the rows
    are; the moments are those of the bands around it, and the standard deviation at least that of the fit.

    Parameters
    ----------
    column : Column
        As :func:`banded` returns it.
    counts : (bands + 2,) array
    variance : float
        Variance of the noise in each count.

    Returns
    -------
    moments : (2,) array
        Mean and standard deviation after the transform.
    errors : (2,) array
        Variance of the mean in standard deviations, and of the logarithm of the standard deviation.

    Examples
    --------
    >>> from consilience.columns import Rule
    >>> age = Column("age", rule=Rule("years", 18.0, 110.0, centre=65.0, scale=15.0))
    >>> places = places_in_bands(age, pa.array(np.random.default_rng(0).normal(70, 12, 900)))
    >>> fit_bands(age, np.bincount(places, minlength=len(band_labels(age))), 300.0)[0].round()
    array([70., 12.])
    """
    edges, own = edges_of(column), np.asarray(counts[:-2], dtype=float)
    middle, least = _fit_normal(edges, own)
    low, high = np.r_[edges[0] - 1, edges], np.r_[edges, edges[-1] + 1]
    reach = AROUND * max(least, 1.0)
    near = (np.r_[-np.inf, edges] <= middle + reach) & (np.r_[edges, np.inf] >= middle - reach)
    x, width, rows = ((low + high) / 2)[near], (high - low)[near], own[near]
    n = max(float(rows.sum()), 1.0)
    mean = float(np.clip(rows @ x / n, x[0], x[-1]))
    spread = float(np.sqrt(max(rows @ ((x - mean) ** 2 - width**2 / 12) / n, least**2)))
    units = (x - mean) / spread
    noise = variance / n**2
    errors = np.array([noise * np.sum(units**2) + 1 / n, noise * np.sum((units**2 - 1) ** 2) / 4 + 0.5 / n])
    rule = column.rule
    return np.array([rule.centre + rule.scale * mean, rule.scale * spread]), errors


def _fit_normal(edges: Array, counts: Array) -> tuple[float, float]:
    """Return mean and standard deviation, in scales, of the normal distribution nearest to counts by least squares."""

    def shares(mean: float, log_spread: float) -> Array:
        return np.diff(np.r_[0.0, ndtr((edges - mean) / np.exp(log_spread)), 1.0])

    def rows_at(start: tuple[float, float]) -> float:
        p = shares(*start)
        return max(float(counts @ p / (p @ p)), 0.0)

    def worth(start: tuple[float, float]) -> float:
        p = shares(*start)
        return rows_at(start) ** 2 * float(p @ p)

    def residuals(x: Array) -> Array:
        return np.asarray(counts - x[2] * shares(x[0], x[1]))

    middles = (edges[:-1] + edges[1:]) / 2
    start = max(((float(m), float(np.log(s))) for m in middles for s in START_SPREADS), key=worth)
    bounds = ([edges[0] - LARGEST, np.log(SMALLEST), 0.5], [edges[-1] + LARGEST, np.log(LARGEST), np.inf])
    begin = (*start, max(rows_at(start), 1.0))
    found = least_squares(residuals, begin, bounds=bounds)
    return float(found.x[0]), float(np.exp(found.x[1]))
