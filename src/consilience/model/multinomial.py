"""Softmax regression for the gate and for categorical experts: curvature, Newton step, ridge.

``C`` classes with coefficients ``b_c`` that sum to zero; derivatives are taken in the ``C - 1`` contrasts against the
last class. The curvature is the full Hessian, or above ``FULL_UP_TO`` parameters the block-diagonal bound
``diag(π) - π πᵀ ≼ 2 diag(π (1 - π))``: a graph Laplacian below twice its degrees.
"""

from __future__ import annotations

import numpy as np

from consilience.model.kernels import Workspace, first_moments, second_moments
from consilience.model.statistics import quadratic
from consilience.numerics.arrays import (
    Array,
    kronecker,
    log_softmax,
    log_sum_exp,
    triangle_size,
    unpack,
    upper_triangle,
)
from consilience.numerics.linalg import cap_step, solve_symmetric
from consilience.numerics.solvers import minimise

FULL_UP_TO = 1500
LONGEST_STEP = 30.0
"""Maximum change of a coefficient in one step: the curvature of a saturated softmax is nearly zero."""


def is_full(C: int, p: int) -> bool:
    """Whether ``C`` classes with ``p`` coefficients each use the full Hessian."""
    return (C - 1) * p <= FULL_UP_TO


def curvature_row_count(C: int, p: int) -> int:
    """Return the number of weight rows of :func:`curvature_rows`."""
    return triangle_size(C - 1) if is_full(C, p) else C


def pair_rows(pi: Array, mass: Array | float = 1.0) -> Array:
    """Compute rows ``mass π_k (1[k = l] - π_l)`` for the pairs ``k ≤ l < C - 1`` of ``pi (C, n)``."""
    C, n = pi.shape
    weighted = pi if isinstance(mass, float) and mass == 1.0 else pi * mass
    rows = np.empty((triangle_size(C - 1), n))
    row = 0
    for k in range(C - 1):
        block = rows[row : row + C - 1 - k]
        np.multiply(pi[k : C - 1], -weighted[k], out=block)
        block[0] += weighted[k]
        row += C - 1 - k
    return rows


def curvature_rows(pi: Array, mass: Array | float, p: int) -> Array:
    """Compute the weights whose second moments are the curvature, ``(curvature_row_count, n)``."""
    if is_full(len(pi), p):
        return pair_rows(pi, mass)
    return 2 * mass * pi * (1 - pi)


def curvature_bounds(C: int, p: int) -> Array:
    """Return weights that bound those of :func:`curvature_rows` for all shares, ``(curvature_row_count,)``.

    The full Hessian has ``diag(π) - π πᵀ ≼ (I - 1 1ᵀ / C) / 2`` (Böhning), the blocks have ``2 π (1 - π) ≤ 1 / 2``.
    """
    if not is_full(C, p):
        return np.full(C, 0.5)
    k, l = upper_triangle(C - 1)
    return np.asarray(0.5 * ((k == l) - 1 / C))


def centre_coefficients(contrasts: Array) -> Array:
    """Convert contrasts ``(C - 1, p)`` to the last class into coefficients ``(C, p)`` that sum to zero."""
    full = np.vstack([contrasts, np.zeros((1, contrasts.shape[1]))])
    return np.asarray(full - full.mean(axis=0))


def contrasts(coef: Array) -> Array:
    """Return contrasts ``(C - 1, p)`` to the last class, the inverse of :func:`centre_coefficients`."""
    return np.asarray(coef[:-1] - coef[-1])


def blocks_to_matrix(packed: Array, m: int, p: int) -> Array:
    """Assemble the matrix ``(m p, m p)`` from the packed blocks of the pairs ``k ≤ l < m``."""
    k, l = upper_triangle(m)
    H = np.empty((m, p, m, p))
    blocks = unpack(packed)
    H[k, :, l, :] = blocks
    H[l, :, k, :] = blocks
    return H.reshape(m * p, m * p)


def ridge_matrix(C: int, ridge: Array) -> Array:
    """Compute a ridge ``(p, p)`` in contrasts: ``(I - 1 1ᵀ / C) ⊗ ridge``, ``((C - 1) p, (C - 1) p)``."""
    return kronecker(np.eye(C - 1) - 1 / C, ridge)


def step(coef: Array, gradient: Array, curvature: Array, *, ridge: Array, fraction: float) -> Array:
    """Take one Newton-type step of the penalised softmax log-likelihood.

    Parameters
    ----------
    coef : (C, p) array
        Current coefficients, summing to zero over classes.
    gradient : (C - 1, p) array
        ``Σ_i (τ_ic - π_ic) x_i``.
    curvature : (rows, p (p + 1) / 2) array
        Second moments of :func:`curvature_rows`.
    ridge : (p, p) array
        Second derivative of the ridge by the coefficients of one class.
    fraction : float
        Fraction of the step to take.

    Returns
    -------
    (C, p) array
        New coefficients, summing to zero over classes.
    """
    C, p = coef.shape
    if fraction == 0 or C == 1:
        return coef
    if is_full(C, p):
        R = ridge_matrix(C, ridge)
        uphill = gradient.ravel() - R @ contrasts(coef).ravel()
        direction, _ = solve_symmetric(blocks_to_matrix(curvature, C - 1, p) + R, uphill[:, None])
        change = centre_coefficients(direction.reshape(C - 1, p))
    else:
        full = np.vstack([gradient, -gradient.sum(axis=0)]) - coef @ ridge
        pairs = zip(unpack(curvature), full, strict=True)
        change = np.array([solve_symmetric(H + ridge, g[:, None])[0][:, 0] for H, g in pairs])
        change -= change.mean(axis=0)
    new: Array = coef + fraction * cap_step(change, LONGEST_STEP)  # centred before it is capped: no class is special
    new -= new.mean(axis=0)
    return new


def fit_softmax(start: Array, panel: Array, labels: Array, *, ridge: Array | None = None) -> Array:
    """Fit a softmax regression on soft labels: minimise ``-Σ_i Σ_c labels_ci log p_c(x_i)`` plus ridge, by Newton.

    Parameters
    ----------
    start : (C, p) array
    panel : (p, n) array
    labels : (C, n) array
        Weight of each class at each point; the sum over classes is the weight of the point.
    ridge : (p, p) array or None
        Second derivative of the ridge by the coefficients of one class; none by default.

    Returns
    -------
    (C, p) array
        Coefficients, summing to zero over classes.
    """
    workspace, mass = Workspace(), labels.sum(axis=0)
    R = np.zeros((len(panel), len(panel))) if ridge is None else ridge

    def value(b: Array) -> float:
        fit = -float(np.sum(labels * log_softmax(b @ panel)))
        return fit + quadratic(b, R)

    def newton(b: Array) -> Array:
        _, p = log_sum_exp(b @ panel)
        gradient = first_moments(panel, (labels - p * mass)[:-1])
        curvature = second_moments(panel, curvature_rows(p, mass, len(panel)), workspace)
        return step(b, gradient, curvature, ridge=R, fraction=1.0) - b

    return minimise(start, value, newton)
