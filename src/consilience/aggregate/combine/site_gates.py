"""Combine the gates of many sites, with detection of outlying gates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.trust import PASSES, candidates, is_far
from consilience.model.gates import Gate
from consilience.numerics.arrays import Array, IntArray, Mask

FOREIGN = 10.0
"""Multiple of the usual cost above which a gate is outlying."""
LEVELS = np.array([0.2, 0.4])
"""Levels of the quantiles of log costs for their scatter: the smallest are those of the gate that is the consensus."""
CONTRADICTED = 0.1
"""Maximum fraction of labels that a gate may assign differently from the site's own counts."""
THINNED = 7
"""Thinning factor of the points for the initial gate."""


def agreed_gate(pool: Pool, labels: IntArray, heard: Mask, K: int, *, ridge: Array) -> tuple[Gate, Mask]:
    """Fit the gate to those of the sites ``heard`` that agree with it; return it with these sites.

    Starting from the gate of the medoid site, sites with outlying gates are excluded and the gate is fitted to the
    rest, until the set of sites no longer changes.
    """
    softmax, trusted = _medoid(pool, labels, heard, K), heard
    for _ in range(PASSES):
        before, trusted = trusted, heard & ~foreign_gates(pool, gate_costs(pool, softmax, labels, heard), softmax)
        panel, target = pool.targets(labels, K, trusted)
        softmax = softmax.fitted(panel, target, ridge=ridge)
        if np.array_equal(before, trusted):
            break
    return softmax, trusted


def _medoid(pool: Pool, labels: IntArray, sites: Mask, K: int) -> Gate:
    """Return the gate of the medoid site, among a few spread over ``sites``.

    Its experts are those that the site's experts were assigned to; gates of experts with the same label are averaged.
    """
    tried, asked = candidates(np.flatnonzero(sites))
    pool = replace(pool, points=tuple(part.thinned(THINNED) for part in pool.points))
    gates: list[Gate] = [pool.models[m].mixture.gate.relabelled(labels[pool.own[m]], K) for m in tried]
    weight = np.array([model.weight for model in pool.models])
    among = np.isin(np.arange(pool.M), asked)
    medians = [np.nanmedian(gate_costs(pool, gate, labels, among) / weight) for gate in gates]
    return gates[int(np.argmin(medians))]


def gate_costs(pool: Pool, combined: Gate, labels: IntArray, sites: Mask) -> Array:
    """Compute the cost ``n_m E_m KL(π^m ‖ ρ)`` of the combined gate for each of ``sites``, ``(M,)``; NaN for others."""
    costs = np.full(pool.M, np.nan)
    for part, panel in zip(pool.points, pool.gate_panels, strict=True):
        log_rho, _ = combined.evaluate(panel)
        for m in (m for m in part.members if sites[m]):
            at, weight = part.places(m)
            gate = np.zeros((combined.K, len(weight)))
            np.add.at(gate, labels[pool.own[m]], pool.models[m].mixture.gate.evaluate(panel[:, at])[1])
            log_gate = np.log(np.maximum(gate, np.finfo(float).tiny))
            costs[m] = float(np.sum(weight * gate * (log_gate - log_rho[:, at])))
    return costs


def constant_gate_costs(pool: Pool, combined: Gate, labels: IntArray, sites: Mask) -> Array:
    """Compute costs ``Σ_k n_mk log(π^m_k / ρ_k)`` of combined weights for each of ``sites``, ``(M,)``, else NaN."""
    costs = np.full(pool.M, np.nan)
    for m in np.flatnonzero(sites):
        counts = np.bincount(labels[pool.own[m]], pool.models[m].label_counts, combined.K)
        ratio = counts / counts.sum() / combined.read()[:, 0]
        costs[m] = float(np.sum(counts * np.log(np.where(counts > 0, ratio, 1.0))))
    return costs


def foreign_gates(pool: Pool, costs: Array, gate: Gate) -> Mask:
    """Detect sites whose gate costs far more than others, in total and per row, and is not merely sharp.

    Gates of honest sites that are nearly separated have costs many times those of others, but less than ``log K`` per
    row, the maximum for a label, and they agree with the site's own counts of labels.
    """
    known = np.isfinite(costs)
    if known.sum() < 3:
        return np.zeros(len(costs), dtype=bool)
    weight, P = np.array([model.weight for model in pool.models]), gate.parameter_count
    total, per_row = np.maximum(np.nan_to_num(costs), 0.5 * P), np.nan_to_num(costs / weight)
    far = known & is_far(total, known, FOREIGN, P, LEVELS) & is_far(per_row, known, FOREIGN, P, LEVELS)
    strange = [bool(far[m]) and (per_row[m] > np.log(gate.K) or _contradicts(pool, m)) for m in range(pool.M)]
    return np.array(strange, dtype=bool)


def _contradicts(pool: Pool, m: int) -> bool:
    """Whether a site's gate implies other weights than the site's label counts; a fitted gate does not."""
    model, (panel, weight) = pool.models[m], pool.points_of(m)
    shares = model.mixture.gate.evaluate(panel)[1] @ weight / weight.sum()
    return bool(0.5 * np.abs(shares - model.label_counts / model.label_counts.sum()).sum() > CONTRADICTED)
