"""Poisson experts: log-linear regressions of counts, with exposure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, cast

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, pdtr, pdtrik

from consilience.model.families.base import Evaluated, ExpertScores
from consilience.model.families.glm import CountExperts
from consilience.model.rows import Block
from consilience.model.statistics import Layout, Moments, Weights
from consilience.numerics.arrays import Array, IntArray, unpack

LARGE_MEAN = 1e9
"""Above it the distribution function is a normal one: the error is below 1e-5, and SciPy's inverse fails at 1e12."""


@dataclass(frozen=True, eq=False)
class PoissonEvaluated(Evaluated):
    """Means ``μ`` and residuals ``y - μ``, both ``(K, n)``."""

    mu: Array
    residual: Array


@dataclass(frozen=True, eq=False)
class PoissonExperts(CountExperts):
    """Experts ``y | x, k ~ Poisson(exposure · exp(x̃ᵀ b_k))``.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log rate, intercept first.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import PoissonExperts
    >>> PoissonExperts(B=np.array([[0.0, 1.0]])).mean(np.array([[1.0], [0.0]])).ravel()
    array([1.])
    """

    family = "poisson"

    # ------------------------------------------------------------------ the E-step

    def evaluate(self, block: Block) -> PoissonEvaluated:
        """Compute the log density ``y log μ - μ - log y!`` and the mean."""
        eta = self.log_means(block)
        mu = np.exp(eta)
        y = block.Y[0]
        return PoissonEvaluated(y * eta - mu - gammaln(y + 1), mu, y - mu)

    def layout(self, p: int) -> Layout:
        """Return the shape of the experts' moments."""
        return Layout(self.K, self.K, self.K, p)

    def weights(self, at: PoissonEvaluated, tau: Array, p: int) -> Weights:
        """Return weights for ``Σ τ``, ``Σ τ (y - μ) x`` and ``Σ τ μ x xᵀ``; ``tau (K, n)`` includes case weights."""
        return Weights(tau.sum(axis=1), tau * at.residual, tau * at.mu)

    # ------------------------------------------------------------------ what must be true of statistics

    def row_products(self, moments: Moments, *, intercept: bool) -> tuple[Array, Array]:
        """Return ``Σ w y x``: with an intercept, ``Σ_k Σ τ (y - μ) x + Σ τ μ x``."""
        values, sizes = super().row_products(moments, intercept=intercept)
        if intercept:
            S = unpack(moments.second)
            size = np.sqrt(S[:, :1, 0] * np.maximum(np.diagonal(S, axis1=1, axis2=2), 0.0)).sum(axis=0)
            values[:-1, -1] = values[-1, :-1] = moments.first.sum(axis=0) + S[:, 0].sum(axis=0)
            sizes[:-1, -1] = sizes[-1, :-1] = np.abs(moments.first).sum(axis=0) + 2 * size
        return values, sizes

    def scores(self, at: PoissonEvaluated) -> ExpertScores:
        """Compute the scores ``y - μ`` on ``x``."""
        return ExpertScores(at.residual[:, None], np.empty((self.K, 0, at.mu.shape[1])))

    def pointwise(self, eta: Array, mean: Array) -> tuple[Array, Array, Array]:
        """Compute ``μ - mean η`` with ``μ = exp η``, and its derivatives."""
        mu = np.exp(eta)
        return mu - mean * eta, mean - mu, mu

    # ------------------------------------------------------------------ prediction

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Draw counts ``(n, 1)`` from the experts given by ``labels (n,)``."""
        rate = self.mean(panel)[labels, 0, np.arange(len(labels))]
        if exposure is not None:
            rate = rate * exposure
        counts: Array = rng.poisson(np.minimum(rate, 1e18)).astype(np.float64)
        return counts[:, None]

    def cdf(self, panel: Array, y: Array, exposure: Array | None = None) -> Array:
        """Compute ``P(Y ≤ y_i | x_i, k)``, ``(K, n)``."""
        mu = self.means(panel, exposure)
        inside = pdtr(np.floor(np.maximum(y, 0)), np.minimum(mu, LARGE_MEAN))
        spread = (np.floor(y) + 0.5 - mu) / np.sqrt(mu)
        return cast(Array, np.where(y < 0, 0.0, np.where(mu > LARGE_MEAN, ndtr(spread), inside)))

    def quantile(self, panel: Array, probability: float, exposure: Array | None = None) -> Array:
        """Compute the quantile of each expert, ``(K, n)``, up to 1; a rounded normal quantile for large means."""
        mu = self.means(panel, exposure)
        counts = np.nan_to_num(pdtrik(probability, np.minimum(mu, LARGE_MEAN)))
        return cast(Array, np.where(mu > LARGE_MEAN, np.round(mu + ndtri(probability) * np.sqrt(mu)), counts))

    def divergence(self, other: Self, panel: Array) -> Array:
        """Compute ``μ_k (log μ_k - log μ_l) - μ_k + μ_l`` at unit exposure, ``(K, L, n)``."""
        ours, theirs = self.predictor(panel), other.predictor(panel)
        mu = np.exp(ours)[:, None]
        return mu * (ours[:, None] - theirs - 1.0) + np.exp(theirs)
