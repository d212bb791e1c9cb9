"""Sums over sites in one fixed binary tree, so that results are bitwise reproducible.

The tree over positions ``lo … hi`` splits at the largest power of two below their number. Blocks of ``2^j`` positions
that start at multiples of ``2^j`` are its nodes, so that a worker may add such a block and send one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
Span = tuple[int, int]
"""Half-open range of positions, ``lo`` to ``hi``."""


def tree_split(lo: int, hi: int) -> int:
    """Return the position at which the tree over ``lo … hi`` splits."""
    return lo + (1 << (hi - lo - 1).bit_length() - 1)


def tree_sum(nodes: Mapping[Span, T], lo: int, hi: int, add: Callable[[T, T], T]) -> T | None:
    """Sum over positions ``lo … hi`` from leaves and from sums of subtrees; missing positions are skipped."""
    if (lo, hi) in nodes:
        return nodes[lo, hi]
    if hi - lo < 2:
        return None
    middle = tree_split(lo, hi)
    left, right = tree_sum(nodes, lo, middle, add), tree_sum(nodes, middle, hi, add)
    if left is None or right is None:
        return right if left is None else left
    return add(left, right)


class RunningSum(Generic[T]):
    """Sum over the same tree whose nodes are added as they come: a subtree is one number once all of it is there.

    If nodes come in their order, at most one subtree of each depth is kept.

    Parameters
    ----------
    count : int
        Number of positions.
    add : callable
    """

    def __init__(self, count: int, add: Callable[[T, T], T]) -> None:
        self._count, self._add = count, add
        self.nodes: dict[Span, T] = {}

    def put(self, span: Span, value: T) -> None:
        """Add the value of a node, and of the nodes above it that are complete."""
        path = self._path(span)
        while path:
            above, sibling = path.pop()
            if sibling not in self.nodes:
                break
            other = self.nodes.pop(sibling)
            value = self._add(value, other) if span < sibling else self._add(other, value)
            span = above
        self.nodes[span] = value

    def value(self) -> T | None:
        """Return the sum; missing positions are skipped."""
        return tree_sum(self.nodes, 0, self._count, self._add)

    def _path(self, span: Span) -> list[tuple[Span, Span]]:
        """Return the nodes above a node from the root down, each with the sibling of the next."""
        lo, hi, path = 0, self._count, list[tuple[Span, Span]]()
        while (lo, hi) != span:
            middle = tree_split(lo, hi)
            left, right = (lo, middle), (middle, hi)
            path.append(((lo, hi), right if span[1] <= middle else left))
            lo, hi = left if span[1] <= middle else right
        return path


def tree_blocks(count: int, size: int) -> list[Span]:
    """Return the subtrees over ``count`` positions with ``size`` (a power of two) positions each, the last shorter."""
    return [(lo, min(lo + size, count)) for lo in range(0, count, size)]


def block_size(count: int, wanted: int) -> int:
    """Return the largest power of two that leaves at least ``wanted`` blocks, if there are as many positions."""
    return 1 << max((count // wanted).bit_length() - 1, 0)
