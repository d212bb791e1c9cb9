"""The mean of each expert with its band over the data, along a covariate or over the levels of a category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit

from consilience.fit.inference import expert_means, predictor_covariance, quantile
from consilience.fitted.protocols import FederatedResult, FittedMixture, check_level, expert_label, terms_read
from consilience.model import Mixture, Rows
from consilience.numerics.arrays import Array, IntArray, Mask
from consilience.plot import drawing
from consilience.plot.along import Along, along, dodged, label_axis, rows_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRIP = 0.03
"""Distance between the strips of points of two experts, for classes."""
HELD = 0.01
"""Weight of the gate from which a row counts as one of an expert's."""
MOST_BINS, ROWS_OF_BIN = 20, 10
"""Maximum number of bins of rates, and the rows that each of them should have."""
LARGEST_BIN, SMALLEST_BIN = 90.0, 12.0
"""Area of the markers of the largest bin of rates, and of the smallest ones."""


def experts(
    model: FittedMixture | FederatedResult,
    X: Any,
    y: Any,
    feature: str | int | None = None,
    *,
    response: Any = None,
    partial: bool = False,
    level: float = 0.95,
    ax: Axes | None = None,
    **metadata: Any,
) -> Axes:
    """Draw the mean response of each expert along one covariate or category, with confidence bands, over the data.

    The other covariates are at their means over ``X`` given the covariate (by least squares), so that each line passes
    through rows that exist, also if covariates are correlated. With ``partial``, they are held at their overall means:
    the line has the slope of the covariate's own coefficient, and each response is moved to these means along the
    fitted expert of its row (partial residuals; of a log link, multiplied), but not for classes and shares.

    A line ends where the gate gives its expert less than 1 % of every row beyond. The bands are pointwise: they cover
    the mean of one expert at one value of the covariate with probability ``level``. A point has the colour and the
    marker of its most probable expert, and fades to grey as its responsibility falls from 1 to 1 / K.

    Responses with an exposure or trials are drawn as rates of bins: for each expert and each level, or one of at most
    20 bins with equal numbers of rows, the sum of the responses by the sum of the sizes, both weighted by the
    responsibilities; the area of a marker grows with the latter. The mean rate of rows that differ in other covariates
    is above the rate at the means of these, which ``partial`` corrects. For a classifier, lines are the probabilities
    of one class; rows of this class are drawn above 1 and the others below 0, in one strip of points for each expert.

    Parameters
    ----------
    model : fitted mixture of experts or of regressions, or FederatedFit
    X : (n, d) array or frame
    y : (n,) or (n, q) array or frame
    feature : str or int
        Name or column of the covariate, or name of a category; may be left out if the experts read only one.
    response : str, int or class, optional
        Name or number of one of several responses, or a class; by default the only response, or the second of two
        classes.
    partial : bool
        Whether the other covariates are held at their overall means.
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
    ['component 1', 'component 2']
    """
    estimator = drawing.regression_of(model)
    check_level(level)
    _, read = terms_read(estimator)
    r = drawing.response_place(estimator, response)
    rows = estimator.rows(X, y, **metadata)
    axis = along(estimator, rows.X, feature, read)
    at = rows_at(rows.X, axis.columns, axis.values, partial=partial)
    ax = drawing.prepare_axes(ax)
    resp = _responsibilities(estimator, rows)
    shown = _moved_rows(estimator, rows, axis, resp, r) if partial else _responses(estimator, rows, r)
    if rows.exposure is None:
        _points(ax, axis, _drawn_responses(estimator, shown, resp, r), resp)
    else:
        _rates(ax, axis, shown, rows.exposure, resp)
    curves = mean_curves(estimator, at, r), *expert_bands(estimator, at, r, level)
    _draw_means(ax, estimator, axis, held_places(estimator, rows, axis), curves)
    label = label_axis(ax, estimator, axis, read, partial=partial)
    ax.set_xlabel(label + drawing.withheld_note(estimator, "experts"))
    size = "" if rows.exposure is None else f" / {estimator.mixture_.experts.size_name}"
    ax.set_ylabel(drawing.response_label(estimator, y, r) + size)
    drawing.add_legend(ax)
    return ax


def held_places(estimator: FittedMixture, rows: Rows, axis: Along) -> Mask:
    """Mask of the places between which, or levels at which, the gate gives some row each expert, ``(K, m)``."""
    given = estimator.mixture_.gate_weights(rows.X) >= HELD  # (n, K)
    inside = np.ones((given.shape[1], len(axis.places)), dtype=bool)
    for k in np.flatnonzero(given.any(axis=0)):
        own = axis.own[given[:, k]]
        between = (axis.places >= own.min()) & (axis.places <= own.max())
        inside[k] = np.isin(axis.places, own) if axis.levels else between
    return inside


def _draw_means(
    ax: Axes, estimator: FittedMixture, axis: Along, held: Mask, curves: tuple[Array, Array, Array]
) -> None:
    """Draw the means of the experts with their intervals: lines in bands, or a marker with a bar at each level."""
    K = len(held)
    for k, inside in enumerate(held):
        colour, marker, line = drawing.mark(k)
        middle, lower, upper = (curve[k] for curve in curves)
        mean = np.where(inside, middle, np.nan)
        known = inside & np.isfinite(lower) & np.isfinite(upper)
        if axis.levels:
            places = axis.places + dodged(k, K)
            ax.vlines(places[known], lower[known], upper[known], color=colour, lw=1.8, path_effects=drawing.halo())
            ax.plot(places, mean, color=colour, linestyle="", marker=marker, ms=7, mec="white", mew=0.8, zorder=3,
                    label=expert_label(estimator, k))  # fmt: skip
            continue
        ax.plot(axis.places, mean, color=colour, linestyle=line, lw=1.8, marker=marker, ms=5.5, mec="white", mew=0.6,
                markevery=[], path_effects=drawing.halo(), label=expert_label(estimator, k))  # fmt: skip
        if known.any():
            ax.fill_between(axis.places, lower, upper, where=known, color=colour, alpha=0.22, lw=0)


# ---------------------------------------------------------------------- rows


def _responsibilities(estimator: FittedMixture, rows: Rows) -> Array:
    """Return the responsibilities of each row, those of its group if there are groups, ``(n, K)``."""
    resp = estimator.mixture_.responsibilities(rows)
    return resp if rows.groups is None else resp[rows.groups.codes]


def _responses(estimator: FittedMixture, rows: Rows, r: int) -> Array:
    """Return one response of each row, ``(n,)``; of a classifier, the class."""
    return rows.Y[:, 0 if estimator.mixture_.experts.classes else r]


def _moved_rows(estimator: FittedMixture, rows: Rows, axis: Along, resp: Array, r: int) -> Array:
    """Return the responses moved along the most probable expert to the means of the other covariates, ``(n,)``."""
    Y, link = _responses(estimator, rows, r), estimator.mixture_.experts.link
    if estimator.mixture_.experts.classes or link not in ("identity", "log"):
        return Y
    likely, each = resp.argmax(axis=1), np.arange(rows.n)
    at = rows_at(rows.X, axis.columns, rows.X[:, axis.columns], partial=True)
    own, moved = (mean_curves(estimator, X, r)[likely, each] for X in (rows.X, at))
    return np.asarray(Y + moved - own if link == "identity" else Y * moved / np.where(own > 0, own, 1.0))


def _points(ax: Axes, axis: Along, Y: Array, resp: Array) -> None:
    """Draw the rows in the colours of their responsibilities, one collection for each expert."""
    n, K = resp.shape
    likely, colours, x = resp.argmax(axis=1), drawing.shades(resp), axis.own
    if axis.levels:
        spread = np.random.default_rng(0).uniform(-0.28, 0.28, n)  # side by side in the strip of their expert
        x = x + np.array([dodged(k, K) for k in range(K)])[likely] + spread / K
    for k in range(K):
        mine = likely == k
        ax.scatter(x[mine], Y[mine], c=colours[mine], marker=drawing.mark(k).marker, s=_marker_area(n),
                   linewidths=0, alpha=0.6, rasterized=n > drawing.MANY, zorder=1)  # fmt: skip


def _marker_area(n: int) -> float:
    """Return the area of a marker: smaller for many points."""
    return 18.0 if n <= 500 else 10.0 if n <= drawing.MANY else 6.0


def _drawn_responses(estimator: FittedMixture, Y: Array, resp: Array, r: int) -> Array:
    """Return responses as they are drawn, ``(n,)``: of classes, strips of one class and of the others."""
    if not estimator.mixture_.experts.classes:
        return Y
    away = STRIP * (1 + resp.argmax(axis=1))
    return np.asarray(np.where(r == Y, 1 + away, -away))


def _rates(ax: Axes, axis: Along, Y: Array, sizes: Array, resp: Array) -> None:
    """Draw the rates of bins of rows, one collection for each expert."""
    K, codes = resp.shape[1], _bins(axis)
    rows_of = np.bincount(codes)
    total = np.array([np.bincount(codes, own * sizes) for own in resp.T])  # (K, bins)
    for k, own in enumerate(resp.T):
        weight, events, place = (np.bincount(codes, own * each) for each in (np.ones(len(codes)), Y, axis.own))
        shown = weight > HELD * np.maximum(rows_of, 1)
        x = place[shown] / weight[shown] + dodged(k, K) * bool(axis.levels)
        colour, marker, _ = drawing.mark(k)
        area = np.maximum(LARGEST_BIN * total[k, shown] / total.max(), SMALLEST_BIN)
        ax.scatter(x, events[shown] / total[k, shown], s=area, color=colour, marker=marker, linewidths=0, alpha=0.6,
                   zorder=1)  # fmt: skip


def _bins(axis: Along) -> IntArray:
    """Return the bin of each row ``(n,)``: its level, or one of at most 20 with equal numbers of rows."""
    if axis.levels:
        return axis.own.astype(np.intp)
    count = int(np.clip(len(axis.own) // ROWS_OF_BIN, 1, MOST_BINS))
    edges = np.unique(np.quantile(axis.own, np.linspace(0, 1, count + 1)[1:-1]))
    return np.searchsorted(edges, axis.own, side="left")


# ---------------------------------------------------------------------- confidence bands


def mean_curves(estimator: FittedMixture, X: Array, response: int) -> Array:
    """Compute ``E[y | x, k]`` of one response, or the probability of one class, ``(K, n)``, at rows ``X (n, d)``."""
    return expert_means(estimator.mixture_, X)[:, :, response].T


def expert_bands(estimator: FittedMixture, X: Array, response: int, level: float) -> tuple[Array, Array]:
    """Compute pointwise confidence bounds of :func:`mean_curves`, ``(K, n)`` each; NaN where they are withheld.

    The interval of the linear predictor, ``η_k(x) ± q se(η_k(x))`` with ``se² = x̃ᵀ Cov(b_k) x̃``, is mapped to the mean;
    ``q`` is Student's quantile of the least degrees of freedom of the expert's coefficients. Of a class, it is the
    interval of the log odds against all other classes, by the delta method.
    """
    panel, means = estimator.mixture_.design.panel(X), mean_curves(estimator, X, response)
    reach = _reach(estimator, panel, response, level)
    if estimator.mixture_.experts.classes:
        odds = logit(means)
        return expit(odds - reach), expit(odds + reach)
    lower, upper = (_moved_means(estimator.mixture_, panel, response, sign * reach) for sign in (-1, 1))
    return lower, upper


def _reach(estimator: FittedMixture, panel: Array, response: int, level: float) -> Array:
    """Compute the half-width of the interval of each expert's predictor, ``(K, n)``; NaN where it is withheld."""
    inference = estimator.inference_
    gradient = _predictor_gradient(estimator.mixture_, panel, response)
    variance = np.einsum("kcn,kcdn,kdn->kn", gradient, predictor_covariance(inference, panel), gradient)
    degrees = inference.degrees_of_freedom().experts.min(axis=(1, 2))
    return np.asarray(quantile(level, degrees)[:, None] * np.sqrt(np.maximum(variance, 0.0)))


def _predictor_gradient(mixture: Mixture, panel: Array, response: int) -> Array:
    """Return the derivative of the predictor by the reported linear predictors of each expert, ``(K, c, n)``.

    Of a class it is that of its log odds against all others: 1 for the class, ``-p_e / (1 - p)`` for another one.
    """
    experts, n = mixture.experts, panel.shape[1]
    if not experts.classes:
        return np.tile(np.eye(experts.channels)[response][:, None], (mixture.K, 1, n))
    probability = experts.mean(panel)  # (K, C, n)
    if probability.shape[1] == 2:  # reported as log odds of the second class; the sign has no influence
        return np.ones((mixture.K, 1, n))
    others = -probability / (1 - probability[:, [response]])
    others[:, response] = 1.0
    return np.asarray(others)


def _moved_means(mixture: Mixture, panel: Array, response: int, shift: Array) -> Array:
    """Compute the mean of one response where the predictors are moved by ``shift (K, n)``.

    A copy of each expert for each row gets coefficients ``b + shift x̃ / |x̃|²``, which gives ``η + shift``.
    """
    p, n = panel.shape
    at = np.arange(n)
    square = np.sum(panel**2, axis=0)
    direction = (panel / np.where(square > 0, square, 1.0)).T  # (n, p); a row of zeros has predictor 0 for certain
    found = np.full_like(shift, np.nan)
    for k, own in enumerate(shift):
        if not np.isfinite(own).any():
            continue
        copies = mixture.experts.permuted(np.full(n, k))
        change = np.zeros((n, copies.channels, p))
        change[:, response] = own[:, None] * direction
        found[k] = copies.moved(change.ravel(), np.zeros(copies.shape_parameters)).mean(panel)[at, response, at]
    return found
