"""The chosen cases cover every pair of levels, and are few."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from pairwise import every_pair

FACTORS = {
    "two of two": (range(2), range(2)),
    "four of two": (range(2),) * 4,
    "unequal": ("abcdefghi", "uvwxyz", (1, 4), (8, 120)),
    "three engines": (("inprocess", "dask", "mailbox"), "abcdefghij", "sc", (1, 4), (False, True)),
}


def covered(cases: list[tuple]) -> set[tuple]:
    return {(i, j, case[i], case[j]) for case in cases for i, j in combinations(range(len(case)), 2)}


@pytest.mark.parametrize("name", FACTORS)
def test_every_pair_of_levels_occurs(name: str) -> None:
    factors = FACTORS[name]
    few, all_cases = every_pair(product(*factors)), list(product(*factors))
    assert covered(few) == covered(all_cases)
    assert len(few) == len(set(few)) <= len(all_cases)
    largest, second = sorted(map(len, factors))[:-3:-1]
    assert len(few) <= 1.5 * largest * second + 2  # no design has fewer than the product of the two largest factors


def test_excluded_cases_stay_excluded_and_their_other_pairs_are_covered() -> None:
    cases = [case for case in product("abc", range(3), "xyz") if case[:2] != ("a", 0)]
    few = every_pair(cases)
    assert set(few) <= set(cases)
    assert covered(few) == covered(cases)


def test_the_choice_is_the_same_every_time_and_in_the_given_order() -> None:
    cases = list(product("abcd", range(3), "xyz"))
    few = every_pair(cases)
    assert few == every_pair(list(cases))
    assert few == sorted(few, key=cases.index)
