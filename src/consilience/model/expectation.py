"""The E-step: sufficient statistics from one pass over the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.model.information import complete_information, is_informable
from consilience.model.kernels import first_moments, second_moments
from consilience.model.missing import (
    has_short_scores,
    missing_from_moments,
    missing_information,
    missing_layout,
    missing_weights,
    observed_scores,
)
from consilience.model.mixture import Mixture, layout_of, score_layout
from consilience.model.moments import Moments, Weights
from consilience.model.posterior import Posterior, posterior
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array


def expect(mixture: Mixture, rows: Rows, *, information: bool = False, given: Array | None = None) -> Statistics:
    """E-step: compute the statistics of ``rows`` at ``mixture``, in one pass over blocks of rows.

    Parameters
    ----------
    mixture : Mixture
    rows : Rows
    information : bool
        Whether to add the observed information ``J (P, P)``, at about twice the cost; raises an error unless
        :func:`~consilience.model.information.is_informable`.
    given : (K, m) array or None
        Responsibilities to use instead of the mixture's own, as starts from labels do.

    Returns
    -------
    Statistics
        Sums over all rows.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(500, random_state=0)
    >>> statistics = expect(data.truth, Rows(data.X, data.y[:, None]))
    >>> statistics.weight, statistics.experts.second.shape
    (500.0, (4, 231))
    """
    if information and not is_informable(mixture):
        raise ValueError(f"no information for {mixture.parameter_count} parameters: check is_informable first")
    short = information and rows.groups is None and has_short_scores(mixture)
    total: Statistics | None = None
    missing: Moments | Array | None = None
    if information:
        missing = missing_layout(mixture).zeros() if short else np.zeros((mixture.parameter_count,) * 2)
    done = 0
    for block in rows.blocks(mixture.design, mixture.block_size(information=information), mixture.gate_design):
        m = block.label_count
        at = posterior(mixture.gate, mixture.experts, block, None if given is None else given[:, done : done + m])
        done += m
        statistics, *extra = block_statistics(mixture, block, at, [missing_weights(mixture, at)] if short else [])
        total = statistics if total is None else total + statistics
        if isinstance(missing, Moments):
            missing = missing + extra[0]
        elif missing is not None:
            missing = missing + missing_information(mixture, block, at)
    if total is None:  # no rows
        total = layout_of(mixture).zeros(information=False)
    if missing is None:
        return total
    matrix = missing_from_moments(missing, mixture) if isinstance(missing, Moments) else missing
    return replace(total, information=complete_information(mixture, total) - matrix)


def score_sums(mixture: Mixture, rows: Rows) -> Statistics:
    """Compute the statistics of ``rows`` at ``mixture`` without any ``x xᵀ``, as a gradient step needs them.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(500, random_state=0)
    >>> statistics = score_sums(data.truth, Rows(data.X, data.y[:, None]))
    >>> statistics.experts.first.shape, statistics.experts.second.shape
    ((4, 21), (0, 231))
    """
    total = score_layout(mixture).zeros(information=False)
    for block, at in mixture.posteriors(rows):
        total = total + block_statistics(mixture, block, at, [], curvature=False)[0]
    return total


def block_statistics(
    mixture: Mixture, block: Block, at: Posterior, extra: list[Weights], *, curvature: bool = True
) -> tuple[Statistics, *tuple[Moments, ...]]:
    """Compute the statistics of a block without information, and the moments of extra weights in the same products."""
    p = mixture.design.p
    weighted = at.tau if isinstance(at.mass, float) else at.tau * at.mass
    gate = mixture.gate.weights(at.pi, weighted, at.mass, mixture.reads.p)
    experts = mixture.experts.weights(at.at, at.row_tau, p)
    if not curvature:
        gate, experts = (replace(part, second=part.second[:0]) for part in (gate, experts))
    if at.gate_panel is block.panel:
        summed = moments_of(block, [gate, experts, *extra])
    else:
        summed = [*moments_of(block, [gate], at.gate_panel), *moments_of(block, [experts, *extra])]
    ll = at.log_density * at.mass
    weight = float(len(ll)) if isinstance(at.mass, float) else float(at.mass.sum())
    statistics = Statistics(summed[0], summed[1], float(ll.sum()), float(np.abs(ll).sum()), weight)
    return statistics, *summed[2:]


def moments_of(block: Block, parts: list[Weights], panel: Array | None = None) -> list[Moments]:
    """Compute the moments of several weight sets in one product each for ``x`` and ``x xᵀ``."""
    panel = block.panel if panel is None else panel
    first = first_moments(panel, np.concatenate([part.first for part in parts]))
    second = second_moments(panel, np.concatenate([part.second for part in parts]), block.workspace)
    moments, g, h = [], 0, 0
    for part in parts:
        to_g, to_h = g + len(part.first), h + len(part.second)
        moments.append(Moments(part.plain, first[g:to_g], second[h:to_h]))
        g, h = to_g, to_h
    return moments


def score_products(mixture: Mixture, rows: Rows) -> Array:
    """Compute ``Σ w s sᵀ`` over rows, or ``Σ_g s_g s_gᵀ`` over groups, ``(P, P)``: the meat of the sandwich."""
    meat = np.zeros((mixture.parameter_count, mixture.parameter_count))
    for block, at in mixture.posteriors(rows):
        S = observed_scores(mixture, block, at)
        meat += (S * at.mass) @ S.T
    return meat
