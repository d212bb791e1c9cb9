"""The E-step: sufficient statistics from one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.model.information import coefficient_slice, complete_information, is_informable
from consilience.model.kernels import Workspace
from consilience.model.missing import (
    has_short_scores,
    missing_from_moments,
    missing_information,
    missing_layout,
    missing_weights,
    observed_scores,
)
from consilience.model.mixture import Mixture, layout_of, score_layout
from consilience.model.moments import Moments, ProductWeights, Weights
from consilience.model.posterior import Posterior, posterior
from consilience.model.rows import Block, Piece, Rows
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import solve_symmetric
from consilience.numerics.threads import in_order

MOST_LEVERAGE = 0.95
"""Largest leverage by which scores are corrected: at 1 the fit passes through the row, whatever it says."""


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
    spare: list[Workspace] = []  # of threads that wait

    def of_piece(piece: Piece) -> tuple[Statistics, Moments | Array | None]:
        workspace = spare.pop() if spare else Workspace()
        block = rows.block(piece, mixture.design, mixture.gate_design, workspace)
        at = posterior(mixture.gate, mixture.experts, block, None if given is None else given[:, piece.labels])
        statistics, *extra = block_statistics(mixture, block, at, [missing_weights(mixture, at)] if short else [])
        other = missing_information(mixture, block, at) if information and not short else None
        spare.append(workspace)
        return statistics, extra[0] if short else other

    total: Statistics | None = None
    missing: Any = None  # Moments, or a matrix
    if information:
        missing = missing_layout(mixture).zeros() if short else np.zeros((mixture.parameter_count,) * 2)
    for statistics, extra in in_order(of_piece, rows.pieces(mixture.block_size(information=information))):
        total = statistics if total is None else total + statistics
        if information:
            missing = missing + extra
    if total is None:  # no rows
        total = layout_of(mixture).zeros(information=False)
    if not information:
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
    mixture: Mixture, block: Block, at: Posterior, extra: Sequence[ProductWeights], *, curvature: bool = True
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


def moments_of(block: Block, parts: Sequence[Weights | ProductWeights], panel: Array | None = None) -> list[Moments]:
    """Compute the moments of several weight sets in one product each for ``x`` and ``x xᵀ``."""
    panel = block.panel if panel is None else panel
    weights = [part.first for part in parts], [part.second for part in parts]
    first, second = block.kernel.moments(panel, *weights, block.workspace)
    moments, g, h = [], 0, 0
    for part in parts:
        to_g, to_h = g + len(part.first), h + len(part.second)
        moments.append(Moments(part.plain, first[g:to_g] if part.summed is None else part.summed, second[h:to_h]))
        g, h = to_g, to_h
    return moments


def score_products(mixture: Mixture, rows: Rows, *, by_leverage: bool = False) -> Array:
    """Compute ``Σ w s sᵀ`` over rows, or ``Σ_g s_g s_gᵀ`` over groups, ``(P, P)``: the meat of the sandwich.

    Parameters
    ----------
    mixture : Mixture
    rows : Rows
    by_leverage : bool
        Whether the scores of the coefficients of expert k are divided by ``1 - h_ik``, where
        ``h_ik = τ_ik x_iᵀ (Σ w τ_k x xᵀ)⁻¹ x_i`` is the leverage of the row (HC3): a fit follows the rows of high
        leverage, whose residuals are then too small. For a group it is the sum over its rows, divided by the smaller
        of their weight and of the number of the covariates: the mean over the directions that the group informs.
    """
    meat = np.zeros((mixture.parameter_count, mixture.parameter_count))
    at_coefficients = coefficient_slice(mixture)
    designs = _designs(mixture, rows) if by_leverage else None
    for block, at in mixture.posteriors(rows):
        S = observed_scores(mixture, block, at)
        if designs is not None:
            share = 1 - np.minimum(at.tau * _leverages(block, designs), MOST_LEVERAGE)
            S[at_coefficients] /= np.repeat(share, (at_coefficients.stop - at_coefficients.start) // mixture.K, axis=0)
        meat += (S * at.mass) @ S.T
    return meat


def _leverages(block: Block, designs: list[Array]) -> Array:
    """Compute ``xᵀ M_k x`` of each row, or its mean over the directions that a group informs, ``(K, m)``."""
    h = np.stack([np.sum(block.panel * (M @ block.panel), axis=0) for M in designs])
    if block.groups is None:
        return h
    starts, sizes = block.groups.starts, block.groups.sizes
    if block.weight is not None:
        h, sizes = h * block.weight, np.add.reduceat(block.weight, starts)
    return np.asarray(np.add.reduceat(h, starts, axis=1) / np.clip(sizes, 1, len(designs[0])))


def _designs(mixture: Mixture, rows: Rows) -> list[Array]:
    """Compute ``(Σ w τ_k x xᵀ)⁻¹`` of each expert."""
    p = mixture.design.p
    sums = np.zeros((mixture.K, p, p))
    for block, at in mixture.posteriors(rows):
        for k, tau in enumerate(at.row_tau):
            sums[k] += (block.panel * tau) @ block.panel.T
    return [solve_symmetric(M, np.eye(p))[0] for M in sums]
