"""Shrink one vector of each site towards a centre, in whitened coordinates.

Coordinates are whitened by the covariance of the vector per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from consilience.aggregate.robust.centre import CAP, geometric_median
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
    L = cholesky_factor(unit)
    white = solve_triangular(L, theta[speak].T, lower=True).T
    own, out = _whitened(L, covariance[speak]), barred[speak] & ~np.all(barred[speak])
    equal = equal or bool(thin.all())
    found = _all_equal(white, own, out) if equal else _heard(shrink(white, own, out, tested), own)
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
        shares=L @ found.shares @ inverse,
    )
    return ShrunkVectors(_with_silent(back, speak, thin), residuals)


def cholesky_factor(unit: Array) -> Array:
    """Return the lower Cholesky factor of a covariance ``(D, D)``; if it is singular, of one with a larger diagonal."""
    diagonal = np.maximum(np.diagonal(unit), np.finfo(float).tiny)
    for share in (0.0, 1e-6, 1e-3):
        L = cholesky_or_none(unit + share * np.diag(diagonal))
        if L is not None:
            return L
    return np.asarray(np.diag(np.sqrt(diagonal)))


def _standardised(gaps: Array, covariances: Array, between: float) -> Array:
    """Divide distances from the centre by their standard deviations, of which a site has at least half the usual."""
    spread = between + np.trace(inflate_covariances(covariances), axis1=1, axis2=2) / gaps.shape[1]
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
    estimates, shares = others.copy(), np.zeros((M, D, D))
    shares[speak] = found.shares
    weights[speak], kept[speak], shrinkage[speak] = found.weights, found.kept, found.shrinkage
    others[speak], pull[speak], estimates[speak] = found.others, found.pull, found.estimates
    return replace(
        found,
        weights=weights,
        others=others,
        pull=pull,
        estimates=estimates,
        shares=shares,
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
    unknown, full = np.full((M, D, D), np.nan), np.full((M, D, D), np.inf)  # a median is no weighted mean
    return Shrinkage(centre, covariance, 0.0, weights, unknown, same, full, same, np.ones(M), ~barred)


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
    >>> import numpy as np
    >>> from consilience.aggregate import division
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


# ---------------------------------------------------------------- empirical Bayes, by matrix
#
# A site's estimate moves in the directions that its rows do not determine, and stays in those that they do: the weights
# are the precision matrices of the site and of the prior, not their traces.


REFUSED = 2.5
"""Multiple of the expected squared distance from the centre above which a site is excluded."""
CHANCE = 0.02
"""Probability that any honest site is excluded in any of its vectors under homogeneity, if the quantile is larger than
the multiple."""
PASSES = 50
"""Maximum number of alternations between the centre and the variance between sites."""
MAY_RETURN = 10
"""Number of alternations after which an excluded site stays excluded."""
BISECTIONS = 60


def harmonic_variances(covariances: Array) -> Array:
    """Return ``D / tr C_m⁻¹`` for ``(M, D, D)``: the variance of a site in the directions that it determines best."""
    return np.asarray(covariances.shape[1] / np.trace(np.linalg.inv(covariances), axis1=1, axis2=2))


def inflate_covariances(covariances: Array) -> Array:
    """Scale up covariances ``(M, D, D)`` whose harmonic variance is below half the median: sites report them."""
    variances = harmonic_variances(covariances)
    return np.asarray(covariances * np.maximum(1.0, np.median(variances) / CAP / variances)[:, None, None])


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """Estimates of sites, shrunk towards a robust centre.

    Parameters
    ----------
    centre : (D,) array
    covariance : (D, D) array
        Covariance of the centre: sampling error at the sites, and variance between sites.
    between : float
        Variance between sites ``ĥ²`` of each coordinate.
    weights : (M,) array
        Mean weight of each site in the centre over coordinates; they sum to 1, and are 0 for sites that are not kept.
    shares : (M, D, D) array
        Weight of each site in the centre ``v = Σ A_m z_m``; NaN if the centre is a median.
    others : (M, D) array
        Centre of the other sites, towards which a site is shrunk.
    pull : (M, D, D) array
        Precision with which a site is shrunk towards it.
    estimates : (M, D) array
    shrinkage : (M,) array
        Fraction of each estimate that comes from the other sites, mean over directions.
    kept : (M,) array of bool
        Sites that define the centre.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import shrink
    >>> shrink(np.array([[0.0], [0.1], [-0.1]]), np.ones((3, 1, 1))).shrinkage.round(2)
    array([0.67, 0.67, 0.67])
    """

    centre: Array
    covariance: Array
    between: float
    weights: Array
    shares: Array
    others: Array
    pull: Array
    estimates: Array
    shrinkage: Array
    kept: Mask


def shrink(points: Array, covariances: Array, barred: Mask | None = None, tested: int = 1) -> Shrinkage:
    """Shrink each site's estimate towards the robust centre of the others, by empirical Bayes.

    ``θ_m = z_m + B_m (v₋ₘ - z_m)`` with ``B_m = (C_m⁻¹ + T_m⁻¹)⁻¹ T_m⁻¹`` and ``T_m = ĥ² I + S₋ₘ``, where ``v₋ₘ`` is
    the centre of the other sites and ``S₋ₘ`` its covariance. Directions with small ``C_m`` hardly move; those that the
    site's rows do not determine are those of the others. If sites do not differ significantly, ``ĥ² = 0`` and ``θ_m``
    is the precision-weighted mean of all; if they differ much, each keeps its own estimate.

    Alternately, ``ĥ²`` is such that the median over the sites kept so far of ``q_m = r_mᵀ (C_m + T_m)⁻¹ r_m``,
    ``r_m = z_m - v₋ₘ``, is that of a chi-square of D degrees of freedom; sites with ``q_m / D`` above 2.5, or above the
    ``1 - 0.02 / (M tested)`` quantile if that is larger, are excluded; and ``v = (Σ W_m)⁻¹ Σ W_m z_m``,
    ``W_m = (C_m + ĥ² I)⁻¹``, over the sites kept. A ``C_m`` of less than half the median is scaled up to that in
    ``W_m``, since it is reported by the site. The iteration starts at the geometric median.

    The shrinkage of an excluded site decreases with its distance: it is that at the bound, times the bound over
    ``q_m``, so that a site excluded by chance is still shrunk.

    Parameters
    ----------
    points : (M, D) array
        Points in comparable units.
    covariances : (M, D, D) array
        ``C_m``, positive definite.
    barred : (M,) array of bool, optional
        Sites that are excluded wherever they lie.
    tested : int
        Number of vectors of each site that are compared, such as those of its experts.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import shrink
    >>> found = shrink(np.array([[0.0], [1.0], [2.0], [900.0]]), np.full((4, 1, 1), 0.01))
    >>> found.kept, found.estimates.ravel().round(1)
    (array([ True,  True,  True, False]), array([  0.,   1.,   2., 900.]))

    The second coordinate is not determined by the first site's rows:

    >>> C = np.array([np.diag([0.01, 1e4]), np.diag([0.01, 0.01]), np.diag([0.01, 0.01])])
    >>> shrink(np.array([[3.0, 9.0], [0.0, 1.0], [-3.0, 1.0]]), C).estimates[0].round(2)
    array([3.  , 1.01])
    """
    M, D = points.shape
    counted = inflate_covariances(covariances)
    most = max(REFUSED, float(chdtri(D, CHANCE / (M * tested))) / D)
    others, spread = np.repeat(geometric_median(points)[None], M, axis=0), np.zeros((M, D, D))
    between, kept, known = 0.0, np.ones(M, dtype=bool), np.ones(M, dtype=bool)
    for turn in range(PASSES):
        heard = known & kept if 2 * np.sum(known & kept) >= M else known
        gaps, chance = points - others, covariances + spread
        before, between = between, _between(gaps[heard], chance[heard])
        last, kept = kept, ~known | (_squares(gaps, chance, between) <= most * D)
        if barred is not None:
            kept &= ~barred
        if turn > MAY_RETURN:
            kept &= last  # who is at the border may not come and go for ever
        if not kept.any():
            kept = np.ones(M, dtype=bool) if barred is None else ~barred
        weights = kept[:, None, None] * np.linalg.inv(counted + between * np.eye(D))
        others, spread, known = _of_others(points, weights)
        if turn > 0 and np.array_equal(kept, last) and abs(between - before) <= 1e-6 * (between + before):
            break
    square = _squares(points - others, covariances + spread, between)
    far = np.where(kept, 1.0, most * D / np.maximum(square, most * D))
    prior = _inverse(between * np.eye(D) + spread + (~known)[:, None, None] * np.eye(D)) * known[:, None, None]
    fraction, pull = _pull(_inverse(covariances), prior, far)
    estimates = points + np.einsum("mab,mb->ma", fraction, others - points)
    shares = np.linalg.inv(weights.sum(axis=0)) @ weights  # (M, D, D)
    centre = np.einsum("mab,mb->a", shares, points)
    covariance = np.einsum("mab,mbc,mdc->ad", shares, covariances + between * np.eye(D), shares, optimize=True)
    shrinkage, weight = (np.trace(each, axis1=1, axis2=2) / D for each in (fraction, shares))
    return Shrinkage(centre, covariance, between, weight, shares, others, pull, estimates, shrinkage, kept)


def _inverse(matrices: Array) -> Array:
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


def _pull(precision: Array, prior: Array, far: Array) -> tuple[Array, Array]:
    """Return ``f B`` with ``B = (P + Q)⁻¹ Q``, and the precision that shrinks by it, ``P f B (I - f B)⁻¹``."""
    fraction = far[:, None, None] * np.linalg.solve(precision + prior, prior)
    left = np.eye(precision.shape[1]) - fraction
    pull = precision @ fraction @ np.linalg.inv(left)
    return fraction, 0.5 * (pull + np.swapaxes(pull, 1, 2))


def _squares(gaps: Array, chance: Array, between: float) -> Array:
    """Compute ``r_mᵀ (S_m + ĥ² I)⁻¹ r_m``, ``(M,)``."""
    total = chance + between * np.eye(gaps.shape[1])
    return np.asarray(np.einsum("ma,ma->m", gaps, np.linalg.solve(total, gaps[:, :, None])[:, :, 0]))


def _between(gaps: Array, chance: Array) -> float:
    """Find ``ĥ²`` at which the median of the squared distances is that of a chi-square; 0 if they are smaller."""
    if not len(gaps):
        return 0.0
    D = int(gaps.shape[1])
    usual = D * (1 - 2 / (9 * D)) ** 3  # median of the chi-square, by Wilson and Hilferty
    values, vectors = np.linalg.eigh(chance)
    turned = np.einsum("mab,ma->mb", vectors, gaps) ** 2

    def middle(h2: float) -> float:
        return float(np.median(np.sum(turned / (values + h2), axis=1)))

    if middle(0.0) <= usual:
        return 0.0
    low, high = 0.0, float(np.median(turned.sum(axis=1))) / usual  # all distances count fully without sampling error
    for _ in range(BISECTIONS):
        half = 0.5 * (low + high)
        low, high = (half, high) if middle(half) > usual else (low, half)
    return high


def _of_others(points: Array, weights: Array) -> tuple[Array, Array, Mask]:
    """Compute the centre of the other sites ``(M, D)``, its covariance, and whether there are any, ``(M,)``."""
    D = points.shape[1]
    used = np.any(weights != 0, axis=(1, 2))
    known = used.sum() - used > 0
    left = np.where(known[:, None, None], weights.sum(axis=0) - weights, np.eye(D))
    spread = np.linalg.inv(left)
    moments = np.einsum("mab,mb->ma", weights, points)
    mean = np.einsum("mab,mb->ma", spread, moments.sum(axis=0) - moments)
    return np.where(known[:, None], mean, points), spread * known[:, None, None], known
