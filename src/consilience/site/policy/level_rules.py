"""Rules on the levels of categories: their means and cross-products are tables of counts, margins and cells.

A column of numbers with two or three values counts as a category, since its mean and variance give the counts. So does
the response. Levels of categories are listed in the study, hence public; values of numbers are not, and are not named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from consilience.columns import Column
from consilience.files.study import Study
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, IntArray
from consilience.site.policy.check import Check
from consilience.site.policy.policy import Policy

COUNTED_VALUES = 3
"""Maximum number of values of a column of numbers whose mean and variance determine how often each occurs."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A column that is read as levels.

    Parameters
    ----------
    name : str
    levels : tuple of str
        Names of the levels; all equal for the values of a column of numbers, which are not public.
    codes : (n,) array of int
        Place of each row's level.
    """

    name: str
    levels: tuple[str, ...]
    codes: IntArray


def factors_of(rows: Rows, study: Study) -> list[Factor]:
    """Return the columns of covariates and the response that are read as levels, in the order of the study.

    Examples
    --------
    >>> study = Study.from_text('''
    ... format = "consilience-study"
    ... version = 1
    ... name = "stay"
    ... seed = 1
    ... model = {response = "days", experts = [1]}
    ... columns = [{name = "days", kind = "number"}, {name = "sex", kind = "category", levels = ["f", "m"]}]
    ... ''')
    >>> rows = Rows(np.array([[0.0], [1.0], [1.0], [0.0]]), np.arange(4.0)[:, None])
    >>> [(factor.name, factor.levels, factor.codes.tolist()) for factor in factors_of(rows, study)]
    [('sex', ('sex[f]', 'sex[m]'), [0, 1, 1, 0])]
    """
    found, start = [], 0
    for column in study.covariates.columns:
        part = rows.X[:, start : start + len(column.terms)]
        start += len(column.terms)
        found.append(_of_category(column, part) if column.is_category else _of_numbers(column.name, part[:, 0]))
    found.append(_of_response(rows, study))
    return [factor for factor in found if factor is not None]


def _of_category(column: Column, indicators: Array) -> Factor:
    (base,) = set(range(len(column.levels))) - set(column.coded)
    codes = np.where(indicators.any(axis=1), np.asarray(column.coded)[indicators.argmax(axis=1)], base)
    return Factor(column.name, tuple(f"{column.name}[{level}]" for level in column.levels), codes)


def _of_numbers(name: str, values: Array) -> Factor | None:
    distinct, codes = np.unique(values, return_inverse=True)
    return None if len(distinct) > COUNTED_VALUES else Factor(name, (f"a value of {name}",) * len(distinct), codes)


def _of_response(rows: Rows, study: Study) -> Factor | None:
    name, classes = study.model.response, study.classes
    if classes is None:
        return _of_numbers(name, rows.Y[:, 0])
    return Factor(name, tuple(f"{name}[{level}]" for level in classes), rows.Y[:, 0].astype(np.intp))


def level_rules(rows: Rows, study: Study, policy: Policy) -> list[Check]:
    """Check the rows of each level, and of each pair of levels of two columns: none, or at least the limit."""
    factors = factors_of(rows, study)
    by_name = {factor.name: factor for factor in factors}
    names = [*study.covariates.names, study.model.response]
    return [*(_of_levels(name, by_name.get(name), policy) for name in names), *_of_pairs(factors, policy)]


def _of_levels(name: str, factor: Factor | None, policy: Policy) -> Check:
    """Check the levels of a column; one of numbers with many values keeps the rule."""
    limit = policy.site.rows_per_level
    counts = np.empty(0) if factor is None else np.bincount(factor.codes, minlength=len(factor.levels))
    least, rare = _least(counts, limit)
    said = "" if factor is None else ", ".join(dict.fromkeys(factor.levels[i] for i in rare))
    return Check.at_least("levels", "rows_per_level", name, limit, least, detail=said)


def _of_pairs(factors: list[Factor], policy: Policy) -> Iterator[Check]:
    """Yield one check for each pair of columns with a rare pair of levels, or one for all pairs."""
    limit, least = policy.site.rows_per_pair, float("inf")
    failed = False
    for first, second in combinations(factors, 2):
        wide = len(second.levels)
        counts = np.bincount(first.codes * wide + second.codes, minlength=len(first.levels) * wide)
        found, rare = _least(counts, limit)
        least = min(least, found)
        if len(rare):
            failed = True
            pairs = dict.fromkeys(f"{first.levels[i // wide]} and {second.levels[i % wide]}" for i in rare)
            yield Check.at_least(
                "levels", "rows_per_pair", f"{first.name} and {second.name}", limit, found, detail=", ".join(pairs)
            )
    if not failed:
        yield Check.at_least("levels", "rows_per_pair", "all pairs of columns", limit, least)


def _least(counts: np.ndarray, limit: int) -> tuple[float, IntArray]:
    """Return the least count that is not zero, and the places of those below the limit."""
    positive = counts[counts > 0]
    return float(positive.min()) if len(positive) else float("inf"), np.flatnonzero((counts > 0) & (counts < limit))
