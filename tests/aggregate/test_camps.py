"""Two camps of sites: seen where there is a gap, not where sites are alike, differ, or one is an outlier."""

from __future__ import annotations

import importlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.aggregate import Camps, camps

SE = 0.15
module = importlib.import_module("consilience.aggregate.disagreement")


def drawn(
    M: int, seed: int, *, h: float = 0.2, apart: float = 0.0, common: float = 0.0
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two experts of five coefficients; ``apart`` moves half of the sites, ``common`` the intercepts of a site."""
    rng = np.random.default_rng(seed)
    scale = SE * rng.uniform(0.7, 1.4, M)
    shift = common * rng.normal(size=M)
    estimates = []
    for _ in range(2):
        z = np.sqrt(h**2 + scale[:, None] ** 2) * rng.normal(size=(M, 5))
        z[:, 0] += shift
        z[M // 2 :, 1] += apart
        estimates.append(z)
    return estimates, [scale[:, None, None] ** 2 * np.eye(5)] * 2


@pytest.mark.parametrize("M", [6, 8, 12, 20])
def test_two_equal_camps_are_seen(M: int) -> None:
    found = [camps(*drawn(M, seed, apart=2.0)) for seed in range(5)]
    assert all(each.found for each in found)
    for each in found:
        assert each.members.sum() == M // 2
        assert len(set(each.members[: M // 2])) == 1
        assert f"two camps, {M // 2} against {M // 2}" in each.text


@pytest.mark.long
@pytest.mark.parametrize("M", [4, 6, 8, 12])
@pytest.mark.parametrize("how", [{"h": 0.0}, {"h": 0.3}, {"h": 0.1, "common": 1.5}])
def test_honest_sites_are_rarely_taken_for_camps(M: int, how: dict[str, float]) -> None:
    found = [camps(*drawn(M, seed, **how)).found for seed in range(60)]
    assert np.mean(found) <= 0.1  # at a level of 0.05, with 60 draws


@pytest.mark.parametrize("M", [5, 8, 12])
def test_a_minority_is_no_camp(M: int) -> None:
    for seed in range(5):
        estimates, covariances = drawn(M, seed)
        for z in estimates:
            z[: M // 5] += 30.0
        assert not camps(estimates, covariances).found


def test_sites_without_an_expert_and_sites_that_know_nothing_are_left_out() -> None:
    estimates, covariances = drawn(10, 0, apart=2.0)
    estimates[0][0] = np.nan
    covariances[0][3] *= 1e6
    found = camps(estimates, covariances)
    assert found.found
    assert not found.counted[3]


def test_three_sites_are_too_few() -> None:
    found = camps(*drawn(3, 0, apart=9.0))
    assert not found.found
    assert found.gap == 1


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(4, 9))
def test_units_and_signs_do_not_matter(seed: int, M: int) -> None:
    estimates, covariances = drawn(M, seed, apart=1.0)
    units = np.array([1e-3, 5.0, -1.0, 100.0, 1.0])
    here = camps(estimates, covariances)
    there = camps([z * units + 7.0 for z in estimates], [C * units[:, None] * units for C in covariances])
    np.testing.assert_array_equal(here.members, there.members)
    assert here.spread == pytest.approx(there.spread)


@pytest.mark.parametrize(("gap", "spread", "found"), [(0.05, 0.01, True), (0.06, 0.001, False), (0.01, 0.02, False)])
def test_both_tests_must_agree(gap: float, spread: float, found: bool) -> None:
    assert Camps(gap, spread, np.zeros(4, dtype=bool), np.ones(4, dtype=bool)).found == found


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0.8, *(pytest.param(apart, marks=pytest.mark.long) for apart in (0.0, 2.0))])
def test_products_of_coordinates_find_what_those_of_sites_find(monkeypatch: pytest.MonkeyPatch, apart: float) -> None:
    cases = [drawn(M, seed, apart=apart) for M in (101, 160) for seed in range(2)]
    by_coordinates = [camps(*case) for case in cases]
    monkeypatch.setattr(module, "BY_PAIRS", 1000)
    for found, again in zip(by_coordinates, (camps(*case) for case in cases), strict=True):
        assert (found.gap, found.spread) == (again.gap, again.spread)
        assert set(np.flatnonzero(found.members)) in (
            set(np.flatnonzero(again.members)),
            set(np.flatnonzero(again.counted & ~again.members)),  # of two halves any is the smaller
        )


def test_simulations_in_parts_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = camps(*drawn(12, 0, apart=0.8))
    monkeypatch.setattr(module, "AT_ONCE", 1000)
    parts = camps(*drawn(12, 0, apart=0.8))
    assert (whole.gap, whole.spread) == (parts.gap, parts.spread)


@pytest.mark.slow
def test_many_sites_need_no_product_of_all_pairs() -> None:
    case = drawn(3000, 0, apart=2.0)
    tracemalloc.start()
    found = camps(*case)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.found
    assert peak < 300e6  # one product of all pairs has 72 MB, and there are 299 simulations
