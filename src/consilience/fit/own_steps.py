"""Steps that a place takes on its own noisy totals, from a public start: as many as the start needs.

The first total tells how far the start is from the rows of the place. Each later total is asked at the mixture that
explains all totals so far by generalised least squares (:mod:`consilience.fit.noisy_totals`), drawn to the start as
much as the first total allows: few rows with noise say little, and would walk away. All of it is computed from noisy
totals and public covariates.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.fit.noisy_totals import NoisyTotal, explain_totals, rows_of
from consilience.fit.private_step import PublicStep, reach_of
from consilience.model import Mixture
from consilience.numerics.arrays import Array

PARTS = 8
"""Equal parts of the budget of a place."""
FAR = 3.0
"""q of the first total above which more steps are taken."""
NEAR_PLAN, FAR_PLAN = (1, 1, 2, 4), (1, 1, 1, 1, 1, 3)
"""Parts of the totals, the first included, from a near start and from a far one."""
DAMPING = {1: 0.0, 2: 0.0, 3: 0.1, 4: 0.3, 5: 0.3, 6: 0.6}
"""λ of a total, by the number of totals from it on."""
LEAST_OFF, MOST_OFF = 0.05, 0.5
"""Bounds of the error of the start in each parameter, in units of its reach, that is inferred from the first total."""
SPARSER = 3
"""One of so many simulated rows is used between steps."""


@dataclass(frozen=True)
class Asked:
    """A total that is asked for.

    Parameters
    ----------
    step : PublicStep
    place : int
        First part of the budget that it takes.
    share : int
        Number of parts.
    """

    step: PublicStep
    place: int
    share: int


def own_steps(start: Mixture, X: Array) -> Generator[Asked, NoisyTotal, None]:
    """Yield the totals to ask for, and receive each of them.

    Parameters
    ----------
    start : Mixture
        Public.
    X : (m, d) array
        Simulated covariates.
    """
    here, found, place, plan = start, list[NoisyTotal](), 0, list(NEAR_PLAN)
    precision = np.zeros(start.parameter_count)
    while plan:
        share = plan.pop(0)
        found.append((yield Asked(PublicStep.at(here, X, DAMPING[len(plan) + 1]), place, share)))
        place += share
        if len(found) == 1:
            precision = precision_of_start(found[0], X)
            plan = list(FAR_PLAN[1:]) if surprise_at_start(found) > FAR else plan
        if plan:
            here = explain_totals(start, [found], X[::SPARSER], precision).mixture


def surprise_at_start(totals: Sequence[NoisyTotal]) -> float:
    """Return q of the first total of a place: about 1 if the start is right."""
    first = totals[0]
    return first.step.surprise(first.total, rows_of(totals), first.noise)


def precision_of_start(first: NoisyTotal, X: Array) -> Array:
    """Return the precisions ``(P,)`` of the parameters of a start, from the first total: as far off as makes its q."""
    step, P, n = first.step, len(first.total), max(first.rows, 1.0)
    reach = reach_of(step.mixture, X)
    spread = n * step.spread + first.noise * np.eye(P)
    slope = n * step.slope @ np.linalg.inv(step.factor)
    per_unit = float(np.trace(np.linalg.solve(spread, (slope * reach**2) @ slope.T)))
    excess = max(step.surprise(first.total, n, first.noise) - 1, 0.0) * P
    off = float(np.clip(np.sqrt(excess / max(per_unit, 1e-300)), LEAST_OFF, MOST_OFF))
    precision: Array = 1 / (off * reach) ** 2
    return precision
