"""Curves along covariates: the mean of each expert with its band over the data, and the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit

from consilience.errors import InvalidInputError
from consilience.fit.inference import expert_means, predictor_covariance, quantile
from consilience.fitted.protocols import FederatedResult, FittedMixture, check_level, expert_label, terms_read
from consilience.model import Mixture, Rows
from consilience.numerics.arrays import Array, Mask
from consilience.plot import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRIP = 0.03
"""Distance between the strips of points of two experts, for classes."""
HELD = 0.01
"""Weight of the gate from which a row counts as one of an expert's."""
FAR = 3.0
"""Multiple of what the axis must show at which rates are cut."""


def experts(
    model: FittedMixture | FederatedResult,
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

    The other covariates are held at their means over ``X``. A line ends where the gate gives its expert less than 1 %
    of every row beyond. The bands are pointwise: they cover the mean of one expert at one value of the covariate with
    probability ``level``. A point has the colour and the marker of its most probable expert, and fades to grey as its
    responsibility falls from 1 to 1 / K.

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
    ['component 1', 'component 2']
    """
    estimator = drawing.regression_of(model)
    check_level(level)
    _, read = terms_read(estimator)
    j, r = drawing.feature_place(estimator, feature, read), drawing.response_place(estimator, response)
    rows = estimator.rows(X, y, **metadata)
    ax = drawing.prepare_axes(ax)
    shown = _points(ax, estimator, rows, j, r)
    values, at = drawing.grid_along(rows.X, j)
    means, bands = mean_curves(estimator, at, r), expert_bands(estimator, at, r, level)
    for k, inside in enumerate(held_values(estimator, rows, j, values)):
        colour, marker, line = drawing.mark(k)
        mean = np.where(inside, means[k], np.nan)
        ax.plot(values, mean, color=colour, linestyle=line, lw=1.8, marker=marker, ms=5.5, mec="white", mew=0.6,
                markevery=[], path_effects=drawing.halo(), label=expert_label(estimator, k))  # fmt: skip
        if bands is not None:
            ax.fill_between(values, bands[0][k], bands[1][k], where=inside, color=colour, alpha=0.22, lw=0)
    label = drawing.response_label(estimator, y, r)
    if rows.exposure is not None:
        cut = _cut_axis(ax, shown, means if bands is None else bands[1])
        label += f" / {estimator.mixture_.experts.size_name}{cut}"
    ax.set_xlabel(drawing.feature_label(estimator, j, read) + drawing.withheld_note(estimator, "experts"))
    ax.set_ylabel(label)
    drawing.add_legend(ax)
    return ax


def held_values(estimator: FittedMixture, rows: Rows, j: int, values: Array) -> Mask:
    """Mask of the values of covariate ``j`` between which the gate gives some row each expert, ``(K, n)``."""
    given = estimator.mixture_.gate_weights(rows.X) >= HELD  # (n, K)
    inside = np.ones((given.shape[1], len(values)), dtype=bool)
    for k in np.flatnonzero(given.any(axis=0)):
        own = rows.X[given[:, k], j]
        inside[k] = (values >= own.min()) & (values <= own.max())
    return inside


def _points(ax: Axes, estimator: FittedMixture, rows: Rows, j: int, r: int) -> Array:
    """Draw the rows in the colours of their responsibilities, one collection for each expert; return the responses."""
    resp = estimator.mixture_.responsibilities(rows)
    resp = resp if rows.groups is None else resp[rows.groups.codes]
    likely, colours, Y = resp.argmax(axis=1), drawing.shades(resp), _drawn_responses(estimator, rows, resp, r)
    for k in range(resp.shape[1]):
        mine = likely == k
        ax.scatter(rows.X[mine, j], Y[mine], c=colours[mine], marker=drawing.mark(k).marker, s=_marker_area(rows.n),
                   linewidths=0, alpha=0.6, rasterized=rows.n > drawing.MANY, zorder=1)  # fmt: skip
    return Y


def _cut_axis(ax: Axes, rates: Array, upper: Array) -> str:
    """Cut the axis where rates of rows with a small exposure are far above all others, and say how many are cut."""
    top = max(float(upper.max()), float(np.quantile(rates, 0.99)))
    if rates.max() <= FAR * top:
        return ""
    ax.set_ylim(-0.03 * top, 1.05 * top)
    return f"\n(rows above, not shown: {np.sum(rates > 1.05 * top):,})"


def _marker_area(n: int) -> float:
    """Return the area of a marker: smaller for many points."""
    return 18.0 if n <= 500 else 10.0 if n <= drawing.MANY else 6.0


def _drawn_responses(estimator: FittedMixture, rows: Rows, resp: Array, r: int) -> Array:
    """Return the responses as they are drawn, ``(n,)``: rates, or strips of a class and of the others."""
    if not estimator.mixture_.experts.classes:
        return np.asarray(rows.Y[:, r] / (1.0 if rows.exposure is None else rows.exposure))
    away = STRIP * (1 + resp.argmax(axis=1))
    return np.asarray(np.where(rows.Y[:, 0] == r, 1 + away, -away))


# ---------------------------------------------------------------------- confidence bands


def mean_curves(estimator: FittedMixture, X: Array, response: int) -> Array:
    """Compute ``E[y | x, k]`` of one response, or the probability of one class, ``(K, n)``, at rows ``X (n, d)``."""
    return expert_means(estimator.mixture_, X)[:, :, response].T


def expert_bands(estimator: FittedMixture, X: Array, response: int, level: float) -> tuple[Array, Array] | None:
    """Compute pointwise confidence bounds of :func:`mean_curves`, ``(K, n)`` each; None if they are withheld.

    The interval of the linear predictor, ``η_k(x) ± q se(η_k(x))`` with ``se² = x̃ᵀ Cov(b_k) x̃``, is mapped to the mean;
    ``q`` is Student's quantile of the least degrees of freedom of the expert's coefficients. Of a class, it is the
    interval of the log odds against all other classes, by the delta method.
    """
    panel, means = estimator.mixture_.design.panel(X), mean_curves(estimator, X, response)
    reach = _reach(estimator, panel, response, level)
    if not np.all(np.isfinite(reach)):
        return None
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
    found = np.empty_like(shift)
    for k, own in enumerate(shift):
        copies = mixture.experts.permuted(np.full(n, k))
        change = np.zeros((n, copies.channels, p))
        change[:, response] = own[:, None] * direction
        found[k] = copies.moved(change.ravel(), np.zeros(copies.shape_parameters)).mean(panel)[at, response, at]
    return found


# ---------------------------------------------------------------------- the gate


SIDE = 201
"""Number of points of a map in each direction."""


def gate(model: FittedMixture | FederatedResult, X: Any = None, feature: Any = None, *, ax: Axes | None = None) -> Axes:
    """Draw the gate probabilities ``π_k(x)`` along one covariate, or a map of them over two covariates.

    The covariates run over their ranges in ``X``, or two standard deviations around their means in the fit; the others
    are held at their means. In a map, each place has the
    colour of its most probable expert, which fades to grey as the probability falls from 1 to 1 / K; black lines are
    the borders, and dotted lines where the most probable expert has probability 0.9.

    Parameters
    ----------
    model, ax
        As in :func:`experts`.
    X : (n, d) array or frame, optional
    feature : str, int or a pair of them
        Name or column of the covariate, or of two for a map; may be left out if the gate reads only one.

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
    columns = _gate_columns(estimator, feature)
    X = drawing.around_mean(estimator) if X is None else estimator.covariates(X)
    ax = drawing.prepare_axes(ax)
    if len(columns) == 1:
        _gate_curves(ax, estimator, X, columns[0])
    else:
        _gate_map(ax, estimator, X, *columns)
    drawing.add_legend(ax)
    return ax


def _gate_columns(estimator: FittedMixture, feature: Any) -> list[int]:
    wanted = list(feature) if isinstance(feature, list | tuple) else [feature]
    read, _ = terms_read(estimator)
    columns = [drawing.feature_place(estimator, each, read) for each in wanted]
    if len(columns) not in (1, 2) or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"feature={feature!r}: expected one covariate, or two different ones for a map, of "
            f"{drawing.list_names(drawing.feature_names(estimator))}"
        )
    return columns


def _gate_curves(ax: Axes, estimator: FittedMixture, X: Array, j: int) -> None:
    values, at = drawing.grid_along(X, j)
    for k, probability in enumerate(estimator.mixture_.gate_weights(at).T):
        colour, marker, line = drawing.mark(k)
        ax.plot(values, probability, color=colour, linestyle=line, lw=1.8, marker=marker, ms=5.5, mec="white", mew=0.6,
                markevery=(4 + 7 * k % 20, 20), label=expert_label(estimator, k))  # fmt: skip
    read, _ = terms_read(estimator)
    ax.set(xlabel=drawing.feature_label(estimator, j, read), ylabel="gate probability", ylim=(-0.02, 1.02))


def _gate_map(ax: Axes, estimator: FittedMixture, X: Array, i: int, j: int) -> None:
    across, up = (np.linspace(X[:, c].min(), X[:, c].max(), SIDE) for c in (i, j))
    at = np.tile(X.mean(axis=0), (SIDE * SIDE, 1))
    at[:, i], at[:, j] = np.tile(across, SIDE), np.repeat(up, SIDE)
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
        rows, columns = np.nonzero(likely == k)
        ax.plot(across[int(np.median(columns))], up[int(np.median(rows))], marker=marker, ms=8, color=colour,
                mec="white", mew=1.2)  # fmt: skip
    name = drawing.feature_names(estimator)
    ax.set(xlabel=name[i] + ("\n(other covariates at their means)" if len(name) > 2 else ""), ylabel=name[j])


def _contour(ax: Axes, grid: tuple[Array, Array], values: Array, level: float, line: str) -> None:
    """Draw the line where ``values`` pass a level, if they do."""
    if values.min() < level < values.max():
        ax.contour(*grid, values, levels=[level], colors="black", linestyles=line, linewidths=0.9)
