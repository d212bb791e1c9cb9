"""Exact samples of the discrete Gaussian distribution, from integers alone.

``P(X = x) ∝ exp(-x² / (2 σ²))`` on the integers, by Algorithms 1 to 3 of [1]_: rejection from a discrete Laplace
distribution, with events of probability ``exp(-a / b)`` from uniform integers. No float takes part, so that no rounding
changes the distribution, and the default source of the integers is that of the operating system.

References
----------
.. [1] C. L. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy", Advances in Neural
   Information Processing Systems 33 (2020).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from fractions import Fraction
from math import isqrt

from consilience.errors import InvalidInputError

Uniform = Callable[[int], int]
"""``randbelow(n)``: a uniform integer of ``0, …, n - 1``."""


def discrete_gaussian(variance: Fraction | int, size: int, randbelow: Uniform = secrets.randbelow) -> list[int]:
    """Draw ``size`` integers with ``P(X = x) ∝ exp(-x² / (2 variance))``.

    Parameters
    ----------
    variance : Fraction or int
        The parameter ``σ²``, positive; the variance of a draw is at most this, and nearly this from 1 on.
    size : int
    randbelow : callable
        Source of uniform integers. Only tests replace it.

    Examples
    --------
    >>> len(discrete_gaussian(10**12, 3))
    3
    """
    exact = Fraction(variance)
    if exact <= 0:
        raise InvalidInputError(f"variance={variance}: expected a positive number")
    return [_one(exact.numerator, exact.denominator, randbelow) for _ in range(size)]


def _one(num: int, den: int, randbelow: Uniform) -> int:
    """Draw one integer with ``σ² = num / den`` (Algorithm 3)."""
    t = isqrt(num // den) + 1
    while True:
        y = discrete_laplace(t, randbelow)
        gap = abs(y) * t * den - num  # (|y| - σ² / t)² / (2 σ²) = gap² / (2 num den t²)
        if happens(gap * gap, 2 * num * den * t * t, randbelow):
            return y


def discrete_laplace(t: int, randbelow: Uniform = secrets.randbelow) -> int:
    """Draw an integer with ``P(X = x) ∝ exp(-|x| / t)`` (Algorithm 2)."""
    while True:
        u = randbelow(t)
        if not happens(u, t, randbelow):
            continue
        v = 0
        while happens(1, 1, randbelow):
            v += 1
        x = u + t * v
        if randbelow(2) == 0:
            return x
        if x > 0:  # -0 would count 0 twice
            return -x


def happens(num: int, den: int, randbelow: Uniform = secrets.randbelow) -> bool:
    """Draw an event of probability ``exp(-num / den)``, for ``num ≥ 0`` and ``den > 0`` (Algorithm 1)."""
    while num > den:
        if not _happens_once(1, 1, randbelow):
            return False
        num -= den
    return _happens_once(num, den, randbelow)


def _happens_once(num: int, den: int, randbelow: Uniform) -> bool:
    """Draw an event of probability ``exp(-num / den)`` for ``num ≤ den``: its series alternates."""
    k = 1
    while randbelow(den * k) < num:
        k += 1
    return k % 2 == 1
