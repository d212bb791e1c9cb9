"""Calibration of the predictive distribution: quantile residuals, or a reliability diagram for classes."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from consilience.errors import InvalidInputError
from consilience.estimators.validation import check_level, generator
from consilience.model import Mixture, Rows
from consilience.model.families.requirement import gaussian
from consilience.numerics.arrays import Array, IntArray
from consilience.plot.library import axes_of, legend
from consilience.plot.marks import MANY
from consilience.plot.subject import estimator_of, response_label, response_place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 10
"""Number of bins of a reliability diagram."""


def calibration(
    model: Any,
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
    X : (n, d) array or frame
        Data; residuals of the rows of the fit look a little better than those of new rows.
    y : (n,) or (n, q) array or frame
        Omit it for a Gaussian mixture.
    response : str, int or class, optional
        Name or number of one of several responses, or a class; by default the only response, or the second of two
        classes.
    level : float
        Level of the band, or of the intervals.
    random_state : int, RandomState, Generator or None
        For the residuals of counts.
    ax : Axes, optional
        Where to draw; a new figure by default.
    **metadata
        ``exposure``, ``trials``, as in ``fit``.

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
    estimator = estimator_of(model)
    check_level(level)
    r = response_place(estimator, response)
    rows = estimator.rows(X, y, **metadata)
    if rows.groups is not None:
        raise InvalidInputError(
            "groups: the residuals of a row do not use the other rows of its group; leave groups out"
        )
    ax = axes_of(ax)
    if estimator.mixture_.experts.classes:
        probability = estimator.mixture_.mean(rows.X)[:, r]
        _reliability(ax, probability, rows.Y[:, 0] == r, level)
        label = response_label(estimator, y, r)
        ax.set(xlabel=f"predicted {label}", ylabel=f"observed frequency, {level:.0%} interval".replace("%", " %"))
    else:
        _quantiles(ax, quantile_residuals(estimator.mixture_, rows, r, generator(random_state)), level)
        name = response_label(estimator, y, r)
        ax.set(xlabel="normal quantile", ylabel=f"quantile residual of {name}")
    legend(ax)
    return ax


# ---------------------------------------------------------------------- quantile residuals


def quantile_residuals(mixture: Mixture, rows: Rows, response: int, rng: np.random.Generator) -> Array:
    """Compute ``Φ⁻¹(u_i)``, ``(n,)``, with ``u_i = F(y_i | x_i)``, or uniform between its limits for counts.

    Examples
    --------
    >>> from consilience.model import mixture_of_regressions
    >>> one = mixture_of_regressions(np.ones(1), np.array([[0.0, 1.0]]), 4.0)
    >>> rows = Rows(np.array([[1.0], [3.0]]), np.array([[5.0], [3.0]]))
    >>> quantile_residuals(one, rows, 0, np.random.default_rng(0))
    array([2., 0.])
    """
    Y = rows.Y[:, response]
    upper = predictive_cdf(mixture, rows, response, Y)
    if mixture.experts.discrete:
        lower = predictive_cdf(mixture, rows, response, Y - 1)
        upper = lower + (upper - lower) * rng.random(len(Y))
    tiny = np.finfo(float).tiny
    return np.asarray(ndtri(np.clip(upper, tiny, 1 - np.finfo(float).eps / 2)))


def predictive_cdf(mixture: Mixture, rows: Rows, response: int, y: Array) -> Array:
    """Compute ``F(y_i | x_i) = Σ_k π_k(x_i) F_k(y_i | x_i)`` of one response, ``(n,)``."""
    pi, panel = mixture.gate_weights(rows.X).T, mixture.design.panel(rows.X)
    if mixture.experts.q == 1:
        each = mixture.experts.cdf(panel, y, rows.exposure)
    else:
        experts = gaussian(mixture.experts)  # the only family with several responses
        each = ndtr((y - experts.mean(panel)[:, response]) / np.sqrt(experts.variances[:, response, None]))
    return np.asarray(np.sum(pi * each, axis=0))


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
    if n <= MANY:
        return np.arange(1, n + 1)
    edge = ndtri(0.5 / n)
    even = ndtr(np.linspace(edge, -edge, MANY))
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
