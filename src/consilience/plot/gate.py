"""Gate probabilities along one covariate, or over two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.estimators.table import places_read
from consilience.numerics.arrays import Array
from consilience.plot.library import axes_of, legend
from consilience.plot.marks import mark, shades
from consilience.plot.subject import (
    along,
    around_mean,
    expert_label,
    feature_label,
    feature_place,
    features,
    listed,
    regression_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 201
"""Number of points of a map in each direction."""


def gate(model: Any, X: Any = None, feature: Any = None, *, ax: Axes | None = None) -> Axes:
    """Draw the gate probabilities ``π_k(x)`` along one covariate, or a map of them over two covariates.

    The covariates run over their ranges in ``X``, or two standard deviations around their means in the fit; the others
    are held at their means. In a map, each place has the
    colour of its most probable expert, which fades to grey as the probability falls from 1 to 1 / K; black lines are
    the borders, and dotted lines where the most probable expert has probability 0.9.

    Parameters
    ----------
    model : fitted mixture of experts or of regressions, or FederatedFit
    X : (n, d) array or frame, optional
    feature : str, int or a pair of them
        Name or column of the covariate, or of two for a map; may be left out if the gate reads only one.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor, plot
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=2, random_state=0)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> plot.gate(model, data.X, "x0").get_ylabel()
    'gate probability'
    >>> plot.gate(model, data.X, ("x0", "x1")).get_ylabel()
    'x1'
    """
    estimator = regression_of(model)
    columns = _columns(estimator, feature)
    X = around_mean(estimator) if X is None else estimator.covariates(X)
    ax = axes_of(ax)
    if len(columns) == 1:
        _curves(ax, estimator, X, columns[0])
    else:
        _map(ax, estimator, X, *columns)
    legend(ax)
    return ax


def _columns(estimator: Any, feature: Any) -> list[int]:
    wanted = list(feature) if isinstance(feature, list | tuple) else [feature]
    read, _ = places_read(estimator)
    columns = [feature_place(estimator, each, read) for each in wanted]
    if len(columns) not in (1, 2) or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"feature={feature!r}: expected one covariate, or two different ones for a map, of "
            f"{listed(features(estimator))}"
        )
    return columns


def _curves(ax: Axes, estimator: Any, X: Array, j: int) -> None:
    values, at = along(X, j)
    for k, probability in enumerate(estimator.mixture_.gate_weights(at).T):
        colour, marker, line = mark(k)
        ax.plot(values, probability, color=colour, linestyle=line, lw=1.8, marker=marker, ms=5.5, mec="white", mew=0.6,
                markevery=(4 + 7 * k % 20, 20), label=expert_label(estimator, k))  # fmt: skip
    ax.set(xlabel=feature_label(estimator, j, places_read(estimator)[0]), ylabel="gate probability", ylim=(-0.02, 1.02))


def _map(ax: Axes, estimator: Any, X: Array, i: int, j: int) -> None:
    across, up = (np.linspace(X[:, c].min(), X[:, c].max(), SIDE) for c in (i, j))
    at = np.tile(X.mean(axis=0), (SIDE * SIDE, 1))
    at[:, i], at[:, j] = np.tile(across, SIDE), np.repeat(up, SIDE)
    probability = estimator.mixture_.gate_weights(at).reshape(SIDE, SIDE, -1)
    half = [(v[1] - v[0]) / 2 for v in (across, up)]
    extent = (across[0] - half[0], across[-1] + half[0], up[0] - half[1], up[-1] + half[1])
    ax.imshow(shades(probability), origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    likely = probability.argmax(axis=2)
    for k in np.unique(likely):
        ax.scatter([], [], color=mark(k).colour, marker=mark(k).marker, label=expert_label(estimator, int(k)))
        rest = np.delete(probability, k, axis=2).max(axis=2, initial=0.0)
        _contour(ax, (across, up), probability[:, :, k] - rest, 0.0, "solid")
        _contour(ax, (across, up), probability[:, :, k], 0.9, "dotted")
        rows, columns = np.nonzero(likely == k)
        ax.plot(across[int(np.median(columns))], up[int(np.median(rows))], marker=mark(k).marker, ms=8,
                color=mark(k).colour, mec="white", mew=1.2)  # fmt: skip
    name = features(estimator)
    ax.set(xlabel=name[i] + ("\n(other covariates at their means)" if len(name) > 2 else ""), ylabel=name[j])


def _contour(ax: Axes, grid: tuple[Array, Array], values: Array, level: float, line: str) -> None:
    """Draw the line where ``values`` pass a level, if they do."""
    if values.min() < level < values.max():
        ax.contour(*grid, values, levels=[level], colors="black", linestyles=line, linewidths=0.9)
