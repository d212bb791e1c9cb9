"""Rows of a table that are nearly copies of another row, as after a join with itself, or copies with a little noise."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from consilience.numerics.arrays import Array, Mask

MOST_ROWS = 100_000
"""Number of rows, from the first on, that are compared."""
NEAR = 0.005
"""Largest difference between near copies, in standard deviations of each column."""
BY_CHANCE = 0.05
"""Expected number of rows within reach of a row, if the columns were independent and uniform; differences are smaller
for many rows with few columns."""
CONTINUOUS = 0.5
"""Least number of different values of a column, as a fraction of the different rows, for it to count as continuous."""
MANY = 0.25
"""Share of near copies among the rows from which they are said."""
FEWEST_COLUMNS = 2
"""Least number of continuous columns: rows of few different values are often equal."""


def count_near_copies(values: Array) -> int:
    """Count the rows that differ from another row by no more than rounding and a little noise, in every column.

    It takes ``n log n`` operations for n rows. Tables with fewer than two continuous columns, such as those of
    categories and whole numbers, are not judged: 0 is returned.

    Parameters
    ----------
    values : (n, c) array
        Numeric columns of the table; rows with a value that is not finite are not counted.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(100, 3))
    >>> count_near_copies(rows), count_near_copies(np.concatenate([rows, rows[:40] + 1e-4]))
    (0, 80)
    """
    values = values[:MOST_ROWS]
    values = values[np.all(np.isfinite(values), axis=1)]
    different, times = np.unique(values, axis=0, return_counts=True)
    continuous = are_continuous(different)
    if len(different) < 2 or continuous.sum() < FEWEST_COLUMNS:
        return 0
    reach = min(NEAR, 0.5 * (BY_CHANCE / len(different)) ** (1 / continuous.sum()))
    spread = usual_spread(different)
    scaled = different[:, spread > 0] / spread[spread > 0]
    nearest = np.asarray(cKDTree(scaled).query(scaled, k=2, p=np.inf, distance_upper_bound=reach)[0])
    return int(times[(times > 1) | (nearest[:, 1] <= reach)].sum())


def say_near_copies(found: int, rows: int) -> str:
    """Return a sentence on the near copies that were counted in a table of rows; empty if these are under a quarter."""
    rows = min(rows, MOST_ROWS)
    if not found or found < MANY * rows:
        return ""
    alike = f"equal up to {NEAR:g} standard deviations in all columns of numbers"
    return f"{found:,} of {rows:,} rows are near copies of another row ({alike})"


def are_continuous(rows: Array) -> Mask:
    """Return which columns of different rows ``(n, c)`` have many different values."""
    counts = np.array([len(np.unique(column)) for column in rows.T])
    return np.asarray(counts > CONTINUOUS * len(rows))


def usual_spread(rows: Array) -> Array:
    """Return the standard deviation of each column by its quartiles; where these are equal, the standard deviation."""
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    return np.asarray(np.where(high > low, (high - low) / 1.349, rows.std(axis=0)))
