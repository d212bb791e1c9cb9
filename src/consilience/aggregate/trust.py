"""Which sites to believe: experts that are like no other site's, gates that are, copies, and too much influence.

Sites are compared with a consensus that a minority cannot move, in the divergence that the reduction minimises: how
much likelihood a site's rows would lose, by its own account, if the consensus stood for its model. An honest site loses
about half a unit per parameter whatever its covariates, so sites whose patients differ are not suspects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.aggregate.components import Components, GaussianComponents, SupportComponents
from consilience.aggregate.pool import Pool
from consilience.aggregate.reduce import reduced
from consilience.model.gates import ConstantGate, SoftmaxGate
from consilience.numerics.arrays import Array, Labels, Mask, unpack
from consilience.numerics.linalg import solve_symmetric

CANDIDATES = 20
"""Most sites that are tried as the first consensus."""
ASKED = 100
"""Most sites whose distance to each of them is taken."""
FOREIGN = 5.0
"""How many times the usual cost an expert may have; a gate ``FOREIGN_GATE`` times."""
FOREIGN_GATE = 10.0
LEAST_FOREIGN = 0.05
"""Cost per row below which no expert is foreign."""
DEVIATIONS = 4.0
"""Where costs scatter more than chance explains, this many standard deviations of their logarithms more."""
INFLUENTIAL = 5.0
"""How many times the shift of the combined experts that is usual for its size a site may cause."""
LOW = 0.25
"""A site's likelihood per row is low when it is this far below the median of the upper half of the sites."""
CONTRADICTED = 0.1
"""Share of the labels that a gate may misplace by the site's own count."""
PASSES = 5
QUANTILE_GAP = 0.588
"""Between the quantiles 0.2 and 0.4 of a standard normal."""
THINNED = 7
"""One in this many points is enough to find the gate to begin with."""
NO_SHARE = -20.0
"""Log odds of an expert that a site does not have."""
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


def judged(pool: Pool, copied: dict[int, int]) -> Verdict:
    """Compare every component with the consensus of those that agree, until that no longer changes.

    Parameters
    ----------
    pool : Pool
    copied : dict
        As from :func:`copies`: copies of a site do not help it to a majority.
    """
    components = pool.components
    voice = ~np.isin(pool.owner, list(copied))
    sites = [m for m in range(pool.M) if m not in copied]
    experts = pool.models[_medoid(pool, sites)].mixture.experts
    if len(sites) < 3:  # no majority, no verdict
        return Verdict(np.ones(len(pool.owner), dtype=bool), nearest_cost(components, experts))
    cost = nearest_cost(components, experts)
    agrees = ~_is_foreign(cost, pool.rows, pool, voice & (cost > 0))
    for _ in range(PASSES):
        reduction = reduced(taken(components, np.flatnonzero(agrees & voice)), experts)
        cost = nearest_cost(components, reduction.experts)
        before, agrees = agrees, ~_is_foreign(cost, pool.rows, pool, voice & agrees)
        if np.array_equal(before, agrees):
            break
    return Verdict(agrees, cost)


def nearest_cost(components: Components, experts: Any) -> Array:
    """Cost of each component at the nearest of ``experts``, ``(L,)``."""
    return np.asarray(components.costs(experts).min(axis=1))


def taken(components: Components, index: Labels) -> Components:
    """The components at ``index``, which is sorted."""
    if len(index) == len(components.mass):
        return components
    if isinstance(components, GaussianComponents):
        return components.taken(index)
    parts, first = [], 0
    for part in components.parts:
        mine = index[(index >= first) & (index < first + part.experts.K)] - first
        first += part.experts.K
        if len(mine):
            parts.append(type(part)(part.experts.permuted(mine), part.panel, part.mass[mine]))
    return SupportComponents(tuple(parts), components.per_row)


def _medoid(pool: Pool, sites: list[int]) -> int:
    """The site to whose experts the median site is nearest, of at most ``CANDIDATES`` spread over them."""
    places = np.linspace(0, len(sites), min(CANDIDATES, len(sites)), endpoint=False).astype(int)
    asked = np.array(sites)[np.linspace(0, len(sites), min(ASKED, len(sites)), endpoint=False).astype(int)]
    index = np.flatnonzero(np.isin(pool.owner, asked))
    components = taken(pool.components, index)
    mass = np.bincount(pool.owner[index], pool.rows[index], pool.M)[asked]
    medians = []
    for place in places:
        experts = pool.models[sites[place]].mixture.experts
        costs = np.bincount(pool.owner[index], nearest_cost(components, experts), pool.M)[asked]
        others = asked != sites[place]
        medians.append(np.median((costs / mass)[others]) if others.any() else 0.0)
    return sites[int(places[int(np.argmin(medians))])]


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
    far: Mask = _is_far(total, honest, FOREIGN, parameters) & _is_far(per_row, honest, FOREIGN, parameters)
    return far & (per_row > LEAST_FOREIGN)


def _is_far(cost: Array, known: Mask, times: float, parameters: float) -> Mask:
    """Costs far above those of the ``known`` ones, most of which are honest: by a factor that grows with their scatter.

    Twice the cost of an honest model is about chi-square with as many degrees of freedom as it has ``parameters``; what
    its logarithm scatters beyond that says how much honest sites differ. Bad ones are at the upper end, so that centre
    and scatter are read off at the quantiles 0.2 and 0.4.
    """
    logs = np.log(np.maximum(cost, np.finfo(float).tiny))
    low, middle = np.quantile(logs[known], [0.2, 0.4])
    excess = np.sqrt(max(((middle - low) / QUANTILE_GAP) ** 2 - 2 / parameters, 0.0))
    return np.asarray(logs > middle + max(np.log(times), DEVIATIONS * excess))


def gate_medoid(pool: Pool, labels: Labels, sites: Mask, K: int) -> SoftmaxGate:
    """The gate of the site to which the gates of the median site are nearest, of at most ``CANDIDATES``.

    Its experts are those that the site's experts went to; where several went to one, their gates are averaged.
    """
    known = np.flatnonzero(sites)
    places = np.linspace(0, len(known), min(CANDIDATES, len(known)), endpoint=False).astype(int)
    asked = np.zeros(pool.M, dtype=bool)
    asked[known[np.linspace(0, len(known), min(ASKED, len(known)), endpoint=False).astype(int)]] = True
    pool = replace(pool, points=tuple(part.thinned(THINNED) for part in pool.points))
    gates = [_relabelled(pool, int(known[place]), labels, K) for place in places]
    weight = np.array([model.weight for model in pool.models])
    medians = [np.nanmedian(gate_costs(pool, gate, labels, asked) / weight) for gate in gates]
    return gates[int(np.argmin(medians))]


def _relabelled(pool: Pool, m: int, labels: Labels, K: int) -> SoftmaxGate:
    """The gate of a site for the combined experts; an expert that none of its own went to has next to no share."""
    own, gate = labels[pool.owner == m], pool.models[m].mixture.gate
    alpha = np.zeros((K, pool.design.p))
    alpha[:, 0] = NO_SHARE
    if isinstance(gate, SoftmaxGate):
        for k in np.unique(own):
            alpha[k] = gate.alpha[own == k].mean(axis=0)
    return SoftmaxGate(alpha - alpha.mean(axis=0))


def gate_costs(pool: Pool, combined: SoftmaxGate, labels: Labels, sites: Mask) -> Array:
    """``n_m E_m KL(π^m ‖ ρ)`` of each of ``sites``, ``(M,)``: what the combined gate costs it; NaN for other sites."""
    costs = np.full(pool.M, np.nan)
    for part, panel in zip(pool.points, pool.panels, strict=True):
        log_rho, _ = combined.evaluate(panel)
        for j, m in enumerate(part.members):
            if sites[m]:
                own = part.owner == m
                at = own if own.any() else np.ones(len(own), dtype=bool)
                weight = part.weight[at] * (1.0 if own.any() else part.share[j, at])
                gate = np.zeros((combined.K, int(at.sum())))
                np.add.at(gate, labels[pool.owner == m], pool.models[m].mixture.gate.evaluate(panel[:, at])[1])
                log_gate = np.log(np.maximum(gate, np.finfo(float).tiny))
                costs[m] = float(np.sum(weight * gate * (log_gate - log_rho[:, at])))
    return costs


def constant_gate_costs(pool: Pool, combined: ConstantGate, labels: Labels, sites: Mask) -> Array:
    """``Σ_k n_mk log(π^m_k / ρ_k)`` of each of ``sites``, ``(M,)``: what the combined shares cost it, else NaN."""
    costs = np.full(pool.M, np.nan)
    for m in np.flatnonzero(sites):
        counts = np.bincount(labels[pool.owner == m], pool.models[m].labels, combined.K)
        ratio = counts / counts.sum() / combined.probabilities
        costs[m] = float(np.sum(counts * np.log(np.where(counts > 0, ratio, 1.0))))
    return costs


def foreign_gates(pool: Pool, costs: Array, gate: SoftmaxGate) -> Mask:
    """Sites whose gate costs far more than those of others, in total and per row, and that is not just sharp.

    Gates of honest sites that are nearly separated lose many times what others do. But they lose less than ``log K`` a
    row, all there is to know about a label, and they agree with the site's own counts of labels.
    """
    known = np.isfinite(costs)
    if known.sum() < 3:
        return np.zeros(len(costs), dtype=bool)
    weight, P = np.array([model.weight for model in pool.models]), gate.parameter_count
    total, per_row = np.maximum(np.nan_to_num(costs), 0.5 * P), np.nan_to_num(costs / weight)
    far = known & _is_far(total, known, FOREIGN_GATE, P) & _is_far(per_row, known, FOREIGN_GATE, P)
    strange = [bool(far[m]) and (per_row[m] > np.log(gate.K) or _contradicts(pool, m)) for m in range(pool.M)]
    return np.array(strange, dtype=bool)


def _contradicts(pool: Pool, m: int) -> bool:
    """Whether the gate of a site gives its experts other shares than the site counts: a fitted gate does not."""
    model = pool.models[m]
    part = next(part for part in pool.points if m in part.members)
    X, weight = part.of(m)
    shares = model.mixture.gate.evaluate(pool.design.panel(X))[1] @ weight / weight.sum()
    return bool(0.5 * np.abs(shares - model.labels / model.labels.sum()).sum() > CONTRADICTED)


def influences(pool: Pool, labels: Labels, used: Mask, K: int) -> tuple[Array, Array]:
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
