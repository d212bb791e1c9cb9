"""Negative binomial experts: log-linear regressions of overdispersed counts, with exposure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, digamma, gammaincinv, gammaln, nbdtrik, polygamma

from consilience.model.families.base import Bounds, Evaluated, ExpertScores, MessageFields, Options
from consilience.model.families.gamma import latent_information
from consilience.model.families.glm import CountExperts, count_window
from consilience.model.rows import Block
from consilience.model.statistics import Layout, Moments, Penalty, Weights
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, unpack
from consilience.numerics.linalg import short_newton_steps

SIZES = Bounds(1e-3, 1e6, longest=2.0)
"""Range of ``θ``: a dispersion of 1,000 is a count that is almost always 0; one of 1e-6 is that of Poisson counts."""
STIRLING_FROM = 30.0
"""Smallest ``θ`` at which ``log Γ(y + θ) - log Γ(θ)`` is computed by Stirling's series, which does not cancel."""
NODES = np.exp(np.arange(-69.0, 11.0, 0.25))
"""Nodes of integrals over ``log t``, ``(J,)``, for expectations of ``log Γ``."""
WIDTH = 0.25
TAILS = np.array([1e-7, 1 - 1e-7])
"""Quantiles of the Poisson means beyond which counts are not summed."""
LONGEST_NEWTON = 1.0
"""Largest change of a coefficient or of ``log θ`` for which both are changed together."""
ROUNDS = 100
TOLERANCE = 1e-10
"""Relative change of ``θ`` below which a projection has converged."""


@dataclass(frozen=True, eq=False)
class NegativeBinomialEvaluated(Evaluated):
    """Means ``μ (K, n)`` and responses; the derivatives in ``θ`` are computed when they are read.

    ``counts`` are the distinct responses, ``place`` says which of them each is, and ``excess`` is ``log (1 + μ / θ)``.
    """

    y: Array  # (n,)
    mu: Array
    theta: Array  # (K, 1)
    excess: Array
    counts: Array
    place: IntArray

    @cached_property
    def slope(self) -> Array:
        """Compute ``D = ∂ log f / ∂θ``, ``(K, n)``."""
        first = digamma(self.counts + self.theta) - digamma(self.theta)
        return np.asarray(first[:, self.place] - self.excess + (self.mu - self.y) / (self.theta + self.mu))

    @cached_property
    def bend(self) -> Array:
        """Compute ``E = ∂² log f / ∂θ²``, ``(K, n)``."""
        second, total = polygamma(1, self.counts + self.theta) - polygamma(1, self.theta), self.theta + self.mu
        return np.asarray(second[:, self.place] + self.mu / (self.theta * total) - (self.mu - self.y) / total**2)


@dataclass(frozen=True, eq=False)
class NegativeBinomialExperts(CountExperts):
    """Experts ``y | x, k`` with mean ``μ = exposure · exp(x̃ᵀ b_k)`` and variance ``μ + μ² / θ_k`` (NB2).

    The log density is ``log Γ(y + θ) - log Γ(θ) - log y! + θ log θ + y log μ - (y + θ) log(θ + μ)``. The free shape is
    ``log θ``, kept between ``log 1e-3`` and ``log 1e6``; people read the dispersion ``1 / θ``.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log rate, intercept first.
    theta : (K,) array
        Sizes ``θ``, positive.
    """

    theta: Array

    family = "negative_binomial"
    shape_name = "dispersion"
    relaxes: ClassVar[Mapping[str, str]] = {"poisson": "overdispersion"}
    message_fields: ClassVar[MessageFields] = {"B": (2,), "theta": (1,)}
    longest_step = 2.0

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts with mean 1 and dispersion 1."""
        return cls(np.zeros((K, p)), np.ones(K))

    @property
    def shapes(self) -> int:
        """Number of shapes per expert: one."""
        return 1

    def invalid(self) -> str:
        """Return the reason why coefficients and sizes are not valid; empty if they are."""
        inside = np.array_equal(self.theta, SIZES.clipped(self.theta))
        return super().invalid() or ("" if inside else "a size is out of range")

    def window(self, mu: Array) -> tuple[Array, Array]:
        """Return the least and the largest count that need to be summed: of the Poisson means that ``θ`` leaves."""
        least, most = gammaincinv(self.theta[0], TAILS) / self.theta[0]
        return count_window(mu * least, mu * most)

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> NegativeBinomialEvaluated:
        """Compute the log density and the mean."""
        eta = self.log_means(block)
        mu, theta = np.exp(eta), self.theta[:, None]
        counts, place = np.unique(block.Y[0], return_inverse=True)
        y, excess = block.Y[0], np.log1p(mu / theta)
        log_density = (log_rising(theta, counts) - gammaln(counts + 1))[:, place] - (y + theta) * excess
        log_density += y * (eta - np.log(theta))
        return NegativeBinomialEvaluated(log_density, y, mu, theta, excess, counts, place)

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(3 * self.K, 2 * self.K, self.K, p)

    def weights(self, at: NegativeBinomialEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ (1, D, E)``, the scores of ``η``, their slopes in ``θ``, and the curvature."""
        total, theta = self.theta[:, None] + at.mu, self.theta[:, None]
        residual = tau * (at.y - at.mu) / total
        share = at.mu / total
        sums = [np.einsum("kn,kn->k", tau, part) for part in (at.slope, at.bend)]
        return Weights(
            plain=np.concatenate([tau.sum(axis=1), *sums]),
            first=np.concatenate([theta * residual, share * residual]),
            second=tau * (at.y + theta) * share * (theta / total),
        )

    # ------------------------------------------------------------------ the M-step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take a Newton step of coefficients and ``log θ``; if it is long, one of each, with ``a = 1 / θ`` for ``θ``.

        Near Poisson counts the log-likelihood is nearly quadratic in the dispersion ``a``.
        """
        B = self.stepped(moments.first[: self.K], moments.second, penalty, intercept, fraction)
        theta = SIZES.clipped(1 / self._dispersions(moments, fraction))
        R = np.pad(penalty.expert_matrix(self.p, intercept=intercept), (0, 1))
        coefficients, shapes = self.score(moments)
        gradient = np.concatenate([coefficients[:, 0] - self.B @ R[:-1, :-1], shapes], axis=1)
        change = short_newton_steps(self.complete(moments) + R, gradient, LONGEST_NEWTON, self.p + 1)
        none = np.isnan(change[:, 0])
        moved = self.moved(fraction * change[:, :-1], fraction * change[:, -1])
        return replace(self, B=np.where(none[:, None], B, moved.B), theta=np.where(none, theta, moved.theta))

    def _dispersions(self, moments: Moments, fraction: float) -> Array:
        """Compute the dispersions ``(K,)`` after ``fraction`` of a Newton step at the current coefficients.

        They decrease at most tenfold. They may increase to 0.1 at once, since the log-likelihood is nearly quadratic
        where dispersions are small; where it is convex they are far too small or too large.
        """
        n, slope, bend = np.split(moments.plain, 3)
        theta, a = self.theta, 1 / self.theta
        uphill, curvature = -slope * theta**2, -(bend * theta**4 + 2 * slope * theta**3)
        concave = curvature > np.finfo(float).tiny
        newton = uphill / np.where(concave, curvature, 1.0)
        change = np.where(concave, newton, np.where(uphill > 0, a, -0.5 * a))
        change = np.clip(change, -0.9 * a, np.maximum(3 * a, 0.1))
        return np.maximum(a + fraction * np.where(n > 0, change, 0.0), 1 / SIZES.most)

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: NegativeBinomialEvaluated) -> ExpertScores:
        """Compute ``θ (y - μ) / (θ + μ)`` on ``x``, and ``θ D`` for ``log θ``."""
        theta = self.theta[:, None]
        shape = np.where(SIZES.reached(self.theta)[:, None], 0.0, theta * at.slope)
        return ExpertScores((theta * (at.y - at.mu) / (theta + at.mu))[:, None], shape[:, None])

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score: coefficients ``(K, 1, p)`` and log sizes ``(K, 1)``."""
        slope = np.split(moments.plain, 3)[1]
        shapes = SIZES.inward(self.theta, self.theta * slope)
        return moments.first[: self.K, None], shapes[:, None]

    def complete(self, moments: Moments) -> Array:
        """Compute minus the second derivative in coefficients and ``log θ``, ``(K, p + 1, p + 1)``."""
        n, slope, bend = np.split(moments.plain, 3)
        p, theta = self.p, self.theta
        J = np.empty((self.K, p + 1, p + 1))
        J[:, :p, :p] = unpack(moments.second)
        J[:, p, :p] = J[:, :p, p] = -theta[:, None] * moments.first[self.K :]
        J[:, p, p] = -theta * slope - theta**2 * bend
        return SIZES.held(theta, J, n * latent_information(theta))

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add ``coefficients`` to the coefficients and ``shapes`` to the log sizes."""
        B = self.B + coefficients.reshape(self.B.shape)
        return replace(self, B=B, theta=SIZES.moved(self.theta, shapes))

    # ------------------------------------------------------------------ reported parameters

    def log_shapes(self) -> Array:
        """Return log dispersions, ``(K, 1)``."""
        return -np.log(self.theta)[:, None]

    def log_shapes_jacobian(self) -> Array:
        """Return ``∂ log(1 / θ) / ∂ log θ = -1``; NaN for a size at a bound, which has no standard error."""
        return np.diag(np.where(SIZES.reached(self.theta), np.nan, -1.0))

    def attributes(self) -> dict[str, Array]:
        """Return dispersions ``(K,)``."""
        return {"dispersions_": 1 / self.theta}

    # ------------------------------------------------------------------ prediction

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw counts ``(n, 1)`` from the experts given by ``labels (n,)``."""
        rate, theta = self.mean(panel)[labels, 0, np.arange(len(labels))], self.theta[labels]
        if exposure is not None:
            rate = rate * exposure
        counts: Array = rng.poisson(np.minimum(rate * rng.gamma(theta) / theta, 1e18)).astype(np.float64)
        return counts[:, None]

    def _success(self, panel: Array, exposure: Array | None) -> Array:
        """Compute ``θ / (θ + μ)``, ``(K, n)``."""
        return 1 / (1 + self.means(panel, exposure) / self.theta[:, None])

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``."""
        below = betainc(self.theta[:, None], np.floor(np.maximum(y, 0.0)) + 1, self._success(panel, exposure))
        return cast(Array, np.where(y < 0, 0.0, below))

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``, up to rounding."""
        success = self._success(panel, exposure)
        return np.asarray(np.nan_to_num(nbdtrik(probability, self.theta[:, None], success)))

    # ------------------------------------------------------------------ combining experts of several sites

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute ``(mean + θ) log(θ + μ) - mean η`` with ``μ = exp η``, and its derivatives; for one expert."""
        theta = self.theta[0]
        mu = np.exp(eta)
        total = theta + mu
        loss = (mean + theta) * np.log(total) - mean * eta
        return loss, theta * (mean - mu) / total, (mean + theta) * (mu / total) * (theta / total)

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute the divergence at unit exposure, ``(K, L, n)``.

        All terms are functions of the means but ``E[log Γ(y + θ_k) - log Γ(y + θ_l)]``, which by the integral of
        ``log Γ`` is ``∫ (θ_k - θ_l) e⁻ᵗ + (e^(-θ_k t) - e^(-θ_l t)) E e⁻ᵗʸ / (1 - e⁻ᵗ) dt / t``.
        """
        (ours, theirs), theta, other_theta = (e.predictor(panel) for e in (self, other)), self.theta, other.theta
        decay = np.expm1(-np.multiply.outer(theta, NODES))[:, None] - np.expm1(-np.multiply.outer(other_theta, NODES))
        constant = (theta[:, None] - other_theta) * np.exp(-NODES).sum()
        gammas = constant[:, :, None] + np.einsum("klj,kjn->kln", decay / -np.expm1(-NODES), self._transforms(panel))
        shape = gammaln(other_theta) - gammaln(theta)[:, None]
        mu, second = np.exp(ours), np.exp(theirs)
        own = -theta[:, None] * np.log1p(mu / theta[:, None]) - mu * np.log1p(theta[:, None] / mu)  # (K, n)
        cross = -other_theta[:, None] * np.log1p(second / other_theta[:, None])
        cross = cross - mu[:, None] * np.log1p(other_theta[:, None] / second)  # (K, L, n)
        divergence: Array = WIDTH * gammas + shape[:, :, None] + own[:, None] - cross
        return np.maximum(divergence, 0.0)

    def _transforms(self, panel: Array) -> Array:
        """Compute ``E e⁻ᵗʸ = (1 + μ (1 - e⁻ᵗ) / θ)^-θ`` at the nodes ``t``, ``(K, J, n)``."""
        mu, theta = self.mean(panel), self.theta[:, None, None]
        return np.asarray(np.exp(-theta * np.log1p(mu * -np.expm1(-NODES)[:, None] / theta)))

    def within(self, panel: Array, own: Array, mean: Array) -> Array:
        """Compute ``Σ own E e⁻ᵗʸ`` at the nodes ``t``, ``(J,)``: all that the best ``θ`` depends on besides means."""
        return np.asarray(np.einsum("kn,kjn->j", own, self._transforms(panel)))

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """Minimise the divergence over coefficients and size of each expert in turn."""
        parts = zip(mass, mean[:, 0], within, strict=True)
        return self.joined([self.permuted(np.array([k])).nearest(panel, *part) for k, part in enumerate(parts)])

    def nearest(self, panel: Array, mass: Array, mean: Array, transforms: Array) -> Self:
        """Return one expert closest to responses with these means ``(n,)``, starting from the current one."""
        expert = self
        for _ in range(ROUNDS if mass.sum() > 0 else 0):
            before, B = expert.theta, expert._nearest(expert.B[0], panel, mass, mean)[None]
            expert = replace(expert, B=B)
            expert = replace(expert, theta=expert.nearest_size(panel, mass, mean, transforms))
            if np.abs(np.log(expert.theta / before)).max() < TOLERANCE:
                break
        return expert

    def nearest_size(self, panel: Array, mass: Array, mean: Array, transforms: Array) -> Array:
        """Compute the best size ``(1,)`` of one expert at its coefficients, from ``Σ mass E e⁻ᵗʸ`` at the nodes."""
        mu, n = np.exp(self.predictor(panel)[0]), mass.sum()
        ratio = WIDTH * transforms * NODES / -np.expm1(-NODES)
        constant = WIDTH * n * np.exp(-NODES).sum()

        def slope(log_theta: float) -> float:
            theta = np.exp(log_theta)
            gammas = constant - float(np.exp(-theta * NODES) @ ratio) - n * digamma(theta)
            return float(gammas - mass @ (np.log1p(mu / theta) + (mean - mu) / (theta + mu)))

        least, most = np.log(SIZES.least), np.log(SIZES.most)
        if slope(most) >= 0:
            return np.array([SIZES.most])
        if slope(least) <= 0:
            return np.array([SIZES.least])
        return np.array([np.exp(brentq(slope, least, most, xtol=1e-13))])

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Return dispersions ``(K, 1)``."""
        return 1 / self.theta[:, None]

    def with_shape_values(self, values: Array) -> Self:
        """Return the experts with these dispersions."""
        return replace(self, theta=SIZES.clipped(1 / np.maximum(values[:, 0], 1 / SIZES.most)))

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute dispersions ``(K, 1)`` after a Newton step at the current coefficients."""
        return self._dispersions(moments, 1.0)[:, None]

    def with_wide_shapes(self, summary: ColumnSummary, factor: float) -> Self:
        """Return the experts with ``factor`` times the squared coefficient of variation of the response."""
        squared = float(summary.y_covariance[0, 0] / summary.y_mean[0] ** 2) if summary.y_mean[0] > 0 else 1.0
        return self.with_shape_values(np.full((self.K, 1), factor * squared))


def log_rising(theta: Array, y: Array) -> Array:
    """Compute ``log Γ(y + θ) - log Γ(θ)`` without cancellation at large ``θ``."""
    z = np.maximum(theta, STIRLING_FROM)
    series = (z - 0.5) * np.log1p(y / z) + y * (np.log(y + z) - 1) + _tail(y + z) - _tail(z)
    small = np.minimum(theta, STIRLING_FROM)
    return np.where(theta < STIRLING_FROM, gammaln(y + small) - gammaln(small), series)


def _tail(x: Array) -> Array:
    """Compute the terms of Stirling's series for ``log Γ(x)`` that vanish with ``1 / x``."""
    inverse = 1 / x
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
