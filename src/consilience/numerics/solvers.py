"""Newton's method for convex functions, with step halving; and bisection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from consilience.numerics.arrays import Array

SHORTEST, TOLERANCE, MOST_STEPS = 2.0**-30, 1e-13, 100


def minimise(start: Array, value: Callable[[Array], float], step: Callable[[Array], Array]) -> Array:
    """Minimise a convex ``value`` by Newton steps, halved until the value does not increase."""
    x, here = start, value(start)
    for _ in range(MOST_STEPS):
        direction, fraction = step(x), 1.0
        while not (there := value(x + fraction * direction)) <= here and fraction > SHORTEST:
            fraction /= 2
        if fraction <= SHORTEST:
            return x
        x = x + fraction * direction
        if here - there <= TOLERANCE * (1 + abs(here)):
            return x
        here = there
    return x


# ---------------------------------------------------------------- bisection

STEPS = 60


def bisect(f: Callable[[Array], Array], target: float, lower: Array, upper: Array) -> Array:
    """Find the least ``y`` with ``f(y) ≥ target``, elementwise, for an increasing ``f`` and bounds around it."""
    for _ in range(STEPS):
        middle = 0.5 * (lower + upper)
        reached = f(middle) >= target
        upper = np.where(reached, middle, upper)
        lower = np.where(reached, lower, middle)
    return upper
