"""Linear algebra for symmetric, possibly singular matrices."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from consilience.numerics.arrays import Array, IntArray

RANK_TOLERANCE = 1e-11
"""Pivots and eigenvalues below this fraction of the largest count as zero."""
SEMIDEFINITE = 1e-8
"""Usual rounding error of the eigenvalues of a correlation matrix that is computed as a sum."""
TINY = 1e-150
"""Square root of a diagonal entry below which its row counts as zero."""
SMALLEST_SHARE = 1e-6
"""Fraction of the largest eigenvalue to which smaller ones are raised before a matrix is inverted."""


def cholesky_or_none(A: Array) -> Array | None:
    """Return the lower Cholesky factor of ``A (p, p)``, or None if ``A`` is not numerically positive definite."""
    if len(A) == 1:  # one response: the commonest case by far, and LAPACK's overhead would be most of its cost
        return np.sqrt(A) if 0 < A[0, 0] < np.inf else None
    diagonal = A.diagonal()
    if not (diagonal.min(initial=np.inf) > 0 and diagonal.max(initial=0.0) < np.inf):
        return None
    scale = 1 / np.sqrt(diagonal)
    L, failed = dpotrf(A * scale[:, None] * scale, lower=1, clean=1)  # scipy.linalg.cholesky without its overhead
    if failed or not L.diagonal().min(initial=1.0) ** 2 >= RANK_TOLERANCE:  # also where A has NaN: then L's pivots do
        return None
    return np.asarray(L / scale[:, None])


def is_semidefinite(matrices: Array, scale: Array | None = None, slack: float = SEMIDEFINITE) -> bool:
    """Whether symmetric ``matrices (..., p, p)`` are positive semidefinite, up to rounding.

    Parameters
    ----------
    matrices : (..., p, p) array
    scale : (..., p) array or None
        Square roots of the diagonal relative to which rounding is measured; None for the matrices' own.
    slack : float
        Eigenvalue of the scaled matrix above minus which it counts as positive semidefinite.
    """
    if not matrices.size:
        return True
    if scale is None:
        diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
        if np.any(diagonal < 0):
            return False
        scale = np.sqrt(diagonal)
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = 1 / np.where(scale > TINY, scale, 1.0)
        correlation = matrices * (inverse[..., :, None] * inverse[..., None, :])
        p = matrices.shape[-1]
        correlation.reshape(-1, p * p)[:, :: p + 1] += slack
    try:
        return bool(np.all(np.isfinite(np.linalg.cholesky(correlation))))
    except np.linalg.LinAlgError:
        return False


def cholesky_solve(L: Array, b: Array) -> Array:
    """Solve ``L Lᵀ x = b`` for a lower Cholesky factor ``L (p, p)`` and ``b (p,)`` or ``(p, m)``."""
    return dpotrs(L, b, lower=1)[0] if b.size else np.zeros_like(b)


def symmetrise(A: Array) -> Array:
    """Return ``(A + Aᵀ) / 2``, exactly symmetric, of a matrix that is symmetric up to rounding."""
    return 0.5 * (A + A.T)


def solve_symmetric(A: Array, b: Array) -> tuple[Array, bool]:
    """Solve ``A x = b`` for positive semidefinite ``A (p, p)``; minimum-norm if ``A`` is singular.

    Parameters
    ----------
    A : (p, p) array
        Symmetric positive semidefinite.
    b : (p, m) array
        Right-hand sides.

    Returns
    -------
    x : (p, m) array
        The solution of least Euclidean norm.
    full_rank : bool
        Whether ``A`` was positive definite.
    """
    L = cholesky_or_none(A)
    if L is not None:
        return cholesky_solve(L, b), True
    values, vectors = np.linalg.eigh(A)
    keep = values > RANK_TOLERANCE * values.max(initial=0.0)
    V = vectors[:, keep]
    return V @ ((V.T @ b) / values[keep, None]), False


def independent_columns(C: Array) -> tuple[IntArray, Array]:
    """Return the columns that are not linear combinations of earlier ones, and the combinations of the others.

    Parameters
    ----------
    C : (d, d) array
        Correlations of the columns, or zeros for a column that is constant.

    Returns
    -------
    kept : (m,) array
    combinations : (d - m, m) array
        Coefficients of each other column by the kept ones.
    """
    d = len(C)
    if cholesky_or_none(C) is not None:
        return np.arange(d), np.empty((0, d))
    L, kept = np.zeros((d, d)), np.empty(0, dtype=np.intp)
    for j in range(d):
        m = len(kept)
        row = solve_triangular(L[:m, :m], C[kept, j], lower=True, check_finite=False) if m else np.empty(0)
        left = C[j, j] - row @ row
        if left > RANK_TOLERANCE * C[j, j]:
            L[m, :m], L[m, m] = row, np.sqrt(left)
            kept = np.append(kept, j)
    others, m = np.setdiff1d(np.arange(d), kept), len(kept)
    return kept, cholesky_solve(L[:m, :m], C[np.ix_(kept, others)]).T


def inverse_bounded(A: Array) -> tuple[Array, int]:
    """Invert a positive semidefinite ``A (p, p)`` whose small eigenvalues are raised to a bound.

    Eigenvalues of ``A`` scaled to unit diagonal below ``SMALLEST_SHARE`` of the largest are raised to it, so that
    directions of which ``A`` knows nothing have a large, finite variance.

    Returns
    -------
    inverse : (p, p) array
    raised : int
        Number of eigenvalues that were raised.
    """
    diagonal = np.diagonal(A)
    usual = max(float(np.median(diagonal[diagonal > 0])), 1e-100) if np.any(diagonal > 0) else 1.0
    scale = 1 / np.sqrt(np.where(diagonal > SMALLEST_SHARE * usual, diagonal, usual))
    values, vectors = np.linalg.eigh(A * scale[:, None] * scale)
    bound = SMALLEST_SHARE * max(float(values[-1]), 1e-30)  # the inverse of zero is large, but finite
    root = vectors / np.sqrt(np.maximum(values, bound)) * scale[:, None]
    return root @ root.T, int(np.sum(values < bound))


def cap_step(direction: Array, longest: float) -> Array:
    """Scale ``direction`` so that no entry exceeds ``longest`` in absolute value."""
    size = float(np.abs(direction).max(initial=0.0))
    return direction if size <= longest else direction * (longest / size)


def short_newton_steps(J: Array, gradient: Array, longest: float, tail: int) -> Array:
    """Compute the Newton steps ``J⁻¹ gradient`` of several functions, ``(K, f)``; NaN for those without a short one.

    Parameters
    ----------
    J : (K, f, f) array
        Minus the second derivatives.
    gradient : (K, f) array
    longest : float
        Largest absolute change of the last ``tail`` entries of a step.
    tail : int
    """
    steps = np.full_like(gradient, np.nan)
    for k, (A, g) in enumerate(zip(J, gradient, strict=True)):
        L = cholesky_or_none(A)
        if L is not None:
            step = cholesky_solve(L, g)
            if np.abs(step[-tail:]).max() <= longest:
                steps[k] = step
    return steps


def inverse_factor(L: Array) -> Array:
    """Compute the inverse ``L⁻¹ (q, q)`` of a lower triangular factor."""
    return 1 / L if len(L) <= 1 else np.asarray(dtrtri(L, lower=1)[0])


def whitening(S: Array) -> Array:
    """Compute ``W (p, r)`` with ``Wᵀ S W = I`` for positive semidefinite ``S (p, p)`` of rank ``r``.

    Coefficients ``u`` of whitened covariates ``Wᵀ x`` are ``W u`` for ``x``, of least norm if ``S`` is singular.
    """
    values, vectors = np.linalg.eigh(S)
    keep = values > RANK_TOLERANCE * values.max(initial=0.0)
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep]))


def bound_below(S: Array, floor: Array) -> Array:
    """Clip the eigenvalues of ``S`` relative to ``floor`` at 1.

    Maximises ``-log|Σ| - tr(Σ⁻¹ S)`` over ``Σ ≽ floor``: in coordinates in which the floor is the identity
    the constrained maximiser clips the eigenvalues.

    Parameters
    ----------
    S, floor : (q, q) array
        Symmetric; ``floor`` positive definite, or zero for no bound.
    """
    if len(S) == 1:
        return S if S[0, 0] >= floor[0, 0] else floor
    L = None if cholesky_or_none(S - floor) is not None else cholesky_or_none(floor)
    if L is None:
        return S
    Linv = inverse_factor(L)
    values, vectors = np.linalg.eigh(Linv @ S @ Linv.T)
    if values.min() >= 1:
        return S
    root = L @ vectors
    return np.asarray((root * np.maximum(values, 1.0)) @ root.T)


def symmetric_exponential(E: Array) -> Array:
    """Compute the matrix exponential of a symmetric ``E (q, q)``."""
    values, vectors = np.linalg.eigh(E)
    with np.errstate(over="ignore", invalid="ignore"):  # a step that overflows is not finite, and refused
        exponential: Array = (vectors * np.exp(values)) @ vectors.T
    return exponential


# ---------------------------------------------------------------- subspace

NOISE_MARGIN = 2.0
"""Multiple of the most negative eigenvalue above which an eigenvalue counts as signal."""


def leading_eigenpairs(A: Array, k: int) -> tuple[Array, Array]:
    """Return the ``k`` eigenvalues of symmetric ``A (p, p)`` largest in absolute value, and eigenvectors ``(p, k)``."""
    values, vectors = np.linalg.eigh(symmetrise(A))
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    return values[order], vectors[:, order]


def orthonormalise(A: Array) -> Array:
    """Compute an orthonormal basis of the columns of ``A (p, k)``, as in orthogonal iteration."""
    return np.linalg.qr(A)[0]


def count_above_noise(values: Array) -> int:
    """Count the eigenvalues above noise in an estimate of a positive semidefinite matrix.

    The matrix itself has no negative eigenvalues: those of the estimate measure the noise.
    """
    return int(np.sum(values > NOISE_MARGIN * max(-float(values.min()), 0.0)))
