"""Zero-inflated Poisson experts: log-linear regressions of counts with more zeros than Poisson counts have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from consilience.model.families.base import Evaluated, ExpertScores, Share
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.zero_odds import ODDS, ZeroOddsExperts
from consilience.model.rows import Block
from consilience.model.statistics import Layout, Moments, Penalty, Weights
from consilience.numerics.arrays import Array, IntArray, unpack
from consilience.numerics.linalg import cholesky_or_none, cholesky_solve

LONGEST_NEWTON = 1.0
"""Largest change of a coefficient or of ``log ω`` for which all are changed together."""
SHIFTS = (0.0, 0.1, 1.0, 10.0)
"""Multiples of the curvature for known zeros that make an indefinite one definite, and a long step shorter."""
ROUNDS = 200
TOLERANCE = 1e-12
"""Change of coefficients and log odds below which a projection has converged."""


@dataclass(frozen=True, eq=False)
class ZeroInflatedEvaluated(Evaluated):
    """Means ``μ`` of the Poisson counts, and the probability ``r`` that a zero is an extra one, both ``(K, n)``."""

    y: Array  # (n,)
    mu: Array
    extra: Array  # 0 where y > 0


@dataclass(frozen=True, eq=False)
class ZeroInflatedPoissonExperts(ZeroOddsExperts):
    """Experts ``y | x, k``: an extra 0 with odds ``ω``, otherwise ``Poisson(μ)`` with ``μ = exposure · exp(x̃ᵀ b_k)``.

    All experts have the same odds: which expert an extra zero belongs to is not identified. The free shape is
    ``log ω``, kept between ``log 1e-6`` and ``log 1e6``; ``π = ω / (1 + ω)`` is the share of extra zeros.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log rate of the Poisson counts, intercept first.
    omega : (K,) array
        Odds ``ω`` of an extra zero, positive.

    Examples
    --------
    >>> experts = ZeroInflatedPoissonExperts(B=np.array([[0.0, 1.0]]), omega=np.array([1.0]))
    >>> experts.mean(np.array([[1.0], [0.0]])).ravel(), experts.attributes()["zero_shares_"]
    (array([0.5]), array([0.5]))
    """

    family = "zero_inflated_poisson"
    shape_name = "odds of extra zeros"
    relaxes: ClassVar[Mapping[str, str]] = {"poisson": "extra zeros"}

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> ZeroInflatedEvaluated:
        """Compute the log density, the mean of the counts, and the probability that a zero is an extra one."""
        at, y = self.counts.evaluate(block), block.Y[0]
        zero = np.logaddexp(np.log(self.omega)[:, None], -at.mu)
        log_density = np.where(y == 0, zero, at.log_density) - np.log1p(self.omega)[:, None]
        return ZeroInflatedEvaluated(log_density, y, at.mu, np.where(y == 0, self._extra(at.mu), 0.0))

    def _extra(self, mu: Array) -> Array:
        """Compute the probability that a zero is an extra one, ``ω / (ω + e^-μ)``, ``(K, n)``."""
        return 1 / (1 + np.exp(-mu - np.log(self.omega)[:, None]))

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(3 * self.K, 2 * self.K, 2 * self.K, p)

    def weights(self, at: ZeroInflatedEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ (1, r, r (1 - r))``, scores of ``η``, their slopes in ``log ω``, and curvatures."""
        kept = (1 - at.extra) * at.mu
        spread = tau * at.extra * (1 - at.extra)
        return Weights(
            plain=np.concatenate([tau.sum(axis=1), (tau * at.extra).sum(axis=1), spread.sum(axis=1)]),
            first=np.concatenate([tau * (at.y - kept), spread * at.mu]),
            second=np.concatenate([tau * kept, spread * at.mu**2]),
        )

    # ------------------------------------------------------------------ what must be true of statistics

    def row_products(self, moments: Moments, *, intercept: bool) -> tuple[Array, Array]:
        """Return ``Σ w y x``, as of Poisson counts with means ``(1 - r) μ``."""
        counts = Moments(moments.plain[: self.K], moments.first[: self.K], moments.second[: self.K])
        return self.counts.row_products(counts, intercept=intercept)

    # ------------------------------------------------------------------ the M-step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take a step of EM with the kind of each zero as missing data; where it is short, a Newton step instead."""
        K, ridge = self.K, penalty.expert_matrix(self.p, intercept=intercept)
        B = self.stepped(moments.first[:K], moments.second[:K], penalty, intercept, fraction)
        near = np.abs(B - self.B).max() <= LONGEST_NEWTON
        newton = self._newton(moments, ridge, intercept, fraction) if near else None
        return replace(self.with_share(self._zeros(moments)), B=B) if newton is None else newton

    def _newton(self, moments: Moments, ridge: Array, intercept: bool, fraction: float) -> Self | None:
        """Change coefficients and ``log ω`` together by ``fraction`` of a Newton step; None if there is no short one.

        Zeros hardly tell a smaller rate from more extra zeros. With an intercept the step is one of the logarithm of
        the mean, ``η - log(1 + ω)``, which the counts do tell.
        """
        of_means = intercept and not ODDS.reached(self.omega).any()
        g, J, C = self._quadratic(moments, ridge, of_means=of_means)
        for shift in SHIFTS:
            change = solve_arrow(J + shift * C, g)
            if change is not None and np.abs(change).max() <= LONGEST_NEWTON:
                ahead = self.moved(fraction * change[:, :-1], fraction * change[:, -1])
                if of_means:
                    ahead.B[:, 0] += np.log1p(ahead.omega) - np.log1p(self.omega)
                return ahead
        return None

    def _quadratic(self, moments: Moments, ridge: Array, *, of_means: bool) -> tuple[Array, Array, Array]:
        """Compute gradients ``(K, p + 1)``, minus second derivatives and those for known zeros, ``(K, p + 1, p + 1)``.

        They are of coefficients and ``log ω``; if ``of_means``, intercepts are those of the log mean.
        """
        p, pi, R = self.p, self.share, np.pad(ridge, (0, 1))
        coefficients, shapes = self.score(moments)
        g = np.concatenate([coefficients[:, 0] - self.B @ ridge, shapes], axis=1)
        J, C = self.complete(moments) + R, np.zeros((self.K, p + 1, p + 1)) + R
        C[:, :p, :p] += unpack(moments.second[: self.K])
        C[:, p, p] = moments.plain[: self.K] * pi * (1 - pi)
        if of_means:
            T = np.tile(np.eye(p + 1), (self.K, 1, 1))
            T[:, 0, p] = pi
            bend, up = g[:, 0] * pi * (1 - pi), np.swapaxes(T, 1, 2)
            g, J, C = (up @ g[:, :, None])[:, :, 0], up @ J @ T, up @ C @ T
            J[:, p, p] -= bend
        return g, J, C

    def _zeros(self, moments: Moments) -> float:
        """Compute the share of extra zeros after a step of EM."""
        n, extra, _ = (float(part.sum()) for part in np.split(moments.plain, 3))
        return extra / n if n > 0 else float(self.share[0])

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: ZeroInflatedEvaluated) -> ExpertScores:
        """Compute ``y - (1 - r) μ`` on ``x``, and ``r - π`` for ``log ω``."""
        shape = np.where(ODDS.reached(self.omega)[:, None], 0.0, at.extra - self.share[:, None])
        return ExpertScores((at.y - (1 - at.extra) * at.mu)[:, None], shape[:, None])

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score: coefficients ``(K, 1, p)`` and log odds ``(K, 1)``."""
        n, extra, _ = np.split(moments.plain, 3)
        return moments.first[: self.K, None], self.inward_score(extra - n * self.share)

    def coefficient_curvature(self, moments: Moments) -> Array:
        """Compute that of the counts that are not zeros of another kind."""
        return unpack(moments.second[: self.K])

    def complete(self, moments: Moments) -> Array:
        """Compute minus the second derivative in coefficients and ``log ω``, ``(K, p + 1, p + 1)``."""
        n, _, spread = np.split(moments.plain, 3)
        p, known, S = self.p, n * self.share * (1 - self.share), unpack(moments.second)
        J = np.empty((self.K, p + 1, p + 1))
        J[:, :p, :p] = S[: self.K] - S[self.K :]
        J[:, p, :p] = J[:, :p, p] = -moments.first[self.K :]
        J[:, p, p] = known - spread
        return ODDS.held(self.omega, J, known)

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute the mean at unit exposure, ``(K, 1, n)``."""
        return self.counts.mean(panel) * (1 - self.share)[:, None, None]

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array]:
        """Return the nodes of the Poisson counts, and 0 with the probability of an extra zero."""
        Y, weight = self.counts.nodes(panel, exposure)
        share = self.share[:, None, None]
        extra = np.broadcast_to(share, (self.K, 1, panel.shape[1]))
        return np.concatenate([np.zeros(extra.shape), Y], axis=1), np.concatenate([extra, (1 - share) * weight], axis=1)

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw counts ``(n, 1)`` from the experts given by ``labels (n,)``."""
        counts = self.counts.sample(panel, labels, rng, exposure)
        return np.where(rng.random((len(labels), 1)) < self.share[labels, None], 0.0, counts)

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``."""
        share = self.share[:, None]
        return np.where(y < 0, 0.0, share + (1 - share) * self.counts.cdf(panel, y, exposure))

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``, up to 1."""
        rest = (probability - self.share) / (1 - self.share)  # of the counts
        found = np.zeros((self.K, panel.shape[1]))
        for k in np.flatnonzero(rest > 0):
            found[k] = PoissonExperts(self.B[[k]]).quantile(panel, float(rest[k]), exposure)[0]
        return found

    # ------------------------------------------------------------------ combining experts of several sites

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute the loss of Poisson counts: those without the extra zeros."""
        return self.counts.pointwise(eta, mean)

    def log_zeros(self, panel: Array) -> Array:
        """Compute the log probability of a zero at unit exposure, ``(K, n)``."""
        mu, log_odds = self.counts.mean(panel)[:, 0], np.log(self.omega)[:, None]
        return np.logaddexp(log_odds, -mu) - np.log1p(self.omega)[:, None]

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute the divergence at unit exposure, ``(K, L, n)``, from zeros and from other counts."""
        ours, theirs = self.log_zeros(panel), other.log_zeros(panel)
        mu, other_mu = self.counts.mean(panel), other.counts.mean(panel)[:, 0]
        zero = np.exp(ours)[:, None]
        odds = np.log1p(other.omega)[:, None] - np.log1p(self.omega)[:, None, None]
        rates = self.predictor(panel)[:, None] - other.predictor(panel)
        counted = (1 - zero) * (odds - mu + other_mu) + self.mean(panel) * rates
        return np.maximum(zero * (ours[:, None] - theirs) + counted, 0.0)

    def barycentres(self, shares: Sequence[Share]) -> Self:
        """Minimise the divergence from what ``shares`` assign to the experts, by EM over the kind of zeros."""
        panel = np.concatenate([share.panel for share in shares], axis=1)
        mass, zeros, total = (np.concatenate(part, axis=1) for part in zip(*map(self._assigned, shares), strict=True))
        experts = self
        for _ in range(ROUNDS):
            extra = zeros * experts._extra(experts.counts.mean(panel)[:, 0])
            kept = np.maximum(mass - extra, 1e-300)
            rows = zip(experts.B, mass, kept, total, strict=True)
            B = [experts._nearest(b, panel, k, t / k) if m.sum() > 0 else b for b, m, k, t in rows]
            before, experts = experts, replace(experts.with_share(extra.sum() / mass.sum()), B=np.array(B))
            if max(np.abs(experts.B - before.B).max(), np.abs(np.log(experts.omega / before.omega)).max()) < TOLERANCE:
                break
        return experts

    def _assigned(self, share: Share) -> tuple[Array, Array, Array]:
        """Sum for each target: mass, mass of zeros and mean response, each ``(K, S)``."""
        zeros, mean = np.exp(share.experts.log_zeros(share.panel)), share.experts.mean(share.panel)[:, 0]
        own = np.array([share.own(k) for k in range(self.K)])  # (K, L, S)
        return own.sum(axis=1), np.sum(own * zeros, axis=1), np.sum(own * mean, axis=1)

    # ------------------------------------------------------------------ one model per site

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute log odds ``(K, 1)`` after a step of EM."""
        return self.with_share(self._zeros(moments)).log_shapes()


def solve_arrow(J: Array, gradient: Array) -> Array | None:
    """Compute the Newton step of experts that share their last parameter, ``(K, f)``; None if it is no ascent.

    Parameters
    ----------
    J : (K, f, f) array
        Minus the second derivative of each expert's part of the objective.
    gradient : (K, f) array

    Examples
    --------
    >>> solve_arrow(np.array([2 * np.eye(2), 2 * np.eye(2)]), np.array([[1.0, 3.0], [2.0, 1.0]]))
    array([[0.5, 1. ],
           [1. , 1. ]])
    """
    border, steps = J[:, :-1, -1], []
    for A, g in zip(J, gradient, strict=True):
        L = cholesky_or_none(A[:-1, :-1])
        if L is None:
            return None
        steps.append(cholesky_solve(L, np.column_stack([g[:-1], A[:-1, -1]])))
    own, shared = np.moveaxis(np.array(steps), 2, 0)
    curvature = J[:, -1, -1].sum() - np.sum(border * shared)
    if not curvature > 0:
        return None
    last = (gradient[:, -1].sum() - np.sum(border * own)) / curvature
    return np.column_stack([own - last * shared, np.full(len(J), last)])
