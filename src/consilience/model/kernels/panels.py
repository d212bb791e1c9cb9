"""Moments in numpy: features on axis 0, every weighted cross product of a chunk of rows in one matrix product.

With many weight rows, the products ``x_a x_b`` are written once and shared by all of them; with few, or with many
features, the panel is scaled by each weight row instead.
"""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array, pack, triangle_size

BLOCK_ROWS = 8192
BLOCK_BYTES = 64 * 2**20
SHARED_PRODUCTS_UP_TO = 64
"""Largest p for which the products ``x_a x_b`` are shared between weight rows."""
PRODUCT_CHUNK = 512
PANEL_CHUNK = 256
"""Rows whose products, or scaled panels, are written before they are used: they should stay in a core's own cache."""
SCALED_NUMBERS = 65536
CACHE_LINE = 64


def block_rows(p: int, weight_rows: int) -> int:
    """Rows of a block: enough for the matrix products to be fast, few enough that a block's arrays stay small.

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
        """The buffer ``name`` as an array ``(rows, columns)`` of undefined content."""
        size = rows * columns
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers[name] = aligned(size)
        return self._buffers[name][:size].reshape(rows, columns)


def aligned(size: int) -> Array:
    """An uninitialised array ``(size,)`` that starts on a cache line: wide stores are half as fast across two."""
    memory = np.empty(size + CACHE_LINE // 8)
    start = -memory.ctypes.data % CACHE_LINE // 8
    return memory[start : start + size]


def first_moments(panel: Array, weights: Array) -> Array:
    """``Σ_i w_gi x_i`` for ``weights (g, n)`` and ``panel (p, n)``: ``(g, p)``."""
    return weights @ panel.T


def second_moments(panel: Array, weights: Array, workspace: Workspace) -> Array:
    """Upper triangles of ``Σ_i w_hi x_i x_iᵀ`` for ``weights (h, n)`` and ``panel (p, n)``: ``(h, p (p + 1) / 2)``."""
    p = len(panel)
    if p <= SHARED_PRODUCTS_UP_TO and 2 * len(weights) > p:
        return _by_shared_products(panel, weights, workspace)
    return _by_scaled_panels(panel, weights, workspace)


def _by_shared_products(panel: Array, weights: Array, workspace: Workspace) -> Array:
    """``W Zᵀ`` with the products ``Z = (x_a x_b)_{a ≤ b}`` of a chunk written once for all weight rows."""
    p, n = panel.shape
    total = np.zeros((len(weights), triangle_size(p)))
    for start in range(0, n, PRODUCT_CHUNK):
        part = panel[:, start : start + PRODUCT_CHUNK]
        Z = workspace.array("products", triangle_size(p), part.shape[1])
        row = 0
        for a in range(p):
            np.multiply(part[a:], part[a], out=Z[row : row + p - a])
            row += p - a
        total += weights[:, start : start + PRODUCT_CHUNK] @ Z.T
    return total


def _by_scaled_panels(panel: Array, weights: Array, workspace: Workspace) -> Array:
    """``x (w ∘ x)ᵀ`` for as many weight rows at a time as fit in cache."""
    p, n = panel.shape
    at_once = max(1, SCALED_NUMBERS // max(p * PANEL_CHUNK, 1))
    packed = np.empty((len(weights), triangle_size(p)))
    for first in range(0, len(weights), at_once):
        rows = weights[first : first + at_once]
        total = np.zeros((p, len(rows) * p))
        for start in range(0, n, PANEL_CHUNK):
            part = panel[:, start : start + PANEL_CHUNK]
            scaled = workspace.array("products", len(rows) * p, part.shape[1])
            stacked = scaled.reshape(len(rows), p, part.shape[1])
            np.multiply(rows[:, None, start : start + PANEL_CHUNK], part, out=stacked)
            total += part @ scaled.T
        packed[first : first + at_once] = pack(total.reshape(p, len(rows), p).transpose(1, 0, 2))
    return packed
