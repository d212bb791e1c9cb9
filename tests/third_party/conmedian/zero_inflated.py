"""Zero-inflated Poisson experts: log-linear regressions of counts with more zeros than Poisson counts have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, pdtr, pdtrik

from consilience.model import (
    Block,
    Bounds,
    ColumnSummary,
    Evaluated,
    ExpertScores,
    GeneralisedLinearExperts,
    Layout,
    Moments,
    Options,
    Penalty,
    Rows,
    Share,
    Weights,
    arrays_problem,
    log_rates,
    mean_per_size,
    unpack,
    whole_counts,
)

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
Mask = NDArray[np.bool_]
ODDS = Bounds(1e-6, 1e6, longest=2.0)
"""Range of the odds of an extra zero: at the least the family is Poisson, at the most every count is 0."""
ROUNDS = 200
TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class ZeroInflatedEvaluated(Evaluated):
    """Means ``μ`` of the counts, and the probability ``r`` that a 0 is an extra one; 0 where ``y > 0``; ``(K, n)``."""

    y: Array  # (n,)
    mu: Array
    extra: Array


@dataclass(frozen=True, eq=False)
class ZeroInflatedPoissonExperts(GeneralisedLinearExperts):
    """Experts ``y | x, k``: 0 with odds ``ω_k``, otherwise ``Poisson(exposure · exp(x̃ᵀ b_k))``.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log rate, intercept first.
    omega : (K,) array
        Odds ``ω`` of an extra zero, positive; one number for all experts, since which expert an extra zero belongs to
        is not identified.
    """

    omega: Array

    family = "third_party_zip"
    multiplied = "rate"
    discrete = True
    size_name = "exposure"
    shape_name = "odds of extra zeros"
    range_sentence = "the response must be one column of counts 0, 1, 2, …"
    message_fields: ClassVar = {"B": (2,), "omega": (1,)}

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts with rate 1 and one extra zero in five."""
        return cls(np.zeros((K, p)), np.full(K, 0.25))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the experts of several parts."""
        return cls(np.concatenate([part.B for part in parts]), np.concatenate([part.omega for part in parts]))

    @property
    def shapes(self) -> int:
        """Number of shapes per expert: one."""
        return 1

    @property
    def shape_parameters(self) -> int:
        """One: experts share their odds, since which expert an extra zero belongs to is not identified."""
        return 1

    def tie(self) -> Array:
        """Return the matrix ``(K, 1)`` from the common log odds to those of each expert."""
        return np.ones((self.K, 1))

    @property
    def ties_shapes(self) -> bool:
        """Whether all experts share one shape: always."""
        return True

    @property
    def share(self) -> Array:
        """Probability of an extra zero, ``(K,)``."""
        return self.omega / (1 + self.omega)

    def in_range(self, rows: Rows) -> bool:
        """Whether the response is a count."""
        return whole_counts(rows)

    def response_features(self, rows: Rows) -> Array:
        """Return log rates ``(n, 1)``."""
        return log_rates(rows)

    def at_level(self, rows: Rows) -> Self:
        """Return the blank experts with the log of the overall rate as intercept."""
        return self.with_intercept(float(np.log(max(mean_per_size(rows), 1e-8))))

    def invalid(self) -> str:
        """Return the reason why coefficients and odds are not valid; empty if they are."""
        problem = arrays_problem({"B": (self.B, self.B.shape), "omega": (self.omega, (self.K,))})
        inside = problem or np.array_equal(self.omega, ODDS.clipped(self.omega))
        return problem or ("" if inside else "the odds of extra zeros are out of range")

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> ZeroInflatedEvaluated:
        """Compute the log density, the mean of the counts, and the probability that a zero is an extra one."""
        eta = self.B @ block.panel
        if block.exposure is not None:
            eta += np.log(block.exposure)
        np.minimum(eta, self.largest_predictor, out=eta)
        mu, y = np.exp(eta), block.Y[0]
        zero = np.logaddexp(np.log(self.omega)[:, None], -mu)
        counted = y * eta - mu - gammaln(y + 1)
        log_density = np.where(y == 0, zero, counted) - np.log1p(self.omega)[:, None]
        extra = np.where(y == 0, self._extra(mu), 0.0)
        return ZeroInflatedEvaluated(log_density, y, mu, extra)

    def _extra(self, mu: Array) -> Array:
        """Compute the probability that a zero is an extra one, ``ω / (ω + e^-μ)``, ``(K, n)``."""
        return cast(Array, 1 / (1 + np.exp(-mu - np.log(self.omega)[:, None])))

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(3 * self.K, 2 * self.K, 2 * self.K, p)

    def weights(self, at: ZeroInflatedEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ (1, r, r(1-r))``, the score of ``η``, its slope, and two parts of the curvature."""
        spread = tau * at.extra * (1 - at.extra)
        kept = (1 - at.extra) * at.mu
        return Weights(
            plain=np.concatenate([tau.sum(axis=1), (tau * at.extra).sum(axis=1), spread.sum(axis=1)]),
            first=np.concatenate([tau * (at.y - kept), spread * at.mu]),
            second=np.concatenate([tau * kept, spread * at.mu**2]),
        )

    # ------------------------------------------------------------------ the M-step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take a step of EM with the kind of each zero as missing data: Newton for coefficients, exact for odds."""
        B = self.stepped(moments.first[: self.K], moments.second[: self.K], penalty, intercept, fraction)
        return replace(self, B=B, omega=self._odds(moments))

    def _odds(self, moments: Moments) -> Array:
        n, extra, _ = (float(part.sum()) for part in np.split(moments.plain, 3))
        share = extra / n if n > 0 else float(self.share[0])
        return np.full(self.K, ODDS.clipped(np.array(share / max(1 - share, 1e-9))))

    # ------------------------------------------------------------------ derivatives

    @property
    def _held(self) -> Mask:
        return ODDS.reached(self.omega)

    def scores(self, at: ZeroInflatedEvaluated) -> ExpertScores:
        """Compute ``y - (1 - r) μ`` on ``x``, and ``r - π`` for ``log ω``."""
        shape = np.where(self._held[:, None], 0.0, at.extra - self.share[:, None])
        return ExpertScores((at.y - (1 - at.extra) * at.mu)[:, None], shape[:, None])

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score: coefficients ``(K, 1, p)`` and log odds ``(K, 1)``."""
        n, extra, _ = np.split(moments.plain, 3)
        each = extra - n * self.share
        inward = ODDS.inward(self.omega, np.full(self.K, each.sum())) != 0
        return moments.first[: self.K, None], np.where(inward, each, 0.0)[:, None]

    def complete(self, moments: Moments) -> Array:
        """Compute minus the second derivative in coefficients and ``log ω``, ``(K, p + 1, p + 1)``."""
        n, _, spread = np.split(moments.plain, 3)
        p, known = self.p, n * self.share * (1 - self.share)
        J = np.empty((self.K, p + 1, p + 1))
        S = unpack(moments.second)
        J[:, :p, :p] = S[: self.K] - S[self.K :]
        J[:, p, :p] = J[:, :p, p] = -moments.first[self.K :]
        J[:, p, p] = known - spread
        return ODDS.held(self.omega, J, known)

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add ``coefficients`` to the coefficients and ``shapes`` to the log odds."""
        B = self.B + coefficients.reshape(self.B.shape)
        return replace(self, B=B, omega=ODDS.moved(self.omega, shapes.ravel()))

    # ------------------------------------------------------------------ reported parameters

    def log_shapes(self) -> Array:
        """Return log odds, ``(K, 1)``."""
        return np.log(self.omega)[:, None]

    def log_shapes_jacobian(self) -> Array:
        """Return 1; NaN for odds at a bound, which have no standard error."""
        return np.where(self._held, np.nan, 1.0)[:, None]

    def attributes(self) -> dict[str, Array]:
        """Return the shares of extra zeros ``(K,)``."""
        return {"zero_shares_": self.share}

    # ------------------------------------------------------------------ prediction

    def mean(self, panel: Array) -> Array:
        """Compute the mean at unit exposure, ``(K, 1, n)``."""
        return cast(Array, np.exp(self.predictor(panel)) / (1 + self.omega)[:, None])[:, None]

    def _rates(self, panel: Array, exposure: Array | None) -> Array:
        mu: Array = np.exp(self.predictor(panel))
        return mu if exposure is None else mu * exposure

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw counts ``(n, 1)`` from the experts given by ``labels (n,)``."""
        rate = self._rates(panel, exposure)[labels, np.arange(len(labels))]
        counts: Array = rng.poisson(np.minimum(rate, 1e18)).astype(np.float64)
        return np.where(rng.random(len(labels)) < self.share[labels], 0.0, counts)[:, None]

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``."""
        share = self.share[:, None]
        below = share + (1 - share) * pdtr(np.floor(np.maximum(y, 0)), self._rates(panel, exposure))
        return cast(Array, np.where(y < 0, 0.0, below))

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``, up to 1."""
        share = self.share[:, None]
        rest = np.clip((probability - share) / (1 - share), 0.0, 1.0)
        return cast(Array, np.where(rest > 0, np.nan_to_num(pdtrik(rest, self._rates(panel, exposure))), 0.0))

    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""
        return replace(self, B=self.B[permutation], omega=self.omega[permutation])

    # ------------------------------------------------------------------ combining experts of several sites

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute ``μ - mean η`` with ``μ = exp η``, and its derivatives: counts without their extra zeros."""
        mu = np.exp(eta)
        return mu - mean * eta, mean - mu, mu

    def _zeros(self, panel: Array) -> tuple[Array, Array]:
        """Compute the log probability of a zero and ``μ``, both ``(K, n)``."""
        mu = self._rates(panel, None)
        return np.logaddexp(np.log(self.omega)[:, None], -mu) - np.log1p(self.omega)[:, None], mu

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute the divergence at unit exposure, ``(K, L, n)``."""
        (ours, mu), (theirs, other_mu) = self._zeros(panel), other._zeros(panel)
        zero, mean = np.exp(ours)[:, None], self.mean(panel)
        gap = -np.log1p(self.omega)[:, None, None] + np.log1p(other.omega)[:, None] - mu[:, None] + other_mu
        eta = self.predictor(panel)[:, None] - other.predictor(panel)
        divergence: Array = zero * (ours[:, None] - theirs) + (1 - zero) * gap + mean * eta
        return np.maximum(divergence, 0.0)

    def barycentres(self, shares: Sequence[Share]) -> Self:
        """Minimise the divergence from what ``shares`` assign to the experts, by EM over the kind of zeros."""
        panel = np.concatenate([share.panel for share in shares], axis=1)
        mass, zeros, total = (np.concatenate(part, axis=1) for part in zip(*map(self._assigned, shares), strict=True))
        experts = self
        for _ in range(ROUNDS):
            extra = zeros * experts._extra(experts._rates(panel, None))
            kept = np.maximum(mass - extra, 1e-300)
            rows = zip(experts.B, mass, kept, total, strict=True)
            B = [experts._nearest(b, panel, k, t / k) if m.sum() > 0 else b for b, m, k, t in rows]
            share = float(extra.sum() / mass.sum())
            odds = np.full(self.K, ODDS.clipped(np.array(share / max(1 - share, 1e-9))))
            before, experts = experts, replace(experts, B=np.array(B), omega=odds)
            if max(np.abs(experts.B - before.B).max(), abs(np.log(experts.omega / before.omega)).max()) < TOLERANCE:
                break
        return experts

    def _assigned(self, share: Share) -> tuple[Array, Array, Array]:
        """Sum for each target: mass, mass of zeros and mean response, each ``(K, S)``."""
        zeros, mean = np.exp(share.experts._zeros(share.panel)[0]), share.experts.mean(share.panel)[:, 0]
        own = np.array([share.own(k) for k in range(self.K)])  # (K, L, S)
        return own.sum(axis=1), np.sum(own * zeros, axis=1), np.sum(own * mean, axis=1)

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Return log odds ``(K, 1)``."""
        return self.log_shapes()

    def with_shape_values(self, values: Array) -> Self:
        """Return the experts with these log odds."""
        return replace(self, omega=ODDS.clipped(np.exp(np.clip(values[:, 0], -50, 50))))

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute log odds ``(K, 1)`` after a step of EM."""
        return np.log(self._odds(moments))[:, None]
