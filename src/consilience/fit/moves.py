"""Split-and-merge moves to leave local maxima where one expert covers two groups and two experts share one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from consilience.fit.starts import StartSample, concentrated
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.kmeans import kmeans


def merge_order(resp: Array) -> list[tuple[int, int]]:
    """Return pairs of experts, sorted by decreasing overlap of their responsibilities ``(K, m)``."""
    unit = resp / np.maximum(np.linalg.norm(resp, axis=1, keepdims=True), np.finfo(float).tiny)
    overlap = unit @ unit.T
    k, l = np.triu_indices(len(resp), 1)
    return [(int(k[i]), int(l[i])) for i in np.argsort(-overlap[k, l], kind="stable")]


def halves(t: StartSample, inside: IntArray, rng: np.random.Generator) -> IntArray:
    """Split the labels at ``inside`` in two (0 or 1).

    By covariates and responses, by a random direction, or into those that one regression fits closely and the others.
    """
    way = rng.integers(3)
    if way == 0:
        close = concentrated(t, inside, max(1, int(rng.uniform(0.1, 0.5) * len(inside))), rng)
        side: IntArray = np.zeros(len(inside), dtype=np.intp)
        side[close] = 1
        return side
    if way == 1:
        Z = np.hstack([t.X[inside], t.F[inside] * np.sqrt(t.X.shape[1] + 1.0)])
        return kmeans(Z, 2, t.weight[inside], rng)
    Z = np.hstack([t.X[inside], t.F[inside]])
    along = Z @ rng.standard_normal(Z.shape[1])
    return (along > np.median(along)).astype(np.intp)


def moves(mixture: Mixture, t: StartSample, rng: np.random.Generator) -> Iterator[Array]:
    """Yield responsibilities ``(K, m)`` after merging one pair of experts and splitting another expert in two."""
    resp = mixture.responsibilities(t.rows).T.copy()
    labels = resp.argmax(axis=0)
    K = len(resp)
    pairs = merge_order(resp)
    for attempt in range(3 * K * len(pairs)):
        k, l = pairs[attempt % len(pairs)]
        others = [e for e in range(K) if e not in (k, l)]
        split = others[int(rng.integers(len(others)))] if others else k
        moved = resp.copy()
        moved[k] += moved[l]
        inside = np.flatnonzero((labels == split) | ((labels == l) & (split == k)))
        if len(inside) < 4:
            continue
        side = halves(t, inside, rng)
        moved[l] = 0.0
        moved[l, inside] = moved[split, inside] * (side == 1)
        moved[split, inside] *= side == 0
        yield 0.9 * moved + 0.1 / K
