"""Shrink one vector of each site towards a centre, in whitened coordinates.

Coordinates are whitened by the covariance of the vector per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from consilience.aggregate.robust.centre import Shrinkage, believed, geometric_median, shrunk
from consilience.numerics.arrays import Array, Mask

UNSURE = 100.0
"""Multiple of the median variance above which an estimate is treated as uninformative."""


@dataclass(frozen=True, eq=False)
class ShrunkVectors:
    """One vector of each site shrunk towards its centre, and the positions of the sites in whitened coordinates."""

    found: Shrinkage  # back in the coordinates it came in
    covariance: Array  # (D, D) of the centre
    residuals: Array  # (M, D) from the centre, of unit variance where only chance and ĥ² are at work; 0 if not kept


def shrink_whitened(
    theta: Array, covariance: Array, labels: Array, *, least: float, equal: bool, barred: Mask
) -> ShrunkVectors:
    """Shrink ``theta (M, D)`` in coordinates in which the covariance per row is the identity.

    A site with fewer than ``least`` rows, or whose variance alone keeps it near the others, gets the centre; a
    ``barred`` site is excluded from the centre.
    """
    D, thin = theta.shape[1], labels < least
    speak = ~thin | thin.all()
    unit = geometric_median((labels[speak, None, None] * covariance[speak]).reshape(-1, D * D)).reshape(D, D)
    L = np.asarray(np.linalg.cholesky(unit), dtype=np.float64)
    variances = np.array([np.trace(_whitened(L, each)) for each in covariance[speak]])
    own, out = covariance[speak], barred[speak] & ~np.all(barred[speak])
    white = solve_triangular(L, theta[speak].T, lower=True).T
    found = _all_equal(white, out) if equal or thin.all() else _heard(shrunk(white, variances, out), variances)
    spread = np.sqrt((found.between + believed(variances)) / D)
    residuals = np.zeros_like(theta)
    residuals[speak] = np.where(found.kept[:, None], (white - found.centre) / spread[:, None], 0.0)
    within = np.einsum("m,mab->ab", found.weights**2, own)
    centre_covariance = within + np.sum(found.weights**2) * found.between / D * unit
    back = replace(found, centre=L @ found.centre, estimates=found.estimates @ L.T)
    return ShrunkVectors(_with_silent(back, speak, thin), centre_covariance, residuals)


def _heard(found: Shrinkage, variances: Array) -> Shrinkage:
    """Shrink fully, and exclude, the sites that are kept only because of their large variance."""
    unsure = found.kept & (variances > UNSURE * np.median(variances))
    return replace(found, kept=found.kept & ~unsure, shrinkage=np.where(unsure, 1.0, found.shrinkage))


def _with_silent(found: Shrinkage, speak: Mask, thin: Mask) -> Shrinkage:
    """Add the uninformative sites to the shrinkage of the others: they get the centre and have no weight in it."""
    M = len(speak)
    weights, kept, shrinkage = np.zeros(M), np.zeros(M, dtype=bool), np.ones(M)
    estimates = np.repeat(found.centre[None], M, axis=0)
    weights[speak], kept[speak], estimates[speak], shrinkage[speak] = (
        found.weights,
        found.kept,
        found.estimates,
        found.shrinkage,
    )
    return Shrinkage(found.centre, found.between, weights, estimates, shrinkage, kept & ~thin)


def _whitened(L: Array, covariance: Array) -> Array:
    half = solve_triangular(L, covariance, lower=True)
    return np.asarray(solve_triangular(L, half.T, lower=True))


def _all_equal(points: Array, barred: Mask) -> Shrinkage:
    """Give every site the geometric median of the sites that are not barred."""
    centre, M = geometric_median(points[~barred]), len(points)
    weights = ~barred / np.sum(~barred)
    return Shrinkage(centre, 0.0, weights, np.repeat(centre[None], M, axis=0), np.ones(M), ~barred)


def division(residuals: Sequence[Array]) -> float:
    """Measure grouping of sites: the largest eigenvalue of their residual Gram matrix over its bound by chance.

    With residuals ``r_mk (D,)`` of unit variance the Gram matrix ``(1 / K D) Σ_k r_mkᵀ r_lk`` of M sites has
    eigenvalues up to about ``(1 + √(M / K D))²`` (Marchenko and Pastur); half as much again is allowed. It detects
    sites shifted in the same direction, each within sampling error.

    Parameters
    ----------
    residuals : sequence of (M, D) array
        Residuals of each expert; rows of zeros for sites that are not kept.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> apart = rng.normal(size=(20, 10))
    >>> division([apart]) < 1 < division([apart + 2 * (np.arange(20) < 9)[:, None]])
    True
    """
    R = np.concatenate(list(residuals), axis=1)
    R = R[np.any(R != 0, axis=1)]
    M, size = R.shape
    if M < 2 or size == 0:
        return 0.0
    largest = float(np.linalg.eigvalsh(R @ R.T / size)[-1])
    return float(largest / (1.5 * (1 + np.sqrt(M / size)) ** 2))
