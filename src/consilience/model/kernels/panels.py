"""Weighted moments in numpy: features on axis 0, one matrix product for all weighted cross products of a chunk.

The products ``x_a x_b`` are computed once and shared by all weight rows; with many features, where they would not fit
in cache, the panel is scaled by each weight row instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Protocol

import numpy as np

from consilience.numerics.arrays import Array, IntArray, log_sum_exp, pack, triangle_size

BLOCK_ROWS = 8192
BLOCK_BYTES = 64 * 2**20
SHARED_PRODUCTS_UP_TO = 64
"""Largest p for which the products ``x_a x_b`` are shared between weight rows."""
SHORT_CHUNK, LONG_CHUNK = 512, 2048
"""Number of rows whose products are computed at a time."""
CACHE_LINE = 64


def block_rows(p: int, weight_rows: int) -> int:
    """Return the number of rows of a block: large enough for fast matrix products, small enough for the cache."""
    return int(np.clip(BLOCK_BYTES // (8 * (p + weight_rows)), 16, BLOCK_ROWS))


class Workspace:
    """Buffers of one pass, allocated once and overwritten block by block."""

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def array(self, name: str, rows: int, columns: int) -> Array:
        """Return the buffer ``name`` as an array ``(rows, columns)`` of undefined content."""
        size = rows * columns
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers[name] = allocate_aligned(size)
        return self._buffers[name][:size].reshape(rows, columns)


def allocate_aligned(size: int) -> Array:
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
    """Group features, ``(first, last, rows)``, so that products ``x_a x_b, b ≥ a`` have at least ``least`` rows."""
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


# ---------------------------------------------------------------- residuals


def distances(Y: Array, means: Array, factors: Array) -> Array:
    """Compute ``|F_k (y_i - μ_k)|²`` of ``Y (n, q)`` and ``means (K, q)``: ``(K, n)``.

    ``factors`` are lower triangular matrices ``(K, q, q)``, or diagonals ``(K, q)``.
    """
    r = Y.T - means[:, :, None]
    z = factors @ r if factors.ndim == 3 else factors[:, :, None] * r
    return np.asarray(np.einsum("kqn,kqn->kn", z, z))


def scatter(Y: Array, means: Array, tau: Array, *, matrices: bool) -> tuple[Array, Array]:
    """Compute ``Σ_i τ_ki r_ki``, ``(K, q)``, and ``Σ_i τ_ki r_ki r_kiᵀ`` for ``r_ki = y_i - μ_k`` and ``tau (K, n)``.

    With ``matrices`` the second has upper triangles, ``(K, q (q + 1) / 2)``, else diagonals, ``(K, q)``.
    """
    r = Y.T - means[:, :, None]
    weighted = r * tau[:, None]
    products = pack(weighted @ r.transpose(0, 2, 1)) if matrices else np.einsum("kqn,kqn->kq", weighted, r)
    return weighted.sum(axis=2), products


# ---------------------------------------------------------------- choice

COMPILED_FROM = 32_768
"""Number of rows of a pass from which it is compiled: for fewer, loading numba takes longer than it saves in a fit."""


class Scatter(Protocol):
    """Type of :func:`consilience.model.kernels.panels.scatter`."""

    def __call__(self, Y: Array, means: Array, tau: Array, *, matrices: bool) -> tuple[Array, Array]:
        """Compute weighted sums of residuals and of their products."""


@dataclass(frozen=True)
class Kernel:
    """The operations that every family needs for each row, and that take most of the time of a pass.

    Parameters
    ----------
    name : str
        ``"numpy"`` or ``"numba"``.
    standardise : callable
        ``(X (n, d), centre, factor, out (d, n))``: writes ``(X - centre) factor`` with features on axis 0.
    log_sum_exp : callable
        As :func:`consilience.numerics.arrays.log_sum_exp`.
    moments : callable
        ``(panel (p, n), first, second, workspace)``, where weights are lists of parts ``(·, n)``, arrays or
        :class:`Products`, with g and h rows together: returns ``Σ w x``, ``(g, p)``, and the upper triangles of
        ``Σ w x xᵀ``, ``(h, p (p + 1) / 2)``.
    distances, scatter : callable
        As in :mod:`consilience.model.kernels.panels`, for Gaussian mixtures.
    """

    name: str
    standardise: Callable[[Array, Array, Array, Array], None]
    log_sum_exp: Callable[[Array], tuple[Array, Array]]
    moments: Callable[[Array, Sequence[Array | Products], Sequence[Array | Products], Workspace], tuple[Array, Array]]
    distances: Callable[[Array, Array, Array], Array]
    scatter: Scatter


NUMPY = Kernel("numpy", standardise, log_sum_exp, moments, distances, scatter)


def kernel_for(n: int, p: int) -> Kernel:
    """Return the kernel of a pass over ``n`` rows with ``p`` features.

    It depends on the rows and on the installation only, so that all engines use the same.
    """
    if n < COMPILED_FROM or p > SHARED_PRODUCTS_UP_TO:  # with many features, matrix products are as fast
        return NUMPY
    return compiled_kernel() or NUMPY


@lru_cache(maxsize=1)
def compiled_kernel() -> Kernel | None:
    """Return the compiled kernel; None without numba, or if it cannot compile here or keep its machine code."""
    try:
        module = import_module("consilience.model.kernels.compiled")
        mixtures = import_module("consilience.model.kernels.compiled_residuals")
    except Exception:  # noqa: BLE001 - a full disk, a folder that is not ours, another version: numpy computes the same
        return None
    return Kernel("numba", module.standardise, module.log_sum_exp, module.moments, mixtures.distances, mixtures.scatter)
