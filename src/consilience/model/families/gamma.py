"""Gamma experts: log-linear regressions of positive responses, each with a dispersion of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy.special import digamma, gammainc, gammaincinv, gammaln, ndtr, polygamma

from consilience.model.families.base import Evaluated, ExpertScores, MessageFields, Options, narrow_ratio
from consilience.model.families.covariance import ALMOST
from consilience.model.families.glm import LARGEST_PREDICTOR, GeneralisedLinearExperts
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Layout, Moments, Penalty, Weights
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray, Mask, unpack
from consilience.numerics.quadrature import hermite_nodes

LEAST_SHAPE = 1e-3
"""Shapes are kept above this: a dispersion of 1,000 is a response that is almost always nearly 0."""
NODES = 16
"""Number of nodes of the quadrature over a response."""
NEWTON_STEPS = 50


@dataclass(frozen=True, eq=False)
class GammaEvaluated(Evaluated):
    """``e = y / μ`` and ``r = log e``, both ``(K, n)``."""

    ratio: Array
    log_ratio: Array


@dataclass(frozen=True, eq=False)
class GammaExperts(GeneralisedLinearExperts):
    """Experts ``y | x, k ~ Gamma`` with mean ``μ = exp(x̃ᵀ b_k)`` and variance ``μ² / ν_k``.

    With ``r = log(y / μ)`` the log density is ``ν log ν - log Γ(ν) + ν (r - eʳ) - log y``. The free shape is ``log ν``;
    people read the dispersion ``1 / ν``.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log mean, intercept first.
    nu : (K,) array
        Shapes ``ν``, positive.
    """

    nu: Array

    family = "gamma"
    multiplied = "mean"
    shape_name = "dispersion"
    range_sentence = "the response must be one column of positive numbers"
    message_fields: ClassVar[MessageFields] = {"B": (2,), "nu": (1,)}
    longest_step = 1.0  # where means are too large the curvature ``eʳ`` is far too small

    @classmethod
    def blank(cls, K: int, p: int, summary: ColumnSummary, options: Options) -> Self:
        """Return K experts with mean 1 and dispersion 1."""
        return cls(np.zeros((K, p)), np.ones(K))

    @classmethod
    def floor(cls, summary: ColumnSummary, fraction: float) -> Array:
        """Return the least dispersion, ``(1, 1)``: it has no unit."""
        return np.full((1, 1), fraction)

    @classmethod
    def unfittable(cls, summary: ColumnSummary) -> str:
        """Return an error message if the response is constant: its dispersion cannot be estimated."""
        if not np.any(summary.constant_responses):
            return ""
        return f"the response is constant over n_samples={summary.weight:g}: its dispersion has no estimate"

    @property
    def shapes(self) -> int:
        """Number of shapes per expert: one."""
        return 1

    def in_range(self, rows: Rows) -> bool:
        """Whether the response is positive."""
        return rows.Y.shape[1] == 1 and bool(np.all(rows.Y > 0))

    def supports(self, Y: Array, exposure: Array | None) -> Mask:
        """Return which responses are positive."""
        return np.asarray(Y[:, 0] > 0)

    def predictor(self, panel: Array) -> Array:
        """Compute ``η_k(x_i)``, ``(K, n)``, cut on both sides: a mean near 0 would make ``y / μ`` overflow."""
        return np.clip(self.B @ panel, -LARGEST_PREDICTOR, LARGEST_PREDICTOR)

    def response_features(self, rows: Rows) -> Array:
        """Return standardised logarithms ``(n, 1)``."""
        logs = np.log(rows.Y)
        spread = logs.std()
        return np.asarray((logs - logs.mean()) / (spread if spread > 0 else 1.0))

    def at_level(self, rows: Rows) -> Self:
        """Return the blank experts at the overall mean, with the dispersion of the responses around it."""
        weight = np.ones(rows.n) if rows.weight is None else rows.weight
        share = weight / weight.sum()
        mean = float(share @ rows.Y[:, 0])
        excess = float(np.log(mean) - share @ np.log(rows.Y[:, 0]))
        return replace(self.with_intercept(float(np.log(mean))), nu=np.repeat(best_shape(np.array([excess])), self.K))

    def invalid(self) -> str:
        """Return the reason why coefficients and shapes are not valid; empty if they are."""
        return super().invalid() or ("" if np.all(self.nu > 0) else "a shape is not positive")

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> GammaEvaluated:
        """Compute the log density and the ratios of the responses to their means."""
        log_y = np.log(block.Y[0])
        r = log_y - self.predictor(block.panel)
        ratio = np.exp(r)
        constant = (self.nu * np.log(self.nu) - gammaln(self.nu))[:, None]
        return GammaEvaluated(constant + self.nu[:, None] * (r - ratio) - log_y, ratio, r)

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(2 * self.K, self.K, self.K, p)

    def weights(self, at: GammaEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ``, ``Σ τ (eʳ - r - 1)``, ``Σ τ (eʳ - 1) x`` and ``Σ τ eʳ x xᵀ``."""
        excess = np.einsum("kn,kn->k", tau, at.ratio - at.log_ratio - 1.0)
        return Weights(np.concatenate([tau.sum(axis=1), excess]), tau * (at.ratio - 1.0), tau * at.ratio)

    # ------------------------------------------------------------------ what must be true of statistics

    def row_products(self, moments: Moments, *, intercept: bool) -> tuple[Array, Array]:
        """Return ``Σ w x``: with an intercept, ``Σ_k Σ τ eʳ x - Σ τ (eʳ - 1) x``."""
        values, sizes = super().row_products(moments, intercept=intercept)
        if intercept:
            S = unpack(moments.second)
            size = np.sqrt(S[:, :1, 0] * np.maximum(np.diagonal(S, axis1=1, axis2=2), 0.0)).sum(axis=0)
            values[0, :-1] = values[:-1, 0] = S[:, 0].sum(axis=0) - moments.first.sum(axis=0)
            sizes[0, :-1] = sizes[:-1, 0] = np.abs(moments.first).sum(axis=0) + 2 * size
        return values, sizes

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give: ``eʳ - r - 1`` is never negative."""
        if np.any(moments.plain[self.K :] < 0):
            return "a negative deviance"
        return super().impossible(moments, intercept=intercept)

    # ------------------------------------------------------------------ the M-step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take a Newton step of the coefficients, and the shape that is best at the current ones.

        The coefficients' part of the log-likelihood is ``-ν_k Σ τ (log μ + y / μ)``: their maximum does not depend on
        the shape, so that the two steps together raise the likelihood whenever the first one does.
        """
        nu = self.nu[:, None]
        B = self.stepped(nu * moments.first, nu * moments.second, penalty, intercept, fraction)
        return replace(self, B=B, nu=1 / self.shapes_at(moments, penalty)[:, 0])

    def lower_bound(self, penalty: Penalty) -> Array:
        """Return the least dispersion, ``(1, 1)``: the floor, or a fraction of the largest."""
        return np.maximum(penalty.floor, np.max(1 / self.nu) / penalty.shape_ratio)

    def is_above(self, floor: Array) -> bool:
        """Whether no dispersion is below ``floor``."""
        return bool(np.all(1 / self.nu >= ALMOST * floor[0, 0]))

    def within_ratio(self, ratio: float, rows: Array) -> Self:
        """Return the experts with dispersions of a bounded ratio, as if they were variances."""
        return replace(self, nu=1 / narrow_ratio(1 / self.nu, rows, ratio))

    def raised(self, floor: Array) -> Self:
        """Return the experts with dispersions of at least ``floor``."""
        return replace(self, nu=1 / np.maximum(1 / self.nu, floor[0, 0]))

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: GammaEvaluated) -> ExpertScores:
        """Compute ``ν (eʳ - 1)`` on ``x``, and ``ν (log ν + 1 - ψ(ν) + r - eʳ)`` for ``log ν``."""
        nu = self.nu[:, None]
        shape = nu * (np.log(nu) - digamma(nu) - (at.ratio - at.log_ratio - 1.0))
        return ExpertScores((nu * (at.ratio - 1.0))[:, None], shape[:, None])

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Compute the observed score: coefficients ``(K, 1, p)`` and log shapes ``(K, 1)``."""
        n, excess = np.split(moments.plain, 2)
        shapes = self.nu * (n * (np.log(self.nu) - digamma(self.nu)) - excess)
        return (self.nu[:, None] * moments.first)[:, None], shapes[:, None]

    def complete(self, moments: Moments) -> Array:
        """Compute ``ν Σ τ eʳ x xᵀ``, ``-ν Σ τ (eʳ - 1) x`` and ``-∂²/∂(log ν)²``, ``(K, p + 1, p + 1)``."""
        n, p, nu = moments.plain[: self.K], self.p, self.nu
        J = np.empty((self.K, p + 1, p + 1))
        J[:, :p, :p] = nu[:, None, None] * unpack(moments.second)
        J[:, p, :p] = J[:, :p, p] = -nu[:, None] * moments.first
        J[:, p, p] = n * latent_information(nu) - self.score(moments)[1][:, 0]
        return J

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """Add ``coefficients`` to the coefficients and ``shapes`` to the log shapes."""
        B = self.B + coefficients.reshape(self.B.shape)
        return replace(self, B=B, nu=self.nu * np.exp(np.clip(shapes, -50.0, 50.0)))

    # ------------------------------------------------------------------ reported parameters

    def log_shapes(self) -> Array:
        """Return log dispersions, ``(K, 1)``."""
        return -np.log(self.nu)[:, None]

    def log_shapes_jacobian(self) -> Array:
        """Return ``∂ log(1 / ν) / ∂ log ν = -1``."""
        return -np.eye(self.K)

    def attributes(self) -> dict[str, Array]:
        """Return dispersions ``(K,)``."""
        return {"dispersions_": 1 / self.nu}

    # ------------------------------------------------------------------ prediction

    def nodes(self, panel: Array, exposure: Array | None = None) -> tuple[Array, Array]:
        """Return the quantiles at which a normal variable has its Gauss-Hermite nodes."""
        t, w = hermite_nodes(NODES)
        ratio = gammaincinv(self.nu[:, None], ndtr(t)) / self.nu[:, None]
        Y = np.maximum(self.mean(panel) * ratio[:, :, None], np.finfo(float).tiny)
        return Y, np.broadcast_to(w[:, None], Y.shape)

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw responses ``(n, 1)`` of the experts given by ``labels (n,)``."""
        mean, nu = self.mean(panel)[labels, 0, np.arange(len(labels))], self.nu[labels]
        return np.maximum(rng.gamma(nu, mean / nu), np.finfo(float).tiny)[:, None]

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``."""
        nu = self.nu[:, None]
        return gammainc(nu, nu * np.maximum(y, 0.0) / self.mean(panel)[:, 0])

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``."""
        nu = self.nu[:, None]
        return self.mean(panel)[:, 0] * gammaincinv(nu, probability) / nu

    # ------------------------------------------------------------------ combining experts of several sites

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute ``η + mean exp(-η)`` and its derivatives."""
        ratio = mean * np.exp(-eta)
        return eta + ratio, ratio - 1.0, ratio

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute the divergence, ``(K, L, n)``, with ``β = ν / μ``.

        It is ``(ν - ν') ψ(ν) - log Γ(ν) / Γ(ν') + ν' log(β / β') + ν (β' / β - 1)``.
        """
        ours, theirs = (np.log(e.nu)[:, None] - e.predictor(panel) for e in (self, other))  # log β, (K, n)
        nu, their_nu = self.nu[:, None], other.nu
        constant = (nu - their_nu) * digamma(nu) - gammaln(nu) + gammaln(their_nu)  # (K, L)
        gap = ours[:, None] - theirs  # (K, L, n)
        return np.asarray(constant[:, :, None] + their_nu[:, None] * gap + nu[:, :, None] * np.expm1(-gap))

    def within(self, panel: Array, own: Array, mean: Array) -> Array:
        """Compute ``Σ mass E log y`` over experts and points."""
        logs = (digamma(self.nu) - np.log(self.nu))[:, None] + self.predictor(panel)
        return np.asarray(np.sum(own * logs))

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """Fit coefficients nearest to ``mean``, then the shape from ``Σ mass (log μ + mean / μ - 1 - E log y)``."""
        moved = super().projected(panel, mass, mean, within)
        n = mass.sum(axis=1)
        loss = np.sum(mass * moved.pointwise(moved.predictor(panel), mean[:, 0])[0], axis=1)
        excess = (loss - within) / np.where(n > 0, n, 1.0) - 1.0
        return replace(moved, nu=np.where(n > 0, best_shape(excess), self.nu))

    # ------------------------------------------------------------------ one model per site

    def shape_values(self) -> Array:
        """Return dispersions ``(K, 1)``."""
        return 1 / self.nu[:, None]

    def with_shape_values(self, values: Array) -> Self:
        """Return the experts with these dispersions."""
        return replace(self, nu=1 / values[:, 0])

    def shapes_at(self, moments: Moments, penalty: Penalty) -> Array:
        """Compute the best dispersions ``(K, 1)`` at the current coefficients; an expert without rows keeps its own."""
        n, excess = np.split(moments.plain, 2)
        found = best_shape(excess / np.where(n > 0, n, 1.0))
        dispersion = np.where(n > 0, 1 / found, 1 / self.nu)
        return np.asarray(np.maximum(dispersion, penalty.floor[0, 0])[:, None])

    def with_wide_shapes(self, summary: ColumnSummary, factor: float) -> Self:
        """Return the experts with ``factor`` times the squared coefficient of variation of the response."""
        squared = float(summary.y_covariance[0, 0] / summary.y_mean[0] ** 2)
        return replace(self, nu=np.full(self.K, 1 / (factor * squared)))


def best_shape(excess: Array) -> Array:
    """Compute the root ``ν`` of ``log ν - ψ(ν) = excess`` by Newton's method on ``log ν``.

    ``excess`` is the mean of ``eʳ - r - 1``: the maximum-likelihood shape given the means.

    Parameters
    ----------
    excess : (K,) array
        Positive up to rounding.
    """
    c = np.maximum(excess, 1e-12)
    nu = (3 - c + np.sqrt((c - 3) ** 2 + 24 * c)) / (12 * c)  # Minka, "Estimating a Gamma distribution", 2002
    for _ in range(NEWTON_STEPS):
        gap = np.log(nu) - digamma(nu) - c
        change = gap / (nu * polygamma(1, nu) - 1.0)
        nu = nu * np.exp(np.clip(change, -2.0, 2.0))
        if np.all(np.abs(change) < 1e-12):
            break
    return np.asarray(np.maximum(nu, LEAST_SHAPE))


def latent_information(k: Array) -> Array:
    """Compute the information on ``log k`` of one draw from a Gamma distribution with shape ``k`` and mean 1."""
    return np.asarray(k**2 * polygamma(1, k) - k)
