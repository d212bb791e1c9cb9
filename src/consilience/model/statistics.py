"""Moments, sufficient statistics and penalties: additive over blocks, shards and sites."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from consilience.model.kernels import Products
from consilience.numerics.arrays import Array, pack, triangle_size, unpack


class Additive:
    """Mixin for frozen dataclasses that add field by field; None adds only to None."""

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return type(self)(*(None if a is None or b is None else a + b for a, b in pairs))


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of the sums of one part of a mixture over a block of n rows.

    Parameters
    ----------
    plain : (s,) array
        Sums that are known already.
    first : (g, n) array
        Weights of ``Σ_i first_gi x_i``.
    second : (h, n) array
        Weights of ``Σ_i second_hi x_i x_iᵀ``.
    summed : (g, p) array or None
        ``Σ_i first_gi x_i`` where it is known; ``first`` is then empty.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Weights
    >>> tau = np.full((2, 5), 0.5)
    >>> Weights(tau.sum(axis=1), tau, tau).plain
    array([2.5, 2.5])
    """

    plain: Array
    first: Array
    second: Array
    summed: Array | None = None


@dataclass(frozen=True, eq=False)
class ProductWeights:
    """Weights that are products of two rows of numbers each; otherwise as :class:`Weights`."""

    plain: Array
    first: Products
    second: Products
    summed: None = None


@dataclass(frozen=True, eq=False)
class Moments(Additive):
    """Weighted sums of ``1``, ``x`` and ``x xᵀ`` over rows: sufficient for an M-step.

    Parameters
    ----------
    plain : (s,) array
        Sums of weights.
    first : (g, p) array
        ``Σ_i w_gi x_i``.
    second : (h, p (p + 1) / 2) array
        Upper triangles of ``Σ_i w_hi x_i x_iᵀ``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Moments
    >>> one = Moments(np.ones(1), np.ones((1, 2)), np.ones((1, 3)))
    >>> (one + one).first
    array([[2., 2.]])
    """

    plain: Array
    first: Array
    second: Array

    def to_array(self) -> Array:
        """Return all sums as one flat array."""
        return np.concatenate([self.plain, self.first.ravel(), self.second.ravel()])


@dataclass(frozen=True, eq=False)
class Layout:
    """Shape of a :class:`Moments`: ``s`` plain sums, ``g`` first and ``h`` second moments of ``p`` features.

    Examples
    --------
    >>> from consilience.model import Layout
    >>> Layout(2, 2, 2, p=3).size
    20
    """

    s: int
    g: int
    h: int
    p: int

    @property
    def size(self) -> int:
        """Length of the flat array."""
        return self.s + self.g * self.p + self.h * triangle_size(self.p)

    def zeros(self) -> Moments:
        """Return the moments of an empty set of rows."""
        return self.from_array(np.zeros(self.size))

    def from_array(self, flat: Array) -> Moments:
        """Return moments from a flat array of length ``size``; inverse of :meth:`Moments.to_array`."""
        plain, first, second = np.split(flat, [self.s, self.s + self.g * self.p])
        return Moments(plain, first.reshape(self.g, self.p), second.reshape(self.h, triangle_size(self.p)))


# ---------------------------------------------------------------- penalty


@dataclass(frozen=True, eq=False)
class Penalty:
    """Ridges of a fit, bounds of its shapes and shared coefficients; they are not part of the statistics.

    The penalised log-likelihood is ``Σ_i ll_i - (gate_ridge / 2) Σ_k alpha_kᵀ F alpha_k`` in the coordinates of the
    mixture's design with ``Σ_k alpha_k = 0``, and likewise for the coefficients of experts. With the correlation of the
    covariates as ``F``, the penalty is on the variance of the linear predictor and the same in all coordinates. Ridges
    are totals: independent of the number of rows and sites.

    Parameters
    ----------
    gate_ridge, expert_ridge : float
        Ridge on slopes.
    floor : (q, q) array
        Lower bound of the experts' shapes, as their family reads it: of every covariance in the positive semidefinite
        order, or of every dispersion; zeros for none.
    shape_ratio : float
        Largest ratio of the shapes of two experts, in the same order; infinite for no bound.
    gate_form, expert_form : (p, p) array or None
        Positive semidefinite matrix ``F``, zero for the intercept; None for the sum of squared slopes.
    shared : tuple of int
        Places in the design row of the coefficients that are equal in all experts.

    Examples
    --------
    >>> from consilience.model import Penalty
    >>> Penalty().gate_ridge
    0.001
    >>> Penalty(gate_ridge=2.0).gate_matrix(2, intercept=True)
    array([[0., 0.],
           [0., 2.]])
    """

    gate_ridge: float = 1e-3
    expert_ridge: float = 0.0
    floor: Array = field(default_factory=lambda: np.zeros((1, 1)))
    shape_ratio: float = np.inf
    gate_form: Array | None = None
    expert_form: Array | None = None
    shared: tuple[int, ...] = ()

    def gate_matrix(self, p: int, *, intercept: bool) -> Array:
        """Return the second derivative of the ridge by one expert's gate coefficients, ``(p, p)``."""
        return _matrix(self.gate_ridge, self.gate_form, p, intercept)

    def expert_matrix(self, p: int, *, intercept: bool) -> Array:
        """Return the second derivative of the ridge by the coefficients of one expert's predictor, ``(p, p)``."""
        return _matrix(self.expert_ridge, self.expert_form, p, intercept)

    def sharing(self, K: int, channels: int, p: int) -> Array | None:
        """Return the matrix ``(K channels p, F)`` of 0 and 1 from free coefficients to all; None if all are free.

        Coefficients are ordered by expert, then by linear predictor.

        Examples
        --------
        >>> from consilience.model import Penalty
        >>> Penalty(shared=(1,)).sharing(2, 1, 2)
        array([[1., 0., 0.],
               [0., 1., 0.],
               [0., 0., 1.],
               [0., 1., 0.]])
        """
        if K == 1 or not self.shared:
            return None
        places = np.arange(K * channels * p).reshape(K, channels, p)
        places[:, :, list(self.shared)] = places[0][:, list(self.shared)]
        free, index = np.unique(places, return_inverse=True)
        return np.eye(len(free))[index.ravel()]


def _matrix(ridge: float, form: Array | None, p: int, intercept: bool) -> Array:
    return np.diag(ridge * slope_mask(p, intercept)) if form is None else ridge * form


def quadratic(coefficients: Array, form: Array) -> float:
    """Compute ``½ Σ bᵀ F b`` over coefficients ``(..., p)``."""
    return 0.5 * float(np.sum((coefficients @ form) * coefficients))


def slope_mask(p: int, intercept: bool) -> Array:
    """Return ``(p,)`` ones for slopes and zero for the intercept."""
    mask = np.ones(p)
    if intercept:
        mask[0] = 0.0
    return mask


# ---------------------------------------------------------------- statistics


@dataclass(frozen=True, eq=False)
class Statistics(Additive):
    """Sufficient statistics for the next M-step, at the current mixture; ``+`` combines data.

    They contain no penalty and no floor.

    Parameters
    ----------
    gate, experts : Moments
        Weighted sums of ``1``, ``x``, ``x xᵀ``.
    log_likelihood : float
        ``Σ_i w_i log p(y_i | x_i)``.
    absolute : float
        ``Σ_i w_i |log p(y_i | x_i)|``, the scale of rounding in the likelihood.
    weight : float
        ``Σ_i w_i``, or the number of groups.
    information : (P, P) array or None
        Observed information in the free parameters, if requested.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Statistics
    >>> from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, expect, layout_of
    >>> mixture = Mixture(
    ...     Design.raw(0), ConstantGate(np.ones(1)), GaussianExperts(np.zeros((1, 1, 1)), np.ones((1, 1, 1)))
    ... )
    >>> a = expect(mixture, Rows(np.empty((2, 0)), np.array([[1.0], [2.0]])))
    >>> b = expect(mixture, Rows(np.empty((1, 0)), np.array([[3.0]])))
    >>> (a + b).experts.first
    array([[6.]])
    >>> Statistics.from_array((a + b).to_array(), layout_of(mixture)).weight
    3.0
    """

    gate: Moments
    experts: Moments
    log_likelihood: float
    absolute: float
    weight: float
    information: Array | None = None

    @property
    def scale(self) -> float:
        """Scale of the likelihood terms: ``Σ |ll_i|``, at least one per unit of weight."""
        return max(self.absolute, self.weight)

    def scaled(self, factor: float) -> Statistics:
        """Multiply the statistics, as if of ``factor`` times the data."""
        gate, experts = (Moments(*(factor * part for part in vars(m).values())) for m in (self.gate, self.experts))
        information = None if self.information is None else factor * self.information
        rest = (factor * self.log_likelihood, factor * self.absolute, factor * self.weight)
        return Statistics(gate, experts, *rest, information)

    def to_array(self) -> Array:
        """Return all sums as one flat array."""
        scalars = np.array([self.log_likelihood, self.absolute, self.weight])
        information = np.empty(0) if self.information is None else pack(self.information)
        return np.concatenate([scalars, self.gate.to_array(), self.experts.to_array(), information])

    @classmethod
    def from_array(cls, flat: Array, layout: StatisticsLayout) -> Statistics:
        """Return statistics from their flat array; raise an error if its length does not fit the layout."""
        plain, informed = layout.size(information=False), layout.size(information=True)
        if flat.shape not in ((plain,), (informed,)):
            raise ValueError(f"statistics of {flat.shape} numbers where {plain} or {informed} were expected")
        scalars, gate, experts, rest = np.split(flat, np.cumsum([3, layout.gate.size, layout.experts.size]))
        information = unpack(rest) if len(flat) == informed and layout.parameters else None
        ll, absolute, weight = (float(value) for value in scalars)
        gate_moments, expert_moments = layout.gate.from_array(gate), layout.experts.from_array(experts)
        return cls(gate_moments, expert_moments, ll, absolute, weight, information)


@dataclass(frozen=True, eq=False)
class StatisticsLayout:
    """Shapes of a mixture's statistics."""

    gate: Layout
    experts: Layout
    parameters: int

    def size(self, *, information: bool) -> int:
        """Length of the flat array."""
        return 3 + self.gate.size + self.experts.size + information * triangle_size(self.parameters)

    def zeros(self, *, information: bool) -> Statistics:
        """Return the statistics of an empty set of rows."""
        return Statistics.from_array(np.zeros(self.size(information=information)), self)
