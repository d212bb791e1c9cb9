"""Vectorised bisection for increasing functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from consilience.numerics.arrays import Array

STEPS = 60


def bisected(f: Callable[[Array], Array], target: float, lower: Array, upper: Array) -> Array:
    """Find the least ``y`` with ``f(y) ≥ target``, elementwise, for increasing ``f``, ``f(lower) < target ≤ f(upper)``.

    Examples
    --------
    >>> bisected(lambda y: y**3, 8.0, np.array([0.0]), np.array([5.0])).round(9)
    array([2.])
    """
    for _ in range(STEPS):
        middle = 0.5 * (lower + upper)
        reached = f(middle) >= target
        upper = np.where(reached, middle, upper)
        lower = np.where(reached, lower, middle)
    return upper
