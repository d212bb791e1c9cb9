"""Robust label alignment: permute the experts of all sites to common labels, with outlying sites.

Labels are matched by unsquared distances and centred by geometric medians, so that the influence of outlying sites is
bounded: the breakdown point is nearly one half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from consilience.aggregate.robust.centre import geometric_median
from consilience.numerics.arrays import Array, IntArray

ALL_CANDIDATES = 300
"""Number of sites up to which every site is a candidate for the reference."""
DRAWN_CANDIDATES = 50
"""Number of candidates drawn from more sites; their distances to as many as ``ALL_CANDIDATES`` drawn sites count."""
MAX_PASSES = 10


@dataclass(frozen=True, eq=False)
class Alignment:
    """Common labels of M sites.

    Parameters
    ----------
    permutations : (M, K) array of int
        ``points[m][permutations[m]]`` has the common labels.
    consensus : (K, D) array
        Geometric median over the sites for each label.
    reference : int
        The site whose labels became the common ones.
    converged : bool
        Whether matching to the consensus reproduces the labels.

    Examples
    --------
    >>> points = np.array([[[0.0], [5.0]], [[5.1], [0.1]]])
    >>> labels = Alignment(np.array([[0, 1], [1, 0]]), np.array([[0.05], [5.05]]), 0, True)
    >>> points[1][labels.permutations[1]].ravel()
    array([0.1, 5.1])
    """

    permutations: IntArray
    consensus: Array
    reference: int
    converged: bool


def consistent_labels(points: Array, *, seed: int = 0) -> Alignment:
    """Align the labels of the K components of M sites.

    The reference is the site whose median distance to the others is smallest, ``d(m, l) = min_σ Σ_j ‖θ_mσ(j) - θ_lj‖``;
    it is an honest one if most sites are. Every site is matched to it by optimal assignment. Then, alternately, the
    geometric median of each label replaces the reference, and sites are matched again, until nothing changes. Neither
    step increases ``Σ_m Σ_j ‖θ_mσ_m(j) - v_j‖``.

    The result does not depend on the order of sites or of their components, up to ties; labels are those of the
    reference.

    Parameters
    ----------
    points : (M, K, D) array
        Vectors by which components are matched, in comparable units: coefficients, for instance.
    seed : int
        Seed to draw 50 candidates for the reference, and 300 sites to compare them with, if there are more than 300
        sites; otherwise unused.

    Returns
    -------
    Alignment

    Examples
    --------
    >>> honest = np.array([[0.0], [5.0], [9.0]])
    >>> points = np.array([honest, honest[[2, 0, 1]] + 0.1, honest[::-1] - 0.1, [[70.0], [-30.0], [20.0]]])
    >>> labels = consistent_labels(points)
    >>> labels.permutations[:3]
    array([[0, 1, 2],
           [1, 2, 0],
           [2, 1, 0]])
    >>> labels.consensus.round(2).ravel()
    array([-0.05,  5.05,  9.05])
    """
    reference = _medoid(points, seed)
    permutations, _ = _matched(points, points[reference])
    consensus = _medians(points, permutations)
    converged = False
    for _ in range(MAX_PASSES):
        before = permutations
        permutations, _ = _matched(points, consensus)
        converged = np.array_equal(permutations, before)
        if converged:
            break
        consensus = _medians(points, permutations)
    return Alignment(permutations, consensus, reference, converged)


def _medoid(points: Array, seed: int) -> int:
    """Return the site with the smallest median distance to all, or to some that are drawn from many."""
    M = len(points)
    candidates = others = np.arange(M)
    if M > ALL_CANDIDATES:
        rng = np.random.default_rng(seed)
        candidates = np.sort(rng.choice(M, DRAWN_CANDIDATES, replace=False))
        others = np.sort(rng.choice(M, ALL_CANDIDATES, replace=False))
    typical = [np.median(_matched(points[others], points[m])[1]) for m in candidates]
    return int(candidates[np.argmin(typical)])


def _matched(points: Array, centres: Array) -> tuple[IntArray, Array]:
    """Return the permutations ``(M, K)`` that match sites to ``centres (K, D)``, and the distances left ``(M,)``."""
    M, K, D = points.shape
    costs = cdist(centres, points.reshape(M * K, D)).reshape(K, M, K)
    permutations = np.array([linear_sum_assignment(costs[:, m])[1] for m in range(M)], dtype=np.intp)
    return permutations, costs[np.arange(K), np.arange(M)[:, None], permutations].sum(axis=1)


def _medians(points: Array, permutations: IntArray) -> Array:
    """Compute the geometric median of each label, ``(K, D)``."""
    aligned = np.take_along_axis(points, permutations[:, :, None], axis=1)
    return np.array([geometric_median(aligned[:, j]) for j in range(aligned.shape[1])])
