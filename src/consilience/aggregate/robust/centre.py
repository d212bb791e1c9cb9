"""Robust centres: medians, trimmed mean, Huber centre.

Sites send one vector each; all centres but the mean have a positive breakdown point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.errors import InvalidInputError
from consilience.numerics.arrays import Array, Mask

ROUNDING = 1e-12
LARGEST = 1e49
CAP = 2.0
"""Maximum weight of a site, as a multiple of the median weight."""


def usable_sites(points: Array) -> Mask:
    """Return the sites with finite numbers and finite squares, ``(M,)``; raise an error if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import usable_sites
    >>> usable_sites(np.array([[1.0, 2.0], [np.nan, 0.0]]))
    array([ True, False])
    """
    finite: Mask = np.asarray((np.abs(points) < LARGEST).reshape(len(points), -1).all(axis=1))
    if not finite.any():
        raise InvalidInputError("no site sent finite numbers with finite squares")
    return finite


def cap_weights(weights: Array) -> Array:
    """Limit the weights of sites to twice the median, since sizes are reported by the sites.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import cap_weights
    >>> cap_weights(np.array([90.0, 110.0, 1e9]))
    array([ 90., 110., 220.])
    """
    return np.minimum(weights, CAP * np.median(weights))


def coordinate_median(points: Array, weights: Array | None = None) -> Array:
    """Compute the weighted median of each coordinate, ``(D,)``; the midpoint if there are two.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import coordinate_median
    >>> coordinate_median(np.array([[0.0, 1.0], [1.0, 5.0], [900.0, 3.0]]))
    array([1., 3.])
    """
    weights = np.ones(len(points)) if weights is None else weights
    rank = np.argsort(points, axis=0)
    ordered, mass = np.take_along_axis(points, rank, axis=0), np.cumsum(weights[rank], axis=0)
    half = 0.5 * mass[-1]
    lower, upper = np.argmax(mass >= half, axis=0), np.argmax(mass > half, axis=0)
    columns = np.arange(points.shape[1])
    return np.asarray(0.5 * (ordered[lower, columns] + ordered[upper, columns]))


def trimmed_mean(points: Array, share: float) -> Array:
    """Compute the mean of each coordinate without the ``share`` lowest and the ``share`` highest sites, ``(D,)``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import trimmed_mean
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
    where ``R = Σ_m w_m (z_m - v) / ‖z_m - v‖`` over points other than ``v``, and ``η`` is the weight of those at ``v``;
    a Newton step takes its place where that is at least as good, since the iteration alone converges slowly. A point
    where ``‖R‖ ≤ η`` is the median: the nearest one is tried at each step.

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
    >>> import numpy as np
    >>> from consilience.aggregate import geometric_median
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
        pull = _Pull.at(centre, points, weights)
        if pull.excess <= ROUNDING * total:
            break
        nearest = int(np.argmin(pull.distance))
        if nearest != tried:
            tried = nearest
            if _Pull.at(points[nearest], points, weights).excess <= ROUNDING * total:
                return np.array(points[nearest])
        step, slow = pull.newton_step(), pull.step()
        if not sum_of_distances(centre + step, points, weights) <= sum_of_distances(centre + slow, points, weights):
            step = slow
        centre = centre + step
        if np.linalg.norm(step) <= tol * np.median(pull.distance):
            break
    return centre


@dataclass(frozen=True, eq=False)
class _Pull:
    """The forces ``w_m (z_m - v) / ‖z_m - v‖`` of points at ``v``."""

    distance: Array  # (M,)
    unit: Array  # (D, m)   directions of the m points other than v
    inverse: Array  # (m,)   their weights / distances
    R: Array  # (D,)
    eta: float

    @classmethod
    def at(cls, v: Array, points: Array, weights: Array) -> _Pull:
        gap = points - v
        distance = np.linalg.norm(gap, axis=1)
        away = distance > 0
        inverse, unit = weights[away] / distance[away], (gap[away] / distance[away, None]).T
        return cls(distance, unit, inverse, unit @ weights[away], float(weights[~away].sum()))

    @property
    def strength(self) -> float:
        return float(np.linalg.norm(self.R))

    @property
    def excess(self) -> float:
        """``‖R‖ - η``; not positive at the median."""
        return self.strength - self.eta

    def step(self) -> Array:
        """Return the step of Vardi and Zhang."""
        return np.asarray((1 - self.eta / self.strength) * self.R / self.inverse.sum())

    def newton_step(self) -> Array:
        """Return the Newton step of the sum of distances; NaN if all points are on a line through ``v``.

        It solves ``(a I - U C Uᵀ) s = R`` by Woodbury's identity if there are fewer points than coordinates.
        """
        D, m = self.unit.shape
        a = self.inverse.sum()
        try:
            if m >= D:
                return np.linalg.solve(a * np.eye(D) - (self.unit * self.inverse) @ self.unit.T, self.R)
            S = np.diag(a / self.inverse) - self.unit.T @ self.unit
            return np.asarray((self.R + self.unit @ np.linalg.solve(S, self.unit.T @ self.R)) / a)
        except np.linalg.LinAlgError:
            return np.full_like(self.R, np.nan)


def sum_of_distances(v: Array, points: Array, weights: Array) -> float:
    """Compute ``Σ_m w_m ‖z_m - v‖``."""
    return float(weights @ np.linalg.norm(points - v, axis=1))


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
    :func:`draw_towards`. It iterates ``v ← Σ a_m z_m / Σ a_m``, ``a_m = w_m min(1, τ_m / ‖z_m - v‖)``, from the
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
    >>> import numpy as np
    >>> from consilience.aggregate import huber_centre
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


def draw_towards(points: Array, centre: Array, threshold: float | Array) -> Array:
    """Apply block soft thresholding ``v + (1 - τ_m / ‖z_m - v‖)₊ (z_m - v)``, ``(M, D)``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import draw_towards
    >>> draw_towards(np.array([[0.5], [3.0]]), np.zeros(1), 1.0).ravel()
    array([0., 2.])
    """
    gap = points - centre
    distance = np.linalg.norm(gap, axis=1)
    left = 1 - threshold / np.maximum(distance, threshold)
    return np.asarray(centre + left[:, None] * gap)
