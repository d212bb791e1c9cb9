"""Geometric medians against convex optimisation and known cases; labels against constructed ones, with bad sites."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience.aggregate.align import consistent_labels, geometric_median

SEEDS = st.integers(0, 2**32 - 1)


# ---------------------------------------------------------------------- the geometric median


def total_distance(points: np.ndarray, at: np.ndarray, weights: np.ndarray | None = None) -> float:
    distance = np.linalg.norm(points - at, axis=-1)
    return float(distance.sum() if weights is None else weights @ distance)


@st.composite
def clouds(draw: st.DrawFn, max_M: int = 12) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Points, some of them equal, on a line or not, with weights."""
    M, D = draw(st.integers(1, max_M)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(SEEDS))
    points = rng.normal(size=(M, D)) if draw(st.booleans()) else rng.integers(-2, 3, (M, D)).astype(float)
    if draw(st.booleans()):
        points = points[:, :1] * rng.normal(size=D)
    weights = rng.uniform(0.1, 3, M) if draw(st.booleans()) else np.ones(M)
    return points, weights, rng


@given(clouds())
def test_nothing_is_nearer_than_the_median(cloud) -> None:
    points, weights, rng = cloud
    here = geometric_median(points, weights)
    value = total_distance(points, here, weights)
    start = np.average(points, axis=0, weights=weights)
    found = minimize(lambda v: total_distance(points, v, weights), start, method="Nelder-Mead").x
    for other in [*points, found, *(here + 1e-3 * rng.standard_normal((8, len(here))))]:
        assert value <= total_distance(points, other, weights) + 1e-7 * (1 + value)


@given(clouds())
def test_the_median_moves_with_the_points(cloud) -> None:
    points, weights, rng = cloud
    D = points.shape[1]
    turn, _ = np.linalg.qr(rng.normal(size=(D, D)))
    shift = rng.normal(size=D)
    moved = 3 * points @ turn + shift
    here, there = geometric_median(points, weights), geometric_median(moved, weights)
    order = rng.permutation(len(points))
    shuffled = geometric_median(points[order], weights[order])
    scale = 1 + total_distance(points, here, weights)
    for other in ((there - shift) @ turn.T / 3, shuffled):  # medians of points on a line need not be unique
        assert total_distance(points, other, weights) == pytest.approx(
            total_distance(points, here, weights), abs=1e-6 * scale
        )


@given(clouds())
def test_weights_are_repetitions(cloud) -> None:
    points, _, rng = cloud
    times = rng.integers(0, 4, len(points))
    times[0] += 1
    weighted = geometric_median(points, times.astype(float))
    np.testing.assert_allclose(weighted, geometric_median(np.repeat(points, times, axis=0)), atol=1e-9)


@given(clouds())
def test_in_one_dimension_it_is_the_median(cloud) -> None:
    points, _, _ = cloud
    assert geometric_median(points[:, :1])[0] == pytest.approx(np.median(points[:, 0]), rel=1e-12)


@given(clouds())
def test_a_point_with_most_of_the_weight_is_the_median_exactly(cloud) -> None:
    points, weights, rng = cloud
    heavy = rng.integers(len(points))
    weights[heavy] = 1.001 * weights.sum()
    assert np.array_equal(geometric_median(points, weights), points[heavy])


@pytest.mark.parametrize("angle", [121.0, 150.0, 179.0])
def test_a_wide_angle_is_the_median_exactly(angle: float) -> None:
    turned = np.radians(angle)
    triangle = 0.3 + np.array([[1.0, 0.0], [0.0, 0.0], [np.cos(turned), np.sin(turned)]])
    assert np.array_equal(geometric_median(triangle), triangle[1])


def test_at_a_narrow_angle_all_directions_are_120_degrees_apart() -> None:
    triangle = np.array([[0.0, 0.0], [4.0, 1.0], [1.0, 3.0]])
    directions = triangle - geometric_median(triangle)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    np.testing.assert_allclose(directions @ directions.T, np.where(np.eye(3), 1.0, -0.5), atol=1e-8)


def test_the_iteration_leaves_a_point_that_is_not_the_median() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.1], [2.0, 0.1], [-0.1, -1.0], [-0.1, -2.0]])
    assert np.array_equal(np.median(points, axis=0), points[0])  # where it starts
    here = geometric_median(points)
    assert total_distance(points, here) < total_distance(points, points[0]) - 0.1
    pull = (points - here) / np.linalg.norm(points - here, axis=1, keepdims=True)
    np.testing.assert_allclose(pull.sum(axis=0), 0.0, atol=1e-7)


def test_two_points_meet_in_the_middle_and_one_stays() -> None:
    np.testing.assert_allclose(geometric_median(np.array([[0.0, 1.0], [2.0, 5.0]])), [1.0, 3.0])
    assert np.array_equal(geometric_median(np.array([[2.0, 5.0]])), [2.0, 5.0])
    assert np.array_equal(geometric_median(np.full((4, 3), 0.1)), np.full(3, 0.1))


@given(SEEDS, st.integers(1, 5))
def test_less_than_half_of_the_points_cannot_carry_the_median_away(seed: int, D: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(21, D))
    points[:10] = 1e8 * rng.normal(size=D)
    assert np.linalg.norm(geometric_median(points)) < 2 * 21 * np.linalg.norm(points[10:], axis=1).max()


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
    assert found.orders.shape == names.shape
    assert_consistent(found.orders, names)
    np.testing.assert_array_equal(found.orders[found.reference], np.arange(len(truth)))
    assert np.abs(found.consensus - truth[names[found.reference]]).max() < 0.8
    for j, median in enumerate(found.consensus):
        own = np.array([point[order][j] for point, order in zip(points, found.orders, strict=True)])
        np.testing.assert_allclose(median, geometric_median(own), atol=1e-12)


@given(sites())
def test_the_order_of_sites_and_of_their_labels_does_not_matter(case) -> None:
    _, points, _, rng = case
    M, K, _ = points.shape
    order, turns = rng.permutation(M), np.array([rng.permutation(K) for _ in range(M)])
    here = consistent_labels(points)
    there = consistent_labels(np.take_along_axis(points, turns[:, :, None], axis=1)[order])
    common = np.take_along_axis(turns[order], there.orders, axis=1)  # in the names of `points`
    label = np.argmax(common[:1, :, None] == here.orders[order[:1]][:, None], axis=2)[0]  # ours of each of theirs
    np.testing.assert_array_equal(common, here.orders[order][:, label])
    np.testing.assert_allclose(there.consensus, here.consensus[label], atol=1e-6)


@given(sites())
@settings(max_examples=10)
def test_on_three_sites_the_best_of_all_labels_is_found(case) -> None:
    truth, _, _, rng = case
    points, _ = shuffled(truth[:3], 3, 0.3, rng)

    def value(orders: tuple[tuple[int, ...], ...]) -> float:
        aligned = np.array([point[list(order)] for point, order in zip(points, orders, strict=True)])
        return sum(total_distance(own, geometric_median(own)) for own in aligned.transpose(1, 0, 2))

    every = list(permutations(range(len(truth[:3]))))
    best = min(value((every[0], two, three)) for two in every for three in every)
    assert value(tuple(map(tuple, consistent_labels(points).orders))) == pytest.approx(best, abs=1e-6)


def test_the_reference_is_the_site_amid_the_others() -> None:
    points = np.array([0.0, 10.0, 11.0, 13.0, 90.0])[:, None, None] + np.array([[0.0], [1000.0]])
    for shift in range(5):
        assert (consistent_labels(np.roll(points, shift, axis=0)).reference - shift) % 5 == 2


def test_one_site_one_component_and_equal_sites() -> None:
    rng = np.random.default_rng(0)
    alone = rng.normal(size=(1, 4, 2))
    found = consistent_labels(alone)
    np.testing.assert_array_equal(found.orders, [[0, 1, 2, 3]])
    np.testing.assert_array_equal(found.consensus, alone[0])
    single = consistent_labels(rng.normal(size=(5, 1, 2)))
    np.testing.assert_array_equal(single.orders, np.zeros((5, 1)))
    equal = consistent_labels(np.repeat(alone, 6, axis=0))
    np.testing.assert_array_equal(equal.orders, np.tile(np.arange(4), (6, 1)))
    np.testing.assert_array_equal(equal.consensus, alone[0])
    assert equal.reference == 0
    assert found.converged
    assert single.converged
    assert equal.converged


def test_components_that_coincide_are_still_given_each_a_label() -> None:
    found = consistent_labels(np.zeros((4, 3, 2)))
    assert all(sorted(order) == [0, 1, 2] for order in found.orders.tolist())


def test_labels_that_overlap_end_all_the_same() -> None:
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(30, 5, 2))  # nothing to find
        found = consistent_labels(points)
        assert all(sorted(order) == list(range(5)) for order in found.orders.tolist())
        aligned = np.take_along_axis(points, found.orders[:, :, None], axis=1)
        medians = [geometric_median(aligned[:, j]) for j in range(5)]  # also where the passes ran out
        np.testing.assert_allclose(found.consensus, medians, atol=1e-12)


def test_many_sites_take_few_candidates_and_the_seed_decides_which() -> None:
    rng = np.random.default_rng(3)
    points, names = shuffled(5 * rng.normal(size=(3, 4)), 400, 0.3, rng)
    points[:100] = 20 * rng.normal(size=(100, 3, 4))
    first, again, other = (consistent_labels(points, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.orders, again.orders)
    assert first.reference == again.reference >= 100
    assert other.reference >= 100
    for found in (first, other):
        assert_consistent(found.orders[100:], names[100:])


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
    assert_consistent(found.orders[honest], names[honest])


@pytest.mark.parametrize("kind", KINDS)
def test_honest_sites_agree_whatever_a_third_of_the_sites_send(kind: str) -> None:
    for seed in range(3):
        assert_honest_sites_agree(kind, seed, K=5, M=30, D=6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_honest_sites_agree_in_every_draw(kind: str) -> None:
    for seed in range(20):
        assert_honest_sites_agree(kind, seed, K=12, M=100, D=10)
