"""Detect outlying sites: outlying experts, duplicated models, and the influence of each site on the result.

Sites are compared with a robust consensus, in the divergence that the reduction minimises: the log-likelihood that a
site's rows would lose, by the site's own statistics, if the consensus replaced its model. For an honest site the loss
is about half a unit per parameter whatever its covariates, so different covariates alone do not make an outlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaincinv, ndtri

from consilience.aggregate.combine.components import Components
from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.reduce import reduce_components
from consilience.numerics.arrays import Array, IntArray, Mask
from consilience.numerics.linalg import solve_symmetric

CANDIDATES = 20
"""Maximum number of candidate sites for the initial consensus."""
ASKED = 100
"""Maximum number of sites whose distance to each candidate is computed."""
FOREIGN = 5.0
"""Multiple of the usual cost above which an expert is outlying."""
LEAST_FOREIGN = 0.05
"""Cost per row below which no expert is outlying."""
DEVIATIONS = 4.0
"""Further tolerance, in standard deviations of the log costs beyond those expected by chance."""
PASSES = 5
LEVELS = np.array([0.1, 0.2, 0.3, 0.4])
"""Levels of the quantiles of log costs from which their scatter is estimated: outliers are above them."""
SAME = 1e-9


def copies(pool: Pool) -> dict[int, int]:
    """Return the sites whose experts equal those of an earlier site, with that site."""
    flat = [model.mixture.experts.free_coefficients() for model in pool.models]
    order = sorted(range(pool.M), key=lambda m: (len(flat[m]), *flat[m][:1], m))  # copies stand side by side
    first: dict[int, int] = {}
    for place, m in enumerate(order):
        for other in (order[i] for i in range(place - 1, -1, -1)):
            near = SAME * (1 + np.abs(flat[other]))
            if len(flat[m]) != len(flat[other]) or abs(flat[m][0] - flat[other][0]) > near[0]:
                break
            if np.all(np.abs(flat[m] - flat[other]) <= near):
                kept, extra = sorted((first.get(other, other), m))
                first[extra] = kept
                break
    return first


@dataclass(frozen=True, eq=False)
class TrustVerdict:
    """Agreement of each component with other sites, and its cost at the consensus.

    Parameters
    ----------
    agrees : (L,) array of bool
    cost : (L,) array
        Divergence from the consensus over the component's rows.
    """

    agrees: Mask
    cost: Array


def judge_sites(pool: Pool, copied: dict[int, int], K: int) -> TrustVerdict:
    """Compare every component with the consensus of those that agree, iterating until the set no longer changes.

    Parameters
    ----------
    pool : Pool
    copied : dict
        As from :func:`copies`: copies of a site do not count towards a majority.
    K : int
        Number of experts of the result. Sites with fewer experts, which are blends, do not define the consensus.
    """
    components = pool.components
    sites = _voters(pool, copied, K)
    voice = np.isin(pool.owner, sites)
    experts = pool.models[_medoid(pool, sites)].mixture.experts
    if len(sites) < 3:  # no majority, no verdict
        return TrustVerdict(np.ones(len(pool.owner), dtype=bool), nearest_cost(components, experts))
    cost = nearest_cost(components, experts)
    agrees = ~_is_foreign(cost, pool.rows, pool, voice & (cost > 0))
    for _ in range(PASSES):
        reduction = reduce_components(components.taken(np.flatnonzero(agrees & voice)), experts)
        cost = nearest_cost(components, reduction.experts)
        before, agrees = agrees, ~_is_foreign(cost, pool.rows, pool, voice & agrees)
        if np.array_equal(before, agrees):
            break
    return TrustVerdict(agrees, cost)


def _voters(pool: Pool, copied: dict[int, int], K: int) -> list[int]:
    """Return the sites that define the consensus: those with enough experts, or all if these are too few."""
    everyone = [m for m in range(pool.M) if m not in copied]
    complete = [m for m in everyone if pool.models[m].mixture.K >= K]
    return complete if len(complete) >= 3 else everyone


def nearest_cost(components: Components, experts: Any) -> Array:
    """Compute the cost of each component at the nearest of ``experts``, ``(L,)``."""
    return np.asarray(components.costs(experts).min(axis=1))


def candidates(sites: IntArray) -> tuple[IntArray, IntArray]:
    """Return candidate sites for the consensus, and sites to measure their distance to, both spread over ``sites``."""
    tried, asked = (np.linspace(0, len(sites), min(most, len(sites)), endpoint=False) for most in (CANDIDATES, ASKED))
    return sites[tried.astype(int)], sites[asked.astype(int)]


def _medoid(pool: Pool, sites: list[int]) -> int:
    """Return the medoid site, among a few spread over ``sites``."""
    tried, asked = candidates(np.array(sites))
    index = np.flatnonzero(np.isin(pool.owner, asked))
    components = pool.components.taken(index)
    mass = np.bincount(pool.owner[index], pool.rows[index], pool.M)[asked]
    medians = []
    for m in tried:
        experts = pool.models[m].mixture.experts
        costs = np.bincount(pool.owner[index], nearest_cost(components, experts), pool.M)[asked]
        others = asked != m
        medians.append(np.median((costs / mass)[others]) if others.any() else 0.0)
    return int(tried[int(np.argmin(medians))])


def _is_foreign(cost: Array, mass: Array, pool: Pool, honest: Mask) -> Mask:
    """Detect components whose cost is far above that of ``honest`` ones, both in total and per row.

    Total costs alone would flag large sites where sites truly differ; costs per row alone would flag small sites.
    """
    experts = pool.models[0].mixture.experts
    parameters = experts.parameter_count / experts.K
    per_row = cost / np.maximum(mass, 1.0)
    if not honest.any():
        return np.zeros(len(cost), dtype=bool)
    total = np.maximum(cost, 0.5 * parameters)
    far: Mask = is_far(total, honest, FOREIGN, parameters) & is_far(per_row, honest, FOREIGN, parameters)
    return far & (per_row > LEAST_FOREIGN)


def is_far(cost: Array, known: Mask, times: float, parameters: float, levels: Array = LEVELS) -> Mask:
    """Detect costs far above those of the ``known`` ones, most of them honest, by a factor that grows with scatter.

    Twice the cost of an honest model is about chi-square with as many degrees of freedom as it has ``parameters``; the
    excess scatter of its logarithm measures how much honest sites differ. Outliers are in the upper tail, so centre and
    scatter are computed from quantiles below the share of outliers; two of them scatter much with few sites.
    """
    logs = np.log(np.maximum(cost, np.finfo(float).tiny))
    quantiles = np.quantile(logs[known], levels)
    by_chance = _scatter(np.log(gammaincinv(parameters / 2, levels)), levels)
    excess = np.sqrt(max(_scatter(quantiles, levels) ** 2 - by_chance**2, 0.0))
    return np.asarray(logs > quantiles[-1] + max(np.log(times), DEVIATIONS * excess))


def _scatter(quantiles: Array, levels: Array) -> float:
    """Compute the slope of quantiles against those of a standard normal distribution."""
    normal = ndtri(levels)
    centred = normal - normal.mean()
    return float(centred @ quantiles / (centred @ centred))


def influences(pool: Pool, labels: IntArray, used: Mask, K: int, precision: Array) -> tuple[Array, Array]:
    """Compute how much each component changes its expert, at a fixed plan, in root mean square standard errors.

    ``b - b₋ₗ = (J - J_l)⁻¹ J_l (b_l - b)``, measured in ``J = Σ_l J_l``; and the expected value for an honest component
    of its size, ``√(s / (1 - s))`` for its fraction ``s`` of the information. ``precision (L, f, f)`` has ``J_l``.

    Returns
    -------
    influence, expected : (L,) array
        NaN for components without precision, alone in their expert, or not used.
    """
    influence, expected = np.full(len(labels), np.nan), np.full(len(labels), np.nan)
    f = pool.coefficients.shape[1]
    informed = used & pool.informed
    for k in range(K):
        mine = np.flatnonzero(informed & (labels == k))
        if len(mine) < 2:
            continue
        J, b = precision[mine], pool.coefficients[mine]
        total = J.sum(axis=0)
        inverse, full_rank = solve_symmetric(total, np.eye(f))
        pull = np.einsum("lab,lb->la", J, b - inverse @ np.einsum("lab,lb->a", J, b))
        share = np.clip(np.einsum("ab,lab->l", inverse, J) / f, 0.0, 1 - 1e-6)
        expected[mine] = np.sqrt(share / (1 - share))
        if full_rank:
            moved = _solved(total - J, pull)
            influence[mine] = np.sqrt(np.maximum(np.einsum("la,ab,lb->l", moved, total, moved, optimize=True), 0) / f)
    return influence, expected


def _solved(A: Array, b: Array) -> Array:
    """Compute ``A_l⁻¹ b_l``, ``(L, f)``; NaN for all if one of ``A (L, f, f)`` is singular."""
    try:
        return np.asarray(np.linalg.solve(A, b[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)
