"""Cases that cover every pair of levels, instead of the full product of all factors.

A defect that depends on one factor, or on two together, is met by as few cases as two factors have pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any


def pairs_of(case: tuple[Any, ...]) -> set[tuple[int, int, int, int]]:
    """Pairs of levels in a case: two places, and what stands there (by identity, so that levels need no hash)."""
    return {(i, j, id(case[i]), id(case[j])) for i, j in combinations(range(len(case)), 2)}


def every_pair(cases: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Choose cases that contain every pair of levels which the given ones contain, in the given order.

    Each step takes the case with most pairs that are not yet covered, the first among equals. Levels are compared by
    identity: give the same objects, as :func:`itertools.product` does.
    """
    cases = list(cases)
    open_pairs = set().union(*map(pairs_of, cases))
    taken: set[int] = set()
    while open_pairs:
        best = max(range(len(cases)), key=lambda i: (len(pairs_of(cases[i]) & open_pairs), -i))
        taken.add(best)
        open_pairs -= pairs_of(cases[best])
    return [cases[i] for i in sorted(taken)]
