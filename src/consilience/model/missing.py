"""Missing information due to unobserved labels: ``Σ Cov_τ(complete score)`` over labels.

A complete score is a stack of entries, each belonging to one expert: gate entries ``x`` (or 1 for a constant gate),
coefficient entries ``a x``, shape entries. For two entries s, t with owners k, l

    Cov_τ = s t τ_k (1[k = l] - τ_l),

so that with ``U = τ s`` all blocks, gate and experts alike, are ``Σ U sᵀ`` within an owner minus ``Σ U Uᵀ``. There are
two ways to sum them: products of full scores, for rows and groups; and for rows, where every entry is a number times
``x`` or times 1, moments of the covariates under the products of those numbers, which share the work of a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model import multinomial
from consilience.model.information import gate_slice, owners, tied
from consilience.model.kernels import Products
from consilience.model.mixture import Mixture
from consilience.model.moments import Layout, Moments, ProductWeights
from consilience.model.posterior import Posterior
from consilience.model.rows import Block
from consilience.numerics.arrays import Array, IntArray, triangle_size, upper_triangle

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
    return tied(missing, mixture)


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
    return tied(np.block([[linear, cross], [cross.T, moments.plain.reshape(m, m)]]), mixture)


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
