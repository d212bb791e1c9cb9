"""Gates: the prior probability of each expert, constant or a softmax of the covariates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.special import xlogy

from consilience.errors import InvalidInputError
from consilience.model import multinomial
from consilience.model.kernels import NUMPY, Kernel
from consilience.model.statistics import Layout, Moments, Penalty, Weights, quadratic
from consilience.numerics.arrays import Array, IntArray, kronecker, log_softmax

SMALLEST_WEIGHT = 1e-300
NO_SHARE = -20.0
"""Log odds of an expert that is not among those of the gate."""
SUM_TOLERANCE = 1e-6
SAME_MASS = 1e-9
"""Relative difference of two sums of the same weights, from rounding."""


class Gate(ABC):
    """Interface of a gate; :data:`GATES` lists the gates by name.

    Examples
    --------
    >>> from consilience.model import GATES
    >>> GATES["softmax"].blank(K=2, p=3).parameter_count
    3
    """

    kind: ClassVar[str]
    """Name in the registry."""
    reads_covariates: ClassVar[bool]
    """Whether probabilities depend on the covariates."""
    part: ClassVar[str]
    """Name of its parameters in tables."""
    message_fields: ClassVar[Mapping[str, tuple[int, ...]]]
    """For each field of the dataclass: its number of axes."""

    @classmethod
    @abstractmethod
    def blank(cls, K: int, p: int) -> Self:
        """Return the gate with equal probabilities."""

    @property
    def K(self) -> int:
        """Number of experts."""
        return len(self.read())

    @property
    @abstractmethod
    def parameter_count(self) -> int:
        """Free parameters."""

    @abstractmethod
    def invalid(self, p: int) -> str:
        """Return the reason why the arrays are not a gate on ``p`` features; empty if they are."""

    @abstractmethod
    def evaluate(self, panel: Array, kernel: Kernel = NUMPY) -> tuple[Array, Array]:
        """Compute ``log π_k(x_i)`` and ``π_k(x_i)``, both ``(K, n)`` or ``(K, 1)``, for a design panel ``(p, n)``."""

    @abstractmethod
    def layout(self, p: int) -> Layout:
        """Return the shape of the gate's moments."""

    @abstractmethod
    def weights(self, pi: Array, tau: Array, mass: Array | float, p: int) -> Weights:
        """Return the weights to sum, from ``pi, tau (K, n)`` (``tau`` weighted)."""

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give, such as a negative mass; empty if nothing. Second moments may be left out."""
        return "a negative mass" if np.any(moments.plain < 0) else ""

    def expected_log_weight(self, moments: Moments) -> float | None:
        """Compute ``Σ τ_k log π_k``; None if moments do not state it."""
        return None

    @abstractmethod
    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """M-step: exact, or ``fraction`` of a Newton step."""

    @abstractmethod
    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """Return the ridge penalty, which is subtracted from the log-likelihood."""

    @abstractmethod
    def complete(self, moments: Moments) -> Array:
        """Compute the complete-data information of the contrasts."""

    @abstractmethod
    def score(self, moments: Moments) -> Array:
        """Compute the observed score of the contrasts, flat."""

    @abstractmethod
    def contrasts(self) -> Array:
        """Return the free parameters, contrasts to the last expert, ``(K - 1, ·)``."""

    @abstractmethod
    def moved(self, delta: Array) -> Self:
        """Add ``delta`` to the flat contrasts."""

    @abstractmethod
    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""

    @abstractmethod
    def transformed(self, T: Array) -> Self:
        """Return the same gate after a change of coordinates ``T (p, p)`` of the covariates."""

    @abstractmethod
    def read(self) -> Array:
        """Return the reported parameters, ``(K, ·)``."""

    @abstractmethod
    def read_jacobian(self, T: Array) -> Array:
        """Compute the derivative of ``transformed(T).read()``, flat, by the contrasts."""

    @abstractmethod
    def with_shares(self, shares: Array) -> Self:
        """Return a gate of this type with constant probabilities ``shares (K,)``."""

    @abstractmethod
    def fitted(self, panel: Array, target: Array, *, ridge: Array) -> Self:
        """Fit the gate closest in divergence to masses ``target (K, S)`` at points ``panel (p, S)``, from this one."""

    @abstractmethod
    def relabelled(self, labels: IntArray, K: int) -> Self:
        """Return the gate for K experts to which its own are assigned by ``labels``; others get a negligible weight."""


@dataclass(frozen=True, eq=False)
class SoftmaxGate(Gate):
    """Gate ``π_k(x) = exp(x̃ᵀ α_k) / Σ_l exp(x̃ᵀ α_l)`` with ``Σ_k α_k = 0``.

    Parameters
    ----------
    alpha : (K, p) array
        Coefficients in the coordinates of the mixture's design, intercept first.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import SoftmaxGate
    >>> gate = SoftmaxGate(np.array([[0.0, 1.0], [0.0, -1.0]]))
    >>> log_pi, pi = gate.evaluate(np.array([[1.0], [0.0]]))
    >>> pi.ravel()
    array([0.5, 0.5])
    """

    alpha: Array

    kind = "softmax"
    reads_covariates = True
    part = "gate"
    message_fields: ClassVar[Mapping[str, tuple[int, ...]]] = {"alpha": (2,)}

    @classmethod
    def blank(cls, K: int, p: int) -> Self:
        """Return the gate with equal probabilities."""
        return cls(np.zeros((K, p)))

    def invalid(self, p: int) -> str:
        """Return the reason why the coefficients are not a gate on ``p`` features; empty if they are."""
        if self.alpha.shape[1] != p:
            return f"the gate has {self.alpha.shape[1]} coefficients per expert, expected {p}"
        return "" if np.all(np.isfinite(self.alpha)) else "the gate has coefficients that are not finite"

    @property
    def parameter_count(self) -> int:
        """Number of free parameters, ``(K - 1) p``."""
        return (self.K - 1) * int(self.alpha.shape[1])

    def evaluate(self, panel: Array, kernel: Kernel = NUMPY) -> tuple[Array, Array]:
        """Compute ``log π_k(x_i)`` and ``π_k(x_i)``, both ``(K, n)``, for a design panel ``(p, n)``."""
        eta = self.alpha @ panel
        total, pi = kernel.log_sum_exp(eta)
        eta -= total
        return eta, pi

    def layout(self, p: int) -> Layout:
        """Return the shape of the gate's moments."""
        return Layout(2 * self.K, self.K - 1, multinomial.curvature_row_count(self.K, p), p)

    def weights(self, pi: Array, tau: Array, mass: Array | float, p: int) -> Weights:
        """Return weights for the gradient ``Σ w (τ_k - π_k) x`` and the curvature, from ``pi, tau (K, n)``."""
        prior = pi if isinstance(mass, float) else pi * mass
        spread = np.maximum(prior.sum(axis=1) - np.einsum("kn,kn->k", prior, pi), 0.0)  # a certain gate has 0, rounded
        return Weights(
            plain=np.concatenate([tau.sum(axis=1), spread]),
            first=tau[:-1] - prior[:-1],
            second=multinomial.curvature_rows(pi, mass, p),
        )

    def impossible(self, moments: Moments, *, intercept: bool) -> str:
        """Return what no rows can give: a negative curvature, or one whose diagonal is not the spread."""
        if not len(moments.second):
            return super().impossible(moments, intercept=intercept)
        p, full = self.alpha.shape[1], multinomial.is_full(self.K, self.alpha.shape[1])
        own = moments.second[_first_of_rows(self.K - 1)] if full else moments.second
        if np.any(own[:, _first_of_rows(p)] < 0):
            return "a negative curvature of the gate"
        mass, spread = np.split(moments.plain, 2)
        if full and intercept and np.any(np.abs(own[:, 0] - spread[:-1]) > SAME_MASS * mass.sum()):
            return "a spread of the gate that differs from its curvature"
        return super().impossible(moments, intercept=intercept)

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Take one safeguarded Newton step from the gate's moments."""
        ridge = penalty.gate_matrix(self.alpha.shape[1], intercept=intercept)
        return type(self)(multinomial.step(self.alpha, moments.first, moments.second, ridge=ridge, fraction=fraction))

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """Return the ridge penalty, which is subtracted from the log-likelihood."""
        return quadratic(self.alpha, penalty.gate_matrix(self.alpha.shape[1], intercept=intercept))

    def complete(self, moments: Moments) -> Array:
        """Compute the complete-data information of the contrasts, ``((K - 1) p, (K - 1) p)``: the full curvature."""
        return multinomial.blocks_to_matrix(moments.second, self.K - 1, int(self.alpha.shape[1]))

    def score(self, moments: Moments) -> Array:
        """Compute the observed score of the contrasts, flat."""
        return moments.first.ravel()

    def contrasts(self) -> Array:
        """Return the free parameters ``α_k - α_K``, ``(K - 1, p)``."""
        return multinomial.contrasts(self.alpha)

    def moved(self, delta: Array) -> Self:
        """Add ``delta`` to the flat contrasts."""
        free = self.contrasts() + delta.reshape(self.K - 1, self.alpha.shape[1])
        return type(self)(multinomial.centre_coefficients(free))

    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""
        return type(self)(self.alpha[permutation])

    def transformed(self, T: Array) -> Self:
        """Return the gate with coefficients ``T α_k``, for a change of coordinates ``T (p, p)``."""
        return type(self)(self.alpha @ T.T)

    def read(self) -> Array:
        """Return the coefficients, summing to zero over experts, ``(K, p)``."""
        return self.alpha

    def read_jacobian(self, T: Array) -> Array:
        """Compute ``∂ T α / ∂ contrasts``, ``(K p, (K - 1) p)``."""
        centring = multinomial.centre_coefficients(np.eye(self.K - 1)) if self.K > 1 else np.zeros((1, 0))
        return kronecker(centring, T)

    def with_shares(self, shares: Array) -> Self:
        """Return a gate without slopes whose intercepts give these probabilities; the design needs an intercept."""
        alpha = np.zeros_like(self.alpha)
        alpha[:, 0] = np.log(np.maximum(shares, SMALLEST_WEIGHT))
        return type(self)(alpha - alpha.mean(axis=0))

    def fitted(self, panel: Array, target: Array, *, ridge: Array) -> Self:
        """Fit the gate by softmax regression on soft labels."""
        return type(self)(multinomial.fit_softmax(self.alpha, panel, target, ridge=ridge))

    def relabelled(self, labels: IntArray, K: int) -> Self:
        """Average the coefficients of experts assigned to the same label."""
        alpha = np.zeros((K, self.alpha.shape[1]))
        alpha[:, 0] = NO_SHARE
        for k in np.unique(labels):
            alpha[k] = self.alpha[labels == k].mean(axis=0)
        return type(self)(alpha - alpha.mean(axis=0))


@dataclass(frozen=True, eq=False)
class ConstantGate(Gate):
    """Gate with constant probabilities, ``π_k(x) = π_k``.

    Parameters
    ----------
    probabilities : (K,) array
        Positive, summing to one.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import ConstantGate
    >>> log_pi, pi = ConstantGate(np.array([0.25, 0.75])).evaluate(np.ones((1, 2)))
    >>> pi.ravel()
    array([0.25, 0.75])
    """

    probabilities: Array

    kind = "constant"
    reads_covariates = False
    part = "weight"
    message_fields: ClassVar[Mapping[str, tuple[int, ...]]] = {"probabilities": (1,)}

    @classmethod
    def blank(cls, K: int, p: int) -> Self:
        """Return the gate with equal probabilities."""
        return cls(np.full(K, 1 / K))

    def invalid(self, p: int) -> str:
        """Return the reason why the probabilities are not valid; empty if they are."""
        pi = self.probabilities
        proper = np.all(np.isfinite(pi)) and np.all(pi >= 0) and abs(pi.sum() - 1) < SUM_TOLERANCE
        return "" if proper else "the weights of a constant gate must be at least 0 and sum to 1"

    @property
    def parameter_count(self) -> int:
        """Number of free parameters, ``K - 1``."""
        return self.K - 1

    def evaluate(self, panel: Array, kernel: Kernel = NUMPY) -> tuple[Array, Array]:
        """Compute ``log π_k`` and ``π_k``, both ``(K, 1)``, which broadcast over the columns of any panel."""
        return self._log[:, None], self.probabilities[:, None]

    @property
    def _log(self) -> Array:
        return np.log(np.maximum(self.probabilities, SMALLEST_WEIGHT))

    def layout(self, p: int) -> Layout:
        """Return the shape of the gate's moments."""
        return Layout(self.K, 0, 0, p)

    def weights(self, pi: Array, tau: Array, mass: Array | float, p: int) -> Weights:
        """Return the weights of the sums ``Σ w τ_k``; no moments of covariates."""
        none = np.empty((0, tau.shape[1]))
        return Weights(tau.sum(axis=1), none, none)

    def expected_log_weight(self, moments: Moments) -> float:
        """Compute ``Σ τ_k log π_k``."""
        return float(np.sum(xlogy(moments.plain, self.probabilities)))

    def step(self, moments: Moments, penalty: Penalty, *, intercept: bool, fraction: float) -> Self:
        """Compute the exact maximiser, ``Σ τ_k / Σ τ``."""
        total = moments.plain.sum()
        return self if total <= 0 else type(self)(moments.plain / total)

    def penalty(self, penalty: Penalty, *, intercept: bool) -> float:
        """Return 0: there is no ridge."""
        return 0.0

    def complete(self, moments: Moments) -> Array:
        """Compute the complete-data information of the log odds, ``n (diag π - π πᵀ)``, ``(K - 1, K - 1)``."""
        pi = self.probabilities[:-1]
        return float(moments.plain.sum()) * (np.diag(pi) - np.outer(pi, pi))

    def score(self, moments: Moments) -> Array:
        """Compute the observed score of the log odds, ``Σ τ_k - n π_k``, ``(K - 1,)``."""
        score: Array = moments.plain - moments.plain.sum() * self.probabilities
        return score[:-1]

    def contrasts(self) -> Array:
        """Return the free parameters ``log π_k - log π_K``, ``(K - 1, 1)``."""
        return multinomial.contrasts(self._log[:, None])

    def moved(self, delta: Array) -> Self:
        """Add ``delta`` to the log odds."""
        logits = multinomial.centre_coefficients(self.contrasts() + delta.reshape(-1, 1))
        return type(self)(np.exp(log_softmax(logits))[:, 0])

    def permuted(self, permutation: IntArray) -> Self:
        """Reorder the experts."""
        return type(self)(self.probabilities[permutation])

    def transformed(self, T: Array) -> Self:
        """Return the gate unchanged: it does not depend on the covariates."""
        return self

    def read(self) -> Array:
        """Return the probabilities, ``(K, 1)``."""
        return self.probabilities[:, None]

    def read_jacobian(self, T: Array) -> Array:
        """Compute ``∂ π / ∂ log odds = diag π - π πᵀ`` without its last column, ``(K, K - 1)``."""
        pi = self.probabilities
        return (np.diag(pi) - np.outer(pi, pi))[:, :-1]

    def with_shares(self, shares: Array) -> Self:
        """Return the gate with these probabilities."""
        return type(self)(shares)

    def fitted(self, panel: Array, target: Array, *, ridge: Array) -> Self:
        """Fit the probabilities as fractions of the total mass."""
        return type(self)(target.sum(axis=1) / target.sum())

    def relabelled(self, labels: IntArray, K: int) -> Self:
        """Add the probabilities of experts assigned to the same label."""
        return type(self)(np.bincount(labels, self.probabilities, K).astype(np.float64))


GATES: dict[str, type[Gate]] = {gate.kind: gate for gate in (SoftmaxGate, ConstantGate)}
"""Gates in the order of their codes in messages: add new ones at the end."""


def gate_of(kind: str) -> type[Gate]:
    """Return the gate of this name, or raise an error that lists the names."""
    if kind not in GATES:
        raise InvalidInputError(f"gate {kind!r}: expected one of {', '.join(GATES)}")
    return GATES[kind]


def _first_of_rows(p: int) -> IntArray:
    """Return the places of the diagonal in a packed upper triangle of ``p`` rows."""
    return np.cumsum(np.append(0, np.arange(p, 1, -1)))[:p]
