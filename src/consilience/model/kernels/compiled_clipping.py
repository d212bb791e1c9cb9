"""Lengths and centres of numbers of scores, compiled by numba: the bits of :mod:`consilience.model.kernels.clipping`.

Nothing is contracted or reordered. Columns are computed a tile at a time, so that the numbers of all nodes stay in the
caches while the centre is found.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from consilience.model.kernels import clipping
from consilience.numerics.arrays import Array

TILE = 128
"""Number of columns at a time."""

_READ2, _READ3 = (types.Array(types.float64, k, "C", readonly=True) for k in (2, 3))
_WRITTEN = types.float64[:, ::1]
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}


@njit(error_model="numpy")
def _load_products(Q: Array, start: int, m: int, q: Array) -> None:
    """Write ``2 Q_rs`` for ``s < r``, then ``Q_rr``, of m columns to the rows of ``q``."""
    p = 0
    for r in range(len(Q)):
        for s in range(r + 1):
            source, to, factor = Q[r, s, start : start + m], q[p], 1.0 if s == r else 2.0
            for t in range(len(source)):
                to[t] = factor * source[t]
            p += 1


@njit(error_model="numpy")
def _load_numbers(numbers: Array, start: int, m: int, a: Array) -> None:
    """Write m columns of numbers ``(R, N, n)`` to the rows of ``a``, those of a node together."""
    R, N, _ = numbers.shape
    for j in range(N):
        for r in range(R):
            source, to = numbers[r, j, start : start + m], a[j * R + r]
            for t in range(len(source)):
                to[t] = source[t]


@njit(error_model="numpy")
def _shrink(  # noqa: PLR0917 - numba takes positional arguments
    a: Array, c: Array, q: Array, clip: float, b: Array, row: Array, omega: Array
) -> None:
    """Write ``min(1, clip / √(bᵀ Q b))`` with ``b = a - c`` to ``omega``."""
    omega[:] = 0.0
    p = 0
    for r in range(len(a)):
        a_r, c_r, b_r, q_r = a[r], c[r], b[r], q[p + r]
        for t in range(TILE):
            x = a_r[t] - c_r[t]
            b_r[t] = x
            row[t] = q_r[t] * x
        s = 0
        while s + 1 < r:  # two terms while the sum is loaded once, in the order of numpy
            q_0, b_0, q_1, b_1 = q[p + s], b[s], q[p + s + 1], b[s + 1]
            for t in range(TILE):
                row[t] = (row[t] + q_0[t] * b_0[t]) + q_1[t] * b_1[t]
            s += 2
        if s < r:
            q_0, b_0 = q[p + s], b[s]
            for t in range(TILE):
                row[t] += q_0[t] * b_0[t]
        p += r + 1
        for t in range(TILE):
            omega[t] += b_r[t] * row[t]
    for t in range(TILE):
        length = np.sqrt(max(omega[t], 0.0))
        omega[t] = clip / length if length > clip else 1.0


@njit(types.void(_READ3, _READ3, types.float64, _WRITTEN), **_OPTIONS)
def _shrinkage(numbers: Array, Q: Array, clip: float, out: Array) -> None:
    R, N, n = numbers.shape
    q, a = np.empty((R * (R + 1) // 2, TILE)), np.empty((N * R, TILE))
    b, zero, row, omega = np.empty((R, TILE)), np.zeros((R, TILE)), np.empty(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        m = min(TILE, n - start)
        _load_products(Q, start, m, q)
        _load_numbers(numbers, start, m, a)
        for j in range(N):
            _shrink(a[j * R : (j + 1) * R], zero, q, clip, b, row, omega)
            out[j, start : start + m] = omega[:m]


@njit(types.void(_READ3, _READ2, _READ3, types.float64, types.intp, _WRITTEN), **_OPTIONS)
def _centre(  # noqa: PLR0917 - numba takes positional arguments
    numbers: Array, weights: Array, Q: Array, clip: float, times: int, out: Array
) -> None:
    R, N, n = numbers.shape
    q, a, w = np.empty((R * (R + 1) // 2, TILE)), np.empty((N * R, TILE)), np.empty((N, TILE))
    b, c, sums = np.empty((R, TILE)), np.empty((R, TILE)), np.empty((R, TILE))
    row, kept, mass = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        m = min(TILE, n - start)
        _load_products(Q, start, m, q)
        _load_numbers(numbers, start, m, a)
        w[:, :m] = weights[:, start : start + m]
        c[:] = 0.0
        for _ in range(times):
            sums[:] = 0.0
            mass[:] = 0.0
            for j in range(N):
                of_node = a[j * R : (j + 1) * R]
                _shrink(of_node, c, q, clip, b, row, kept)
                w_j = w[j]
                for t in range(TILE):
                    kept[t] = w_j[t] * kept[t]
                    mass[t] += kept[t]
                for r in range(R):
                    a_r, sum_r = of_node[r], sums[r]
                    for t in range(TILE):
                        sum_r[t] += kept[t] * a_r[t]
            for r in range(R):
                c_r, sum_r = c[r], sums[r]
                for t in range(TILE):
                    c_r[t] = sum_r[t] / mass[t]
        out[:, start : start + m] = c[:, :m]


def shrinkage(numbers: Array, Q: Array, clip: float) -> Array:
    """Compute ``min(1, clip / √(aᵀ Q a))``, ``(N, n)``, of numbers ``a (R, N, n)`` and ``Q (R, R, n)``."""
    out = np.empty(numbers.shape[1:])
    _shrinkage(np.ascontiguousarray(numbers), np.ascontiguousarray(Q), float(clip), out)
    return out


def centre(numbers: Array, weights: Array, Q: Array, clip: float, times: int) -> Array:
    """Compute the mean of numbers ``(R, N, n)``, weighted by how little each is clipped, ``(R, n)``."""
    if numbers.shape[2] == 1:  # numpy adds up one column in pairs
        return clipping.centre(numbers, weights, Q, clip, times)
    out = np.empty(numbers.shape[::2])
    _centre(*map(np.ascontiguousarray, (numbers, weights, Q)), float(clip), times, out)
    return out
