r"""Score and observed information of a mixture, by Louis' identity.

``J = Σ_i { E_τ[complete information] - Cov_τ(complete score) }``. A complete score is a stack of *rows*: each row
belongs to one expert (its owner ``k``), has a coefficient ``a`` and acts on ``x`` (coefficients of gate and experts) or
on nothing (shapes, and a constant gate). A gate row has ``a = 1``. For two rows with owners k and l

    Cov_τ = a_i a_j τ_k (1[k = l] - τ_l),

so that all blocks, gate and experts alike, come from one formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model import multinomial
from consilience.model.kernels import first_moments, second_moments
from consilience.model.mixture import Mixture
from consilience.model.moments import Layout, Moments, Weights
from consilience.model.penalty import Penalty
from consilience.model.posterior import Posterior
from consilience.model.rows import Block
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, Labels, triangle_size


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """Rows of the complete score over a block: coefficients and owners, acting on ``x`` and on nothing."""

    linear: Array  # (M, n)
    linear_owner: Labels  # (M,)
    plain: Array  # (m, n)
    plain_owner: Labels  # (m,)


def row_counts(mixture: Mixture) -> tuple[int, int]:
    """Numbers of score rows that act on ``x`` and on nothing."""
    K, experts = mixture.K, mixture.experts
    gate = K - 1
    linear = K * experts.channels + (gate if mixture.gate.reads_covariates else 0)
    return linear, K * experts.shapes + (0 if mixture.gate.reads_covariates else gate)


def information_layout(mixture: Mixture) -> Layout:
    """Shape of the moments that make up the information for row labels."""
    M, m = row_counts(mixture)
    return Layout(m * m, M * m, triangle_size(M), mixture.design.p)


def score_rows(mixture: Mixture, at: Posterior) -> ScoreRows:
    """The rows of the complete score at a block of n rows."""
    K, n = at.row_tau.shape
    scores = mixture.experts.scores(at.at)
    linear, shape = scores.linear.reshape(-1, n), scores.shape.reshape(-1, n)
    linear_owner = np.repeat(np.arange(K), mixture.experts.channels)
    shape_owner = np.repeat(np.arange(K), mixture.experts.shapes)
    ones, gate_owner = np.ones((K - 1, n)), np.arange(K - 1)
    if mixture.gate.reads_covariates:
        return ScoreRows(np.vstack([ones, linear]), np.concatenate([gate_owner, linear_owner]), shape, shape_owner)
    return ScoreRows(linear, linear_owner, np.vstack([ones, shape]), np.concatenate([gate_owner, shape_owner]))


def _position(M: int) -> Labels:
    """Index of the pair ``(i, j)`` among the packed pairs ``i ≤ j``, ``(M, M)``."""
    position = np.zeros((M, M), dtype=np.intp)
    i, j = np.triu_indices(M)
    position[i, j] = position[j, i] = np.arange(len(i))
    return position


def complete_weights(mixture: Mixture, at: Posterior) -> Weights:
    """Weights of the experts' complete-data information, in the places they have among all rows."""
    K, channels, shapes = mixture.K, mixture.experts.channels, mixture.experts.shapes
    n = at.row_tau.shape[1]
    M, m = row_counts(mixture)
    complete = mixture.experts.complete(at.at, at.row_tau)
    second, first, plain = np.zeros((triangle_size(M), n)), np.zeros((M, m, n)), np.zeros((m, m))
    position, i, j = _position(M), *np.triu_indices(channels)
    for k in range(K):
        row, shape = M - (K - k) * channels, m - (K - k) * shapes
        second[position[row + i, row + j]] = complete.linear[k]
        first[row : row + channels, shape : shape + shapes] = complete.cross[k]
        plain[shape : shape + shapes, shape : shape + shapes] = complete.shape[k]
    return Weights(plain, first, second)


def information_weights(mixture: Mixture, at: Posterior) -> Weights:
    """Weights whose moments are the observed information of a block of rows with row labels."""
    rows, weights = score_rows(mixture, at), complete_weights(mixture, at)
    U = at.tau[rows.linear_owner] * rows.linear  # τ a
    V = at.tau[rows.plain_owner] * rows.plain
    wU, wV = U * at.mass, V * at.mass
    start = 0
    for i in range(len(U)):
        block = weights.second[start : start + len(U) - i]
        block += wU[i] * U[i:]
        same = np.flatnonzero(rows.linear_owner[i:] == rows.linear_owner[i])
        block[same] -= wU[i] * rows.linear[i:][same]
        start += len(U) - i
    for i, owner in enumerate(rows.linear_owner):
        weights.first[i] += wU[i] * V
        same = np.flatnonzero(rows.plain_owner == owner)
        weights.first[i, same] -= wU[i] * rows.plain[same]
    weights.plain[...] += wV @ V.T - (rows.plain_owner[:, None] == rows.plain_owner) * (wV @ rows.plain.T)
    _add_gate(weights, mixture, at)
    m, n = V.shape
    return Weights(weights.plain.ravel(), weights.first.reshape(-1, n) if m else np.empty((0, n)), weights.second)


def _add_gate(weights: Weights, mixture: Mixture, at: Posterior) -> None:
    """Add the gate's complete information, ``π_k (1[k = l] - π_l)``."""
    K, n = at.tau.shape
    if K == 1:
        return
    if mixture.gate.reads_covariates:
        M, _ = row_counts(mixture)
        i, j = np.triu_indices(K - 1)
        weights.second[_position(M)[i, j]] += multinomial.pair_rows(at.pi, at.mass)
        return
    pi, total = at.pi[:-1, 0], float(np.sum(at.mass * np.ones(n)))
    weights.plain[: K - 1, : K - 1] += total * (np.diag(pi) - np.outer(pi, pi))


def assemble(moments: Moments, mixture: Mixture) -> Array:
    """Symmetric matrix ``(P, P)`` in the free parameters, from the moments of information weights."""
    M, m = row_counts(mixture)
    p = mixture.design.p
    J = np.zeros((M * p + m, M * p + m))
    J[: M * p, : M * p] = multinomial.blocks_to_matrix(moments.second, M, p)
    cross = moments.first.reshape(M, m, p).transpose(0, 2, 1).reshape(M * p, m)
    J[: M * p, M * p :], J[M * p :, : M * p] = cross, cross.T
    J[M * p :, M * p :] = moments.plain.reshape(m, m)
    return _tied(J, mixture)


def _tied(J: Array, mixture: Mixture) -> Array:
    """Contract the shapes of all experts to the free shape parameters."""
    T = mixture.experts.tie()
    if T.shape[0] == T.shape[1]:
        return J
    head = len(J) - len(T)
    A = np.zeros((len(J), head + T.shape[1]))
    A[:head, :head] = np.eye(head)
    A[head:, head:] = T
    return A.T @ J @ A


# ---------------------------------------------------------------------- groups: scores are summed over a group first


def group_scores(mixture: Mixture, block: Block, at: Posterior) -> tuple[Array, Labels]:
    """Complete score of each group ``(P, G)`` before tying, without the gate's ``π`` term; the owner of each entry."""
    groups = block.groups
    assert groups is not None  # noqa: S101 - for the type checker: called for groups alone
    K, p = mixture.K, mixture.design.p
    n, G = block.panel.shape[1], len(groups.starts)
    weight = 1.0 if block.weight is None else block.weight
    scores = mixture.experts.scores(at.at)
    linear = (scores.linear.reshape(-1, 1, n) * (block.panel * weight)).reshape(-1, n)
    parts = [np.add.reduceat(linear, groups.starts, axis=1)]
    owners = [np.repeat(np.arange(K), mixture.experts.channels * p)]
    shape = np.add.reduceat(scores.shape.reshape(-1, n) * weight, groups.starts, axis=1)
    if mixture.gate.reads_covariates:
        gate, gate_owner, where = np.tile(groups.panel, (K - 1, 1)), np.repeat(np.arange(K - 1), p), 0
    else:
        gate, gate_owner, where = np.tile(groups.present, (K - 1, 1)), np.arange(K - 1), 1
    parts.insert(where, gate.reshape(-1, G))
    owners.insert(where, gate_owner)
    return np.vstack([*parts, shape]), np.concatenate([*owners, np.repeat(np.arange(K), mixture.experts.shapes)])


def group_information(mixture: Mixture, block: Block, at: Posterior) -> Array:
    """Observed information ``(P, P)`` of a block with group labels."""
    complete = complete_weights(mixture, at)
    M, m = row_counts(mixture)
    n = block.panel.shape[1]
    moments = Moments(
        complete.plain.ravel(),
        first_moments(block.panel, complete.first.reshape(M * m, n)),
        second_moments(block.panel, complete.second, block.workspace),
    )
    J = assemble(moments, mixture)
    S, owner = group_scores(mixture, block, at)
    U = at.tau[owner] * S
    covariance = (owner[:, None] == owner) * (U @ S.T) - U @ U.T
    return J + _group_gate(mixture, block, at, len(J)) - _tied(covariance, mixture)


def _group_gate(mixture: Mixture, block: Block, at: Posterior, size: int) -> Array:
    """The gate's complete information for groups, in its place among all parameters."""
    K, p = mixture.K, mixture.design.p
    J = np.zeros((size, size))
    pairs = np.broadcast_to(multinomial.pair_rows(at.pi, 1.0), (triangle_size(K - 1), at.tau.shape[1])) * at.mass
    if mixture.gate.reads_covariates:
        gate = slice(0, (K - 1) * p)
        J[gate, gate] = multinomial.blocks_to_matrix(second_moments(at.gate_panel, pairs, block.workspace), K - 1, p)
    else:
        start = K * mixture.experts.channels * p
        gate = slice(start, start + K - 1)
        J[gate, gate] = multinomial.blocks_to_matrix(pairs.sum(axis=1)[:, None], K - 1, 1)
    return J


# ---------------------------------------------------------------------- score, outer products, parameters


def observed_scores(mixture: Mixture, block: Block, at: Posterior) -> Array:
    """Score of each label's log density, dense: ``(P, m)``, before case weights."""
    if block.groups is not None:
        S, owner = group_scores(mixture, block, at)
        score = at.tau[owner] * S
        gate_rows = at.gate_panel if mixture.gate.reads_covariates else np.ones((1, at.tau.shape[1]))
    else:
        rows = score_rows(mixture, at)
        U = at.tau[rows.linear_owner] * rows.linear
        score = np.vstack([(U[:, None] * block.panel).reshape(-1, U.shape[1]), at.tau[rows.plain_owner] * rows.plain])
        gate_rows = block.panel if mixture.gate.reads_covariates else np.ones((1, at.tau.shape[1]))
    start = 0 if mixture.gate.reads_covariates else mixture.K * mixture.experts.channels * mixture.design.p
    pi = np.broadcast_to(at.pi, at.tau.shape)[:-1]
    prior = (pi[:, None] * gate_rows).reshape(-1, at.tau.shape[1])
    score[start : start + len(prior)] -= prior * at.mass if block.groups is not None else prior
    head = len(score) - mixture.experts.tie().shape[0]
    return np.vstack([score[:head], mixture.experts.tie().T @ score[head:]])


def score(mixture: Mixture, statistics: Statistics) -> Array:
    """Observed score ``(P,)`` in the free parameters, from statistics taken at ``mixture``."""
    coefficients, shapes = mixture.experts.score(statistics.experts)
    tied = mixture.experts.tie().T @ shapes.ravel()
    if mixture.gate.reads_covariates:
        return np.concatenate([statistics.gate.first.ravel(), coefficients.ravel(), tied])
    mass = statistics.gate.plain
    _, pi = mixture.gate.evaluate(np.empty((0, 0)))
    return np.concatenate([coefficients.ravel(), (mass - mass.sum() * pi[:, 0])[:-1], tied])


def gate_slice(mixture: Mixture) -> slice:
    """Where the gate's parameters stand among the free parameters."""
    start = 0 if mixture.gate.reads_covariates else len(mixture.experts.free_coefficients())
    return slice(start, start + mixture.gate.parameter_count)


def coefficient_slice(mixture: Mixture) -> slice:
    """Where the experts' coefficients stand among the free parameters."""
    start = mixture.gate.parameter_count if mixture.gate.reads_covariates else 0
    return slice(start, start + len(mixture.experts.free_coefficients()))


def shape_slice(mixture: Mixture) -> slice:
    """Where the experts' shape parameters stand among the free parameters."""
    return slice(mixture.parameter_count - mixture.experts.shape_parameters, mixture.parameter_count)


def ridge(mixture: Mixture, penalty: Penalty) -> Array:
    """Second derivative ``R (P, P)`` of the ridges in the free parameters."""
    P, intercept = mixture.parameter_count, mixture.design.intercept
    R = np.zeros((P, P))
    if mixture.gate.reads_covariates:
        gate = gate_slice(mixture)
        R[gate, gate] = multinomial.ridge_matrix(mixture.K, mixture.design.p, intercept, penalty.gate_ridge)
    coefficients = coefficient_slice(mixture)
    R[coefficients, coefficients] = mixture.experts.ridge(penalty, intercept=intercept)
    return R


def free_parameters(mixture: Mixture) -> Array:
    """Gate contrasts and expert coefficients in the order of the information; shapes count as zero."""
    theta = np.zeros(mixture.parameter_count)
    theta[gate_slice(mixture)] = mixture.gate.contrasts().ravel()
    theta[coefficient_slice(mixture)] = mixture.experts.free_coefficients()
    return theta


def moved(mixture: Mixture, delta: Array) -> Mixture:
    """The mixture with ``delta (P,)`` added to its free parameters."""
    return Mixture(
        mixture.design,
        mixture.gate.moved(delta[gate_slice(mixture)]),
        mixture.experts.moved(delta[coefficient_slice(mixture)], delta[shape_slice(mixture)]),
    )
