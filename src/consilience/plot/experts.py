"""Fitted lines of the experts over the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.estimators.table import places_read
from consilience.estimators.validation import check_level
from consilience.model import Rows
from consilience.numerics.arrays import Array
from consilience.plot.bands import expert_bands, means_of
from consilience.plot.library import axes_of, halo, legend
from consilience.plot.marks import MANY, mark, shades
from consilience.plot.subject import (
    along,
    expert_label,
    feature_label,
    feature_place,
    regression_of,
    response_label,
    response_place,
    withheld_note,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRIP = 0.03
"""Distance between the strips of points of two experts, for classes."""
FAR = 3.0
"""Multiple of what the axis must show at which rates are cut."""


def experts(
    model: Any,
    X: Any,
    y: Any,
    feature: str | int | None = None,
    *,
    response: Any = None,
    level: float = 0.95,
    ax: Axes | None = None,
    **metadata: Any,
) -> Axes:
    """Draw the mean response of each expert along one covariate, with confidence bands, over the data.

    The other covariates are held at their means over ``X``. The bands are pointwise: they cover the mean of one expert
    at one value of the covariate with probability ``level``. A point has the colour and the marker of its most probable
    expert, and fades to grey as its responsibility falls from 1 to 1 / K.

    Responses with an exposure or trials are divided by it; if rates of rows with a small exposure are far above all
    others, the axis is cut, and its label gives the number of rows above. For a classifier, lines are the probabilities
    of one class; rows of this class are drawn above 1 and the others below 0, in one strip of points for each expert.

    Parameters
    ----------
    model : fitted mixture of experts or of regressions, or FederatedFit
    X : (n, d) array or frame
    y : (n,) or (n, q) array or frame
    feature : str or int
        Name or column of the covariate; may be left out if the experts read only one.
    response : str, int or class, optional
        Name or number of one of several responses, or a class; by default the only response, or the second of two
        classes.
    level : float
        Confidence level of the bands.
    ax : Axes, optional
        Where to draw; a new figure by default.
    **metadata
        ``groups``, ``exposure``, ``trials``, as in ``fit``.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import MixtureOfRegressions, plot
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 400)
    >>> y = np.where(rng.random(400) < 0.7, 3 * x, 2 - 3 * x) + 0.1 * rng.normal(size=400)
    >>> model = MixtureOfRegressions(2, random_state=0).fit(x[:, None], y)
    >>> ax = plot.experts(model, x[:, None], y)
    >>> ax.get_legend_handles_labels()[1]
    ['component 0', 'component 1']
    """
    estimator = regression_of(model)
    check_level(level)
    _, read = places_read(estimator)
    j, r = feature_place(estimator, feature, read), response_place(estimator, response)
    rows = estimator.rows(X, y, **metadata)
    ax = axes_of(ax)
    shown = _points(ax, estimator, rows, j, r)
    values, at = along(rows.X, j)
    means, bands = means_of(estimator, at, r), expert_bands(estimator, at, r, level)
    for k, mean in enumerate(means):
        colour, marker, line = mark(k)
        ax.plot(values, mean, color=colour, linestyle=line, lw=1.8, marker=marker, ms=5.5, mec="white", mew=0.6,
                markevery=[], path_effects=halo(), label=expert_label(estimator, k))  # fmt: skip
        if bands is not None:
            ax.fill_between(values, bands[0][k], bands[1][k], color=colour, alpha=0.22, lw=0)
    label = response_label(estimator, y, r)
    if rows.exposure is not None:
        label += f" / {estimator.mixture_.experts.size_name}" + _limited(
            ax, shown, means if bands is None else bands[1]
        )
    ax.set_xlabel(feature_label(estimator, j, read) + withheld_note(estimator, "experts"))
    ax.set_ylabel(label)
    legend(ax)
    return ax


def _points(ax: Axes, estimator: Any, rows: Rows, j: int, r: int) -> Array:
    """Draw the rows in the colours of their responsibilities, one collection for each expert; return the responses."""
    resp = estimator.mixture_.responsibilities(rows)
    resp = resp if rows.groups is None else resp[rows.groups.codes]
    likely, colours, Y = resp.argmax(axis=1), shades(resp), _shown(estimator, rows, resp, r)
    for k in range(resp.shape[1]):
        mine = likely == k
        ax.scatter(rows.X[mine, j], Y[mine], c=colours[mine], marker=mark(k).marker, s=_size(rows.n),
                   linewidths=0, alpha=0.6, rasterized=rows.n > MANY, zorder=1)  # fmt: skip
    return Y


def _limited(ax: Axes, rates: Array, upper: Array) -> str:
    """Cut the axis where rates of rows with a small exposure are far above all others, and say how many are cut."""
    top = max(float(upper.max()), float(np.quantile(rates, 0.99)))
    if rates.max() <= FAR * top:
        return ""
    ax.set_ylim(-0.03 * top, 1.05 * top)
    return f"\n(rows above, not shown: {np.sum(rates > 1.05 * top):,})"


def _size(n: int) -> float:
    """Return the area of a marker: smaller for many points."""
    return 18.0 if n <= 500 else 10.0 if n <= MANY else 6.0


def _shown(estimator: Any, rows: Rows, resp: Array, r: int) -> Array:
    """Return the responses as they are drawn, ``(n,)``: rates, or strips of a class and of the others."""
    if not estimator.mixture_.experts.classes:
        return np.asarray(rows.Y[:, r] / (1.0 if rows.exposure is None else rows.exposure))
    away = STRIP * (1 + resp.argmax(axis=1))
    return np.asarray(np.where(rows.Y[:, 0] == r, 1 + away, -away))
