"""Shifted Newton steps on the penalised likelihood: from EM-like steps far from the maximum to Newton near it.

With the observed information ``J``, the complete-data information ``C``, the ridge ``R`` and the gradient ``g`` of the
penalised likelihood, the step is

    (J + R + λ (C + R))⁻¹ g.

At ``λ = 0`` it is the Newton step. As ``J = C - missing``, a shift of about 1 gives a step like EM's, and a large
shift a shorter one. The shift grows after a rejected step and shrinks after a successful one. A step exists for some
shift also where ``J + R`` is indefinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.model.information import complete_information, free_parameters, moved, ridge, score
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.received import is_in_range
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import cholesky_or_none, cholesky_solve

NEWTON_DECREMENT = 1e-8
"""Newton decrement per unit of weight at convergence."""
NEWTON_DECREMENT_AT_MOST = 5e-3
"""Upper limit of the Newton decrement at convergence, for any number of rows; it is negligible for intervals."""
SMALLEST_SHIFT = 1e-3
"""Shift after the first rejected Newton step, and the first one tried where the information is indefinite."""
GROWTH = 6.0
CURVATURE_GROWTH = 1.5
"""Factor of the shift where the information is indefinite: just enough of it, as more makes steps short."""
LARGEST_SHIFT = 1.0
"""Shift above which a rejected step is followed by an EM step, which is about as long and cannot fail."""
LARGEST_FOR_CURVATURE = 1e3
"""Largest shift that is tried to make an indefinite information positive definite."""


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """A step ``(J + R + λ (C + R))⁻¹ g``, its shift ``λ``, and the gain that the quadratic model predicts for it.

    For ``λ = 0`` the predicted gain is the Newton decrement ``gᵀ (J + R)⁻¹ g / 2``.
    """

    direction: Array  # (P,)
    decrement: float
    shift: float = 0.0


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Quadratic model of the penalised likelihood at a mixture: gradient and curvatures.

    Parameters
    ----------
    mixture : Mixture
    gradient : (P,) array
    observed : (P, P) array
        ``J + R``.
    complete : (P, P) array
        ``C + R``.
    """

    mixture: Mixture
    gradient: Array
    observed: Array
    complete: Array

    @classmethod
    def at(cls, mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Quadratic | None:
        """Return the model at ``mixture``, or None if its statistics lack the information."""
        if statistics.information is None:
            return None
        R = ridge(mixture, penalty)
        gradient = score(mixture, statistics) - R @ free_parameters(mixture)
        return cls(mixture, gradient, statistics.information + R, complete_information(mixture, statistics) + R)

    @cached_property
    def newton(self) -> NewtonStep | None:
        """The Newton step, or None if ``J + R`` is not positive definite."""
        return self._solved(0.0)

    def step(self, shift: float = 0.0) -> NewtonStep | None:
        """Return the step with this shift, or None if the shifted information is not positive definite."""
        return self._solved(shift) if shift else self.newton

    def _solved(self, shift: float) -> NewtonStep | None:
        L = cholesky_or_none(self.observed + shift * self.complete)
        if L is None:
            return None
        direction = cholesky_solve(L, self.gradient)
        gain = self.gradient @ direction - 0.5 * direction @ self.observed @ direction
        return NewtonStep(direction, float(gain), shift)

    def proposal(self, shift: float, penalty: Penalty) -> tuple[Mixture, NewtonStep] | None:
        """Return the mixture after the step with the smallest usable shift of at least ``shift``, or None.

        A shift is usable if the shifted information is positive definite, and the mixture after the step is admissible
        and can be sent to sites.
        """
        while shift <= LARGEST_FOR_CURVATURE:
            step = self.step(shift)
            if step is None:
                shift = grown(shift, CURVATURE_GROWTH)
                continue
            ahead = moved(self.mixture, step.direction) if np.all(np.isfinite(step.direction)) else None
            if ahead is not None and ahead.experts.admissible(penalty) and is_in_range(ahead):
                return ahead, step
            if shift > LARGEST_SHIFT:
                return None
            shift = grown(shift)
        return None


def newton_step(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> NewtonStep | None:
    """Compute the Newton step on the penalised likelihood, or None if ``J + R`` is not positive definite."""
    model = Quadratic.at(mixture, statistics, penalty)
    return None if model is None else model.newton


def grown(shift: float, factor: float = GROWTH) -> float:
    """Return the shift to try after one that did not serve.

    Examples
    --------
    >>> grown(0.0), grown(0.01)
    (0.001, 0.06)
    """
    return max(factor * shift, SMALLEST_SHIFT)


def adapted(step: NewtonStep, gain: float, *, again: bool = False) -> float:
    """Return the shift of the next step, after a step that was accepted with this gain of the likelihood.

    A step that gains what the quadratic model predicts lets the shift shrink, eightfold if the prediction was good and
    no smaller shift has just failed (``again``), to zero below ``SMALLEST_SHIFT``; a step that gains less than a
    quarter of it lets the shift grow.

    Examples
    --------
    >>> [adapted(NewtonStep(np.zeros(1), 2.0, 0.5), gain) for gain in (1.9, 1.0, 0.1)]
    [0.0625, 0.25, 3.0]
    """
    if gain < 0.25 * step.decrement:
        return grown(step.shift)
    if step.shift <= SMALLEST_SHIFT:
        return 0.0
    good = abs(gain - step.decrement) < 0.1 * step.decrement
    return step.shift / 8 if good and not again else step.shift / 2


def decrement_bound(weight: float, per_weight: float = NEWTON_DECREMENT) -> float:
    """Return the Newton decrement below which a climb over data of this weight has converged.

    Examples
    --------
    >>> decrement_bound(1e4), decrement_bound(1e9)
    (0.0001, 0.005)
    """
    return min(per_weight * weight, NEWTON_DECREMENT_AT_MOST)
