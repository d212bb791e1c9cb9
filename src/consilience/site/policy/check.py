"""One check of a rule, and the quantities that several rules use: effective rows and dominance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from consilience.numerics.arrays import Array

Part = Literal["site", "levels", "experts", "precision", "covariates"]
"""The part of the file that a check is about, which decides what is done if it fails."""


@dataclass(frozen=True)
class Check:
    """Result of one rule on one part of the file.

    Parameters
    ----------
    part : str
        Part of the file: "site", "levels", "experts", "precision" or "covariates".
    rule : str
        Name of the rule.
    scope : str
        What it was applied to, in words from the study only: "site", "expert 2", the name of a column.
    limit, observed : float
        The policy's limit, and what was found. ``observed`` stays at the site.
    kept : bool
        Whether the limit is kept.
    detail : str
        Where the worst value was found, such as levels or a column; it stays at the site.
    place : int or None
        Place of the expert or of the class that the check is about, from 0; None for all.

    Examples
    --------
    >>> Check.at_least("site", "min_rows", "site", 50, 40).kept
    False
    """

    part: Part
    rule: str
    scope: str
    limit: float
    observed: float
    kept: bool
    detail: str = ""
    place: int | None = None

    @classmethod
    def at_least(cls, part: Part, rule: str, scope: str, limit: float, observed: float, *, detail: str = "") -> Check:
        """Return a check that is kept if what was found is at least the limit."""
        return cls(part, rule, scope, float(limit), float(observed), bool(observed >= limit), detail)

    @classmethod
    def at_most(cls, part: Part, rule: str, scope: str, limit: float, observed: float, *, detail: str = "") -> Check:
        """Return a check that is kept if what was found is at most the limit."""
        return cls(part, rule, scope, float(limit), float(observed), bool(observed <= limit), detail)


def effective_rows(weight: Array) -> float:
    """Compute the number of equally weighted rows with the same variance of a mean, ``(Σ w)² / Σ w²``.

    Examples
    --------
    >>> effective_rows(np.array([1.0, 1.0, 1.0, 0.0])), round(effective_rows(np.array([1.0, 0.01, 0.01])), 2)
    (3.0, 1.04)
    """
    largest = float(weight.max(initial=0.0))
    if largest <= 0:
        return 0.0
    scaled = weight / largest  # squares of tiny weights would vanish
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def dominance(contributions: Array, rows: int, negligible: float = 0.0) -> float:
    """Compute the percentage of a sum of ``contributions (n,)`` that comes from the ``rows`` largest.

    It is 0 for a sum of at most ``negligible``: nothing is disclosed.

    Examples
    --------
    >>> dominance(np.array([8.0, 1.0, 1.0]), 1), dominance(np.zeros(3), 1)
    (80.0, 0.0)
    """
    total = float(contributions.sum())
    if total <= max(negligible, 0.0):
        return 0.0
    if rows >= len(contributions):
        return 100.0
    return min(100.0 * float(np.partition(contributions, -rows)[-rows:].sum()) / total, 100.0)
