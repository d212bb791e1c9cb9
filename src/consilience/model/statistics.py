"""Sufficient statistics of a pass over the data, additive over blocks, shards and sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model.moments import Additive, Layout, Moments
from consilience.numerics.arrays import Array, pack, triangle_size, unpack


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
