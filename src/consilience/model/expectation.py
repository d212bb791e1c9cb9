"""A pass over the data: rows in, statistics out."""

from __future__ import annotations

import numpy as np

from consilience.model.information import (
    assemble,
    group_information,
    information_layout,
    information_weights,
    observed_scores,
)
from consilience.model.kernels import first_moments, second_moments
from consilience.model.mixture import Mixture
from consilience.model.moments import Moments, Weights
from consilience.model.posterior import Posterior, posterior
from consilience.model.rows import Block, Rows
from consilience.model.statistics import Statistics, layout_of
from consilience.numerics.arrays import Array


def expect(mixture: Mixture, rows: Rows, *, information: bool = False, given: Array | None = None) -> Statistics:
    """E-step: the statistics of ``rows`` at ``mixture``, in one pass over blocks of rows.

    Parameters
    ----------
    mixture : Mixture
    rows : Rows
    information : bool
        Whether to add the observed information ``J (P, P)``, at about twice the cost.
    given : (K, m) array or None
        Responsibilities to use in place of the mixture's own: the way a start is made from labels.

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
    total = layout_of(mixture).zeros(information=False)
    by_moments = information and rows.groups is None
    moments = information_layout(mixture).zeros() if by_moments else None
    J = np.zeros((mixture.parameter_count, mixture.parameter_count)) if information and not by_moments else None
    done = 0
    for block in rows.blocks(mixture.design, mixture.block_size()):
        fixed = None if given is None else given[:, done : done + _labels(block)]
        done += _labels(block)
        at = posterior(mixture.gate, mixture.experts, block, fixed)
        extra = information_weights(mixture, at) if by_moments else None
        statistics, informed = block_statistics(mixture, block, at, extra)
        total = total + statistics
        if moments is not None and informed is not None:
            moments = moments + informed
        if J is not None:
            J += group_information(mixture, block, at)
    if moments is not None:
        J = assemble(moments, mixture)
    return Statistics(total.gate, total.experts, total.log_likelihood, total.absolute, total.weight, J)


def _labels(block: Block) -> int:
    return block.panel.shape[1] if block.groups is None else len(block.groups.starts)


def block_statistics(
    mixture: Mixture, block: Block, at: Posterior, extra: Weights | None
) -> tuple[Statistics, Moments | None]:
    """Statistics of one block; the moments of ``extra`` weights share the block's products."""
    p = mixture.design.p
    weighted = at.tau if isinstance(at.mass, float) else at.tau * at.mass
    gate = mixture.gate.weights(at.pi, weighted, at.mass, p)
    experts = mixture.experts.weights(at.at, at.row_tau, p)
    if block.groups is None:
        parts = [gate, experts] if extra is None else [gate, experts, extra]
        summed = moments_of(block, parts)
    else:
        summed = [*moments_of(block, [gate], at.gate_panel), *moments_of(block, [experts])]
    ll = at.log_density * at.mass
    weight = float(np.sum(at.mass)) if not isinstance(at.mass, float) else float(len(ll))
    statistics = Statistics(summed[0], summed[1], float(ll.sum()), float(np.abs(ll).sum()), weight)
    return statistics, summed[2] if extra is not None else None


def moments_of(block: Block, parts: list[Weights], panel: Array | None = None) -> list[Moments]:
    """Moments of several parts' weights in one product each for ``x`` and ``x xᵀ``."""
    panel = block.panel if panel is None else panel
    first = first_moments(panel, np.concatenate([part.first for part in parts]))
    rows = [part.second for part in parts]
    wanted = np.concatenate(rows) if len(rows) > 1 else rows[0]
    second = second_moments(panel, wanted, block.workspace)
    firsts = np.split(first, np.cumsum([len(part.first) for part in parts])[:-1])
    seconds = np.split(second, np.cumsum([len(part.second) for part in parts])[:-1])
    return [Moments(part.plain, f, s) for part, f, s in zip(parts, firsts, seconds, strict=True)]


def score_products(mixture: Mixture, rows: Rows) -> Array:
    """``Σ w s sᵀ`` over rows, or ``Σ_g s_g s_gᵀ`` over groups, ``(P, P)``: the meat of the sandwich."""
    meat = np.zeros((mixture.parameter_count, mixture.parameter_count))
    for block, at in mixture.posteriors(rows):
        S = observed_scores(mixture, block, at)
        meat += (S * at.mass) @ S.T
    return meat
