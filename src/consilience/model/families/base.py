"""What every family of experts provides, so that gates, the pass and the information need not know families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from consilience.model.moments import Layout, Moments, Weights
from consilience.model.penalty import Penalty
from consilience.model.rows import Block
from consilience.numerics.arrays import Array, IntArray


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Experts at a block: the log density, and in subclasses what the family's weights need."""

    log_density: Array  # (K, n)


@dataclass(frozen=True, eq=False)
class Scores:
    """Derivative of each expert's log density: ``linear ⊗ x`` for coefficients, ``shape`` for the rest."""

    linear: Array  # (K, channels, n)
    shape: Array  # (K, shapes, n)


class Experts(Protocol):
    """A family of K experts: frozen arrays with a density, additive statistics, a step and derivatives."""

    discrete: bool  # whether responses are counts or classes
    newton_type: bool  # whether the step is a Newton step, to be shortened when it overshoots
    family: str

    @property
    def K(self) -> int:
        """Number of experts."""

    @property
    def p(self) -> int:
        """Coefficients per linear predictor."""

    @property
    def channels(self) -> int:
        """Free linear predictors per expert."""

    @property
    def shapes(self) -> int:
        """Shape parameters per expert, before tying."""

    @property
    def shape_parameters(self) -> int:
        """Free shape parameters of all experts."""

    @property
    def parameter_count(self) -> int:
        """Free parameters."""

    def evaluate(self, block: Block) -> Any:
        """An :class:`Evaluated` of the family."""

    def layout(self, p: int) -> Layout:
        """Shape of the family's moments."""

    def weights(self, at: Any, tau: Array, p: int) -> Weights:
        """What the family wants summed, given responsibilities ``tau (K, n)``; ``plain`` starts with ``Σ τ_k``."""

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """M-step: exact, or ``fraction`` of a Newton step."""

    def full_rank(self, moments: Moments) -> bool:
        """Whether the coefficients are identified."""

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """What the ridge subtracts from the log-likelihood."""

    def admissible(self, penalty: Penalty) -> bool:
        """Whether the variance floor is respected."""

    def scores(self, at: Any) -> Scores:
        """Complete-data scores."""

    @property
    def full_curvature(self) -> bool:
        """Whether the moments hold the full curvature, not a bound on it."""

    def complete(self, moments: Moments) -> Array:
        """Complete-data information of each expert's coefficients and shapes, ``(K, f, f)``."""

    def score(self, moments: Moments) -> tuple[Array, Array]:
        """Observed score: coefficients ``(K, channels, p)`` and shapes ``(K, shapes)``."""

    def tie(self) -> Array:
        """Matrix ``(K shapes, shape_parameters)`` from free to per-expert shapes."""

    def ridge(self, penalty: Penalty, *, intercept: bool) -> Array:
        """Second derivative of the ridge in the free coefficients."""

    def free_coefficients(self) -> Array:
        """Free coefficients, flat."""

    def moved(self, coefficients: Array, shapes: Array) -> Self:
        """The experts with these changes of their free parameters."""

    def mean(self, panel: Array) -> Array:
        """``E[y | x, k]`` or class probabilities, ``(K, ·, n)``."""

    def cdf(self, panel: Array, y: Array) -> Array:
        """``P(Y ≤ y_i | x_i, k)``, ``(K, n)``, for one ordered response."""

    def quantile(self, panel: Array, probability: float) -> Array:
        """Quantile of each expert, ``(K, n)``, for one ordered response."""

    def sample(self, panel: Array, labels: IntArray, rng: np.random.Generator, exposure: Array | None = None) -> Array:
        """Responses ``(n, q)`` of the experts named by ``labels (n,)``."""

    def divergence(self, other: Self, panel: Array) -> Array:
        """``KL(f_k(· | x_i) ‖ g_l(· | x_i))`` from each expert to each of ``other``, ``(K, L, n)``."""

    def projected(self, panel: Array, mass: Array, mean: Array, within: Array) -> Self:
        """The experts nearest in divergence to responses with these means, from the current ones.

        Parameters: ``mass (K, n)`` of each point, ``mean (K, ·, n)`` there, and for families with a covariance
        ``within (K, q, q)``, the sum of mass times covariance around ``mean``. An expert without mass stays.
        """

    def permuted(self, order: IntArray) -> Self:
        """Experts in another order."""

    def transformed(self, T: Array) -> Self:
        """Coefficients ``T b``, for a change of covariate coordinates."""
