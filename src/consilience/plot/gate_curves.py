"""The gate along covariates: its probabilities, and a map of them over two covariates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fitted.protocols import FederatedResult, FittedMixture, expert_label, terms_read
from consilience.numerics.arrays import Array
from consilience.plot import drawing
from consilience.plot.along import along, dodged, label_axis, others_note, rows_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 201
"""Number of points of a map in each direction."""


def gate(
    model: FittedMixture | FederatedResult,
    X: Any = None,
    feature: Any = None,
    *,
    partial: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the gate probabilities ``π_k(x)`` along one covariate or category, or a map of them over two covariates.

    The covariates run over their ranges in ``X``, and the others are at their means given them, as in :func:`experts`;
    without ``X``, over two standard deviations around their means in the fit, with the others at their means. In a
    map, each place has the colour of its most probable expert, which fades to grey as the probability falls from 1 to
    1 / K; black lines are the borders, and dotted lines where the most probable expert has probability 0.9.

    Parameters
    ----------
    model, partial, ax
        As in :func:`experts`.
    X : (n, d) array or frame, optional
    feature : str, int or a pair of them
        Name or column of the covariate or category, or of two covariates for a map; may be left out if the gate reads
        only one.

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
    estimator = drawing.regression_of(model)
    partial = partial or X is None  # the two rows of around_mean do not say which values go together
    X = drawing.around_mean(estimator) if X is None else estimator.covariates(X)
    pair = isinstance(feature, list | tuple)
    columns = _map_columns(estimator, feature) if pair else None
    ax = drawing.prepare_axes(ax)
    if columns is None:
        _gate_curves(ax, estimator, X, feature, partial=partial)
    else:
        _gate_map(ax, estimator, X, columns, partial=partial)
    drawing.add_legend(ax)
    return ax


def _map_columns(estimator: FittedMixture, features: Any) -> tuple[int, int]:
    """Return the columns of the two covariates of a map."""
    read, _ = terms_read(estimator)
    columns = [drawing.feature_place(estimator, each, read) for each in features]
    if len(columns) != 2 or columns[0] == columns[1]:
        raise InvalidInputError(
            f"feature={features!r}: expected one covariate, or two different ones for a map, of "
            f"{drawing.list_names(drawing.feature_names(estimator))}"
        )
    return columns[0], columns[1]


def _gate_curves(ax: Axes, estimator: FittedMixture, X: Array, feature: Any, *, partial: bool) -> None:
    """Draw the probability of each expert: a curve along a covariate, or a marker at each level of a category."""
    read, _ = terms_read(estimator)
    if feature is None and len(read) > 2 and not estimator.mixture_.gate.reads_covariates:
        raise InvalidInputError(
            "the gate is constant: no covariate changes its probabilities, which are model.weights_; name a covariate "
            "to draw level lines"
        )
    axis = along(estimator, X, feature, read)
    probabilities = estimator.mixture_.gate_weights(rows_at(X, axis.columns, axis.values, partial=partial))  # (m, K)
    K = probabilities.shape[1]
    for k, probability in enumerate(probabilities.T):
        colour, marker, line = drawing.mark(k)
        style = {"linestyle": "", "ms": 7} if axis.levels else {"linestyle": line, "markevery": (4 + 7 * k % 20, 20),
                                                                "ms": 5.5}  # fmt: skip
        places = axis.places + dodged(k, K) * bool(axis.levels)
        ax.plot(places, probability, color=colour, lw=1.8, marker=marker, mec="white", mew=0.6,
                label=expert_label(estimator, k), **style)  # fmt: skip
    label = label_axis(ax, estimator, axis, read, partial=partial)
    ax.set(xlabel=label, ylabel="gate probability", ylim=(-0.02, 1.02))


def _gate_map(ax: Axes, estimator: FittedMixture, X: Array, columns: tuple[int, int], *, partial: bool) -> None:
    """Draw the most probable expert at each place of two covariates, with the borders between experts."""
    across, up = (np.linspace(X[:, c].min(), X[:, c].max(), SIDE) for c in columns)
    values = np.column_stack([np.tile(across, SIDE), np.repeat(up, SIDE)])
    at = rows_at(X, columns, values, partial=partial)
    probability = estimator.mixture_.gate_weights(at).reshape(SIDE, SIDE, -1)
    half = [(v[1] - v[0]) / 2 for v in (across, up)]
    extent = (across[0] - half[0], across[-1] + half[0], up[0] - half[1], up[-1] + half[1])
    ax.imshow(drawing.shades(probability), origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    likely = probability.argmax(axis=2)
    for k in np.unique(likely):
        colour, marker, _ = drawing.mark(k)
        ax.scatter([], [], color=colour, marker=marker, label=expert_label(estimator, int(k)))
        rest = np.delete(probability, k, axis=2).max(axis=2, initial=0.0)
        _contour(ax, (across, up), probability[:, :, k] - rest, 0.0, "solid")
        _contour(ax, (across, up), probability[:, :, k], 0.9, "dotted")
        upward, rightward = np.nonzero(likely == k)
        ax.plot(across[int(np.median(rightward))], up[int(np.median(upward))], marker=marker, ms=8, color=colour,
                mec="white", mew=1.2)  # fmt: skip
    names = drawing.feature_names(estimator)
    right, top = (names[c] for c in columns)
    ax.set(xlabel=right + (others_note(right, top, partial=partial) if len(names) > 2 else ""), ylabel=top)


def _contour(ax: Axes, grid: tuple[Array, Array], values: Array, level: float, line: str) -> None:
    """Draw the line where ``values`` pass a level, if they do."""
    if values.min() < level < values.max():
        ax.contour(*grid, values, levels=[level], colors="black", linestyles=line, linewidths=0.9)
