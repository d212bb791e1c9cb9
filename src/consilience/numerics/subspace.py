"""Leading eigenspaces of symmetric matrices, and the number of eigenvalues above the noise level."""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array

NOISE_MARGIN = 2.0
"""Multiple of the most negative eigenvalue above which an eigenvalue counts as signal."""


def leading(A: Array, k: int) -> tuple[Array, Array]:
    """Return the ``k`` eigenvalues of symmetric ``A (p, p)`` largest in absolute value, and eigenvectors ``(p, k)``.

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
    """Compute an orthonormal basis of the columns of ``A (p, k)``, as in orthogonal iteration.

    Examples
    --------
    >>> np.abs(orthonormal(np.array([[3.0], [4.0]]))).ravel()
    array([0.6, 0.8])
    """
    basis: Array = np.linalg.qr(A)[0]
    return basis


def standing_out(values: Array) -> int:
    """Count the eigenvalues above noise in an estimate of a positive semidefinite matrix.

    The matrix itself has no negative eigenvalues: those of the estimate measure the noise.

    Examples
    --------
    >>> standing_out(np.array([0.42, 0.34, 0.14, 0.06, 0.03, -0.05]))
    3
    """
    return int(np.sum(values > NOISE_MARGIN * max(-float(values.min()), 0.0)))
