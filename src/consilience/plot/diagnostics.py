"""How well a model fits its rows and separates them: calibration, responsibilities and convergence."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from consilience.errors import InvalidInputError
from consilience.fitted import protocols
from consilience.fitted.protocols import (
    FederatedResult,
    FittedMixture,
    expert_label,
    generator,
    is_federated_result,
    noun,
)
from consilience.model import Mixture, Rows
from consilience.model.tails import predictive_cdf
from consilience.numerics.arrays import Array, IntArray
from consilience.plot import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 10
"""Number of bins of a reliability diagram."""


def calibration(
    model: FittedMixture | FederatedResult,
    X: Any,
    y: Any = None,
    *,
    response: Any = None,
    level: float = 0.95,
    random_state: Any = 0,
    ax: Axes | None = None,
    **metadata: Any,
) -> Axes:
    """Draw how well the predictive distribution fits the data: a normal QQ plot, or a reliability diagram for classes.

    For real responses and counts, it shows the sorted quantile residuals ``Φ⁻¹(F(y_i | x_i))`` of the mixture against
    the quantiles of the normal distribution, which they follow if the model is right. Those of counts are drawn
    uniformly between ``F(y_i - 1 | x_i)`` and ``F(y_i | x_i)``. The band is pointwise, for independent rows: it
    contains the residual of one rank with probability ``level``.

    For a classifier, it shows the frequency of a class, with Wilson's interval, against its mean predicted probability,
    in ten bins with equal numbers of rows.

    Parameters
    ----------
    model : fitted estimator, or FederatedFit
    X, y, response, ax, **metadata
        As in :func:`experts`; omit ``y`` for a Gaussian mixture. Residuals of the rows of the fit look a little better
        than those of new rows.
    level : float
        Level of the band, or of the intervals.
    random_state : int, RandomState, Generator or None
        For the residuals of counts.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor, plot
    >>> from consilience.datasets import soft
    >>> data = soft(1000, n_experts=2, n_features=3, random_state=0)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> plot.calibration(model, data.X, data.y).get_xlabel()
    'normal quantile'
    """
    estimator = drawing.estimator_of(model)
    protocols.check_level(level)
    r = drawing.response_place(estimator, response)
    rows = estimator.rows(X, y, **metadata)
    if rows.groups is not None:
        raise InvalidInputError(
            "groups: the residuals of a row do not use the other rows of its group; leave groups out"
        )
    ax = drawing.prepare_axes(ax)
    label = drawing.response_label(estimator, y, r)
    if estimator.mixture_.experts.classes:
        probability = estimator.mixture_.mean(rows.X)[:, r]
        _reliability(ax, probability, rows.Y[:, 0] == r, level)
        ax.set(xlabel=f"predicted {label}", ylabel=f"observed frequency, {level:.0%} interval".replace("%", " %"))
    else:
        _quantiles(ax, quantile_residuals(estimator.mixture_, rows, r, generator(random_state)), level)
        ax.set(xlabel="normal quantile", ylabel=f"quantile residual of {label}")
    drawing.add_legend(ax)
    return ax


# ---------------------------------------------------------------------- quantile residuals


def quantile_residuals(mixture: Mixture, rows: Rows, response: int, rng: np.random.Generator) -> Array:
    """Compute ``Φ⁻¹(u_i)``, ``(n,)``, with ``u_i = F(y_i | x_i)``, or uniform between its limits for counts."""
    Y = rows.Y[:, response]
    upper = predictive_cdf(mixture, rows, response, Y)
    if mixture.experts.discrete:
        lower = predictive_cdf(mixture, rows, response, Y - 1)
        upper = lower + (upper - lower) * rng.random(len(Y))
    tiny = np.finfo(float).tiny
    return np.asarray(ndtri(np.clip(upper, tiny, 1 - np.finfo(float).eps / 2)))


def _quantiles(ax: Axes, residuals: Array, level: float) -> None:
    """Draw sorted residuals against normal quantiles, with the band of order statistics."""
    n = len(residuals)
    rank = _ranks(n)
    at = ndtri((rank - 0.5) / n)
    low, high = (ndtri(betaincinv(rank, n + 1 - rank, 0.5 + side * level / 2)) for side in (-1, 1))
    ax.fill_between(
        at, low, high, color="0.85", lw=0, label=fill(f"{level:.0%} band, pointwise".replace("%", " %"), 20)
    )
    ax.plot(at, at, color="0.5", lw=0.9)
    shown = "residuals" if len(rank) == n else f"{len(rank):,} of {n:,} residuals"
    ax.plot(at, np.sort(residuals)[rank - 1], "o", color="black", ms=3, mew=0, label=fill(shown, 20))


def _ranks(n: int) -> IntArray:
    """Return the ranks that are drawn: all, or the nearest to evenly spaced normal quantiles."""
    if n <= drawing.MANY:
        return np.arange(1, n + 1)
    edge = ndtri(0.5 / n)
    even = ndtr(np.linspace(edge, -edge, drawing.MANY))
    return np.unique(np.clip(np.rint(even * n + 0.5), 1, n).astype(np.intp))


# ---------------------------------------------------------------------- reliability


def _reliability(ax: Axes, probability: Array, hit: Array, level: float) -> None:
    """Draw the frequency of a class against its mean probability in bins."""
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    x, f, n = (np.array([g(part) for part in parts]) for g in (
        lambda part: probability[part].mean(), lambda part: hit[part].mean(), len))  # fmt: skip
    z = ndtri(0.5 + level / 2)
    centre = (f + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(f * (1 - f) / n + z**2 / (4 * n**2))
    ax.plot([0, 1], [0, 1], color="0.5", lw=0.9)
    ax.vlines(x, centre - half, centre + half, color="black", lw=1.1)
    size = f"{n.min():,}" if n.min() == n.max() else f"{n.min():,} to {n.max():,}"
    ax.plot(x, f, "o", color="black", ms=5, label=f"{len(parts)} bins of {size} rows")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))


# ---------------------------------------------------------------------- responsibilities


RESPONSIBILITY_BINS = 20
NEGLIGIBLE = 1e-4
"""Responsibilities below this are not counted: nearly all rows have one for most experts."""


def posteriors(
    model: FittedMixture | FederatedResult, X: Any, y: Any = None, *, ax: Any = None, **metadata: Any
) -> Any:
    """Draw a rootogram of the responsibilities of each expert: a histogram with counts on a square root scale.

    A peak at 1 and few counts in the middle mean that the expert is well separated from the others. Responsibilities
    below 0.0001 are not counted, as in R's flexmix. With ``groups``, a group counts once.

    Parameters
    ----------
    model : fitted estimator, or FederatedFit
    X, y, **metadata
        As in :func:`experts`; omit ``y`` for a Gaussian mixture.
    ax : sequence of K Axes, optional
        Where to draw, one for each expert; a new figure by default.

    Returns
    -------
    (K,) array of Axes

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, plot
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (300, 1)), rng.normal(4, 1, (100, 1))])
    >>> panels = plot.posteriors(GaussianMixture(2, random_state=0).fit(X), X)
    >>> panels.shape, panels[0].get_title()
    ((2,), 'component 1')
    """
    estimator = drawing.estimator_of(model)
    K = estimator.mixture_.K
    resp = estimator.mixture_.responsibilities(estimator.rows(X, y, **metadata))
    panels = _panels(K) if ax is None else np.ravel(np.asarray(ax, dtype=object))
    if len(panels) != K:
        raise InvalidInputError(f"ax has {len(panels)} Axes: expected {K}, one for each {noun(estimator)}")
    edges, across = np.linspace(0, 1, RESPONSIBILITY_BINS + 1), _across(K)
    counts = [np.histogram(each[each >= NEGLIGIBLE], edges)[0] for each in resp.T]
    for k, panel in enumerate(panels):
        panel.bar(edges[:-1], counts[k], 1 / RESPONSIBILITY_BINS, align="edge", color=drawing.mark(k).colour,
                  edgecolor="white", lw=0.5)  # fmt: skip
        panel.set_yscale("function", functions=(lambda counts: np.sqrt(np.maximum(counts, 0.0)), np.square))
        panel.set_title(expert_label(estimator, k), fontsize="medium")
        panel.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
        panel.set(xlim=(0, 1), ylim=(0, 1.05 * np.max(counts)))
        if k + across >= K:
            panel.set_xlabel("responsibility")
        if k % across == 0:
            panel.set_ylabel("groups" if metadata.get("groups") is not None else "rows")
        drawing.remove_frame(panel)
    return panels


def _across(K: int) -> int:
    """Return the number of panels side by side."""
    return 2 if K == 4 else min(K, 3)


def _panels(K: int) -> Any:
    """Return K panels of a new figure, with a common vertical axis."""
    across = _across(K)
    down = -(-K // across)
    figure, grid = drawing.pyplot().subplots(
        down, across, sharey=True, squeeze=False, figsize=(2.4 * max(across, 2), 0.6 + 2.0 * down), layout="constrained"
    )
    for unused in grid.ravel()[K:]:
        figure.delaxes(unused)
    return grid.ravel()[:K]


# ---------------------------------------------------------------------- convergence


def convergence(model: FittedMixture | FederatedResult, *, ax: Axes | None = None) -> Axes:
    """Draw the penalised log-likelihood at each iteration over all rows, and where the starts ended.

    The search for starting points climbs to the end on a sample of the rows, so that few iterations over all rows
    remain. The ends of all starts, scaled to all rows, are dashes on the right. The vertical axis spans at least one
    unit of log-likelihood: smaller differences have no weight as evidence. The line is broken where a site left a
    federated fit, because the likelihood is then one of fewer rows.

    Parameters
    ----------
    model : fitted estimator, or FederatedFit
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor, plot
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> plot.convergence(model).get_ylabel()
    'penalised log-likelihood'
    """
    estimator = drawing.estimator_of(model)
    ax = drawing.prepare_axes(ax)
    starts = model.fit.ascent.segments if is_federated_result(model) else (0,)
    places = np.arange(len(estimator.trace_))
    for part in np.split(places, starts[1:]):
        ax.plot(part, estimator.trace_[part], color="black", lw=1.2, marker="o", ms=4)
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    ends = estimator.starts_.values
    if len(ends) > 1:
        ax.plot(
            np.full(len(ends), len(places) - 0.5), ends, "_", color="0.45", ms=14, label=f"ends of {len(ends)} starts"
        )
        drawing.add_legend(ax)
    low, high = ax.get_ylim()
    if high - low < 1:
        ax.set_ylim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)
    ax.set_xlabel("iteration\n" + fill(f"{estimator.stop_reason_}", 64))
    ax.set_ylabel("penalised log-likelihood")
    return ax
