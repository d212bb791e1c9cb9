"""Anchors: a random sample of clients with many rows, and the clustering of their coefficients."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from consilience.numerics.arrays import Array, IntArray

CHOICE = 2
"""Size of the set of largest clients from which anchors are drawn, as a multiple of their number."""


def anchor_count(K: int) -> int:
    """Return the number of anchors for K clusters, ``⌈3 K log K⌉``, at least one.

    Examples
    --------
    >>> anchor_count(3), anchor_count(1)
    (10, 1)
    """
    return max(1, int(np.ceil(3 * K * np.log(K))))


def drawn_anchors(sizes: Mapping[str, Array], count: int, rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """Draw ``count`` anchors uniformly from the largest clients; return their positions at their sites.

    Candidates are all clients at least as large as the ``2 count``-th largest; clients with one row are excluded.

    Parameters
    ----------
    sizes : mapping of str to (G,) array
        Numbers of rows of the clients of each site.
    count : int
    rng : numpy.random.Generator

    Examples
    --------
    >>> sizes = {"north": np.array([9.0, 50.0, 50.0]), "south": np.array([2.0, 50.0])}
    >>> drawn_anchors(sizes, 1, np.random.default_rng(0))
    {'south': (1,)}
    """
    sites = [(site, place) for site, n in sizes.items() for place in range(len(n))]
    n = np.concatenate([np.zeros(0), *sizes.values()])
    least = np.sort(n)[-CHOICE * count :][0] if len(n) else 0.0
    large = np.flatnonzero((n >= least) & (n > 1))
    chosen = np.sort(rng.choice(large, min(count, len(large)), replace=False))
    found: dict[str, tuple[int, ...]] = {}
    for site, place in (sites[i] for i in chosen):
        found[site] = (*found.get(site, ()), place)
    return found


def anchor_clusters(theta: Array, K: int, separation: float | None = None) -> IntArray:
    """Cluster the coefficients of anchors into labels ``0..K-1``, ``(A,)``.

    With a known separation ``Δ`` this is single linkage cut at ``Δ / 2``; if that does not give K clusters, and without
    ``Δ``, it is average linkage cut at K.

    Parameters
    ----------
    theta : (A, p) array
    K : int
    separation : float or None

    Examples
    --------
    >>> anchor_clusters(np.array([[0.0], [9.0], [0.1], [9.2]]), 2)
    array([0, 1, 0, 1])
    """
    if len(theta) == 1:
        return np.zeros(1, dtype=np.intp)
    if separation is not None:
        labels = fcluster(linkage(theta, "single"), np.nextafter(separation / 2, 0), "distance")
        if labels.max() == K:
            return _in_order(labels)
    return _in_order(fcluster(linkage(theta, "average"), K, "maxclust"))


def _in_order(labels: np.ndarray) -> IntArray:
    """Renumber labels by first occurrence."""
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[codes]
