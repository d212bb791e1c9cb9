"""Leading subspaces of symmetric matrices, and how many directions stand out of noise."""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array

NOISE_MARGIN = 2.0
"""Times the most negative eigenvalue: what counts as standing out."""


def leading(A: Array, k: int) -> tuple[Array, Array]:
    """The ``k`` eigenvalues of symmetric ``A (p, p)`` that are largest in size, and their eigenvectors ``(p, k)``.

    Examples
    --------
    >>> values, vectors = leading(np.diag([1.0, -3.0, 2.0]), 2)
    >>> values
    array([-3.,  2.])
    """
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    return values[order], vectors[:, order]


def orthonormal(A: Array) -> Array:
    """An orthonormal basis of the columns of ``A (p, k)``: a step of orthogonal iteration ends with it.

    Examples
    --------
    >>> np.abs(orthonormal(np.array([[3.0], [4.0]]))).ravel()
    array([0.6, 0.8])
    """
    basis: Array = np.linalg.qr(A)[0]
    return basis


def standing_out(values: Array) -> int:
    """How many of the eigenvalues of an estimate of a positive semi-definite matrix stand out of its noise.

    The matrix itself has no negative eigenvalues: those of the estimate show how large noise makes them, to both sides.

    Examples
    --------
    >>> standing_out(np.array([0.42, 0.34, 0.14, 0.06, 0.03, -0.05]))
    3
    """
    return int(np.sum(values > NOISE_MARGIN * max(-float(values.min()), 0.0)))
