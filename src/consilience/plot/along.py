"""The horizontal axis of a picture along a covariate: its places, and the rows at which a model is evaluated there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.columns import Column
from consilience.fitted.protocols import FittedMixture
from consilience.numerics.arrays import Array
from consilience.plot import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 101
"""Number of points of a curve."""
LONG = 50
"""Number of characters of all levels together from which their names are turned."""


@dataclass(frozen=True, eq=False)
class Along:
    """A covariate of numbers, or a category, as a horizontal axis.

    Parameters
    ----------
    name : str
    columns : sequence of int
        The covariates that change along the axis: one, or the indicators of a category.
    values : (m, c) array
        Their values at the places.
    places : (m,) array
        Positions at which the model is drawn: those of a grid, or 0, 1, ... of the levels.
    own : (n,) array
        Position of each row of the data.
    levels : tuple of str
        Names of the levels of a category; empty for numbers.
    """

    name: str
    columns: Sequence[int]
    values: Array
    places: Array
    own: Array
    levels: tuple[str, ...] = ()


def along(estimator: FittedMixture, X: Array, feature: Any, read: Sequence[int]) -> Along:
    """Return the axis of a covariate or category over the rows ``X``; None is the only one among the terms ``read``."""
    column = _category(estimator, feature, read)
    if column is not None:
        return _along_levels(estimator, X, column)
    j = drawing.feature_place(estimator, feature, read)
    values = np.linspace(X[:, j].min(), X[:, j].max(), GRID)
    return Along(drawing.feature_names(estimator)[j], [j], values[:, None], values, X[:, j])


def _category(estimator: FittedMixture, feature: Any, read: Sequence[int]) -> Column | None:
    """Return the category of this name; of None, the category whose indicators are all that is read."""
    categories = [column for column in estimator.columns_.columns if column.is_category]
    if feature is None:
        names = drawing.feature_names(estimator)
        wanted = [names[j] for j in drawing.covariate_columns(estimator, read)]
        return next((column for column in categories if [*column.terms] == wanted), None)
    return next((column for column in categories if column.name == feature), None)


def _along_levels(estimator: FittedMixture, X: Array, column: Column) -> Along:
    """Return the axis of a category: its levels in their order."""
    names = drawing.feature_names(estimator)
    columns = [names.index(term) for term in column.terms]
    places = np.arange(len(column.levels))
    indicators = np.zeros((len(X), len(places)))
    indicators[:, list(column.coded)] = X[:, columns]
    reference = list(set(places) - set(column.coded))
    indicators[:, reference] = 1 - X[:, columns].sum(axis=1, keepdims=True)
    levels = tuple(map(str, column.levels))
    return Along(column.name, columns, column.indicators(places), places.astype(float),
                 indicators.argmax(axis=1).astype(float), levels)  # fmt: skip


def rows_at(X: Array, columns: Sequence[int], values: Array, *, partial: bool) -> Array:
    """Return rows ``(m, d)`` with ``values (m, c)`` in some columns, and the others at means over ``X (n, d)``.

    These are the overall means for a ``partial`` picture. Otherwise they are the means given the values, by least
    squares and within the range of each column, so that they are values that go together in ``X``.
    """
    mean, columns = X.mean(axis=0), list(columns)
    rows = np.tile(mean, (len(values), 1))
    if not partial:
        centred = X - mean
        slopes = np.linalg.lstsq(centred[:, columns], centred, rcond=None)[0]  # (c, d)
        rows = np.clip(rows + (values - mean[columns]) @ slopes, X.min(axis=0), X.max(axis=0))
    rows[:, columns] = values
    return rows


def label_axis(ax: Axes, estimator: FittedMixture, axis: Along, read: Sequence[int], *, partial: bool) -> str:
    """Name the levels on the axis, and return its label, with a remark on the other covariates that are ``read``."""
    if axis.levels:
        ax.set_xticks(axis.places, axis.levels)
        if sum(map(len, axis.levels)) > LONG:
            ax.tick_params(axis="x", labelrotation=90)
        ax.set_xlim(-0.6, len(axis.levels) - 0.4)
    others = set(drawing.covariate_columns(estimator, read)) - set(axis.columns)
    return axis.name + (others_note(axis.name, partial=partial) if others else "")


def others_note(*names: str, partial: bool) -> str:
    """Return the remark on the covariates that are not on an axis."""
    return f"\n(other covariates at their means{'' if partial else ' given ' + ' and '.join(names)})"


def dodged(k: int, K: int) -> float:
    """Return the distance of expert ``k`` from the middle of a level, on an axis of levels."""
    return 0.7 * ((k + 0.5) / K - 0.5)
