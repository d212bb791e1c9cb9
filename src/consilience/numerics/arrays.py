"""Array types, symmetric matrices packed as their upper triangle, and the softmax."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
IntArray = NDArray[np.intp]


LARGEST_KEPT = 256
"""Size of a matrix up to which its indices are kept: a message could ask for any size."""


def upper_triangle(p: int) -> tuple[IntArray, IntArray]:
    """Return the rows and the columns of the entries on and above the diagonal of a ``(p, p)`` matrix."""
    return _kept_triangle(p) if p <= LARGEST_KEPT else _triangle(p)


def _triangle(p: int) -> tuple[IntArray, IntArray]:
    rows, columns = np.triu_indices(p)
    return rows, columns


def _places(p: int) -> IntArray:
    """Return the place in the packed triangle of each entry of a symmetric ``(p, p)`` matrix."""
    rows, columns = _triangle(p)
    places = np.empty((p, p), dtype=np.intp)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return places


_kept_triangle, _kept_places = lru_cache(maxsize=64)(_triangle), lru_cache(maxsize=64)(_places)


def triangle_size(p: int) -> int:
    """Return the number of entries on and above the diagonal of a ``(p, p)`` matrix, ``p (p + 1) / 2``."""
    return p * (p + 1) // 2


def kronecker(A: Array, B: Array) -> Array:
    """Compute the Kronecker products ``A ⊗ B`` of ``A (..., m, n)`` and ``B (..., p, q)``.

    Examples
    --------
    >>> kronecker(np.eye(2), np.array([[1.0, 2.0]]))
    array([[1., 2., 0., 0.],
           [0., 0., 1., 2.]])
    """
    product: Array = A[..., :, None, :, None] * B[..., None, :, None, :]
    *stack, m, p, n, q = product.shape
    return product.reshape(*stack, m * p, n * q)


def pack(matrix: Array) -> Array:
    """Pack symmetric matrices as upper triangles, row by row: ``(..., p, p)`` to ``(..., p (p + 1) / 2)``."""
    rows, columns = upper_triangle(matrix.shape[-1])
    return matrix[..., rows, columns]


def unpack(triangle: Array) -> Array:
    """Unpack symmetric matrices from their upper triangles, the inverse of :func:`pack`.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import unpack
    >>> unpack(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    p = int((np.sqrt(8 * triangle.shape[-1] + 1) - 1) / 2)
    return triangle[..., _kept_places(p) if p <= LARGEST_KEPT else _places(p)]


# ---------------------------------------------------------------- softmax

SMALLEST_LOG_SHARE = -300.0
"""Lower bound of log probabilities: it changes no likelihood, and subnormal numbers do not slow later products."""


def log_sum_exp(A: Array) -> tuple[Array, Array]:
    """Compute ``log Σ_k exp A_k`` over axis 0 without overflow, and the normalised exponentials.

    Parameters
    ----------
    A : (K, ...) array
        Logits; ``-inf`` allowed.

    Returns
    -------
    total : (...) array
        ``log Σ_k exp A_k``.
    share : (K, ...) array
        ``exp(A_k - total)``; equal shares where all logits are ``-inf``.
    """
    top = A.max(axis=0)
    share = A - np.where(np.isneginf(top), 0.0, top)
    np.maximum(share, SMALLEST_LOG_SHARE, out=share)
    np.exp(share, out=share)
    mass = share.sum(axis=0)
    share /= mass
    return np.log(mass) + top, share


def log_softmax(A: Array) -> Array:
    """Compute ``A_k - log Σ_l exp A_l`` over axis 0, same shape as ``A (K, ...)``."""
    return A - log_sum_exp(A)[0]
