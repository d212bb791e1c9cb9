"""Kernel compiled by numba (the extra ``fast``): design panels, softmax and weighted moments, as in numpy.

Results are those of the numpy kernel up to rounding. The functions release the interpreter lock, and numba keeps their
machine code in a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import factorial

import numpy as np
from numba import config, njit, types

from consilience.model.kernels import panels
from consilience.model.kernels.panels import Products, Workspace
from consilience.model.kernels.tiles import BYTES, LANES, SIZES, TILES, multiply_numbers, multiply_vectors, power_of_two
from consilience.numerics.arrays import SMALLEST_LOG_SHARE, Array, IntArray, triangle_size, upper_triangle

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set: nothing is compiled in this process")

BUILT_FROM = ("tiles.py", "0cac8154c38b57e6")
"""A file whose functions are compiled into those of this one, and the start of its SHA-256: numba takes machine code
from its cache as long as this file is the same, so that it must change with the other."""
CHUNK = 256
"""Number of rows whose products are summed at a time: the weights of a tile stay in the fastest cache."""
APART = CHUNK + LANES
"""Distance between rows of the buffer: a power of two would put all of them in the same places of the cache."""
ROWS_AT_ONCE, COLUMNS_AT_ONCE = 64, 1024
LOG2_E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDING = 1.5 * 2.0**52
"""Added to a number, it leaves the nearest whole number in the last bits."""
INVERSE_FACTORIALS = tuple(1.0 / factorial(j) for j in range(11, -1, -1))

_PAIRS, _WRITTEN = types.intp[:, ::1], types.float64[:, ::1]
_TWO, _FOUR, _SIX = TILES[2], TILES[4], TILES[6]
_EIGHT, _TEN = TILES.get(8, TILES[6]), TILES.get(10, TILES[6])
_MOST = SIZES[-1]

_X, _NUMBERS = types.Array(types.float64, 2, "C", readonly=True), types.Array(types.float64, 1, "C", readonly=True)


# ---------------------------------------------------------------------- design panels


@njit(types.void(_X, _NUMBERS, _NUMBERS, _WRITTEN), cache=True, nogil=True)
def _standardised(X: Array, centre: Array, factor: Array, out: Array) -> None:
    n, d = X.shape
    for start in range(0, n, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, n)
        for j in range(d):
            x, to, c, f = X[start:stop, j], out[j, start:stop], centre[j], factor[j]
            for i in range(len(to)):
                to[i] = (x[i] - c) * f


def standardise(X: Array, centre: Array, factor: Array, out: Array) -> None:
    """Compute ``(X - centre) factor`` of ``X (n, d)`` with features on axis 0, into ``out (d, n)``."""
    if X.flags.c_contiguous and X.flags.aligned and X.dtype == np.float64:
        _standardised(X, centre, factor, out)
    else:
        panels.standardise(X, centre, factor, out)


# ---------------------------------------------------------------------- softmax


@njit(fastmath={"contract"})
def _exp(x: float) -> float:
    """Compute ``exp x`` for ``-300 ≤ x ≤ 0`` as ``2^k e^r`` with ``|r| ≤ ½ log 2``, by the series of ``e^r``."""
    shifted = x * LOG2_E + ROUNDING
    k = shifted - ROUNDING
    r = x - k * LN2_HIGH
    r -= k * LN2_LOW
    e = 1.0 / 479001600
    for inverse in INVERSE_FACTORIALS:
        e = e * r + inverse
    return float(e * power_of_two(shifted))


@njit(types.void(_X, _WRITTEN, _WRITTEN), cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _softmax(logits: Array, share: Array, sums: Array) -> None:
    """Compute normalised exponentials, and in the two rows of ``sums`` the largest logit and the sum."""
    K, n = logits.shape
    for start in range(0, n, COLUMNS_AT_ONCE):
        stop = min(start + COLUMNS_AT_ONCE, n)
        top, mass = sums[0, start:stop], sums[1, start:stop]
        for i in range(len(top)):
            top[i] = logits[0, start + i]
            mass[i] = 0.0
        for k in range(1, K):
            a = logits[k, start:stop]
            for i in range(len(top)):
                top[i] = a[i] if a[i] > top[i] else top[i]
        for k in range(K):
            a, s = logits[k, start:stop], share[k, start:stop]
            for i in range(len(top)):
                x = a[i] - (0.0 if top[i] == -np.inf else top[i])
                e = _exp(SMALLEST_LOG_SHARE if x < SMALLEST_LOG_SHARE else x)
                s[i] = e
                mass[i] += e
        for k in range(K):
            s = share[k, start:stop]
            for i in range(len(top)):
                s[i] /= mass[i]


def log_sum_exp(A: Array) -> tuple[Array, Array]:
    """Compute ``log Σ_k exp A_k`` over axis 0 and the normalised exponentials, as in ``numerics/arrays``."""
    flat = np.ascontiguousarray(A).reshape(len(A), -1)
    share, sums = np.empty(flat.shape), np.empty((2, flat.shape[1]))
    _softmax(flat, share, sums)
    return (np.log(sums[1]) + sums[0]).reshape(A.shape[1:]), share.reshape(A.shape)


# ---------------------------------------------------------------------- moments


@njit
def _fill(buffer: Array, row: int, sources: IntArray, start: int, m: int) -> None:
    """Write ``m`` numbers from ``start`` on of each source, or products of two, to the buffer from ``row`` on."""
    whole = m - m % LANES
    for r in range(sources.shape[1]):
        to, source = buffer.ctypes.data + BYTES * APART * (row + r), sources[0, r] + BYTES * start
        factor = sources[1, r] + BYTES * start if sources[1, r] else 0
        step = BYTES if factor else 0
        for i in range(0, whole, LANES):
            multiply_vectors(to + BYTES * i, source + BYTES * i, factor + step * i)
        for i in range(whole, m):
            multiply_numbers(to + BYTES * i, source + BYTES * i, factor + step * i)


@njit
def sum_products(buffer: Array, row: int, padded: int, pairs: IntArray, out: Array) -> None:
    """Add ``Σ_i w_g u_c v_c`` to ``out (g, c)``: weights from a row of the buffer on, pairs of rows ``u, v``."""
    x, apart, out_apart = buffer.ctypes.data, BYTES * APART, BYTES * out.shape[1]
    g = 0
    while g < len(out):
        size = min(len(out) - g, _MOST)
        w = x + apart * (row + g)
        for c in range(0, pairs.shape[1], 2):
            a, b = x + apart * pairs[0, c], x + apart * pairs[1, c]
            s, t = x + apart * pairs[0, c + 1], x + apart * pairs[1, c + 1]
            o = out.ctypes.data + out_apart * g + BYTES * c
            if size == 10:
                _TEN(w, apart, a, b, s, t, padded, o, out_apart)
            elif size == 8:
                _EIGHT(w, apart, a, b, s, t, padded, o, out_apart)
            elif size == 6:
                _SIX(w, apart, a, b, s, t, padded, o, out_apart)
            elif size == 4:
                _FOUR(w, apart, a, b, s, t, padded, o, out_apart)
            else:
                _TWO(w, apart, a, b, s, t, padded, o, out_apart)
        g += size


@njit(types.void(*3 * [_PAIRS], types.intp, _PAIRS, _PAIRS, *3 * [_WRITTEN]), cache=True, nogil=True)
def _moments(
    panel: IntArray,
    first: IntArray,
    second: IntArray,
    n: int,
    single: IntArray,
    pairs: IntArray,
    g: Array,
    h: Array,
    buffer: Array,
) -> None:
    """Add the moments of n rows to ``g`` and ``h``; panel and weights are addresses, as in :func:`_fill`."""
    p = panel.shape[1]
    ones, of_first = p, p + 1
    of_second = of_first + len(g)
    buffer[:] = 0.0  # weights up to an even number, and rows up to a whole vector
    buffer[ones] = 1.0
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        padded = (m + LANES - 1) // LANES * LANES
        for row in range(len(buffer) * (padded > m)):
            buffer[row, m:padded] = 0.0
        _fill(buffer, 0, panel, start, m)
        _fill(buffer, of_first, first, start, m)
        _fill(buffer, of_second, second, start, m)
        sum_products(buffer, of_first, padded, single, g)
        sum_products(buffer, of_second, padded, pairs, h)


@lru_cache(maxsize=64)
def _columns(p: int) -> tuple[IntArray, IntArray]:
    """Return pairs of rows of the buffer whose products are ``x_a`` and ``x_a x_b``, both of an even number."""
    rows, columns = upper_triangle(p)
    single, pairs = np.array([np.arange(p), np.full(p, p)]), np.array([rows, columns])
    even = [np.concatenate([part, part[:, : part.shape[1] % 2]], axis=1) for part in (single, pairs)]
    return np.ascontiguousarray(even[0], dtype=np.intp), np.ascontiguousarray(even[1], dtype=np.intp)


def _rows_of(array: Array) -> list[int]:
    """Return the address of each row."""
    start: int = array.__array_interface__["data"][0]
    return [start + array.strides[0] * row for row in range(len(array))]


def _sources(parts: Sequence[Array | Products]) -> tuple[IntArray, list[Array]]:
    """Return the addresses of each row of weights and of its factor, ``(2, ·)``, 0 for none; and what they point to."""
    sources: list[int] = []
    factors: list[int] = []
    kept = []
    for part in parts:
        if isinstance(part, Products):
            arrays = [np.ascontiguousarray(part.left), np.ascontiguousarray(part.right)]
            left, right = map(_rows_of, arrays)
            sources += [left[i] for i in part.i]
            factors += [right[j] for j in part.j]
        else:
            arrays = [np.ascontiguousarray(part)]
            sources += _rows_of(arrays[0])
            factors += [0] * len(part)
        kept += arrays
    return np.array([sources, factors], dtype=np.intp), kept


def moments(
    panel: Array, first: Sequence[Array | Products], second: Sequence[Array | Products], workspace: Workspace
) -> tuple[Array, Array]:
    """Compute ``Σ_i w_gi x_i`` and upper triangles of ``Σ_i w_hi x_i x_iᵀ``: ``(g, p)`` and ``(h, p (p + 1) / 2)``."""
    p, n = panel.shape
    sources = [_sources(parts) for parts in ([panel], first, second)]
    x, v, w = (addresses for addresses, _ in sources)
    columns = _columns(p)
    g, h = (np.zeros((a.shape[1] + a.shape[1] % 2, c.shape[1])) for a, c in zip((v, w), columns, strict=True))
    buffer = workspace.array("chunk", p + 1 + len(g) + len(h), APART)
    _moments(x, v, w, n, *columns, g, h, buffer)
    return g[: v.shape[1], :p], h[: w.shape[1], : triangle_size(p)]
