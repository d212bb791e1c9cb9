"""Poisson experts: log-linear regressions of counts, with exposure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import gammaln, pdtr, pdtrik

from consilience.model.families.base import Evaluated, Scores
from consilience.model.moments import Layout, Moments, Weights
from consilience.model.penalty import Penalty, slope_mask
from consilience.model.rows import Block
from consilience.numerics.arrays import Array, IntArray, kronecker, unpack
from consilience.numerics.linalg import capped, solve_symmetric
from consilience.numerics.newton import minimise

LARGEST_LOG_MEAN = 100.0
"""Linear predictors are cut here: a mean of e^100 is a rejected step, not an overflow."""
LONGEST_STEP = 30.0
"""Largest change of a coefficient in one step."""


@dataclass(frozen=True, eq=False)
class PoissonEvaluated(Evaluated):
    """Means ``μ`` and residuals ``y - μ``, both ``(K, n)``."""

    mu: Array
    residual: Array


@dataclass(frozen=True, eq=False)
class PoissonExperts:
    """Experts ``y | x, k ~ Poisson(exposure · exp(x̃ᵀ b_k))``.

    Parameters
    ----------
    B : (K, p) array
        Coefficients of the log rate, intercept first.

    Examples
    --------
    >>> PoissonExperts(B=np.array([[0.0, 1.0]])).mean(np.array([[1.0], [0.0]])).ravel()
    array([1.])
    """

    B: Array

    discrete = True
    newton_type = True
    family = "poisson"
    channels = 1
    shapes = 0
    shape_parameters = 0
    full_curvature = True

    @property
    def K(self) -> int:
        """Number of experts."""
        return len(self.B)

    @property
    def p(self) -> int:
        """Number of coefficients."""
        return int(self.B.shape[1])

    @property
    def parameter_count(self) -> int:
        """Free parameters, ``K p``."""
        return self.B.size

    # ------------------------------------------------------------------ the pass

    def evaluate(self, block: Block) -> PoissonEvaluated:
        """``y log μ - μ - log y!`` and the mean."""
        eta = self.B @ block.panel
        if block.log_exposure is not None:
            eta += block.log_exposure
        np.minimum(eta, LARGEST_LOG_MEAN, out=eta)
        mu = np.exp(eta)
        y = block.Y[0]
        return PoissonEvaluated(y * eta - mu - gammaln(y + 1), mu, y - mu)

    def layout(self, p: int) -> Layout:
        """Shape of the experts' moments."""
        return Layout(self.K, self.K, self.K, p)

    def weights(self, at: PoissonEvaluated, tau: Array, p: int) -> Weights:
        """Rows for ``Σ τ``, ``Σ τ (y - μ) x`` and ``Σ τ μ x xᵀ``; ``tau (K, n)`` includes case weights."""
        return Weights(tau.sum(axis=1), tau * at.residual, tau * at.mu)

    # ------------------------------------------------------------------ the step

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> PoissonExperts:
        """One safeguarded Newton step per expert."""
        mask = penalty.expert_ridge * slope_mask(self.p, intercept)
        gradient = moments.first - mask * self.B
        direction = [
            solve_symmetric(H + np.diag(mask), g[:, None])[0][:, 0]
            for H, g in zip(unpack(moments.second), gradient, strict=True)
        ]
        return PoissonExperts(self.B + fraction * capped(np.array(direction), LONGEST_STEP))

    def full_rank(self, moments: Moments) -> bool:
        """Always: the ridge identifies the slopes."""
        return True

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """What the ridge subtracts from the log-likelihood."""
        return 0.5 * penalty.expert_ridge * float(np.sum(self.B[:, int(intercept) :] ** 2))

    def admissible(self, penalty: Penalty) -> bool:
        """Always: no variance to bound."""
        return True

    # ------------------------------------------------------------------ derivatives

    def scores(self, at: PoissonEvaluated) -> Scores:
        """``y - μ`` on ``x``."""
        return Scores(at.residual[:, None], np.empty((self.K, 0, at.mu.shape[1])))

    def complete(self, moments: Moments) -> Array:
        """``Σ τ μ x xᵀ`` of each expert, ``(K, p, p)``."""
        return unpack(moments.second)

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Observed score ``(K, 1, p)``; no shapes."""
        return moments.first[:, None], np.empty((self.K, 0))

    def tie(self) -> Array:
        """No shape parameters: ``(0, 0)``."""
        return np.empty((0, 0))

    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Second derivative of the ridge."""
        return kronecker(np.eye(self.K), np.diag(penalty.expert_ridge * slope_mask(self.p, intercept)))

    def free_coefficients(self) -> Array:
        """Coefficients, flat."""
        return self.B.ravel()

    def moved(self, coefficients: Array, shapes: Array) -> PoissonExperts:
        """The experts with ``coefficients`` added."""
        return PoissonExperts(self.B + coefficients.reshape(self.B.shape))

    # ------------------------------------------------------------------ use

    def mean(self, panel: Array) -> Array:
        """Rate at unit exposure, ``(K, 1, n)``."""
        return cast(Array, np.exp(np.minimum(self.B @ panel, LARGEST_LOG_MEAN)))[:, None]

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Counts ``(n, 1)`` from the experts named by ``labels (n,)``."""
        rate = self.mean(panel)[labels, 0, np.arange(len(labels))]
        if exposure is not None:
            rate = rate * exposure
        counts: Array = rng.poisson(np.minimum(rate, 1e18)).astype(np.float64)
        return counts[:, None]

    def cdf(self, panel: Array, y: Array) -> Array:
        """``P(Y ≤ y_i | x_i, k)`` at unit exposure, ``(K, n)``."""
        return cast(Array, np.where(y < 0, 0.0, pdtr(np.floor(np.maximum(y, 0)), self.mean(panel)[:, 0])))

    def quantile(self, panel: Array, probability: float) -> Array:
        """Quantile of each expert at unit exposure, ``(K, n)``, up to rounding."""
        counts: Array = np.nan_to_num(pdtrik(probability, self.mean(panel)[:, 0]))
        return counts

    def divergence(self, other: PoissonExperts, panel: Array) -> Array:
        """``μ_k (log μ_k - log μ_l) - μ_k + μ_l`` at unit exposure, ``(K, L, n)``."""
        ours, theirs = (np.minimum(B @ panel, LARGEST_LOG_MEAN) for B in (self.B, other.B))
        mu = np.exp(ours)[:, None]
        divergence: Array = mu * (ours[:, None] - theirs - 1.0) + np.exp(theirs)
        return divergence

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> PoissonExperts:
        """Minimises ``Σ_i mass_i (μ_i - mean_i log μ_i)`` of each expert by Newton's method."""
        B = [self._nearest(b, panel, m, v[0]) if m.sum() > 0 else b for b, m, v in zip(self.B, mass, mean, strict=True)]
        return PoissonExperts(np.array(B))

    def _nearest(self, start: Array, panel: Array, mass: Array, mean: Array) -> Array:
        def value(b: Array) -> float:
            eta = np.minimum(b @ panel, LARGEST_LOG_MEAN)
            return float(np.sum(mass * (np.exp(eta) - mean * eta)))

        def step(b: Array) -> Array:
            mu = np.exp(np.minimum(b @ panel, LARGEST_LOG_MEAN))
            H = (panel * (mass * mu)) @ panel.T
            return capped(solve_symmetric(H, (panel @ (mass * (mean - mu)))[:, None])[0][:, 0], LONGEST_STEP)

        return minimise(start, value, step)

    def permuted(self, order: IntArray) -> PoissonExperts:
        """Experts in the given order."""
        return PoissonExperts(self.B[order])

    def transformed(self, T: Array) -> PoissonExperts:
        """Coefficients ``T b``, for a change of covariate coordinates."""
        return PoissonExperts(self.B @ T.T)
