"""Gates: the prior probability of each expert, constant or a softmax of the covariates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model import multinomial
from consilience.model.moments import Layout, Moments, Weights
from consilience.model.penalty import Penalty
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.softmax import log_softmax, log_sum_exp

SMALLEST_WEIGHT = 1e-300


@dataclass(frozen=True, eq=False)
class SoftmaxGate:
    """Gate ``π_k(x) = exp(x̃ᵀ α_k) / Σ_l exp(x̃ᵀ α_l)`` with ``Σ_k α_k = 0``.

    Parameters
    ----------
    alpha : (K, p) array
        Coefficients in the coordinates of the mixture's design, intercept first.

    Examples
    --------
    >>> gate = SoftmaxGate(np.array([[0.0, 1.0], [0.0, -1.0]]))
    >>> log_pi, pi = gate.evaluate(np.array([[1.0], [0.0]]))
    >>> pi.ravel()
    array([0.5, 0.5])
    """

    alpha: Array

    reads_covariates = True

    @property
    def K(self) -> int:
        """Number of experts."""
        return len(self.alpha)

    @property
    def parameter_count(self) -> int:
        """Free parameters, ``(K - 1) p``."""
        return (self.K - 1) * int(self.alpha.shape[1])

    def evaluate(self, panel: Array) -> tuple[Array, Array]:
        """``log π_k(x_i)`` and ``π_k(x_i)``, both ``(K, n)``, for a design panel ``(p, n)``."""
        eta = self.alpha @ panel
        total, pi = log_sum_exp(eta)
        eta -= total
        return eta, pi

    def layout(self, p: int) -> Layout:
        """Shape of the gate's moments."""
        return Layout(2 * self.K, self.K - 1, multinomial.curvature_row_count(self.K, p), p)

    def weights(self, pi: Array, tau: Array, mass: Array | float, p: int) -> Weights:
        """Rows for the gradient ``Σ w (τ_k - π_k) x`` and the curvature, from ``pi, tau (K, n)`` (``tau`` weighted)."""
        prior = pi if isinstance(mass, float) else pi * mass
        spread = prior.sum(axis=1) - np.einsum("kn,kn->k", prior, pi)
        return Weights(
            plain=np.concatenate([tau.sum(axis=1), spread]),
            first=tau[:-1] - prior[:-1],
            second=multinomial.curvature_rows(pi, mass, p),
        )

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> SoftmaxGate:
        """One safeguarded Newton step from the gate's moments."""
        return SoftmaxGate(
            multinomial.step(
                self.alpha,
                moments.first,
                moments.second,
                ridge=penalty.gate_ridge,
                intercept=intercept,
                fraction=fraction,
            )
        )

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """What the ridge subtracts from the log-likelihood."""
        return multinomial.ridge_value(self.alpha, ridge=penalty.gate_ridge, intercept=intercept)

    def complete(self, moments: Moments) -> Array:
        """Complete-data information of the contrasts, ``((K - 1) p, (K - 1) p)``: the full curvature."""
        return multinomial.blocks_to_matrix(moments.second, self.K - 1, int(self.alpha.shape[1]))

    def score(self, moments: Moments) -> Array:
        """Observed score of the contrasts, flat."""
        return moments.first.ravel()

    def contrasts(self) -> Array:
        """Free parameters: ``α_k - α_K``, ``(K - 1, p)``."""
        return multinomial.contrasts(self.alpha)

    def moved(self, delta: Array) -> SoftmaxGate:
        """The gate with ``delta`` added to its flat contrasts."""
        return SoftmaxGate(multinomial.centred(self.contrasts() + delta.reshape(self.K - 1, self.alpha.shape[1])))

    def permuted(self, order: IntArray) -> SoftmaxGate:
        """Experts in the given order."""
        return SoftmaxGate(self.alpha[order])

    def transformed(self, T: Array) -> SoftmaxGate:
        """Coefficients ``T α_k``, for a change of coordinates ``T (p, p)``."""
        return SoftmaxGate(self.alpha @ T.T)


@dataclass(frozen=True, eq=False)
class ConstantGate:
    """Gate with the same probabilities everywhere, ``π_k(x) = weights_k``.

    Parameters
    ----------
    probabilities : (K,) array
        Positive, summing to one.

    Examples
    --------
    >>> log_pi, pi = ConstantGate(np.array([0.25, 0.75])).evaluate(np.ones((1, 2)))
    >>> pi.ravel()
    array([0.25, 0.75])
    """

    probabilities: Array

    reads_covariates = False

    @property
    def K(self) -> int:
        """Number of experts."""
        return len(self.probabilities)

    @property
    def parameter_count(self) -> int:
        """Free parameters, ``K - 1``."""
        return self.K - 1

    def evaluate(self, panel: Array) -> tuple[Array, Array]:
        """``log π_k`` and ``π_k``, both ``(K, 1)``: they broadcast over the columns of any panel."""
        return self._log[:, None], self.probabilities[:, None]

    @property
    def _log(self) -> Array:
        return np.log(np.maximum(self.probabilities, SMALLEST_WEIGHT))

    def layout(self, p: int) -> Layout:
        """Shape of the gate's moments."""
        return Layout(self.K, 0, 0, p)

    def weights(self, pi: Array, tau: Array, mass: Array | float, p: int) -> Weights:
        """The sums ``Σ w τ_k``; no moments of covariates."""
        none = np.empty((0, tau.shape[1]))
        return Weights(tau.sum(axis=1), none, none)

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> ConstantGate:
        """The exact maximiser, ``Σ τ_k / Σ τ``."""
        total = moments.plain.sum()
        return self if total <= 0 else ConstantGate(moments.plain / total)

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """No ridge: 0."""
        return 0.0

    def complete(self, moments: Moments) -> Array:
        """Complete-data information of the log odds, ``n (diag π - π πᵀ)``, ``(K - 1, K - 1)``."""
        pi = self.probabilities[:-1]
        return float(moments.plain.sum()) * (np.diag(pi) - np.outer(pi, pi))

    def score(self, moments: Moments) -> Array:
        """Observed score of the log odds, ``Σ τ_k - n π_k``, ``(K - 1,)``."""
        score: Array = moments.plain - moments.plain.sum() * self.probabilities
        return score[:-1]

    def contrasts(self) -> Array:
        """Free parameters: ``log π_k - log π_K``, ``(K - 1, 1)``."""
        return multinomial.contrasts(self._log[:, None])

    def moved(self, delta: Array) -> ConstantGate:
        """The gate with ``delta`` added to its log odds."""
        return ConstantGate(np.exp(log_softmax(multinomial.centred(self.contrasts() + delta.reshape(-1, 1))))[:, 0])

    def permuted(self, order: IntArray) -> ConstantGate:
        """Experts in the given order."""
        return ConstantGate(self.probabilities[order])

    def transformed(self, T: Array) -> ConstantGate:
        """The same gate: coordinates of covariates do not concern it."""
        return self


Gate = SoftmaxGate | ConstantGate
