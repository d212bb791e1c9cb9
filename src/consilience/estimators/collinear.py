"""Covariates whose coefficients are not identified, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from consilience.estimators.table import terms
from consilience.model.design import Design
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array

NAMED = 4
"""Maximum number of columns that are named, and of columns that are named for each."""
NEGLIGIBLE = 1e-6
"""Fraction of the spread of a column below which another column has no part in it."""


def unidentified(estimator: Any, mixture: Mixture) -> list[str]:
    """Return for each covariate that is a linear function of others a sentence that names these.

    A category with a single level has no covariate, and is said to be constant. ``mixture`` is in the coordinates of
    the fit, whose designs do not read such covariates.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> from consilience import MixtureOfRegressions
    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     model = MixtureOfRegressions(1).fit(np.hstack([x, 1 - x, np.ones((200, 1))]), x[:, 0] ** 2)
    >>> model.unidentified_
    ['x1 is a linear function of x0', 'x2 is constant']
    """
    chosen = estimator.specification()
    parts = ((mixture.design, chosen.expert_columns), (mixture.reads, chosen.gate_columns))
    names = terms(estimator)[int(mixture.design.intercept) :]
    single = [f"{column.name} is constant" for column in estimator.columns_.columns if not column.terms]
    dependent = dict.fromkeys(each for design, columns in parts for each in _sentences(design, names, columns))
    said = [*single, *dependent]
    return said if len(said) <= NAMED + 1 else [*said[:NAMED], f"so are {len(said) - NAMED} more columns"]


def _sentences(design: Design, names: list[str], columns: tuple[int, ...] | None) -> Iterator[str]:
    read = [names[j] for j in design.columns or ()]
    for j, row in zip(design.unread, () if design.others is None else design.others, strict=True):
        if columns is None or j in columns:
            yield _sentence(names[j], read, row, design)


def _sentence(name: str, read: list[str], row: Array, design: Design) -> str:
    slopes = np.abs(row[int(design.intercept) :])
    parts = [each for each, slope in zip(read, slopes, strict=True) if slope > NEGLIGIBLE * slopes.max(initial=0.0)]
    if not parts:
        return f"{name} is constant"
    more = f" and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    return f"{name} is a linear function of {', '.join(parts[:NAMED])}{more}"
