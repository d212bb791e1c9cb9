"""The E-step: sufficient statistics, and the missing information, from one pass over the rows.

Missing information due to unobserved labels: ``Σ Cov_τ(complete score)`` over labels.

A complete score is a stack of entries, each belonging to one expert: gate entries ``x`` (or 1 for a constant gate),
coefficient entries ``a x``, shape entries. For two entries s, t with owners k, l

    Cov_τ = s t τ_k (1[k = l] - τ_l),

so that with ``U = τ s`` all blocks, gate and experts alike, are ``Σ U sᵀ`` within an owner minus ``Σ U Uᵀ``. There are
two ways to sum them: products of full scores, for rows and groups; and for rows, where every entry is a number times
``x`` or times 1, moments of the covariates under the products of those numbers, which share the work of a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.model import multinomial
from consilience.model.information import (
    coefficient_slice,
    complete_information,
    gate_slice,
    is_informable,
    owners,
    tie_shapes,
)
from consilience.model.kernels import Products, Workspace
from consilience.model.mixture import Mixture, Posterior, layout_of, posterior, score_layout
from consilience.model.rows import Block, Piece, Rows
from consilience.model.statistics import Additive, Layout, Moments, ProductWeights, Statistics, Weights
from consilience.numerics.arrays import Array, IntArray, triangle_size, unpack, upper_triangle
from consilience.numerics.linalg import solve_symmetric
from consilience.numerics.threads import in_order

# ---------------------------------------------------------------------- full scores: rows or groups


def complete_scores(mixture: Mixture, block: Block, at: Posterior) -> tuple[Array, IntArray]:
    """Compute the complete score of each label of a block, before tying and without the gate's ``π`` term.

    Returns
    -------
    S : (P, m) array
        Entries sorted by owner, stably, as in ``owners(mixture)``.
    bounds : (K + 1,) array of int
        Offset of each owner's entries.
    """
    scores = mixture.experts.scores(at.at)
    owner = np.sort(owners(mixture))
    bounds = np.searchsorted(owner, np.arange(mixture.K + 1))
    S = block.workspace.array("scores", len(owner), at.tau.shape[1])
    gate = at.gate_panel if mixture.gate.reads_covariates else np.ones((1, at.tau.shape[1]))
    for k in range(mixture.K):
        linear = (scores.linear[k][:, None] * block.panel).reshape(-1, block.panel.shape[1])
        parts = [gate if k < mixture.K - 1 else gate[:0], _summed(linear, block)]
        ordered = parts if mixture.gate.reads_covariates else parts[::-1]
        np.concatenate([*ordered, _summed(scores.shape[k], block)], out=S[bounds[k] : bounds[k + 1]])
    return S, bounds


def _summed(rows: Array, block: Block) -> Array:
    """Return scores of rows unchanged; with groups, the weighted sum over each group's rows."""
    if block.groups is None:
        return rows
    weighted = rows if block.weight is None else rows * block.weight
    return np.add.reduceat(weighted, block.groups.starts, axis=1)


def missing_information(mixture: Mixture, block: Block, at: Posterior) -> Array:
    """Compute ``Σ Cov_τ(complete score)`` over the labels of a block, ``(P, P)``."""
    S, bounds = complete_scores(mixture, block, at)
    U = block.workspace.array("responsible scores", *S.shape)
    return missing_of_scores(mixture, S, bounds, at.tau, at.mass, out=U)


def missing_of_scores(
    mixture: Mixture, S: Array, bounds: IntArray, tau: Array, mass: Array | float, *, out: Array | None = None
) -> Array:
    """Compute ``Σ Cov_τ(S)``, ``(P, P)``, for complete scores ``S (P, m)``, owners at offsets ``bounds (K + 1,)``."""
    U = np.empty_like(S) if out is None else out
    mine = [slice(bounds[k], bounds[k + 1]) for k in range(mixture.K)]
    for k, entries in enumerate(mine):
        np.multiply(S[entries], tau[k], out=U[entries])
    weighted = U if isinstance(mass, float) else U * mass
    sorted_missing = -(weighted @ U.T)
    for entries in mine:
        sorted_missing[entries, entries] += weighted[entries] @ S[entries].T
    missing = np.empty_like(sorted_missing)
    order = np.argsort(owners(mixture), kind="stable")
    missing[np.ix_(order, order)] = sorted_missing
    return tie_shapes(missing, mixture)


# ---------------------------------------------------------------------- short scores: row labels, as moments


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """Complete scores of rows in compact form: entries on ``x`` are ``linear ⊗ x``, others ``plain``; with owners."""

    linear: Array  # (M, n)
    linear_owner: IntArray
    plain: Array  # (m, n)
    plain_owner: IntArray


def row_counts(mixture: Mixture) -> tuple[int, int]:
    """Return the numbers M and m of compact score rows on ``x`` and on 1."""
    gate, softmax = mixture.K - 1, mixture.gate.reads_covariates
    M, m = mixture.K * mixture.experts.channels, mixture.K * mixture.experts.shapes
    return (M + gate, m) if softmax else (M, m + gate)


def has_short_scores(mixture: Mixture) -> bool:
    """Whether moments of compact scores are cheaper than products of full scores; all are on the same ``x``."""
    M, m = row_counts(mixture)
    return mixture.gate_design is None and triangle_size(M) + M * m <= mixture.parameter_count


def missing_layout(mixture: Mixture) -> Layout:
    """Return the shape of the moments of :func:`missing_weights`."""
    M, m = row_counts(mixture)
    return Layout(m * m, M * m, triangle_size(M), mixture.design.p)


def score_rows(mixture: Mixture, at: Posterior) -> ScoreRows:
    """Compute the compact scores of a block of n rows; gate rows are 1."""
    K, n = at.tau.shape
    scores, experts = mixture.experts.scores(at.at), mixture.experts
    linear, shape = scores.linear.reshape(-1, n), scores.shape.reshape(-1, n)
    linear_owner, shape_owner = np.repeat(np.arange(K), experts.channels), np.repeat(np.arange(K), experts.shapes)
    gate, gate_owner = np.ones((K - 1, n)), np.arange(K - 1)
    if mixture.gate.reads_covariates:
        return ScoreRows(np.vstack([gate, linear]), np.concatenate([gate_owner, linear_owner]), shape, shape_owner)
    return ScoreRows(linear, linear_owner, np.vstack([gate, shape]), np.concatenate([gate_owner, shape_owner]))


def missing_weights(mixture: Mixture, at: Posterior) -> ProductWeights:
    """Compute weights of ``x xᵀ``, ``x`` and 1 whose moments are the missing information of a block with row labels.

    With ``U = τ s``, the weight of two entries is ``-w U_i U_j``, or ``w U_i (s_j - U_j)`` if they have the same owner.
    """
    rows = score_rows(mixture, at)
    U, V = at.tau[rows.linear_owner] * rows.linear, at.tau[rows.plain_owner] * rows.plain
    wU, wV = (U, V) if isinstance(at.mass, float) else (U * at.mass, V * at.mass)
    i, j = upper_triangle(len(U))
    a, b = (part.ravel() for part in np.indices((len(U), len(V))))
    mine, mine_plain = rows.linear_owner[i] == rows.linear_owner[j], rows.linear_owner[a] == rows.plain_owner[b]
    second = Products(wU, _factors(U, rows.linear), i, j + len(U) * mine)
    first = Products(wU, _factors(V, rows.plain), a, b + len(V) * mine_plain)
    plain = (rows.plain_owner[:, None] == rows.plain_owner) * (wV @ rows.plain.T) - wV @ V.T
    return ProductWeights(plain.ravel(), first, second)


def _factors(U: Array, scores: Array) -> Array:
    """Compute ``-U`` and ``s - U``, stacked."""
    factors = np.empty((2 * len(U), U.shape[1]))
    np.negative(U, out=factors[: len(U)])
    np.subtract(scores, U, out=factors[len(U) :])
    return factors


def missing_from_moments(moments: Moments, mixture: Mixture) -> Array:
    """Compute the missing information ``(P, P)`` from the moments of :func:`missing_weights`."""
    M, m = row_counts(mixture)
    p = mixture.design.p
    cross = moments.first.reshape(M, m, p).transpose(0, 2, 1).reshape(M * p, m)
    linear = multinomial.blocks_to_matrix(moments.second, M, p)
    return tie_shapes(np.block([[linear, cross], [cross.T, moments.plain.reshape(m, m)]]), mixture)


def observed_scores(mixture: Mixture, block: Block, at: Posterior) -> Array:
    """Compute the score of each label's log density, ``(P, m)``, not multiplied by the label's weight."""
    owner = owners(mixture)
    order = np.argsort(owner, kind="stable")
    S = np.empty((len(owner), at.tau.shape[1]))
    S[order] = at.tau[owner[order]] * complete_scores(mixture, block, at)[0]
    gate_rows = at.gate_panel if mixture.gate.reads_covariates else np.ones((1, at.tau.shape[1]))
    pi = np.broadcast_to(at.pi, at.tau.shape)[:-1]
    S[gate_slice(mixture)] -= (pi[:, None] * gate_rows).reshape(-1, at.tau.shape[1])
    T = mixture.experts.tie()
    head = len(S) - len(T)
    return np.vstack([S[:head], T.T @ S[head:]])


# ---------------------------------------------------------------- expectation

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
    >>> from consilience.model import Rows, expect
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
    """Compute the statistics of ``rows`` at ``mixture`` without any ``x xᵀ``, as a gradient step needs them."""
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


@dataclass(frozen=True, eq=False)
class Meat(Additive):
    """Sums of products of scores at a mixture: the meat of the sandwich.

    Parameters
    ----------
    products : (P, P) array
    weight : float
        Total weight of the rows, or number of groups.
    clusters : float
        Number of clusters within which scores were summed first; 0 if rows have none.
    """

    products: Array
    weight: float
    clusters: float


def score_products(mixture: Mixture, rows: Rows, second: Array | None = None) -> Meat:
    """Compute ``Σ w s sᵀ`` over rows, ``Σ_g s_g s_gᵀ`` over groups, or ``Σ_c (Σ w s) (Σ w s)ᵀ`` over clusters.

    Parameters
    ----------
    mixture : Mixture
    rows : Rows
    second : (h, p (p + 1) / 2) array or None
        The experts' second moments at ``mixture``, ``Σ w τ_k v_k x xᵀ`` with the curvature ``v`` of the family (1 for
        Gaussian experts), over all rows of the fit. If given, the scores of the coefficients of expert k are divided
        by ``1 - h_ik``, where ``h_ik = τ_ik v_ik x_iᵀ (Σ w τ_k v_k x xᵀ)⁻¹ x_i`` is the leverage of the row (HC3): a
        fit follows the rows of high leverage, whose residuals are then too small. For a group it is the sum over its
        rows, divided by the smaller of their weight and of the number of the covariates: the mean over the directions
        that the group informs. Scores that are summed over clusters are not divided.
    """
    P, at_coefficients = mixture.parameter_count, coefficient_slice(mixture)
    codes = rows.label_clusters()
    designs = None if second is None or codes is not None else _designs(mixture, second)
    meat, weight, done = np.zeros((P, P)), 0.0, 0
    sums = np.zeros((0 if codes is None else int(codes.max(initial=-1)) + 1, P + 1))  # of scores and weights
    for block, at in mixture.posteriors(rows):
        S, mass = observed_scores(mixture, block, at), np.broadcast_to(at.mass, at.log_density.shape)
        weight += float(mass.sum())
        if codes is not None:
            np.add.at(sums, codes[done : done + len(mass)], (np.vstack([S, np.ones(len(mass))]) * mass).T)
            done += len(mass)
            continue
        if designs is not None:
            S[at_coefficients] /= 1 - np.minimum(_leverages(mixture, block, at, designs), MOST_LEVERAGE)
        meat += (S * mass) @ S.T
    return Meat(meat + sums[:, :-1].T @ sums[:, :-1], weight, float(np.count_nonzero(sums[:, -1])))


def _leverages(mixture: Mixture, block: Block, at: Posterior, designs: Array) -> Array:
    """Compute the leverage of each label in each coefficient, ``(K c p, m)``; over a group, the mean of directions."""
    p, shape = block.panel.shape[0], (mixture.K, block.panel.shape[1])
    curvature = mixture.experts.weights(at.at, np.ones(shape), p).second
    place = mixture.experts.curvature_rows()
    h = curvature[place] * np.stack([np.sum(block.panel * (M @ block.panel), axis=0) for M in designs])
    if block.groups is not None:
        starts, sizes = block.groups.starts, block.groups.sizes
        if block.weight is not None:
            h, sizes = h * block.weight, np.add.reduceat(block.weight, starts)
        h = np.add.reduceat(h, starts, axis=1) / np.clip(sizes, 1, max(p, 1))
    return np.repeat(np.repeat(at.tau, len(place) // mixture.K, axis=0) * h, p, axis=0)


def _designs(mixture: Mixture, second: Array) -> Array:
    """Compute ``(Σ w τ_k v_k x xᵀ)⁻¹`` of each linear predictor of each expert, ``(K c, p, p)``."""
    sums = unpack(second[mixture.experts.curvature_rows()])
    return np.array([solve_symmetric(M, np.eye(len(M)))[0] for M in sums])
