"""Anchors: who is drawn, and which clusters their coefficients fall into."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.published.moment_descent import anchor_clusters, anchor_count, draw_anchors


@pytest.mark.parametrize(("K", "count"), [(1, 1), (2, 5), (3, 10), (10, 70)])
def test_the_number_of_anchors(K: int, count: int) -> None:
    assert anchor_count(K) == count


def test_anchors_are_drawn_from_the_largest_clients_alone() -> None:
    rng = np.random.default_rng(0)
    sizes = {"north": np.repeat([10.0, 50.0], [40, 10]), "south": np.repeat([50.0, 10.0], [10, 40])}
    seen = set()
    for _ in range(200):
        found = draw_anchors(sizes, 10, rng)
        assert sum(map(len, found.values())) == 10
        seen |= {(site, place) for site, places in found.items() for place in places}
    assert seen == {("north", place) for place in range(40, 50)} | {("south", place) for place in range(10)}


def test_where_all_are_of_a_size_anyone_may_be_drawn() -> None:
    rng, counts = np.random.default_rng(0), np.zeros(30)
    for _ in range(600):
        counts[list(draw_anchors({"all": np.full(30, 7.0)}, 5, rng)["all"])] += 1
    assert counts.min() > 60  # 100 on average
    assert counts.max() < 145


def test_clients_with_one_row_are_no_anchors_and_there_may_be_too_few() -> None:
    sizes = {"north": np.array([1.0, 3.0, 1.0]), "south": np.empty(0), "east": np.array([2.0])}
    assert draw_anchors(sizes, 4, np.random.default_rng(0)) == {"north": (1,), "east": (0,)}
    assert draw_anchors({"north": np.ones(3)}, 4, np.random.default_rng(0)) == {}
    assert draw_anchors({"south": np.empty(0)}, 4, np.random.default_rng(0)) == {}


def points(seed: int, *, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.array([0, 1, 0, 2, 2, 1, 0, 2])
    return 5 * np.eye(3)[labels] + noise * rng.normal(size=(8, 3)), labels


@pytest.mark.parametrize("separation", [None, 7.0, 0.01, 100.0])
@pytest.mark.parametrize("seed", range(5))
def test_clusters_that_lie_apart_are_found_whatever_is_said_of_their_separation(
    separation: float | None, seed: int
) -> None:
    theta, labels = points(seed, noise=0.3)
    np.testing.assert_array_equal(anchor_clusters(theta, 3, separation), labels)


def test_neighbours_nearer_than_half_the_separation_are_one_cluster() -> None:
    chain = np.array([[0.0], [0.9], [1.8], [2.7], [6.0], [7.1]])
    np.testing.assert_array_equal(anchor_clusters(chain, 3, separation=2.0), [0, 0, 0, 0, 1, 2])
    np.testing.assert_array_equal(anchor_clusters(chain, 2, separation=2.4), [0, 0, 0, 0, 1, 1])


def test_one_anchor_is_one_cluster() -> None:
    np.testing.assert_array_equal(anchor_clusters(np.zeros((1, 4)), 1), [0])
