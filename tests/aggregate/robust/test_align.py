"""Labels of experts that sites name in orders of their own, against constructed ones, with bad sites."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.aggregate import consistent_labels, geometric_median

SEEDS = st.integers(0, 2**32 - 1)


# ---------------------------------------------------------------------- labels


def shuffled(truth: np.ndarray, M: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points ``(M, K, D)`` of sites that name the components of ``truth (K, D)`` in orders ``(M, K)`` of their own."""
    K, D = truth.shape
    names = np.array([rng.permutation(K) for _ in range(M)])
    return truth[names] + noise * rng.normal(size=(M, K, D)), names


def assert_consistent(orders: np.ndarray, names: np.ndarray) -> None:
    """All sites give each label to one component of the truth."""
    common = np.take_along_axis(names, orders, axis=1)
    np.testing.assert_array_equal(common, np.broadcast_to(common[0], common.shape))


@st.composite
def sites(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    """A truth with components 3 apart at least, what sites send, and the components behind it."""
    K, M, D = draw(st.integers(1, 6)), draw(st.integers(1, 15)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(SEEDS))
    truth = 3.0 * np.array(list(product(range(6), repeat=D)))
    truth = truth[rng.choice(len(truth), K, replace=False)]
    points, names = shuffled(truth, M, 0.1, rng)
    return truth, points, names, rng


@given(sites())
def test_labels_are_found_and_the_consensus_is_the_truth(case) -> None:
    truth, points, names, _ = case
    found = consistent_labels(points)
    assert found.converged
    assert found.permutations.shape == names.shape
    assert_consistent(found.permutations, names)
    np.testing.assert_array_equal(found.permutations[found.reference], np.arange(len(truth)))
    assert np.abs(found.consensus - truth[names[found.reference]]).max() < 0.8
    for j, median in enumerate(found.consensus):
        own = np.array([point[order][j] for point, order in zip(points, found.permutations, strict=True)])
        np.testing.assert_allclose(median, geometric_median(own), atol=1e-12)


@given(sites())
def test_the_order_of_sites_and_of_their_labels_does_not_matter(case) -> None:
    _, points, _, rng = case
    M, K, _ = points.shape
    order, turns = rng.permutation(M), np.array([rng.permutation(K) for _ in range(M)])
    here = consistent_labels(points)
    there = consistent_labels(np.take_along_axis(points, turns[:, :, None], axis=1)[order])
    common = np.take_along_axis(turns[order], there.permutations, axis=1)  # in the names of `points`
    label = np.argmax(common[:1, :, None] == here.permutations[order[:1]][:, None], axis=2)[0]  # ours of each of theirs
    np.testing.assert_array_equal(common, here.permutations[order][:, label])
    np.testing.assert_allclose(there.consensus, here.consensus[label], atol=1e-6)


@pytest.mark.slow
@given(sites())
@settings(max_examples=10)
def test_on_three_sites_the_best_of_all_labels_is_found(case) -> None:
    truth, _, _, rng = case
    points, _ = shuffled(truth[:3], 3, 0.3, rng)

    def value(orders: tuple[tuple[int, ...], ...]) -> float:
        aligned = np.array([point[list(order)] for point, order in zip(points, orders, strict=True)])
        return sum(np.linalg.norm(own - geometric_median(own), axis=1).sum() for own in aligned.transpose(1, 0, 2))

    every = list(permutations(range(len(truth[:3]))))
    best = min(value((every[0], two, three)) for two in every for three in every)
    assert value(tuple(map(tuple, consistent_labels(points).permutations))) == pytest.approx(best, abs=1e-6)


def test_the_reference_is_the_site_amid_the_others() -> None:
    points = np.array([0.0, 10.0, 11.0, 13.0, 90.0])[:, None, None] + np.array([[0.0], [1000.0]])
    for shift in range(5):
        assert (consistent_labels(np.roll(points, shift, axis=0)).reference - shift) % 5 == 2


def test_one_site_one_component_and_equal_sites() -> None:
    rng = np.random.default_rng(0)
    alone = rng.normal(size=(1, 4, 2))
    found = consistent_labels(alone)
    np.testing.assert_array_equal(found.permutations, [[0, 1, 2, 3]])
    np.testing.assert_array_equal(found.consensus, alone[0])
    single = consistent_labels(rng.normal(size=(5, 1, 2)))
    np.testing.assert_array_equal(single.permutations, np.zeros((5, 1)))
    equal = consistent_labels(np.repeat(alone, 6, axis=0))
    np.testing.assert_array_equal(equal.permutations, np.tile(np.arange(4), (6, 1)))
    np.testing.assert_array_equal(equal.consensus, alone[0])
    assert equal.reference == 0
    assert found.converged
    assert single.converged
    assert equal.converged


def test_components_that_coincide_are_still_given_each_a_label() -> None:
    found = consistent_labels(np.zeros((4, 3, 2)))
    assert all(sorted(order) == [0, 1, 2] for order in found.permutations.tolist())


def test_labels_that_overlap_end_all_the_same() -> None:
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(30, 5, 2))  # nothing to find
        found = consistent_labels(points)
        assert all(sorted(order) == list(range(5)) for order in found.permutations.tolist())
        aligned = np.take_along_axis(points, found.permutations[:, :, None], axis=1)
        medians = [geometric_median(aligned[:, j]) for j in range(5)]  # also where the passes ran out
        np.testing.assert_allclose(found.consensus, medians, atol=1e-12)


def test_many_sites_take_few_candidates_and_the_seed_decides_which() -> None:
    rng = np.random.default_rng(3)
    points, names = shuffled(5 * rng.normal(size=(3, 4)), 400, 0.3, rng)
    points[:100] = 20 * rng.normal(size=(100, 3, 4))
    first, again, other = (consistent_labels(points, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.permutations, again.permutations)
    assert first.reference == again.reference >= 100
    assert other.reference >= 100
    for found in (first, other):
        assert_consistent(found.permutations[100:], names[100:])


# ---------------------------------------------------------------------- sites that are wrong


def spoiled(points: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    """What sites send that are wrong, each on its own or all together."""
    _, K, D = points.shape
    if kind == "wild":
        return 20 * rng.normal(size=points.shape)
    if kind == "alike":  # components of their own, on which they agree
        return 3 * rng.normal(size=(K, D)) + 0.1 * rng.normal(size=points.shape)
    if kind == "collapsed":  # one component many times
        return np.repeat(points[:, :1], K, axis=1)
    return points + 4.0  # "shifted"


KINDS = ("wild", "alike", "collapsed", "shifted")


def assert_honest_sites_agree(kind: str, seed: int, *, K: int, M: int, D: int) -> None:
    rng = np.random.default_rng(seed)
    points, names = shuffled(3 * rng.normal(size=(K, D)), M, 0.4, rng)
    bad = rng.choice(M, round(0.3 * M), replace=False)
    points[bad] = spoiled(points[bad], kind, rng)
    found = consistent_labels(points)
    honest = np.setdiff1d(np.arange(M), bad)
    assert found.reference in honest
    assert_consistent(found.permutations[honest], names[honest])


@pytest.mark.parametrize("kind", KINDS)
def test_honest_sites_agree_whatever_a_third_of_the_sites_send(kind: str) -> None:
    for seed in range(3):
        assert_honest_sites_agree(kind, seed, K=5, M=30, D=6)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_honest_sites_agree_in_every_draw(kind: str) -> None:
    for seed in range(20):
        assert_honest_sites_agree(kind, seed, K=12, M=100, D=10)
