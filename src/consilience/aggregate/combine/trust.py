"""Which sites to believe: experts that are like no other site's, copies, and how much each site moves the result.

Sites are compared with a consensus that a minority cannot move, in the divergence that the reduction minimises: how
much likelihood a site's rows would lose, by its own account, if the consensus stood for its model. An honest site loses
about half a unit per parameter whatever its covariates, so sites whose patients differ are not suspects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.aggregate.combine.components import Components
from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.reduce import reduced
from consilience.numerics.arrays import Array, IntArray, Mask, unpack
from consilience.numerics.linalg import solve_symmetric

CANDIDATES = 20
"""Most sites that are tried as the first consensus."""
ASKED = 100
"""Most sites whose distance to each of them is taken."""
FOREIGN = 5.0
"""How many times the usual cost an expert may have."""
LEAST_FOREIGN = 0.05
"""Cost per row below which no expert is foreign."""
DEVIATIONS = 4.0
"""Where costs scatter more than chance explains, this many standard deviations of their logarithms more."""
PASSES = 5
QUANTILE_GAP = 0.588
"""Between the quantiles 0.2 and 0.4 of a standard normal."""
SAME = 1e-9


def copies(pool: Pool) -> dict[int, int]:
    """Sites whose experts equal those of an earlier site, with that site."""
    flat = [model.mixture.experts.free_coefficients() for model in pool.models]
    order = sorted(range(pool.M), key=lambda m: (len(flat[m]), *flat[m][:1], m))  # copies stand side by side
    first: dict[int, int] = {}
    for place, m in enumerate(order):
        for other in reversed(order[:place]):
            near = SAME * (1 + np.abs(flat[other]))
            if len(flat[m]) != len(flat[other]) or abs(flat[m][0] - flat[other][0]) > near[0]:
                break
            if np.all(np.abs(flat[m] - flat[other]) <= near):
                kept, extra = sorted((first.get(other, other), m))
                first[extra] = kept
                break
    return first


@dataclass(frozen=True, eq=False)
class Verdict:
    """Which components are like those of other sites, and what each would cost the consensus.

    Parameters
    ----------
    agrees : (L,) array of bool
    cost : (L,) array
        Divergence from the consensus over the component's rows.
    """

    agrees: Mask
    cost: Array


def judged(pool: Pool, copied: dict[int, int], K: int) -> Verdict:
    """Compare every component with the consensus of those that agree, until that no longer changes.

    Parameters
    ----------
    pool : Pool
    copied : dict
        As from :func:`copies`: copies of a site do not help it to a majority.
    K : int
        Experts that are wanted. A site with fewer has blends of them, and no say in what they are like.
    """
    components = pool.components
    sites = _voters(pool, copied, K)
    voice = np.isin(pool.owner, sites)
    experts = pool.models[_medoid(pool, sites)].mixture.experts
    if len(sites) < 3:  # no majority, no verdict
        return Verdict(np.ones(len(pool.owner), dtype=bool), nearest_cost(components, experts))
    cost = nearest_cost(components, experts)
    agrees = ~_is_foreign(cost, pool.rows, pool, voice & (cost > 0))
    for _ in range(PASSES):
        reduction = reduced(components.taken(np.flatnonzero(agrees & voice)), experts)
        cost = nearest_cost(components, reduction.experts)
        before, agrees = agrees, ~_is_foreign(cost, pool.rows, pool, voice & agrees)
        if np.array_equal(before, agrees):
            break
    return Verdict(agrees, cost)


def _voters(pool: Pool, copied: dict[int, int], K: int) -> list[int]:
    """Sites that make the consensus: those with enough experts, or all where these are too few for a majority."""
    everyone = [m for m in range(pool.M) if m not in copied]
    complete = [m for m in everyone if pool.models[m].mixture.K >= K]
    return complete if len(complete) >= 3 else everyone


def nearest_cost(components: Components, experts: Any) -> Array:
    """Cost of each component at the nearest of ``experts``, ``(L,)``."""
    return np.asarray(components.costs(experts).min(axis=1))


def candidates(sites: IntArray) -> tuple[IntArray, IntArray]:
    """Sites that are tried as a consensus, and those whose distance to it is taken, both spread over ``sites``."""
    tried, asked = (np.linspace(0, len(sites), min(most, len(sites)), endpoint=False) for most in (CANDIDATES, ASKED))
    return sites[tried.astype(int)], sites[asked.astype(int)]


def _medoid(pool: Pool, sites: list[int]) -> int:
    """The site to whose experts the median site is nearest, of a few spread over ``sites``."""
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
    """Components whose cost is far above that of ``honest`` ones, both in total and per row.

    In total, because small sites pay more per row; per row, because where sites truly differ large ones pay more.
    """
    experts = pool.models[0].mixture.experts
    parameters = experts.parameter_count / experts.K
    per_row = cost / np.maximum(mass, 1.0)
    if not honest.any():
        return np.zeros(len(cost), dtype=bool)
    total = np.maximum(cost, 0.5 * parameters)
    far: Mask = is_far(total, honest, FOREIGN, parameters) & is_far(per_row, honest, FOREIGN, parameters)
    return far & (per_row > LEAST_FOREIGN)


def is_far(cost: Array, known: Mask, times: float, parameters: float) -> Mask:
    """Costs far above those of the ``known`` ones, most of which are honest: by a factor that grows with their scatter.

    Twice the cost of an honest model is about chi-square with as many degrees of freedom as it has ``parameters``; what
    its logarithm scatters beyond that says how much honest sites differ. Bad ones are at the upper end, so that centre
    and scatter are read off at the quantiles 0.2 and 0.4.
    """
    logs = np.log(np.maximum(cost, np.finfo(float).tiny))
    low, middle = np.quantile(logs[known], [0.2, 0.4])
    excess = np.sqrt(max(((middle - low) / QUANTILE_GAP) ** 2 - 2 / parameters, 0.0))
    return np.asarray(logs > middle + max(np.log(times), DEVIATIONS * excess))


def influences(pool: Pool, labels: IntArray, used: Mask, K: int) -> tuple[Array, Array]:
    """How far each component moves its expert, by a downdate at the fixed plan, in root mean square standard errors.

    ``b - b₋ₗ = (J - J_l)⁻¹ J_l (b_l - b)``, measured in ``J = Σ_l J_l``; beside it what an honest component of its size
    does on average, ``√(s / (1 - s))`` for its share ``s`` of the information.

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
        J, b = unpack(pool.precision[mine]), pool.coefficients[mine]
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
    """``A_l⁻¹ b_l``, ``(L, f)``; NaN for all where one of ``A (L, f, f)`` is singular."""
    try:
        return np.asarray(np.linalg.solve(A, b[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)
