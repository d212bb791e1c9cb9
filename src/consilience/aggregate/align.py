"""One set of labels for all sites: each site names its experts in an order of its own, and some sites are wrong.

Labels are compared by un-squared distances and centred by geometric medians, so that sites far off have no more say
than others: up to nearly half of them may send anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from consilience.numerics.arrays import Array, Labels

ALL_CANDIDATES = 300
"""Up to this many sites each is a candidate for the reference."""
DRAWN_CANDIDATES = 50
MAX_PASSES = 10
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Alignment:
    """Labels on which M sites agree.

    Parameters
    ----------
    orders : (M, K) array of int
        ``points[m][orders[m]]`` has the common labels.
    consensus : (K, D) array
        For each label the geometric median of its points over the sites.
    reference : int
        The site whose labels became the common ones.
    converged : bool
        Whether the consensus gives back the labels that it was made from.

    Examples
    --------
    >>> points = np.array([[[0.0], [5.0]], [[5.1], [0.1]]])
    >>> labels = Alignment(np.array([[0, 1], [1, 0]]), np.array([[0.05], [5.05]]), 0, True)
    >>> points[1][labels.orders[1]].ravel()
    array([0.1, 5.1])
    """

    orders: Labels
    consensus: Array
    reference: int
    converged: bool


def consistent_labels(points: Array, *, seed: int = 0) -> Alignment:
    """Common labels for the K components of M sites.

    The reference is the site whose median distance to the others is smallest, ``d(m, l) = min_σ Σ_j ‖θ_mσ(j) - θ_lj‖``;
    it is an honest one while most sites are. Every site is matched to it by optimal assignment. Then in turn the
    geometric median of each label takes the place of the reference, and sites are matched again, until nothing changes:
    neither step can raise ``Σ_m Σ_j ‖θ_mσ_m(j) - v_j‖``.

    A site may name its components in any order, and sites may come in any order: up to ties the result is the same, in
    the order of the reference.

    Parameters
    ----------
    points : (M, K, D) array
        What tells components apart, in coordinates where a unit means the same everywhere: coefficients, say.
    seed : int
        Draws the 50 candidates for the reference where there are more than 300 sites; not used below.

    Returns
    -------
    Alignment

    Examples
    --------
    >>> honest = np.array([[0.0], [5.0], [9.0]])
    >>> points = np.array([honest, honest[[2, 0, 1]] + 0.1, honest[::-1] - 0.1, [[70.0], [-30.0], [20.0]]])
    >>> labels = consistent_labels(points)
    >>> labels.orders[:3]
    array([[0, 1, 2],
           [1, 2, 0],
           [2, 1, 0]])
    >>> labels.consensus.round(2).ravel()
    array([-0.05,  5.05,  9.05])
    """
    reference = _medoid(points, seed)
    orders, _ = _matched(points, points[reference])
    consensus = _medians(points, orders)
    converged = False
    for _ in range(MAX_PASSES):
        before = orders
        orders, _ = _matched(points, consensus)
        converged = np.array_equal(orders, before)
        if converged:
            break
        consensus = _medians(points, orders)
    return Alignment(orders, consensus, reference, converged)


def _medoid(points: Array, seed: int) -> int:
    """The site with the smallest median distance to all."""
    M = len(points)
    candidates = np.arange(M)
    if M > ALL_CANDIDATES:
        candidates = np.sort(np.random.default_rng(seed).choice(M, DRAWN_CANDIDATES, replace=False))
    typical = [np.median(_matched(points, points[m])[1]) for m in candidates]
    return int(candidates[np.argmin(typical)])


def _matched(points: Array, centres: Array) -> tuple[Labels, Array]:
    """Orders ``(M, K)`` in which sites are nearest to ``centres (K, D)``, and the distances ``(M,)`` that remain."""
    M, K, D = points.shape
    costs = cdist(centres, points.reshape(M * K, D)).reshape(K, M, K)
    orders = np.array([linear_sum_assignment(costs[:, m])[1] for m in range(M)], dtype=np.intp)
    return orders, costs[np.arange(K), np.arange(M)[:, None], orders].sum(axis=1)


def _medians(points: Array, orders: Labels) -> Array:
    """The geometric median of each label, ``(K, D)``."""
    aligned = np.take_along_axis(points, orders[:, :, None], axis=1)
    return np.array([geometric_median(aligned[:, j]) for j in range(aligned.shape[1])])


# ---------------------------------------------------------------- the geometric median


def geometric_median(points: Array, weights: Array | None = None, *, tol: float = 1e-10, max_iter: int = 1000) -> Array:
    """The point ``v`` with the smallest ``Σ_m w_m ‖z_m - v‖``; it stays bounded while less than half the weight moves.

    Weiszfeld's iteration with the safeguard of Vardi and Zhang, ``v ← v + (1 - η / ‖R‖)₊ R / Σ_m (w_m / ‖z_m - v‖)``
    where ``R = Σ_m w_m (z_m - v) / ‖z_m - v‖`` over points other than ``v``, and ``η`` is the weight of those at ``v``.
    A point where ``‖R‖ < η`` is the median: the nearest one is tried at each step, since the iteration alone would
    creep up to it for ever.

    Parameters
    ----------
    points : (M, D) array
    weights : (M,) array, optional
        Not negative, some positive; equal by default.
    tol : float
        Stop at a step below ``tol`` times the mean distance of the points.
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
    total, centre = weights.sum(), _coordinate_medians(points, weights)
    for _ in range(max_iter):
        distance = np.linalg.norm(points - centre, axis=1)
        nearest: Array = points[np.argmin(distance)]
        R, eta, _ = _pull(points, weights, nearest)
        if eta - np.linalg.norm(R) > ROUNDING * total:
            return nearest.copy()
        R, eta, steepness = _pull(points, weights, centre)
        strength = float(np.linalg.norm(R))
        if strength - eta <= ROUNDING * total:
            break
        step = (1 - eta / strength) * R / steepness
        centre = centre + step
        if np.linalg.norm(step) <= tol * (weights @ distance) / total:
            break
    return centre


def _pull(points: Array, weights: Array, at: Array) -> tuple[Array, float, float]:
    """``R``, ``η`` and ``Σ w / ‖z - v‖`` at a point ``v``."""
    gap = points - at
    distance = np.linalg.norm(gap, axis=1)
    away = distance > 0
    inverse = weights[away] / distance[away]
    return inverse @ gap[away], float(weights[~away].sum()), float(inverse.sum())


def _coordinate_medians(points: Array, weights: Array) -> Array:
    """The weighted median of each coordinate, ``(D,)``: in one dimension it is the answer."""
    rank = np.argsort(points, axis=0)
    ordered, mass = np.take_along_axis(points, rank, axis=0), np.cumsum(weights[rank], axis=0)
    half = 0.5 * mass[-1]
    lower, upper = np.argmax(mass >= half, axis=0), np.argmax(mass > half, axis=0)
    columns = np.arange(points.shape[1])
    medians: Array = 0.5 * (ordered[lower, columns] + ordered[upper, columns])
    return medians
