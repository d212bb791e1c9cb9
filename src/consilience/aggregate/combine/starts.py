"""Starting values of the reduction: the best site, the aligned average, and distant experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.aggregate.combine.components import Components
from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.reduce import spread_start
from consilience.aggregate.robust.align import consistent_labels
from consilience.numerics.arrays import IntArray, Mask

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
