"""Budgets of differential privacy: ρ of zero-concentrated privacy as an exact fraction, ε and δ for people.

A mechanism that adds discrete Gaussian noise of variance ``s²`` to integers of sensitivity ``Δ`` is ρ-zCDP with
``ρ = Δ² / (2 s²)``; the ρ of several answers about the same rows add, also if later questions depend on earlier
answers. Together they are (ε, δ)-differentially private for every ``α > 1`` with

    ε = ρ α + log(1 - 1/α) - (log δ + log α) / (α - 1)

(Proposition 12 of [1]_, which holds for every zCDP mechanism).

References
----------
.. [1] C. L. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy", Advances in Neural
   Information Processing Systems 33 (2020).
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from consilience.errors import InvalidInputError

UNITS = 2**40
"""ρ is rounded down to a whole number of these parts of 1."""
ORDERS = (-14.0, 30.0)
"""Range of ``log(α - 1)``; every order is valid, and the best one is inside for the budgets below."""
LEAST, MOST = 1e-6, 1e6
"""Range of ρ; LEAST has ε below 0.01 at δ = 1e-6."""


class Budget(NamedTuple):
    """What a site may spend on the answers of a run.

    Parameters
    ----------
    rho : Fraction
        ρ of each part.
    parts : int
        Number of parts, each for one answer.
    rows_each : int, optional
        If persons are protected: the largest number of rows of a person that count. None if rows or groups are.
    of_groups : bool
        Whether whole groups are protected, whose rows have one label.

    Examples
    --------
    >>> Budget(Fraction(1, 40), 8).whole, Budget(Fraction(1, 40), 8, rows_each=4).unit
    (Fraction(1, 5), 'person with 4 rows')
    """

    rho: Fraction
    parts: int
    rows_each: int | None = None
    of_groups: bool = False

    @property
    def whole(self) -> Fraction:
        """ρ of all parts."""
        return self.rho * self.parts

    @property
    def unit(self) -> str:
        """What is protected, in words."""
        if self.rows_each is None:
            return "group" if self.of_groups else "row"
        return f"person with {self.rows_each} row{'s' * (self.rows_each > 1)}"


def epsilon_of(rho: Fraction | float, delta: float) -> float:
    """Return the least ε for which ρ-zCDP implies (ε, δ)-differential privacy by the bound above.

    Examples
    --------
    >>> round(epsilon_of(0.1851, 1e-6), 2)
    3.0
    """
    check_delta(delta)
    value = float(rho)
    if value == 0:
        return 0.0

    def at(log_excess: float) -> float:
        excess = np.exp(log_excess)  # α - 1
        log_alpha = np.log1p(excess)
        return float(value * (1 + excess) + log_excess - log_alpha - (np.log(delta) + log_alpha) / excess)

    grid = np.linspace(*ORDERS, 200)
    values = [at(each) for each in grid]
    near = int(np.argmin(values))
    around = (float(grid[max(near - 1, 0)]), float(grid[min(near + 1, len(grid) - 1)]))
    found = minimize_scalar(at, bounds=around, method="bounded", options={"xatol": 1e-10})
    return max(min(float(found.fun), values[near]), 0.0)


def rho_of(epsilon: float, delta: float) -> Fraction:
    """Return the largest ρ, in units of 2⁻⁴⁰, that implies (ε, δ)-differential privacy by the bound above.

    Examples
    --------
    >>> [round(float(rho_of(epsilon, 1e-6)), 4) for epsilon in (1, 3, 8)]
    [0.0244, 0.1851, 1.0524]
    """
    check_delta(delta)
    lowest, highest = epsilon_of(LEAST, delta), epsilon_of(MOST, delta)
    if not lowest < epsilon < highest:
        raise InvalidInputError(f"epsilon={epsilon!r}: expected a number from {lowest:.2g} to {highest:.2g}")
    root = brentq(lambda log_rho: epsilon_of(np.exp(log_rho), delta) - epsilon, np.log(LEAST), np.log(MOST), xtol=1e-13)
    units = floor(np.exp(root) * UNITS)
    while epsilon_of(Fraction(units, UNITS), delta) > epsilon:
        units -= 1
    return Fraction(units, UNITS)


def check_delta(delta: float) -> None:
    """Raise an error unless ``delta`` is a probability below 1/2."""
    if not 0 < delta < 0.5:
        raise InvalidInputError(f"delta={delta!r}: expected a number above 0 and below 0.5, such as 1e-6")


def noise_variance(sensitivity: int, rho: Fraction) -> int:
    """Return the least integer variance ``s²`` with ``Δ² / (2 s²) ≤ ρ``, for integers of sensitivity ``Δ``.

    Examples
    --------
    >>> noise_variance(3, Fraction(1, 4))
    18
    """
    if sensitivity < 1 or rho <= 0:
        raise InvalidInputError(f"sensitivity={sensitivity}, rho={rho}: expected positive numbers")
    return -(-(sensitivity**2) * rho.denominator // (2 * rho.numerator))


LEAST_SHARE = 10_000
"""Least variance of a share of noise: sums of shares are then a discrete Gaussian but for less than e^-90000."""


def shared_variance(sensitivity: int, rho: Fraction, sites: int, colluding: int) -> int:
    """Return the variance of each site's share of the noise, of which all but ``colluding`` shares are enough.

    A sum of ``m`` discrete Gaussians of variance ``v`` is not one of variance ``m v``, but nearly so: its divergence is
    that of ``(Δ / √(m v) + τ √P)² / 2`` in place of ``Δ² / (2 m v)``, with ``τ ≤ 10 m exp(-π² v)`` (Kairouz, Liu and
    Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure aggregation", Proceedings
    of Machine Learning Research 139 (2021)). One unit more of sensitivity is far more than τ √P.

    Examples
    --------
    >>> rho = Fraction(1, 40)
    >>> shared_variance(2**20, rho, sites=10, colluding=1) * 9 >= noise_variance(2**20, rho)
    True
    """
    return max(LEAST_SHARE, -(-noise_variance(sensitivity + 1, rho) // max(sites - colluding, 1)))
