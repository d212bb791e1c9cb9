"""Weighted moments in numpy: features on axis 0, one matrix product for all weighted cross products of a chunk.

The products ``x_a x_b`` are computed once and shared by all weight rows; with many features, where they would not fit
in cache, the panel is scaled by each weight row instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from consilience.numerics.arrays import Array, IntArray, pack, triangle_size

BLOCK_ROWS = 8192
BLOCK_BYTES = 64 * 2**20
SHARED_PRODUCTS_UP_TO = 64
"""Largest p for which the products ``x_a x_b`` are shared between weight rows."""
SHORT_CHUNK, LONG_CHUNK = 512, 2048
"""Number of rows whose products are computed at a time."""
CACHE_LINE = 64


def block_rows(p: int, weight_rows: int) -> int:
    """Return the number of rows of a block: large enough for fast matrix products, small enough for the cache.

    Examples
    --------
    >>> block_rows(21, 40), block_rows(1, 100_000)
    (8192, 83)
    """
    return int(np.clip(BLOCK_BYTES // (8 * (p + weight_rows)), 16, BLOCK_ROWS))


class Workspace:
    """Buffers of one pass, allocated once and overwritten block by block.

    Examples
    --------
    >>> workspace = Workspace()
    >>> first = workspace.array("panel", 2, 100)
    >>> second = workspace.array("panel", 2, 60)  # a smaller block reuses the memory of a larger one
    >>> second.shape, np.shares_memory(first, second)
    ((2, 60), True)
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def array(self, name: str, rows: int, columns: int) -> Array:
        """Return the buffer ``name`` as an array ``(rows, columns)`` of undefined content."""
        size = rows * columns
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers[name] = aligned(size)
        return self._buffers[name][:size].reshape(rows, columns)


def aligned(size: int) -> Array:
    """Allocate an array ``(size,)`` aligned to a cache line: unaligned wide stores are half as fast."""
    memory = np.empty(size + CACHE_LINE // 8)
    start = -memory.ctypes.data % CACHE_LINE // 8
    return memory[start : start + size]


def standardise(X: Array, centre: Array, factor: Array, out: Array) -> None:
    """Compute ``(X - centre) factor`` of ``X (n, d)`` with features on axis 0, into ``out (d, n)``."""
    np.subtract(X.T, centre[:, None], out=out)
    out *= factor[:, None]


@dataclass(frozen=True, eq=False)
class Products:
    """Weights that are products of two rows of numbers, ``left[i] right[j]``, one for each pair of places ``i, j``."""

    left: Array  # (a, n)
    right: Array  # (b, n)
    i: IntArray  # (h,)
    j: IntArray  # (h,)

    def __len__(self) -> int:
        return len(self.i)

    def expanded(self) -> Array:
        """Compute the weights, ``(h, n)``."""
        weights = np.empty((len(self), self.left.shape[1]))
        for i, j, out in zip(self.i, self.j, weights, strict=True):
            np.multiply(self.left[i], self.right[j], out=out)
        return weights


def moments(
    panel: Array, first: Sequence[Array | Products], second: Sequence[Array | Products], workspace: Workspace
) -> tuple[Array, Array]:
    """Compute :func:`first_moments` and :func:`second_moments` of two sets of weights, each in several parts."""
    return first_moments(panel, _stacked(first)), second_moments(panel, _stacked(second), workspace)


def _stacked(parts: Sequence[Array | Products]) -> Array:
    return np.concatenate([part.expanded() if isinstance(part, Products) else part for part in parts])


def first_moments(panel: Array, weights: Array) -> Array:
    """Compute ``Σ_i w_gi x_i`` for ``weights (g, n)`` and ``panel (p, n)``: ``(g, p)``."""
    return weights @ panel.T


def second_moments(panel: Array, weights: Array, workspace: Workspace) -> Array:
    """Compute upper triangles ``(h, p (p + 1) / 2)`` of ``Σ_i w_hi x_i x_iᵀ`` from ``(h, n)`` and ``(p, n)``."""
    if len(panel) > SHARED_PRODUCTS_UP_TO:
        return _by_scaled_panels(panel, weights, workspace)
    return _by_shared_products(panel, weights, workspace)


def _by_shared_products(panel: Array, weights: Array, workspace: Workspace) -> Array:
    """Compute ``W Zᵀ`` with the products ``Z = (x_a x_b)_{a ≤ b}`` computed once for all weight rows, in parts.

    A part must fit in a core's own cache. With few weight rows, a part has few features and many rows; with many weight
    rows, all features and few rows.
    """
    p, n = panel.shape
    few = 2 * len(weights) <= p
    groups, chunk = feature_groups(p, p if few else triangle_size(p)), LONG_CHUNK if few else SHORT_CHUNK
    total = np.zeros((len(weights), triangle_size(p)))
    for start in range(0, n, chunk):
        part, W = panel[:, start : start + chunk], weights[:, start : start + chunk]
        done = 0
        for first, last, size in groups:
            Z = workspace.array("products", size, part.shape[1])
            row = 0
            for a in range(first, last):
                np.multiply(part[a:], part[a], out=Z[row : row + p - a])
                row += p - a
            total[:, done : done + size] += W @ Z.T
            done += size
    return total


@lru_cache(maxsize=64)
def feature_groups(p: int, least: int) -> tuple[tuple[int, int, int], ...]:
    """Return groups ``(first, last, rows)`` of features whose products ``x_a x_b, b ≥ a`` have at least ``least`` rows.

    Examples
    --------
    >>> feature_groups(3, 3), feature_groups(3, 6)
    (((0, 1, 3), (1, 3, 3)), ((0, 3, 6),))
    """
    groups, first, size = [], 0, 0
    for a in range(p):
        size += p - a
        if size >= least or a == p - 1:
            groups.append((first, a + 1, size))
            first, size = a + 1, 0
    return tuple(groups)


def _by_scaled_panels(panel: Array, weights: Array, workspace: Workspace) -> Array:
    """Compute ``(w ∘ x) xᵀ``, one weight row at a time."""
    p, n = panel.shape
    scaled = workspace.array("products", p, n)
    packed = np.empty((len(weights), triangle_size(p)))
    for h, w in enumerate(weights):
        np.multiply(panel, w, out=scaled)
        packed[h] = pack(scaled @ panel.T)
    return packed
