"""Softmax over the first axis: components are rows, so every operation runs along contiguous memory."""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array

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

    Examples
    --------
    >>> total, share = log_sum_exp(np.log([[1.0], [3.0]]))
    >>> float(np.round(total[0], 6)), share.ravel()
    (1.386294, array([0.25, 0.75]))
    """
    top = A.max(axis=0)
    share = A - np.where(np.isneginf(top), 0.0, top)
    np.maximum(share, SMALLEST_LOG_SHARE, out=share)
    np.exp(share, out=share)
    mass = share.sum(axis=0)
    share /= mass
    return np.log(mass) + top, share


def log_softmax(A: Array) -> Array:
    """Compute ``A_k - log Σ_l exp A_l`` over axis 0, same shape as ``A (K, ...)``.

    Examples
    --------
    >>> np.exp(log_softmax(np.zeros((4, 1)))).ravel()
    array([0.25, 0.25, 0.25, 0.25])
    """
    return A - log_sum_exp(A)[0]
