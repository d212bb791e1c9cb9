"""Anchors: a few clients with many rows, drawn at random, and the clusters that their coefficients fall into."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from consilience.numerics.arrays import Array, IntArray

CHOICE = 2
"""Anchors are drawn from those clients that are among this many times as many largest ones."""


def anchor_count(K: int) -> int:
    """``⌈3 K log K⌉`` anchors for K clusters, at least one.

    Examples
    --------
    >>> anchor_count(3), anchor_count(1)
    (10, 1)
    """
    return max(1, int(np.ceil(3 * K * np.log(K))))


def drawn_anchors(sizes: Mapping[str, Array], count: int, rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """Places of ``count`` anchors at their sites, drawn evenly from the clients with most rows.

    Those are all clients with as many rows as the one that is ``2 count``-th in size; a client with one row is none.

    Parameters
    ----------
    sizes : mapping of str to (G,) array
        Rows of each client of each site.
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
    """Clusters ``0..K-1`` of the coefficients of anchors, ``(A,)``.

    With a known separation ``Δ`` two anchors nearer than ``Δ / 2`` are of one cluster, and so on from neighbour to
    neighbour; where this does not make K clusters, and without ``Δ``, it is average linkage cut at K.

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
    """Labels in the order in which they occur first."""
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[codes]
