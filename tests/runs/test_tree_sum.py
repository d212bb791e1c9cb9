"""Sums over one tree: the same bits whatever comes first, and few numbers kept where they come in order."""

from __future__ import annotations

from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.runs.tree_sum import RunningSum, tree_blocks, tree_sum


def words(a: str, b: str) -> str:
    return f"({a}+{b})"


@given(st.data(), st.integers(1, 40))
def test_whatever_comes_first_the_tree_is_the_same(data: st.DataObject, count: int) -> None:
    present = data.draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1))
    total = RunningSum(count, words)
    for place in present:
        total.put((place, place + 1), str(place))
    nodes = {(place, place + 1): str(place) for place in present}
    assert total.value() == tree_sum(nodes, 0, count, words)


@given(st.integers(1, 100), st.integers(0, 5))
def test_sums_of_subtrees_may_come_in_the_place_of_their_leaves(count: int, depth: int) -> None:
    total, leaves = RunningSum(count, words), {(place, place + 1): str(place) for place in range(count)}
    for lo, hi in reversed(tree_blocks(count, 2**depth)):
        total.put((lo, hi), tree_sum(leaves, lo, hi, words) or "")
    assert total.value() == tree_sum(leaves, 0, count, words)


@pytest.mark.parametrize("count", [1, 2, 1000, 1024, 5000])
def test_in_order_one_subtree_of_each_depth_is_kept(count: int) -> None:
    total, most = RunningSum(count, add), 0
    for place in range(count):
        total.put((place, place + 1), 1)
        most = max(most, len(total.nodes))
    assert most <= count.bit_length()
    assert total.nodes == {(0, count): count}


def test_a_sum_of_nothing_is_none() -> None:
    assert RunningSum(3, words).value() is None
