"""Shrink one vector of each site towards a centre, in whitened coordinates.

Coordinates are whitened by the covariance of the vector per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from consilience.aggregate.robust.centre import geometric_median
from consilience.aggregate.robust.empirical_bayes import Shrinkage, believed, harmonic_variances, shrunk
from consilience.numerics.arrays import Array, Mask
from consilience.numerics.linalg import cholesky_or_none

UNSURE = 100.0
"""Multiple of the median variance above which an estimate is treated as uninformative."""


@dataclass(frozen=True, eq=False)
class ShrunkVectors:
    """One vector of each site shrunk towards its centre, and the positions of the sites in whitened coordinates."""

    found: Shrinkage  # back in the coordinates it came in
    residuals: Array  # (M, D) from the centre, of unit variance where only chance and ĥ² are at work; 0 if not kept


def shrink_whitened(
    theta: Array, covariance: Array, labels: Array, *, least: float, equal: bool, barred: Mask, tested: int = 1
) -> ShrunkVectors:
    """Shrink ``theta (M, D)`` in coordinates in which the covariance per row is the identity.

    A site with fewer than ``least`` rows, or whose variance alone keeps it near the others, gets the centre; a
    ``barred`` site is excluded from the centre. ``tested`` vectors of each site are compared in all.
    """
    D, thin = theta.shape[1], labels < least
    speak = ~thin | thin.all()
    unit = geometric_median((labels[speak, None, None] * covariance[speak]).reshape(-1, D * D)).reshape(D, D)
    L = factor(unit)
    white = solve_triangular(L, theta[speak].T, lower=True).T
    own, out = _whitened(L, covariance[speak]), barred[speak] & ~np.all(barred[speak])
    equal = equal or bool(thin.all())
    found = _all_equal(white, own, out) if equal else _heard(shrunk(white, own, out, tested), own)
    residuals = np.zeros_like(theta)
    residuals[speak] = np.where(found.kept[:, None], _standardised(white - found.centre, own, found.between), 0.0)
    inverse = solve_triangular(L, np.eye(D), lower=True)
    back = replace(
        found,
        centre=L @ found.centre,
        covariance=L @ found.covariance @ L.T,
        others=found.others @ L.T,
        pull=found.pull if equal else inverse.T @ found.pull @ inverse,  # infinite if equal
        estimates=found.estimates @ L.T,
    )
    return ShrunkVectors(_with_silent(back, speak, thin), residuals)


def factor(unit: Array) -> Array:
    """Return the lower Cholesky factor of a covariance ``(D, D)``; if it is singular, of one with a larger diagonal.

    Examples
    --------
    >>> factor(np.ones((2, 2))).round(3)
    array([[1.   , 0.   ],
           [1.   , 0.001]])
    """
    diagonal = np.maximum(np.diagonal(unit), np.finfo(float).tiny)
    for share in (0.0, 1e-6, 1e-3):
        L = cholesky_or_none(unit + share * np.diag(diagonal))
        if L is not None:
            return L
    return np.asarray(np.diag(np.sqrt(diagonal)))


def _standardised(gaps: Array, covariances: Array, between: float) -> Array:
    """Divide distances from the centre by their standard deviations, of which a site has at least half the usual."""
    spread = between + np.trace(believed(covariances), axis1=1, axis2=2) / gaps.shape[1]
    return np.asarray(gaps / np.sqrt(spread)[:, None])


def _heard(found: Shrinkage, covariances: Array) -> Shrinkage:
    """Shrink fully, and exclude, the sites that are kept only because of their large variance."""
    variances = harmonic_variances(covariances)
    unsure = found.kept & (variances > UNSURE * np.median(variances))
    return replace(found, kept=found.kept & ~unsure, shrinkage=np.where(unsure, 1.0, found.shrinkage))


def _with_silent(found: Shrinkage, speak: Mask, thin: Mask) -> Shrinkage:
    """Add the uninformative sites to the shrinkage of the others: they get the centre and have no weight in it."""
    M, D = len(speak), len(found.centre)
    weights, kept, shrinkage = np.zeros(M), np.zeros(M, dtype=bool), np.ones(M)
    others, pull = np.repeat(found.centre[None], M, axis=0), np.full((M, D, D), np.inf)
    estimates = others.copy()
    weights[speak], kept[speak], shrinkage[speak] = found.weights, found.kept, found.shrinkage
    others[speak], pull[speak], estimates[speak] = found.others, found.pull, found.estimates
    return replace(
        found,
        weights=weights,
        others=others,
        pull=pull,
        estimates=estimates,
        shrinkage=shrinkage,
        kept=kept & ~thin,
    )


def _whitened(L: Array, covariances: Array) -> Array:
    inverse = solve_triangular(L, np.eye(len(L)), lower=True)
    return np.asarray(inverse @ covariances @ inverse.T)


def _all_equal(points: Array, covariances: Array, barred: Mask) -> Shrinkage:
    """Give every site the geometric median of the sites that are not barred."""
    centre, (M, D) = geometric_median(points[~barred]), points.shape
    weights, same = ~barred / np.sum(~barred), np.repeat(centre[None], M, axis=0)
    covariance = np.einsum("m,mab->ab", weights**2, covariances)
    return Shrinkage(centre, covariance, 0.0, weights, same, np.full((M, D, D), np.inf), same, np.ones(M), ~barred)


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
