"""Sums over the residuals of a Gaussian mixture, compiled by numba: as :mod:`consilience.model.kernels.panels`.

Residuals are computed for a tile of rows at a time, and never leave the fastest caches.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit, types

from consilience.model.kernels.compiled import APART, CHUNK, sum_products
from consilience.model.kernels.tiles import LANES
from consilience.numerics.arrays import Array, IntArray, upper_triangle

BUILT_FROM = ("compiled.py", "082c0285d1d4bd07")
"""As in :mod:`consilience.model.kernels.compiled`."""
TILE = 128
"""Number of rows whose residuals are whitened at a time."""
AT_ONCE = 4
"""Number of terms of a sum that are added while it is loaded once."""

_READ2, _READ3 = (types.Array(types.float64, k, "C", readonly=True) for k in (2, 3))
_PAIRS, _WRITTEN, _WRITTEN3 = types.intp[:, ::1], types.float64[:, ::1], types.float64[:, :, ::1]
_OPTIONS = {"cache": True, "nogil": True, "fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}


@njit
def _transposed(Y: Array, start: int, m: int, y: Array) -> None:
    """Write m rows of ``Y`` to ``y`` with responses on axis 0."""
    for j in range(Y.shape[1]):
        to = y[j, :m]
        for t in range(len(to)):
            to[t] = Y[start + t, j]


@njit(types.void(_READ2, _READ2, _READ3, _WRITTEN), **_OPTIONS)
def _by_triangles(Y: Array, means: Array, factors: Array, out: Array) -> None:
    """Add the squares of ``z_j = Σ_{i ≤ j} F_ji r_i``, four terms of ``z_j`` at a time."""
    n, q = Y.shape
    y, r, z = np.empty((q, TILE)), np.empty((q, TILE)), np.empty(TILE)
    for start in range(0, n, TILE):
        m = min(TILE, n - start)
        _transposed(Y, start, m, y)
        for k in range(len(means)):
            o = out[k, start : start + m]
            for j in range(q):
                mean = means[k, j]
                for t in range(TILE):
                    r[j, t] = y[j, t] - mean
                z[:] = 0.0
                i = 0
                while i + AT_ONCE <= j + 1:
                    a, b, c, d = factors[k, j, i], factors[k, j, i + 1], factors[k, j, i + 2], factors[k, j, i + 3]
                    for t in range(TILE):
                        z[t] += (a * r[i, t] + b * r[i + 1, t]) + (c * r[i + 2, t] + d * r[i + 3, t])
                    i += AT_ONCE
                for rest in range(i, j + 1):
                    a = factors[k, j, rest]
                    for t in range(TILE):
                        z[t] += a * r[rest, t]
                for t in range(len(o)):
                    o[t] += z[t] * z[t]


@njit(types.void(_READ2, _READ2, _READ2, _WRITTEN), **_OPTIONS)
def _by_diagonals(Y: Array, means: Array, factors: Array, out: Array) -> None:
    n, q = Y.shape
    y, z = np.empty((q, TILE)), np.empty(TILE)
    for start in range(0, n, TILE):
        m = min(TILE, n - start)
        _transposed(Y, start, m, y)
        for k in range(len(means)):
            z[:] = 0.0
            for j in range(q):
                mean, a = means[k, j], factors[k, j]
                for t in range(TILE):
                    r = a * (y[j, t] - mean)
                    z[t] += r * r
            o = out[k, start : start + m]
            for t in range(len(o)):
                o[t] = z[t]


@njit(types.void(_READ2, _READ2, _READ2, _PAIRS, _WRITTEN, _WRITTEN3), **_OPTIONS)
def _products(  # noqa: PLR0917 - numba takes positional arguments
    Y: Array, means: Array, tau: Array, pairs: IntArray, buffer: Array, out: Array
) -> None:
    """Add ``Σ τ r_i r_j`` and ``Σ τ r_i`` to ``out[k, i]``: the buffer has ``r``, ones, ``τ r``, and ``y``."""
    n, q = Y.shape
    weighted, plain = q + 1, buffer[len(buffer) - q :]
    buffer[:] = 0.0
    buffer[q] = 1.0
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        padded = (m + LANES - 1) // LANES * LANES
        _transposed(Y, start, m, plain)
        for k in range(len(means)):
            of_rows = tau[k, start : start + m]
            for j in range(q):
                mean, y, r, w = means[k, j], plain[j], buffer[j], buffer[weighted + j]
                for t in range(m):
                    r[t] = y[t] - mean
                for t in range(m):
                    w[t] = of_rows[t] * r[t]
                w[m:padded] = 0.0
            sum_products(buffer, weighted, padded, pairs, out[k])


@njit(types.void(_READ2, _READ2, _READ2, _WRITTEN, _WRITTEN), **_OPTIONS)
def _squares(Y: Array, means: Array, tau: Array, first: Array, out: Array) -> None:
    n, q = Y.shape
    y = np.empty((q, TILE))
    for start in range(0, n, TILE):
        m = min(TILE, n - start)
        _transposed(Y, start, m, y)
        for k in range(len(means)):
            of_rows = tau[k, start : start + m]
            for j in range(q):
                mean, a, b = means[k, j], 0.0, 0.0
                for t in range(len(of_rows)):
                    r = y[j, t] - mean
                    w = of_rows[t] * r
                    a += w
                    b += w * r
                first[k, j] += a
                out[k, j] += b


@lru_cache(maxsize=64)
def _columns(q: int) -> IntArray:
    """Return pairs of rows of the buffer: each ``r_j`` with ones, and ones with themselves, up to an even number."""
    columns = [*range(q), *[q] * (2 - q % 2)]
    return np.ascontiguousarray([columns, [q] * len(columns)], dtype=np.intp)


def distances(Y: Array, means: Array, factors: Array) -> Array:
    """Compute ``|F_k (y_i - μ_k)|²``, ``(K, n)``, for factors that are lower triangles or diagonals."""
    out = np.zeros((len(means), len(Y)))
    compute = _by_triangles if factors.ndim == 3 else _by_diagonals
    compute(*map(np.ascontiguousarray, (Y, means, factors)), out)
    return out


def scatter(Y: Array, means: Array, tau: Array, *, matrices: bool) -> tuple[Array, Array]:
    """Compute ``Σ_i τ_ki r_ki``, ``(K, q)``, and upper triangles or diagonals of ``Σ_i τ_ki r_ki r_kiᵀ``."""
    K, q = means.shape
    given = [np.ascontiguousarray(each) for each in (Y, means, tau)]
    if not matrices:
        first, squares = np.zeros((K, q)), np.zeros((K, q))
        _squares(*given, first, squares)
        return first, squares
    pairs, even = _columns(q), q + q % 2
    out, buffer = np.zeros((K, even, pairs.shape[1])), np.empty((2 * q + 1 + even, APART))
    _products(*given, pairs, buffer, out)
    rows, columns = upper_triangle(q)
    return out[:, :q, q], out[:, rows, columns]
