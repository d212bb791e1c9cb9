"""Products of covariates, responses and residuals in the statistics of a family."""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array


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
    values = blocks(S.sum(axis=0), Sxy.sum(axis=0), Syy.sum(axis=0))
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
    return blocks(S, Sxr, scatter)


def blocks(A: Array, B: Array, C: Array) -> Array:
    """Return the symmetric matrices ``[[A, B], [Bᵀ, C]]``, faster than ``numpy.block``."""
    p, q = B.shape[-2:]
    joined = np.empty((*A.shape[:-2], p + q, p + q))
    joined[..., :p, :p], joined[..., :p, p:] = A, B
    joined[..., p:, :p], joined[..., p:, p:] = np.swapaxes(B, -1, -2), C
    return joined
