"""Rows of covariates as the dictionary of a study describes them, so that no site is asked what its rows are like.

Private scoring computes steps and standard errors from public covariates (:mod:`consilience.fit.private_step`). The
dictionary is public: a number has a centre and a scale, which are meant to be near its mean and its standard deviation,
and a range; a category has levels. The guarantee does not depend on how well these describe the sites; steps and
standard errors do.
"""

from __future__ import annotations

import numpy as np

from consilience.columns import Column, Dictionary
from consilience.errors import InvalidInputError
from consilience.numerics.arrays import Array

WITHIN = 6.0
"""Standard deviations in the range of a column that states no centre and scale."""
TRIES = 20
"""Times that values outside the range are drawn again."""
APART, RATIO = 1.0, 2.0
"""Difference of means in standard deviations, and ratio of standard deviations, above which columns are unlike."""


def draw_covariates(dictionary: Dictionary, m: int, rng: np.random.Generator) -> Array:
    """Draw rows of covariates, ``(m, d)``: independent columns, as their entries in the dictionary say.

    A number is normal in the units in which it is read, ``(transform(x) - centre) / scale``, within its range. All
    levels of a category are drawn alike often.

    Raises
    ------
    InvalidInputError
        If a number has neither centre and scale nor a range.

    Examples
    --------
    >>> from consilience.columns import Rule
    >>> age = Column("age", rule=Rule("years", 18.0, 110.0, centre=60.0, scale=15.0))
    >>> X = draw_covariates(Dictionary((age, Column("ward", ("A", "B", "C")))), 1000, np.random.default_rng(0))
    >>> X.shape, float(X[:, 0].max()) <= (110 - 60) / 15
    ((1000, 3), True)
    """
    parts = [
        column.indicators(rng.integers(len(column.levels), size=m)) if column.is_category else _numbers(column, m, rng)
        for column in dictionary.columns
    ]
    return np.concatenate(parts, axis=1) if parts else np.empty((m, 0))


def unlike_columns(dictionary: Dictionary, X: Array, public: Array) -> list[str]:
    """Return sentences about the numbers of a site that are not as the study describes them.

    They are for the people at the site: whether there is one depends on the rows.

    Parameters
    ----------
    dictionary : Dictionary
    X : (n, d) array
        Covariates of the site.
    public : (m, d) array
        Drawn ones.

    Examples
    --------
    >>> from consilience.columns import Rule
    >>> crp = Dictionary((Column("crp", rule=Rule("mg/l", 0.0, 600.0)),))
    >>> X = np.random.default_rng(0).gamma(2, 10, size=(500, 1))
    >>> [line.split(":")[0] for line in unlike_columns(crp, X, draw_covariates(crp, 4000, np.random.default_rng(1)))]
    ['crp']
    """
    if len(X) < 2:
        return []
    place, said = 0, list[str]()
    for column in dictionary.columns:
        if not column.is_category:
            here, there = ((float(each[:, place].mean()), float(each[:, place].std())) for each in (X, public))
            ratio = here[1] / there[1] if there[1] > 0 else np.inf
            if abs(here[0] - there[0]) > APART * there[1] or not 1 / RATIO <= ratio <= RATIO:
                said.append(_unlike(column, here, there))
        place += len(column.levels) - 1 if column.is_category else 1
    return said


def _unlike(column: Column, here: tuple[float, float], there: tuple[float, float]) -> str:
    rule = column.rule
    mean, spread = rule.centre + rule.scale * here[0], rule.scale * here[1]
    of = "" if rule.transform == "none" else f" of {rule.transform}"
    return (
        f"{column.name}: mean {mean:.3g} and standard deviation {spread:.3g}{of} here, and the study counts on "
        f"{rule.centre + rule.scale * there[0]:.3g} and {rule.scale * there[1]:.3g}. Steps and standard errors are "
        "computed for what it counts on: a run may not settle. If other sites are alike, propose centre and scale."
    )


def _numbers(column: Column, m: int, rng: np.random.Generator) -> Array:
    """Draw the covariate of a column of numbers, ``(m, 1)``."""
    rule = column.rule
    low, high = (
        end if value is None else float(rule.values(np.array([value]))[0])
        for value, end in ((rule.low, -np.inf), (rule.high, np.inf))
    )
    if (rule.centre, rule.scale) != (0.0, 1.0):
        mean, spread = 0.0, 1.0
    elif np.isfinite(high - low):
        mean, spread = (low + high) / 2, (high - low) / WITHIN
    else:
        raise InvalidInputError(
            f"column {column.name!r}: a study with noise asks no site for its covariates, and the dictionary says "
            "neither centre and scale (near its mean and standard deviation) nor low and high"
        )
    drawn = rng.normal(mean, spread, size=m)
    for _ in range(TRIES):
        outside = (drawn < low) | (drawn > high)
        drawn[outside] = rng.normal(mean, spread, size=int(outside.sum()))
    found: Array = np.clip(drawn, low, high)[:, None]
    return found
