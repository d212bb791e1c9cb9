"""Moments in numpy: features on axis 0, every weighted cross product of a block in one matrix product.

For few features the products ``x_a x_b`` are written once, ``Z (p (p + 1) / 2, n)``, chunk by chunk, and all weight
rows share them: ``W Zᵀ``. For many features ``Z`` would not fit in cache, and each weight row is one product
``(w ∘ x) xᵀ`` instead.
"""

from __future__ import annotations

import numpy as np

from consilience.numerics.arrays import Array, pack, triangle_size

BLOCK_ROWS = 2048
CHUNK_ROWS = 512
"""Rows whose products ``x_a x_b`` are written before they are used: they should stay in a core's own cache."""
BLOCK_BYTES = 64 * 2**20
CACHE_LINE = 64
SHARED_PRODUCTS_UP_TO = 64
"""Largest p for which the products ``x_a x_b`` are shared between weight rows."""


def block_rows(p: int, weight_rows: int) -> int:
    """Rows of a block: enough for the matrix products to be fast, few enough that a block's arrays stay small.

    Examples
    --------
    >>> block_rows(21, 40), block_rows(1, 100_000)
    (2048, 83)
    """
    width = p + weight_rows + (triangle_size(p) if p <= SHARED_PRODUCTS_UP_TO else p)
    return int(np.clip(BLOCK_BYTES // (8 * width), 16, BLOCK_ROWS))


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
    p, n = panel.shape
    if p > SHARED_PRODUCTS_UP_TO:
        scaled = workspace.array("products", p, n)
        packed = [pack(np.multiply(panel, w, out=scaled) @ panel.T) for w in weights]
        return np.array(packed).reshape(-1, triangle_size(p))
    total = np.zeros((len(weights), triangle_size(p)))
    for start in range(0, n, CHUNK_ROWS):
        part = panel[:, start : start + CHUNK_ROWS]
        products = workspace.array("products", triangle_size(p), part.shape[1])
        row = 0
        for a in range(p):
            np.multiply(part[a:], part[a], out=products[row : row + p - a])
            row += p - a
        total += weights[:, start : start + CHUNK_ROWS] @ products.T
    return total
