"""Lengths and centres of numbers of scores: what takes most of the time of the contributions of rows.

The compiled functions of :mod:`consilience.model.kernels.compiled_clipping` do the same operations in the same order,
so that they return the same bits. Each column of a result depends on that column of the arguments alone, to the last
bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

import numpy as np

from consilience.model.kernels import panels
from consilience.numerics.arrays import Array


def shrinkage(numbers: Array, Q: Array, clip: float) -> Array:
    """Compute ``ω = min(1, clip / √(aᵀ Q a))``, ``(N, n)``, of numbers ``a (R, N, n)`` and ``Q (R, R, n)``."""
    squares = np.zeros(numbers.shape[1:])
    for r, one in enumerate(numbers):
        row = Q[r, r] * one
        for s in range(r):
            row += (2 * Q[r, s]) * numbers[s]
        squares += one * row
    length = np.sqrt(np.maximum(squares, 0.0))
    return np.asarray(np.where(length > clip, clip / length, 1.0))


def weighted_mean(numbers: Array, weights: Array) -> Array:
    """Compute ``Σ_j w_j a_j``, ``(R, n)``, of numbers ``(R, N, n)``, one row of numbers after the other."""
    return np.stack([np.add.reduce(weights * each, axis=0) for each in numbers])


def centre(numbers: Array, weights: Array, Q: Array, clip: float, times: int) -> Array:
    """Compute ``a(x)``, ``(R, n)``: the mean of numbers ``(R, N, n)``, weighted by how little each is clipped.

    Parameters
    ----------
    numbers : (R, N, n) array
    weights : (N, n) array
    Q : (R, R, n) array
    clip : float
    times : int
        Number of times that it is computed, from zero.
    """
    found = np.zeros(numbers.shape[::2])
    for _ in range(times):
        kept = weights * shrinkage(numbers - found[:, None], Q, clip)
        found = weighted_mean(numbers, kept) / np.add.reduce(kept, axis=0)
    return found


@dataclass(frozen=True)
class Clipping:
    """The two functions that clip and centre numbers, in numpy or compiled by numba."""

    shrinkage: Callable[[Array, Array, float], Array]
    centre: Callable[[Array, Array, Array, float, int], Array]


NUMPY = Clipping(shrinkage, centre)


def clipping_for(n: int) -> Clipping:
    """Return the functions for ``n`` rows: compiled ones for many, or if numba is loaded already."""
    if n < panels.COMPILED_FROM and not panels.compiled_kernel.cache_info().currsize:
        return NUMPY
    return _compiled() or NUMPY


@lru_cache(maxsize=1)
def _compiled() -> Clipping | None:
    if panels.compiled_kernel() is None:
        return None
    module = import_module("consilience.model.kernels.compiled_clipping")
    return Clipping(module.shrinkage, module.centre)
