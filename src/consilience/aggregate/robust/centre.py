"""Robust centres: medians, trimmed mean, Huber centre, shrinkage.

Sites send one vector each; all centres but the mean have a positive breakdown point. If sites truly differ, no common
centre fits them: shrinkage gives each site an estimate between its own and the centre.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

from consilience.errors import InvalidInputError
from consilience.numerics.arrays import Array, Mask

ROUNDING = 1e-12
LARGEST = 1e100
CAP = 2.0
"""Maximum weight of a site, as a multiple of the median weight."""
REFUSED = 2.5
"""Multiple of the expected squared distance from the centre above which a site is excluded."""
REFUSED_LEVEL = 0.995
"""Quantile under homogeneity that replaces the multiple if it is larger: with few coordinates the tail is long."""
PASSES = 50
"""Maximum number of alternations between the centre and the variance between sites."""
MAY_RETURN = 10
"""Number of alternations after which an excluded site stays excluded."""


def usable(points: Array) -> Mask:
    """Return the sites with finite numbers and finite squares, ``(M,)``; raise an error if there is none.

    Examples
    --------
    >>> usable(np.array([[1.0, 2.0], [np.nan, 0.0]]))
    array([ True, False])
    """
    finite: Mask = np.asarray((np.abs(points) < LARGEST).reshape(len(points), -1).all(axis=1))
    if not finite.any():
        raise InvalidInputError("no site sent finite numbers with finite squares")
    return finite


def capped(weights: Array) -> Array:
    """Limit the weights of sites to twice the median, since sizes are reported by the sites.

    Examples
    --------
    >>> capped(np.array([90.0, 110.0, 1e9]))
    array([ 90., 110., 220.])
    """
    return np.minimum(weights, CAP * np.median(weights))


def believed(variances: Array) -> Array:
    """Bound the variances of sites' estimates below by half the median, since they are reported by the sites.

    Examples
    --------
    >>> believed(np.array([1.0, 1.2, 1e-9]))
    array([1. , 1.2, 0.5])
    """
    return np.maximum(variances, np.median(variances) / CAP)


def coordinate_median(points: Array, weights: Array | None = None) -> Array:
    """Compute the weighted median of each coordinate, ``(D,)``; the midpoint if there are two.

    Examples
    --------
    >>> coordinate_median(np.array([[0.0, 1.0], [1.0, 5.0], [900.0, 3.0]]))
    array([1., 3.])
    """
    weights = np.ones(len(points)) if weights is None else weights
    rank = np.argsort(points, axis=0)
    ordered, mass = np.take_along_axis(points, rank, axis=0), np.cumsum(weights[rank], axis=0)
    half = 0.5 * mass[-1]
    lower, upper = np.argmax(mass >= half, axis=0), np.argmax(mass > half, axis=0)
    columns = np.arange(points.shape[1])
    medians: Array = 0.5 * (ordered[lower, columns] + ordered[upper, columns])
    return medians


def trimmed_mean(points: Array, share: float) -> Array:
    """Compute the mean of each coordinate without the ``share`` lowest and the ``share`` highest sites, ``(D,)``.

    Examples
    --------
    >>> trimmed_mean(np.array([[0.0], [1.0], [2.0], [3.0], [900.0]]), 0.2)
    array([2.])
    """
    if not 0 <= share < 0.5:
        raise InvalidInputError(f"share={share!r}: expected a number from 0 to less than 0.5")
    cut = int(share * len(points) + ROUNDING)
    ordered = np.sort(points, axis=0)[cut : len(points) - cut]
    return np.asarray(ordered.mean(axis=0))


def geometric_median(points: Array, weights: Array | None = None, *, tol: float = 1e-10, max_iter: int = 1000) -> Array:
    """Compute the geometric median, the ``v`` that minimises ``Σ_m w_m ‖z_m - v‖``; its breakdown point is one half.

    Weiszfeld's iteration with the safeguard of Vardi and Zhang, ``v ← v + (1 - η / ‖R‖)₊ R / Σ_m (w_m / ‖z_m - v‖)``
    where ``R = Σ_m w_m (z_m - v) / ‖z_m - v‖`` over points other than ``v``, and ``η`` is the weight of those at ``v``.
    A point where ``‖R‖ < η`` is the median: the nearest one is tried at each step, since the iteration alone would
    converge to it only slowly.

    Parameters
    ----------
    points : (M, D) array
    weights : (M,) array, optional
        Non-negative, some positive; equal by default.
    tol : float
        Convergence tolerance: step length relative to the median distance of the points.
    max_iter : int

    Returns
    -------
    (D,) array

    References
    ----------
    Y. Vardi and C.-H. Zhang, The multivariate L1-median and associated data depth, PNAS 97 (2000), 1423-1426.

    Examples
    --------
    >>> geometric_median(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 900.0]])).round(3)
    array([0.5  , 0.812])
    >>> geometric_median(np.array([[0.0], [1.0], [9.0]]), np.array([1.0, 1.0, 3.0]))
    array([9.])
    """
    weights = np.ones(len(points)) if weights is None else weights
    points, weights = points[weights > 0], weights[weights > 0]
    total, centre = weights.sum(), coordinate_median(points, weights)
    tried = -1
    for _ in range(max_iter):
        distance = np.linalg.norm(points - centre, axis=1)
        nearest = int(np.argmin(distance))
        if nearest != tried:
            R, eta, _ = _pull(points, weights, points[nearest])
            if eta - np.linalg.norm(R) > ROUNDING * total:
                return np.array(points[nearest])
            tried = nearest
        R, eta, steepness = _pull(points, weights, centre)
        strength = float(np.linalg.norm(R))
        if strength - eta <= ROUNDING * total:
            break
        step = (1 - eta / strength) * R / steepness
        centre = centre + step
        if np.linalg.norm(step) <= tol * np.median(distance):
            break
    return centre


def _pull(points: Array, weights: Array, at: Array) -> tuple[Array, float, float]:
    """Compute ``R``, ``η`` and ``Σ w / ‖z - v‖`` at a point ``v``."""
    gap = points - at
    distance = np.linalg.norm(gap, axis=1)
    away = distance > 0
    inverse = weights[away] / distance[away]
    return inverse @ gap[away], float(weights[~away].sum()), float(inverse.sum())


def huber_centre(
    points: Array,
    threshold: float | Array,
    weights: Array | None = None,
    *,
    tol: float = 1e-10,
    max_iter: int = 1000,
) -> Array:
    """Compute the ``v`` that minimises ``Σ_m w_m ρ(‖z_m - v‖)`` with Huber's ρ: quadratic, linear above the threshold.

    It solves ``min_{v, ν} Σ_m w_m (½ ‖ν_m - z_m‖² + τ_m ‖ν_m - v‖)``, the central step of FedGrEM, with ``ν_m`` as from
    :func:`drawn_towards`. Iterates ``v ← Σ a_m z_m / Σ a_m``, ``a_m = w_m min(1, τ_m / ‖z_m - v‖)``, from the
    coordinatewise medians: from the mean, outlying sites would slow convergence.

    Parameters
    ----------
    points : (M, D) array
    threshold : float or (M,) array
        ``τ > 0``.
    weights : (M,) array, optional
    tol : float
        Convergence tolerance: step length relative to the smallest threshold.
    max_iter : int

    Examples
    --------
    >>> huber_centre(np.array([[0.0], [1.0], [2.0], [900.0]]), 1.5)
    array([1.5])
    """
    if not np.all(np.asarray(threshold) > 0):
        raise InvalidInputError(f"threshold={threshold!r}: expected positive numbers")
    weights = np.ones(len(points)) if weights is None else weights
    centre = coordinate_median(points, weights)
    for _ in range(max_iter):
        distance = np.linalg.norm(points - centre, axis=1)
        share = weights * threshold / np.maximum(distance, threshold)
        before, centre = centre, share @ points / share.sum()
        if np.linalg.norm(centre - before) <= tol * np.min(threshold):
            break
    return centre


def drawn_towards(points: Array, centre: Array, threshold: float | Array) -> Array:
    """Apply block soft thresholding ``v + (1 - τ_m / ‖z_m - v‖)₊ (z_m - v)``, ``(M, D)``.

    Examples
    --------
    >>> drawn_towards(np.array([[0.5], [3.0]]), np.zeros(1), 1.0).ravel()
    array([0., 2.])
    """
    gap = points - centre
    distance = np.linalg.norm(gap, axis=1)
    left = 1 - threshold / np.maximum(distance, threshold)
    return np.asarray(centre + left[:, None] * gap)


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """Estimates of sites, shrunk towards a robust centre.

    Parameters
    ----------
    centre : (D,) array
    between : float
        Variance between sites ``ĥ²``, summed over coordinates.
    weights : (M,) array
        Weight of each site in the centre; they sum to 1, and are 0 for sites that are not kept.
    estimates : (M, D) array
    shrinkage : (M,) array
        Fraction of each estimate that comes from the other sites.
    kept : (M,) array of bool
        Sites that define the centre.

    Examples
    --------
    >>> shrunk(np.array([[0.0], [0.1], [-0.1]]), np.ones(3)).shrinkage.round(2)
    array([0.67, 0.67, 0.67])
    """

    centre: Array
    between: float
    weights: Array
    estimates: Array
    shrinkage: Array
    kept: Mask


def shrunk(points: Array, variances: Array, barred: Mask | None = None) -> Shrinkage:
    """Shrink each site's estimate towards the robust centre of the others, by empirical Bayes.

    ``θ_m = v₋ₘ + B_m (z_m - v₋ₘ)`` with ``B_m = (ĥ² + s₋ₘ) / (ĥ² + s₋ₘ + s_m)``, where ``v₋ₘ`` is the centre of the
    other sites and ``s₋ₘ`` its variance. If sites do not differ significantly, ``ĥ² = 0`` and ``θ_m`` is the
    precision-weighted mean of all; if they differ much, each keeps its own estimate.

    Alternately, ``ĥ² = max(0, median_m(q_m / c_D - s_m - s₋ₘ))`` over the sites kept so far, with
    ``q_m = ‖z_m - v₋ₘ‖²`` and ``c_D`` the median of a chi-square over its mean; sites with ``q_m / (ĥ² + s_m + s₋ₘ)``
    above 2.5, or above the 0.995 quantile under homogeneity if that is larger, are excluded; and
    ``v = Σ w_m z_m / Σ w_m``, ``w_m = 1 / (ĥ² + s_m)``, over the sites kept. ``s_m`` is bounded below by half the
    median there, since it is reported by the site. The iteration starts at the geometric median.

    The shrinkage of an excluded site decreases with its distance: it is that at the bound, times the bound over
    ``q_m``, so that a site excluded by chance is still shrunk.

    Parameters
    ----------
    points : (M, D) array
        Points in comparable units.
    variances : (M,) array
        ``s_m = tr Cov(z_m)``, positive.
    barred : (M,) array of bool, optional
        Sites that are excluded wherever they lie.

    Examples
    --------
    >>> found = shrunk(np.array([[0.0], [1.0], [2.0], [900.0]]), np.full(4, 0.01))
    >>> found.kept, found.estimates.ravel().round(1)
    (array([ True,  True,  True, False]), array([  0.,   1.,   2., 900.]))
    """
    M, D = points.shape
    counted = believed(variances)
    most = max(REFUSED, float(chdtri(D, 1 - REFUSED_LEVEL)) / D)
    others, spread = np.repeat(geometric_median(points)[None], M, axis=0), np.zeros(M)
    weights, between, kept = np.zeros(M), 0.0, np.ones(M, dtype=bool)
    for turn in range(PASSES):
        square = np.sum((points - others) ** 2, axis=1)
        known = np.isfinite(spread)
        heard = known & kept if 2 * np.sum(known & kept) >= M else known
        before, between = between, _between(square[heard], (variances + spread)[heard], D)
        last, kept = kept, ~known | (square <= most * (between + spread + variances))
        if barred is not None:
            kept &= ~barred
        if turn > MAY_RETURN:
            kept &= last  # who is at the border may not come and go for ever
        weights = kept / (between + counted)
        others, spread = _of_others(points, weights)
        if turn > 0 and np.array_equal(kept, last) and abs(between - before) <= 1e-9 * (between + counted.min()):
            break
    share = weights / weights.sum()
    square = np.sum((points - others) ** 2, axis=1)
    expected = between + np.where(np.isfinite(spread), spread, 0.0) + variances
    shrinkage = np.where(np.isfinite(spread), variances / expected, 0.0)
    shrinkage *= np.where(kept, 1.0, most * expected / np.maximum(square, most * expected))
    return Shrinkage(share @ points, between, share, points + shrinkage[:, None] * (others - points), shrinkage, kept)


def _between(square: Array, expected: Array, D: int) -> float:
    """Estimate the variance between sites from squared distances, of which ``expected`` is sampling error."""
    median_of_chi_square = (1 - 2 / (9 * D)) ** 3
    return max(0.0, float(np.median(square / median_of_chi_square - expected))) if len(square) else 0.0


def _of_others(points: Array, weights: Array) -> tuple[Array, Array]:
    """Compute the weighted mean of the other sites ``(M, D)`` and its variance ``(M,)``; infinite without others."""
    left = weights.sum() - weights
    alone = left <= ROUNDING * weights.sum()
    left = np.where(alone, 1.0, left)
    mean = (weights @ points - weights[:, None] * points) / left[:, None]
    return np.where(alone[:, None], points, mean), np.where(alone, np.inf, 1 / left)
