"""Mixture reduction by a majorise-minimise algorithm, with one transport plan per expert or per row.

``Σ_l min_k c_lk`` is minimised alternately over the plan (each component is assigned to its nearest target) and over
the targets (each becomes the barycentre of its components). Neither step increases it. The paper's plan per row is the
same with the minimum taken at every point of a support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.aggregate.combine.components import Components
from consilience.numerics.arrays import IntArray


@dataclass(frozen=True, eq=False)
class Reduction:
    """Result of a reduction: the experts, the assignment of components, and the objective at each iteration.

    Examples
    --------
    >>> from consilience.model import GaussianExperts
    >>> Reduction(GaussianExperts(np.zeros((1, 1, 1)), np.ones((1, 1, 1))), np.array([0, 0]), (2.0, 1.0)).objective
    1.0
    """

    experts: Any
    labels: IntArray  # (L,), or (L, S) for a plan per row
    trace: tuple[float, ...]

    @property
    def objective(self) -> float:
        """Final value of ``Σ_l min_k c_lk``."""
        return self.trace[-1]


def reduced(components: Components, start: Any, *, max_iter: int = 100) -> Reduction:
    """Reduce components to ``start.K`` experts, from ``start``; ties are assigned to the first target.

    Parameters
    ----------
    components : MomentComponents or SupportComponents
    start : Experts
        Experts of the family of the components.
    max_iter : int

    Examples
    --------
    >>> from consilience.aggregate import MomentComponents
    >>> from consilience.model import GaussianExperts
    >>> B = np.array([0.0, 0.2, 5.0, 5.2])[:, None, None]
    >>> experts = GaussianExperts(B, np.ones((4, 1, 1)))
    >>> components = MomentComponents(experts, np.ones(4), np.ones((4, 1, 1)))
    >>> reduction = reduced(components, experts.permuted(np.array([0, 2])))
    >>> reduction.experts.B.ravel(), reduction.labels
    (array([0.1, 5.1]), array([0, 0, 1, 1]))
    """
    experts, trace = start, []
    labels, value = components.plan(experts)
    trace.append(value)
    for _ in range(max_iter):
        experts = components.barycentres(labels, experts)
        before = labels
        labels, value = components.plan(experts)
        trace.append(value)
        if np.array_equal(labels, before):
            break
    return Reduction(experts, labels, tuple(trace))


def spread_start(components: Components, K: int, rng: np.random.Generator) -> IntArray:
    """Draw K distant components, in proportion to their cost at the nearest one drawn so far (k-means++).

    Examples
    --------
    >>> from consilience.aggregate import MomentComponents
    >>> from consilience.model import GaussianExperts
    >>> B = np.array([0.0, 0.2, 5.0, 5.2])[:, None, None]
    >>> components = MomentComponents(GaussianExperts(B, np.ones((4, 1, 1))), np.ones(4), np.ones((4, 1, 1)))
    >>> int(np.ptp(spread_start(components, 2, np.random.default_rng(0)) // 2))
    1
    """
    mass = components.mass
    chosen = [int(rng.choice(len(mass), p=mass / mass.sum()))]
    cost = np.full(len(mass), np.inf)
    while len(chosen) < K:
        last: Any = components.experts.permuted(np.array(chosen[-1:]))
        cost = np.minimum(cost, np.maximum(components.costs(last)[:, 0], 0.0))
        total = cost.sum()
        weights = cost / total if total > 0 else np.full(len(cost), 1 / len(cost))
        chosen.append(int(rng.choice(len(cost), p=weights)))
    return np.array(chosen)
