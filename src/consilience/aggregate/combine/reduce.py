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
from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.robust.estimate import consistent_labels
from consilience.numerics.arrays import IntArray, Mask


@dataclass(frozen=True, eq=False)
class Reduction:
    """Result of a reduction: the experts, the assignment of components, and the objective at each iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import Reduction
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


def reduce_components(components: Components, start: Any, *, max_iter: int = 100) -> Reduction:
    """Reduce components to ``start.K`` experts, from ``start``; ties are assigned to the first target.

    Parameters
    ----------
    components : MomentComponents or SupportComponents
    start : Experts
        Experts of the family of the components.
    max_iter : int

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import reduce_components
    >>> from consilience.aggregate import MomentComponents
    >>> from consilience.model import GaussianExperts
    >>> B = np.array([0.0, 0.2, 5.0, 5.2])[:, None, None]
    >>> experts = GaussianExperts(B, np.ones((4, 1, 1)))
    >>> components = MomentComponents(experts, np.ones(4), np.ones((4, 1, 1)))
    >>> reduction = reduce_components(components, experts.permuted(np.array([0, 2])))
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
    >>> import numpy as np
    >>> from consilience.aggregate import spread_start
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


# ---------------------------------------------------------------- starts


SPREAD_STARTS = 5
"""Number of starts by k-means++ under the divergence."""


def reduction_starts(pool: Pool, components: Components, used: Mask, K: int, seed: int) -> list[Any]:
    """Return the starting experts, in the covariance structure of the sites' experts.

    Parameters
    ----------
    pool : Pool
    components : Components
        The components of the pool that are ``used``.
    used : (L,) array of bool
    K, seed : int
    """
    complete = [m for m in range(pool.M) if pool.models[m].mixture.K == K and used[pool.own[m]].all()]
    starts = _of_sites(pool, components, np.flatnonzero(used), complete, seed) if complete else []
    rng = np.random.default_rng([seed, 2])
    blank: Any = pool.models[0].mixture.experts
    for _ in range(SPREAD_STARTS):
        chosen = components.experts.permuted(spread_start(components, K, rng))
        labels, _ = components.plan(chosen)
        starts.append(components.barycentres(labels, chosen.like(blank)))
    return starts


def _of_sites(pool: Pool, components: Components, index: IntArray, complete: list[int], seed: int) -> list[Any]:
    """Return the experts of the site with the best fit, and the barycentres of ``complete`` sites after alignment."""
    best = max(complete, key=lambda m: pool.models[m].log_likelihood_per_row)
    first: Any = pool.models[best].mixture.experts
    points = np.array([pool.coefficients[pool.own[m]] for m in complete])
    permutations = consistent_labels(points, seed=seed).permutations
    labels, _ = components.plan(first)
    for m, permutation in zip(complete, permutations, strict=True):
        first_place = np.searchsorted(index, pool.own[m].start)
        labels[first_place : first_place + len(permutation)] = np.argsort(permutation)
    return [first, components.barycentres(labels, first)]
