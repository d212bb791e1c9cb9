"""Sums over the residuals of a Gaussian mixture, whose means are the same for all rows, in numpy."""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array, pack


def distances(Y: Array, means: Array, factors: Array) -> Array:
    """Compute ``|F_k (y_i - μ_k)|²`` of ``Y (n, q)`` and ``means (K, q)``: ``(K, n)``.

    ``factors`` are lower triangular matrices ``(K, q, q)``, or diagonals ``(K, q)``.

    Examples
    --------
    >>> Y, means = np.array([[3.0, 1.0]]), np.zeros((1, 2))
    >>> distances(Y, means, np.array([[2.0, 1.0]])), distances(Y, means, np.array([[[2.0, 0.0], [1.0, 1.0]]]))
    (array([[37.]]), array([[52.]]))
    """
    r = Y.T - means[:, :, None]
    z = factors @ r if factors.ndim == 3 else factors[:, :, None] * r
    return np.asarray(np.einsum("kqn,kqn->kn", z, z))


def scatter(Y: Array, means: Array, tau: Array, *, matrices: bool) -> tuple[Array, Array]:
    """Compute ``Σ_i τ_ki r_ki``, ``(K, q)``, and ``Σ_i τ_ki r_ki r_kiᵀ`` for ``r_ki = y_i - μ_k`` and ``tau (K, n)``.

    With ``matrices`` the second has upper triangles, ``(K, q (q + 1) / 2)``, else diagonals, ``(K, q)``.

    Examples
    --------
    >>> scatter(np.array([[3.0, 1.0]]), np.zeros((1, 2)), np.array([[2.0]]), matrices=True)
    (array([[6., 2.]]), array([[18.,  6.,  2.]]))
    """
    r = Y.T - means[:, :, None]
    weighted = r * tau[:, None]
    products = pack(weighted @ r.transpose(0, 2, 1)) if matrices else np.einsum("kqn,kqn->kq", weighted, r)
    return weighted.sum(axis=2), products
