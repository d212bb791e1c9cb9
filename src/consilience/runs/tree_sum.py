"""Sums over sites in one fixed binary tree, so that results are bitwise reproducible.

The tree over positions ``lo … hi`` splits at the largest power of two below their number. Blocks of ``2^j`` positions
that start at multiples of ``2^j`` are its nodes, so that a worker may add such a block and send one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")
Span = tuple[int, int]
"""Half-open range of positions, ``lo`` to ``hi``."""


def split(lo: int, hi: int) -> int:
    """Return the position at which the tree over ``lo … hi`` splits.

    Examples
    --------
    >>> split(0, 7), split(4, 7)
    (4, 6)
    """
    return lo + (1 << (hi - lo - 1).bit_length() - 1)


def tree_sum(nodes: Mapping[Span, T], lo: int, hi: int, add: Callable[[T, T], T]) -> T | None:
    """Sum over positions ``lo … hi`` from leaves and from sums of subtrees; missing positions are skipped.

    Examples
    --------
    >>> tree_sum({(0, 2): "(a+b)", (2, 3): "c"}, 0, 4, lambda a, b: f"({a}+{b})")
    '((a+b)+c)'
    """
    if (lo, hi) in nodes:
        return nodes[lo, hi]
    if hi - lo < 2:
        return None
    middle = split(lo, hi)
    left, right = tree_sum(nodes, lo, middle, add), tree_sum(nodes, middle, hi, add)
    if left is None or right is None:
        return right if left is None else left
    return add(left, right)


def blocks(count: int, size: int) -> list[Span]:
    """Return the subtrees over ``count`` positions with ``size`` (a power of two) positions each, the last shorter.

    Examples
    --------
    >>> blocks(7, 4)
    [(0, 4), (4, 7)]
    """
    return [(lo, min(lo + size, count)) for lo in range(0, count, size)]


def block_size(count: int, wanted: int) -> int:
    """Return the largest power of two that leaves at least ``wanted`` blocks, if there are as many positions.

    Examples
    --------
    >>> block_size(16, 8), block_size(1024, 8), block_size(3, 8)
    (2, 128, 1)
    """
    return 1 << max((count // wanted).bit_length() - 1, 0)
