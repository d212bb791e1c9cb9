"""Covariance structures of Gaussian experts: full, diag, spherical, tied.

Each structure is a linear space of symmetric matrices: a covariance changes as ``Σ ← L exp(E) Lᵀ`` with ``Σ = L Lᵀ``
and ``E`` in the span of the structure's basis. For one response, ``E`` is the change of ``log σ²``.

Gaussian moments are sums over residuals from given coefficients. The least-squares solution that they give does not
depend on these: it can be relabelled, or changed, and converted to moments at any coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Literal, get_args

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model.statistics import Moments
from consilience.numerics.arrays import Array, IntArray, pack, triangle_size, upper_triangle
from consilience.numerics.linalg import bound_below, cholesky_or_none, inverse_factor, solve_symmetric

Structure = Literal["full", "diag", "spherical", "tied"]
EMPTY = 1e-100
"""Sum of responsibilities up to which an expert counts as empty and keeps its parameters."""
STRUCTURES: tuple[Structure, ...] = get_args(Structure)
TINY = np.finfo(float).tiny
ALMOST = 1 - 1e-9
"""Relative tolerance, for rounding, of the check that a covariance is above the floor."""


def as_structure(name: str) -> Structure:
    """Return the structure of this name, or raise an error that lists the names."""
    for structure in STRUCTURES:
        if structure == name:
            return structure
    raise InvalidInputError(f"covariance structure {name!r}: expected one of {', '.join(STRUCTURES)}")


def are_proper(matrices: Array) -> bool:
    """Whether covariances ``(K, q, q)`` are symmetric and positive definite."""
    symmetric = np.allclose(matrices, matrices.transpose(0, 2, 1), rtol=1e-9, atol=0)
    return symmetric and all(cholesky_or_none(S) is not None for S in matrices)


def has_matrices(structure: Structure) -> bool:
    """Whether residual products between responses matter (full, tied)."""
    return structure in ("full", "tied")


def matrices(covariance: Array, structure: Structure, K: int, q: int) -> Array:
    """Expand covariances from the storage of the structure to matrices ``(K, q, q)``."""
    match structure:
        case "full":
            return covariance
        case "tied":
            return np.broadcast_to(covariance, (K, q, q))
        case "diag":
            return covariance[:, :, None] * np.eye(q)
        case "spherical":
            return covariance[:, None, None] * np.eye(q)


def store_covariances(S: Array, structure: Structure) -> Array:
    """Convert covariances ``(K, q, q)`` to the storage of the structure; the inverse of `matrices`."""
    diagonal = np.diagonal(S, axis1=1, axis2=2)
    match structure:
        case "full":
            return S
        case "tied":
            return np.asarray(S[0])
        case "diag":
            return diagonal.copy()
        case "spherical":
            return np.asarray(diagonal.mean(axis=1))


def factors(covariance: Array, structure: Structure, K: int, q: int) -> tuple[Array, Array]:
    """Compute Cholesky factors ``L (K, q, q)`` and inverses; raise an error if not positive definite."""
    lower = []
    for S in matrices(covariance, structure, K, q):
        L = cholesky_or_none(S)
        if L is None:
            raise np.linalg.LinAlgError("an expert covariance is not positive definite")
        lower.append(L)
    return np.array(lower), np.array([inverse_factor(L) for L in lower])


def scatter_size(structure: Structure, q: int) -> int:
    """Return the size of one expert's residual scatter."""
    return triangle_size(q) if has_matrices(structure) else q


def maximiser(scatter: Array, n: Array, structure: Structure, old: Array, floor: Array) -> Array:
    """Compute the covariance above the floor that maximises ``-Σ_k n_k log|Σ_k| - tr(Σ_k⁻¹ scatter_k)``.

    Parameters
    ----------
    scatter : (K, q, q) or (K, q) array
        Residual products (full, tied) or squares (diag, spherical), summed with responsibilities.
    n : (K,) array
        Sums of responsibilities.
    structure : Structure
    old : array
        The covariance kept by an expert without rows.
    floor : (q, q) array
        Lower bound.

    Returns
    -------
    array
        Covariances in the storage of the structure.
    """
    q = scatter.shape[1]
    empty = n <= EMPTY
    rows = np.where(empty, 1.0, n)
    if structure == "tied":
        return old if n.sum() <= 0 else bound_below(scatter.sum(axis=0) / n.sum(), floor)
    if structure == "full":
        found = [old[k] if empty[k] else bound_below(scatter[k] / rows[k], floor) for k in range(len(n))]
        return np.array(found).reshape(len(n), q, q)
    if structure == "diag":
        return np.where(empty[:, None], old, np.maximum(scatter / rows[:, None], np.diagonal(floor)))
    return np.where(empty, old, np.maximum(scatter.sum(axis=1) / (q * rows), np.trace(floor) / q))


def raised(covariance: Array, structure: Structure, floor: Array) -> Array:
    """Return the covariances, in the storage of the structure, with eigenvalues relative to ``floor`` of at least 1."""
    match structure:
        case "full":
            return np.array([bound_below(S, floor) for S in covariance])
        case "tied":
            return bound_below(covariance, floor)
        case "diag":
            return np.asarray(np.maximum(covariance, np.diagonal(floor)))
        case "spherical":
            return np.asarray(np.maximum(covariance, np.trace(floor) / len(floor)))


def lower_bound(covariance: Array, structure: Structure, floor: Array, ratio: float) -> Array:
    """Return the least covariance ``(q, q)`` beside these: the floor, and ``1 / ratio`` of an upper bound of all.

    Covariances above it have ``Σ_j ≼ ratio Σ_k`` for all pairs: no direction in which two experts differ by more than
    the ratio; its square for correlated responses, because clusters across each other differ in each direction by as
    much as one of them is longer than wide (R. J. Hathaway, A constrained formulation of maximum-likelihood estimation
    for normal mixture distributions, Annals of Statistics 1985).
    """
    if structure == "tied" or not np.isfinite(ratio):
        return floor
    if structure == "diag":
        return np.diag(np.maximum(covariance.max(axis=0) / ratio, np.diagonal(floor)))
    if structure == "spherical" or floor.shape == (1, 1):
        return np.asarray(max(float(covariance.max()) / ratio, np.trace(floor) / len(floor)) * np.eye(len(floor)))
    if is_above(covariance, structure, covariance.sum(axis=0) / ratio**2):  # a larger bound than that of any expert
        return floor
    return bound_below(reduce(bound_below, covariance) / ratio**2, floor)


def is_above(covariance: Array, structure: Structure, floor: Array) -> bool:
    """Whether all covariances are positive definite, to rounding, and none falls below the floor."""
    if floor.shape == (1, 1):
        return bool(np.isfinite(covariance.max()) and covariance.min() >= max(ALMOST * floor[0, 0], TINY))
    if not has_matrices(structure):
        least = np.diagonal(floor) if structure == "diag" else np.trace(floor) / len(floor)
        return bool(np.all(covariance >= ALMOST * least))
    matrices = covariance if structure == "full" else covariance[None]
    if all(cholesky_or_none(S - floor) is not None for S in matrices):  # clearly, and the usual case
        return True
    L = cholesky_or_none(floor)
    if L is None or any(cholesky_or_none(S) is None for S in matrices):  # no bound, and not definite; or not definite
        return False
    Linv = inverse_factor(L)
    return bool(np.linalg.eigvalsh(Linv @ matrices @ Linv.T).min() >= ALMOST)


def basis(structure: Structure, q: int) -> Array:
    """Return symmetric matrices ``E_j (m, q, q)`` that span the tangent space of a structure."""
    if structure == "spherical":
        return np.eye(q)[None]
    if structure == "diag":
        return np.array([np.diag(row) for row in np.eye(q)])
    i, j = upper_triangle(q)
    E = np.zeros((len(i), q, q))
    E[np.arange(len(i)), i, j] = 1.0
    E[np.arange(len(i)), j, i] = 1.0
    return E


def quadratic_scores(z: Array, structure: Structure) -> Array:
    """Compute ``(zᵀ E_j z - tr E_j) / 2`` for every ``E_j`` of the basis, ``(K, m, n)``, whitened ``z (K, q, n)``."""
    if structure == "spherical":
        squares: Array = np.einsum("kqn,kqn->kn", z, z)[:, None]
        return 0.5 * (squares - float(z.shape[1]))
    if structure == "diag" or z.shape[1] == 1:
        return 0.5 * (z * z - 1.0)
    i, j = upper_triangle(z.shape[1])
    shapes = z[:, i] * z[:, j]
    shapes[:, i == j] -= 1.0
    shapes[:, i == j] *= 0.5
    return shapes


def shape_count(structure: Structure, q: int) -> int:
    """Return the number of free covariance parameters per expert (per mixture if tied)."""
    return {"spherical": 1, "diag": q}.get(structure, triangle_size(q))


# ---------------------------------------------------------------- products


def regression_products(B: Array, S: Array, Sxr: Array, scatter: Array) -> tuple[Array, Array]:
    """Compute ``Σ w u uᵀ`` of ``u = (x, y)`` from moments of ``x`` and of residuals ``r = y - B_k x``.

    Parameters
    ----------
    B : (K, q, p) array
    S : (K, p, p) array
        ``Σ τ x xᵀ``.
    Sxr : (K, p, q) array
        ``Σ τ x rᵀ``.
    scatter : (K, q, q) array
        ``Σ τ r rᵀ``; NaN where unknown.

    Returns
    -------
    values, sizes : (p + q, p + q) array
        The sums, and upper bounds of the same sums of absolute values.
    """
    G = S @ B.transpose(0, 2, 1)
    Sxy = Sxr + G
    Syy = scatter + B @ Sxr + (B @ Sxr).transpose(0, 2, 1) + B @ G
    values = block_matrix(S.sum(axis=0), Sxy.sum(axis=0), Syy.sum(axis=0))
    x = np.sqrt(np.maximum(np.diagonal(S, axis1=1, axis2=2), 0.0))
    r = np.sqrt(np.maximum(np.diagonal(scatter, axis1=1, axis2=2), 0.0))
    u = np.concatenate([x, r + np.einsum("kqp,kp->kq", np.abs(B), x)], axis=1)
    return values, u.T @ u


def joint_products(S: Array, Sxr: Array, scatter: Array) -> Array:
    """Return ``Σ τ v vᵀ`` of ``v = (x, r)`` for each expert, ``(K, p + q, p + q)``; for each response of a diagonal.

    ``S`` may be empty: then the scatter alone is returned.
    """
    if scatter.ndim == 2:  # (K, q): one matrix for each response
        K, q = scatter.shape
        p = S.shape[1]
        S = np.broadcast_to(S[:, None], (len(S), q, p, p)).reshape(-1, p, p)
        Sxr, scatter = Sxr.transpose(0, 2, 1).reshape(K * q, p, 1), scatter.reshape(-1, 1, 1)
    if not len(S):
        return scatter
    return block_matrix(S, Sxr, scatter)


def block_matrix(A: Array, B: Array, C: Array) -> Array:
    """Return the symmetric matrices ``[[A, B], [Bᵀ, C]]``, faster than ``numpy.block``."""
    p, q = B.shape[-2:]
    joined = np.empty((*A.shape[:-2], p + q, p + q))
    joined[..., :p, :p], joined[..., :p, p:] = A, B
    joined[..., p:, :p], joined[..., p:, p:] = np.swapaxes(B, -1, -2), C
    return joined


# ---------------------------------------------------------------- least squares


def are_of_full_rank(S: Array, n: Array) -> bool:
    """Whether the second moments ``(K, p, p)`` of all experts with more rows than coefficients determine these."""
    none = np.zeros((S.shape[1], 1))
    return all(solve_symmetric(A, none)[1] for A, mass in zip(S, n, strict=True) if mass > len(A))


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Weighted least squares fits of K experts, with moments that do not depend on an expansion point.

    Parameters
    ----------
    n : (K,) array
        ``Σ τ_k``.
    S : (K, p, p) array
        ``Σ τ_k x̃ x̃ᵀ``.
    B : (K, q, p) array
        Coefficients.
    scatter : (K, q, q) array, or (K, q)
        Scatter of the residuals from ``B``; its diagonal for structures without correlations.
    """

    n: Array
    S: Array
    B: Array
    scatter: Array

    @classmethod
    def of(cls, n: Array, S: Array, first: Array, scatter: Array, *, at: Array) -> LeastSquares:
        """Solve from moments of residuals ``r`` from coefficients ``at (K, q, p)``; ``first`` is ``Σ τ r x``."""
        delta = np.array([solve_symmetric(a, b.T)[0].T for a, b in zip(S, first, strict=True)])
        return cls(n, S, at + delta, scatter - _explained(delta, S, scatter))

    def permuted(self, permutation: IntArray) -> LeastSquares:
        """Reorder the experts."""
        return LeastSquares(self.n[permutation], self.S[permutation], self.B[permutation], self.scatter[permutation])

    def moments(self, at: Array) -> Moments:
        """Return the moments of residuals from coefficients ``at (K, q, p)``; an M-step on them gives this solution.

        ``at`` may have more experts: the first ones are used.
        """
        back = self.B - at[: len(self.B)]
        scatter = self.scatter + _explained(back, self.S, self.scatter)
        plain = np.concatenate([self.n, (pack(scatter) if scatter.ndim == 3 else scatter).ravel()])
        return Moments(plain, (back @ self.S).reshape(-1, at.shape[2]), pack(self.S))


def _explained(delta: Array, S: Array, like: Array) -> Array:
    """Compute ``δ S δᵀ`` of each expert, ``(K, q, q)``, or its diagonal ``(K, q)``."""
    full: Array = delta @ S @ delta.transpose(0, 2, 1)
    return full if like.ndim == 3 else np.diagonal(full, axis1=1, axis2=2)
