"""Score and observed information of a mixture, by Louis' identity: ``J = complete - missing``.

The score and the complete-data information are functions of the EM statistics; the missing information needs its own
products over labels (:mod:`consilience.model.expectation`). Free parameters are ordered: softmax contrasts, expert
coefficients, constant-gate log odds, shapes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import block_diag

from consilience.model import multinomial
from consilience.model.mixture import Mixture
from consilience.model.statistics import Penalty, Statistics
from consilience.numerics.arrays import Array, IntArray

LARGEST = 3000
"""Number of parameters above which the full information is not computed."""


def is_informable(mixture: Mixture) -> bool:
    """Whether the information is available: few enough parameters, and full curvature in the statistics."""
    full_gate = not mixture.gate.reads_covariates or multinomial.is_full(mixture.K, mixture.reads.p)
    return mixture.parameter_count <= LARGEST and full_gate and mixture.experts.full_curvature


# ---------------------------------------------------------------------- positions of the parameters


def gate_slice(mixture: Mixture) -> slice:
    """Return the positions of the gate's parameters among the free parameters."""
    start = 0 if mixture.gate.reads_covariates else len(mixture.experts.free_coefficients())
    return slice(start, start + mixture.gate.parameter_count)


def coefficient_slice(mixture: Mixture) -> slice:
    """Return the positions of the experts' coefficients among the free parameters."""
    start = mixture.gate.parameter_count if mixture.gate.reads_covariates else 0
    return slice(start, start + len(mixture.experts.free_coefficients()))


def shape_slice(mixture: Mixture) -> slice:
    """Return the positions of the experts' shape parameters among the free parameters."""
    return slice(mixture.parameter_count - mixture.experts.shape_parameters, mixture.parameter_count)


def owners(mixture: Mixture) -> IntArray:
    """Return the expert of each entry of the complete score, before tying."""
    K, p, experts = mixture.K, mixture.design.p, mixture.experts
    gate = np.repeat(np.arange(K - 1), mixture.gate.parameter_count // max(K - 1, 1))
    coefficients, shapes = np.repeat(np.arange(K), experts.channels * p), np.repeat(np.arange(K), experts.shapes)
    parts = [gate, coefficients, shapes] if mixture.gate.reads_covariates else [coefficients, gate, shapes]
    return np.concatenate(parts)


def free_parameters(mixture: Mixture) -> Array:
    """Return gate contrasts and expert coefficients in the order of the information; shapes are zero."""
    theta = np.zeros(mixture.parameter_count)
    theta[gate_slice(mixture)] = mixture.gate.contrasts().ravel()
    theta[coefficient_slice(mixture)] = mixture.experts.free_coefficients()
    return theta


def move_parameters(mixture: Mixture, delta: Array) -> Mixture:
    """Add ``delta (P,)`` to the free parameters."""
    return replace(
        mixture,
        gate=mixture.gate.moved(delta[gate_slice(mixture)]),
        experts=mixture.experts.moved(delta[coefficient_slice(mixture)], delta[shape_slice(mixture)]),
    )


# ---------------------------------------------------------------------- shared coefficients


def free_map(mixture: Mixture, penalty: Penalty) -> Array:
    """Return the matrix ``(P, F)`` from the parameters that remain free if some coefficients are shared to all."""
    experts, at = mixture.experts, coefficient_slice(mixture)
    sharing = penalty.sharing(experts.K, experts.channels, experts.p)
    if sharing is None:
        return np.eye(mixture.parameter_count)
    return np.asarray(block_diag(np.eye(at.start), sharing, np.eye(mixture.parameter_count - at.stop)))


def free_count(mixture: Mixture, penalty: Penalty) -> int:
    """Return the number of free parameters, each shared coefficient counted once."""
    return mixture.parameter_count - (mixture.K - 1) * mixture.experts.channels * len(penalty.shared)


def share_curvature(J: Array, mixture: Mixture, penalty: Penalty) -> Array:
    """Return second derivatives ``(F, F)`` in the free parameters from those ``(P, P)`` in all."""
    if not penalty.shared:
        return J
    T = free_map(mixture, penalty)
    return np.asarray(T.T @ J @ T)


# ---------------------------------------------------------------------- from statistics


def score(mixture: Mixture, statistics: Statistics) -> Array:
    """Compute the observed score ``(P,)`` in the free parameters, from statistics at ``mixture``."""
    coefficients, shapes = mixture.experts.score(statistics.experts)
    tied = mixture.experts.tie().T @ shapes.ravel()
    parts = [mixture.gate.score(statistics.gate), coefficients.ravel()]
    return np.concatenate([*(parts if mixture.gate.reads_covariates else parts[::-1]), tied])


def penalised_score(mixture: Mixture, statistics: Statistics, R: Array) -> Array:
    """Compute the score of the log-likelihood less the ridge with second derivative ``R``."""
    return score(mixture, statistics) - R @ free_parameters(mixture)


def complete_information(mixture: Mixture, statistics: Statistics) -> Array:
    """Compute the expected complete-data information ``(P, P)``, from statistics at ``mixture``."""
    owner = owners(mixture)
    J = np.zeros((len(owner), len(owner)))
    gate = gate_slice(mixture)
    J[gate, gate] = mixture.gate.complete(statistics.gate)
    owner[gate] = -1
    for k, information in enumerate(mixture.experts.complete(statistics.experts)):
        mine = np.flatnonzero(owner == k)
        J[np.ix_(mine, mine)] = information
    return tie_shapes(J, mixture)


def ridge(mixture: Mixture, penalty: Penalty) -> Array:
    """Compute the second derivative ``R (P, P)`` of the ridges in the free parameters."""
    P, intercept = mixture.parameter_count, mixture.design.intercept
    R = np.zeros((P, P))
    if mixture.gate.reads_covariates:
        gate = gate_slice(mixture)
        of_one = penalty.gate_matrix(mixture.reads.p, intercept=intercept)
        R[gate, gate] = multinomial.ridge_matrix(mixture.K, of_one)
    coefficients = coefficient_slice(mixture)
    R[coefficients, coefficients] = mixture.experts.ridge(penalty, intercept=intercept)
    return R


def tie_shapes(J: Array, mixture: Mixture) -> Array:
    """Contract the shapes of all experts to the free shape parameters."""
    T = mixture.experts.tie()
    if T.shape[0] == T.shape[1]:
        return J
    head = len(J) - len(T)
    return np.block([[J[:head, :head], J[:head, head:] @ T], [T.T @ J[head:, :head], T.T @ J[head:, head:] @ T]])
