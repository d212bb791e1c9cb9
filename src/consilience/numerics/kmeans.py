"""Weighted k-means (Lloyd) with k-means++ seeds, for starting values: fast rather than exact."""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array, IntArray


def squared_distances(Z: Array, centres: Array) -> Array:
    """Compute ``‖z_i - c_j‖²``, ``(m, k)``, for points ``Z (m, d)`` and ``centres (k, d)``."""
    cross = Z @ centres.T
    distances: Array = np.einsum("id,id->i", Z, Z)[:, None] - 2 * cross + np.einsum("jd,jd->j", centres, centres)
    return np.maximum(distances, 0.0)


def draw(mass: Array, rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to ``mass (m,)``; uniform if all mass is zero."""
    total = np.cumsum(mass)
    if not total[-1] > 0:
        return int(rng.integers(len(mass)))
    return int(np.searchsorted(total, rng.random() * total[-1], side="right").clip(0, len(mass) - 1))


def seeds(Z: Array, k: int, weight: Array, rng: np.random.Generator) -> Array:
    """Draw k-means++ seeds ``(k, d)``: each next point with probability proportional to its squared distance."""
    chosen = [draw(weight, rng)]
    nearest = squared_distances(Z, Z[chosen])[:, 0]
    while len(chosen) < k:
        chosen.append(draw(nearest * weight, rng))
        nearest = np.minimum(nearest, squared_distances(Z, Z[chosen[-1:]])[:, 0])
    return Z[chosen]


def kmeans(Z: Array, k: int, weight: Array, rng: np.random.Generator, max_iter: int = 30) -> IntArray:
    """Compute cluster labels ``(m,)`` of points ``Z (m, d)`` with weights ``(m,)``."""
    centres = seeds(Z, k, weight, rng)
    labels: IntArray = squared_distances(Z, centres).argmin(axis=1)
    for _ in range(max_iter):
        one_hot = (labels[:, None] == np.arange(k)) * weight[:, None]
        mass = one_hot.sum(axis=0)
        filled = mass > 0
        centres[filled] = (one_hot.T @ Z)[filled] / mass[filled, None]
        new = squared_distances(Z, centres).argmin(axis=1)
        if np.array_equal(new, labels):
            break
        labels = new
    return labels
