"""Hurdle Poisson experts: a share of zeros, and log-linear regressions of the counts that are not zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import gammaln, pdtrc, pdtrik

from consilience.model.families.base import Evaluated, ExpertScores, Share
from consilience.model.families.glm import LARGEST_PREDICTOR
from consilience.model.families.zero_odds import ODDS, ZeroOddsExperts
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Layout, Moments, Penalty, Weights
from consilience.numerics.arrays import Array, IntArray, Mask, unpack

SMALL_RATE = 1e-3
"""Below it the variance of a truncated count is computed by its series."""
LARGE_RATE = 1e9
"""Rates are cut here in quantiles, which SciPy does not compute for larger ones."""


@dataclass(frozen=True, eq=False)
class HurdleEvaluated(Evaluated):
    """Residuals ``y - m`` of the counts above 0, and their variances ``v``, both ``(K, n)`` and 0 where ``y = 0``."""

    zero: Mask  # (n,)
    residual: Array
    variance: Array


@dataclass(frozen=True, eq=False)
class HurdlePoissonExperts(ZeroOddsExperts):
    """Experts ``y | x, k``: 0 with odds ``ω``, otherwise ``Poisson(μ)`` above 0, with ``μ = exp(x̃ᵀ b_k)``.

    The mean of a count above 0 is ``m = μ / (1 - e^-μ)``. All experts have the same odds: a zero does not tell the
    experts apart. Rows have no exposure, since the odds would depend on it in a way that the model does not say.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log rate ``log μ``, intercept first.
    omega : (K,) array
        Odds ``ω`` of a zero, positive and all equal.

    Examples
    --------
    >>> experts = HurdlePoissonExperts(B=np.array([[0.0, 1.0]]), omega=np.array([1.0]))
    >>> experts.mean(np.array([[1.0], [0.0]])).ravel().round(3), experts.attributes()["zero_shares_"]
    (array([0.791]), array([0.5]))
    """

    family = "hurdle_poisson"
    shape_name = "odds of zeros"
    size_name = None
    longest_step = 2.0

    # ------------------------------------------------------------------ counts above zero

    def predictor(self, panel: Array) -> Array:
        """Compute ``η_k(x_i)``, ``(K, n)``, cut on both sides: all counts above 0 are 1 long before ``e^-100``."""
        return np.clip(self.B @ panel, -LARGEST_PREDICTOR, LARGEST_PREDICTOR)

    def at_level(self, rows: Rows) -> Self:
        """Return the blank experts with the share of zeros, and the mean count above 0 as rate."""
        weight = np.ones(rows.n) if rows.weight is None else rows.weight
        zero = rows.Y[:, 0] == 0
        above = float(weight[~zero].sum())
        rate = float(weight @ rows.Y[:, 0]) / above if above > 0 else 1.0
        return self.with_intercept(np.log(rate)).with_share(float(weight[zero].sum() / weight.sum()))

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> HurdleEvaluated:
        """Compute the log density, and the residuals and variances of the counts above 0."""
        eta, y = self.predictor(block.panel), block.Y[0]
        zero = y == 0
        loss, residual, variance = self.pointwise(eta, y)
        log_odds = np.log(self.omega)[:, None]
        log_density = np.where(zero, log_odds, -loss - gammaln(y + 1)) - np.log1p(self.omega)[:, None]
        return HurdleEvaluated(log_density, zero, np.where(zero, 0.0, residual), np.where(zero, 0.0, variance))

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(2 * self.K, self.K, self.K, p)

    def weights(self, at: HurdleEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ``, ``Σ τ`` of the zeros, ``Σ τ (y - m) x`` and ``Σ τ v x xᵀ``."""
        plain = np.concatenate([tau.sum(axis=1), tau @ at.zero])
        return Weights(plain, tau * at.residual, tau * at.variance)

    # ------------------------------------------------------------------ what must be true of statistics

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give, such as more zeros than rows; empty if nothing."""
        n, zeros = np.split(moments.plain, 2)
        if np.any(zeros < 0) or np.any(zeros > n * (1 + 1e-9)):
            return "a mass of zeros that is not within the mass of the rows"
        return super().impossible(moments, intercept=intercept)

    # ------------------------------------------------------------------ the M-step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take a Newton step of the coefficients; the share of zeros is their maximum, whatever the coefficients."""
        B = self.stepped(moments.first, moments.second, penalty, intercept, fraction)
        return replace(self.with_share(self._zeros(moments)), B=B)

    def _zeros(self, moments: Moments) -> float:
        """Compute the share of zeros."""
        n, zeros = (float(part.sum()) for part in np.split(moments.plain, 2))
        return zeros / n if n > 0 else float(self.share[0])

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: HurdleEvaluated) -> ExpertScores:
        """Compute ``y - m`` on ``x``, and for ``log ω`` whether the count is 0, minus ``π``."""
        shape = np.where(ODDS.reached(self.omega)[:, None], 0.0, at.zero - self.share[:, None])
        return ExpertScores(at.residual[:, None], shape[:, None])

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score: coefficients ``(K, 1, p)`` and log odds ``(K, 1)``."""
        n, zeros = np.split(moments.plain, 2)
        return moments.first[:, None], self.inward_score(zeros - n * self.share)

    def complete(self, moments: Moments) -> Array:
        """Compute minus the second derivative in coefficients and ``log ω``, ``(K, p + 1, p + 1)``."""
        p = self.p
        known = moments.plain[: self.K] * self.share * (1 - self.share)
        J = np.zeros((self.K, p + 1, p + 1))
        J[:, :p, :p] = unpack(moments.second)
        J[:, p, p] = known
        return J

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute the mean ``(1 - π) m``, ``(K, 1, n)``."""
        return (1 - self.share)[:, None, None] * mean_above(np.exp(self.predictor(panel)))[:, None]

    def mean_slopes(self, panel: Array) -> Array:
        """Compute the derivative of the mean in the linear predictor, ``(1 - π) v``, ``(K, 1, 1, n)``."""
        slopes = (1 - self.share)[:, None] * variance_above(np.exp(self.predictor(panel)))
        return slopes[:, None, None]

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array]:
        """Return 0 with the share of zeros, and the nodes of the Poisson counts above 0."""
        Y, weight = self.counts.nodes(panel)
        above = np.where(Y == 0, 0.0, weight)
        above = above / np.maximum(above.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        share = self.share[:, None, None]
        zeros = np.broadcast_to(share, (self.K, 1, panel.shape[1]))
        return np.concatenate([np.zeros(zeros.shape), Y], axis=1), np.concatenate([zeros, (1 - share) * above], axis=1)

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw counts ``(n, 1)`` from the experts given by ``labels (n,)``.

        A count above 0 is one event, whose time is drawn given that it is before 1, and those that follow it.
        """
        mu = np.exp(self.predictor(panel))[labels, np.arange(len(labels))]
        first = -np.log1p(rng.random(len(labels)) * np.expm1(-mu))
        more: Array = rng.poisson(np.clip(mu - first, 0.0, 1e18)).astype(np.float64)
        zero = rng.random(len(labels)) < self.share[labels]
        return np.where(zero, 0.0, 1 + more)[:, None]

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``."""
        mu = np.exp(self.predictor(panel))
        beyond = np.where(y < 1, 1.0, pdtrc(np.floor(np.maximum(y, 0.0)), np.minimum(mu, LARGE_RATE)) / -np.expm1(-mu))
        return np.where(y < 0, 0.0, 1 - (1 - self.share)[:, None] * beyond)

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``, up to 1."""
        rest = ((probability - self.share) / (1 - self.share))[:, None]  # of the counts above 0
        mu = np.minimum(np.exp(self.predictor(panel)), LARGE_RATE)
        none = np.exp(-mu)
        found = np.nan_to_num(pdtrik(np.clip(none + rest * (1 - none), 0.0, 1.0), mu))
        return np.where(rest <= 0, 0.0, np.maximum(found, 1.0))

    # ------------------------------------------------------------------ combining experts of several sites

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute ``log(e^μ - 1) - mean η`` with ``μ = exp η`` and its derivatives, for a mean of counts above 0."""
        mu = np.exp(eta)
        return log_expm1(mu) - mean * eta, mean - mean_above(mu), variance_above(mu)

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute the divergence, ``(K, L, n)``, of the shares of zeros and of the counts above 0."""
        ours, theirs = self.predictor(panel)[:, None], other.predictor(panel)
        mu, other_mu = np.exp(ours), np.exp(theirs)
        share, other_share = self.share[:, None], other.share
        zeros = share * np.log(share / other_share) + (1 - share) * np.log((1 - share) / (1 - other_share))
        above = mean_above(mu) * (ours - theirs) - log_expm1(mu) + log_expm1(other_mu)
        return np.maximum(zeros[:, :, None] + (1 - share)[:, :, None] * above, 0.0)

    def barycentres(self, shares: Sequence[Share]) -> Self:
        """Minimise the divergence from what ``shares`` assign to the experts: that of zeros and of counts apart."""
        panel = np.concatenate([share.panel for share in shares], axis=1)
        mass, above, total = (np.concatenate(part, axis=1) for part in zip(*map(self._assigned, shares), strict=True))
        means = total / np.where(above > 0, above, 1.0)
        rows = zip(self.B, above, means, strict=True)
        B = np.array([self._nearest(b, panel, m, mean) if m.sum() > 0 else b for b, m, mean in rows])
        n = mass.sum()
        moved = replace(self, B=B)
        return moved.with_share(1 - above.sum() / n) if n > 0 else moved

    def _assigned(self, share: Share) -> tuple[Array, Array, Array]:
        """Sum for each target: mass, mass above 0 and mean response, each ``(K, S)``."""
        kept, mean = 1 - share.experts.share[:, None], share.experts.mean(share.panel)[:, 0]
        own = np.array([share.own(k) for k in range(self.K)])  # (K, L, S)
        return own.sum(axis=1), np.sum(own * kept, axis=1), np.sum(own * mean, axis=1)

    # ------------------------------------------------------------------ one model per site

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute log odds ``(K, 1)``."""
        return self.with_share(self._zeros(moments)).log_shapes()


def log_expm1(mu: Array) -> Array:
    """Compute ``log(e^μ - 1)`` of positive numbers without overflow."""
    return np.asarray(mu + np.log(-np.expm1(-mu)))


def mean_above(mu: Array) -> Array:
    """Compute the mean ``μ / (1 - e^-μ)`` of Poisson counts above 0.

    Examples
    --------
    >>> mean_above(np.array([1e-20, 1.0, 50.0])).round(3)
    array([ 1.   ,  1.582, 50.   ])
    """
    return np.asarray(mu / -np.expm1(-mu))


def variance_above(mu: Array) -> Array:
    """Compute the variance ``m (1 + μ - m)`` of Poisson counts above 0 with mean ``m``.

    Examples
    --------
    >>> variance_above(np.array([1e-20, 1.0, 50.0])).round(3)
    array([ 0.   ,  0.661, 50.   ])
    """
    larger = np.clip(mu, SMALL_RATE, 500.0)
    rest = np.where(mu < SMALL_RATE, mu / 2 - mu**2 / 12, 1 - larger / np.expm1(larger))
    return mean_above(mu) * rest
