"""Precision of combined coefficients, from what each site's fit says of its own, taken at the combined mixture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.aggregate.combine.pool import Pool
from consilience.model.families.base import Experts, MomentExperts
from consilience.numerics.arrays import Array, IntArray, Mask, unpack
from consilience.numerics.linalg import solve_symmetric

ROWS_PER_COEFFICIENT = 10.0
"""Effective rows per coefficient from which the precision that a site states of its expert is used."""
LEAST_STATED = 0.5
"""Least fraction of an expert's information that must come from such components; the precision is zero below it."""


@dataclass(frozen=True, eq=False)
class Stated:
    """Precision of the components of all sites at the combined mixture, and how they enter the combined coefficients.

    Parameters
    ----------
    precision : (L, f, f) array
        Inverse covariance of each component's coefficients if its residuals had at least the combined variance; NaN if
        the site sent none. A site makes spurious experts that fit a few rows closely; their own variance claims too
        much.
    weight : (L, f, f) array
        Weight of the component in the combined coefficients.
    reliable : (L,) array of bool
        Whether the component has enough rows per coefficient for its precision to be believed.
    """

    precision: Array
    weight: Array
    reliable: Mask

    @classmethod
    def of(cls, pool: Pool, labels: IntArray, used: Mask, experts: Experts) -> Stated:
        """Read the precision of the components that ``labels (L,)`` assign to the combined ``experts``."""
        own = unpack(pool.precision)
        counted = used & pool.informed
        rows, p = pool.rows, pool.design.p
        if not isinstance(experts, MomentExperts):
            f = pool.coefficients.shape[1]
            return cls(own, np.nan_to_num(own), counted & (rows >= ROWS_PER_COEFFICIENT * f))
        second = np.concatenate([unpack(model.second) for model in pool.models])
        mine, theirs = _factors(pool.components.experts), _factors(experts)[labels]
        move = _kronecker(_at_most_one(np.asarray(mine @ np.linalg.inv(theirs))), np.eye(p))
        complete, weight = _kronecker(_inverse_product(mine), second), _kronecker(_inverse_product(theirs), second)
        kept = np.trace(inverted(complete) @ np.nan_to_num(own), axis1=1, axis2=2) / len(complete[0])
        effective = rows * np.clip(kept, 0.0, 1.0)
        precision = move.transpose(0, 2, 1) @ own @ move
        return cls(precision, weight, counted & (effective >= ROWS_PER_COEFFICIENT * p))


def combined_precision(pool: Pool, labels: IntArray, used: Mask, experts: Experts, stated: Stated) -> Array:
    """Compute the inverse covariance of each combined expert's coefficients, ``(K, f, f)``; zero if little is known.

    The combined coefficients are ``b = Σ_l A_l b_l`` with ``A_l = (Σ_j W_j)⁻¹ W_l``. A component whose precision
    ``J_l`` is believed adds ``A_l J_l⁻¹ A_lᵀ`` to the covariance of ``b``; one of few rows, whose error is larger than
    its information says, adds ``A_l d dᵀ A_lᵀ`` with ``d = b_l - b``.

    Parameters
    ----------
    pool : Pool
    labels : (L,) array of int
    used : (L,) array of bool
    experts : Experts
        The combined experts, on the design of the pool.
    stated : Stated
    """
    f = pool.coefficients.shape[1]
    target = experts.free_coefficients().reshape(experts.K, f)
    found = np.zeros((experts.K, f, f))
    for k in range(experts.K):
        mine = np.flatnonzero(used & (labels == k))
        inverse, full_rank = solve_symmetric(stated.weight[mine].sum(axis=0), np.eye(f))
        A, known = inverse @ stated.weight[mine], stated.reliable[mine]
        if not full_rank or np.trace(A[known].sum(axis=0)) < LEAST_STATED * f:
            continue
        gap = np.einsum("lab,lb->la", A[~known], pool.coefficients[mine[~known]] - target[k])
        sampling = A[known] @ inverted(stated.precision[mine[known]]) @ A[known].transpose(0, 2, 1)
        covariance = sampling.sum(axis=0) + gap.T @ gap
        found[k] = solve_symmetric(0.5 * (covariance + covariance.T), np.eye(f))[0]
    return found


def inverted(J: Array) -> Array:
    """Compute ``J_m⁻¹``, ``(M, f, f)``; the generalised inverse if one is singular."""
    try:
        return np.asarray(np.linalg.inv(J))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(J, hermitian=True))


def _factors(experts: Any) -> Array:
    """Return the Cholesky factors of the covariances of these moment experts, ``(K, q, q)``."""
    return np.asarray(np.linalg.cholesky(experts.matrices))


def _at_most_one(M: Array) -> Array:
    """Return the matrices ``(L, q, q)`` with singular values cut at 1."""
    U, s, Vt = np.linalg.svd(M)
    return np.asarray((U * np.minimum(s, 1.0)[:, None, :]) @ Vt)


def _inverse_product(L: Array) -> Array:
    """Compute ``(L Lᵀ)⁻¹``."""
    inverse = np.linalg.inv(L)
    return np.asarray(inverse.transpose(0, 2, 1) @ inverse)


def _kronecker(A: Array, B: Array) -> Array:
    """Compute ``A_l ⊗ B_l``; ``B`` may be one matrix for all."""
    L, q, p = len(A), A.shape[1], B.shape[-1]
    product = np.einsum("lab,lcd->lacbd", A, np.broadcast_to(B, (L, p, p)))
    return np.asarray(product.reshape(L, q * p, q * p))
