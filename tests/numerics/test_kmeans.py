import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.numerics.kmeans import draw, kmeans, seeds, squared_distances

CENTRES = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])


def clusters(rng, size=15):
    truth = np.repeat(np.arange(3), size)
    return CENTRES[truth] + rng.normal(size=(3 * size, 2)), truth


def same_partition(a, b):
    return np.array_equal(a[:, None] == a, b[:, None] == b)


def within(Z, labels, weight):
    """Weighted sum of squares within clusters."""
    return sum(
        float(weight[labels == j] @ squared_distances(Z[labels == j], centre[None])[:, 0])
        for j in np.unique(labels)
        if weight[labels == j].sum() > 0
        for centre in [np.average(Z[labels == j], axis=0, weights=weight[labels == j])]
    )


@given(m=st.integers(0, 6), k=st.integers(1, 4), d=st.integers(0, 4), seed=st.integers(0, 2**32 - 1))
def test_squared_distances_are_those_of_the_differences(m, k, d, seed):
    rng = np.random.default_rng(seed)
    Z, centres = rng.normal(size=(m, d)), rng.normal(size=(k, d))
    direct = ((Z[:, None] - centres) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(Z, centres), direct, atol=1e-12)


def test_squared_distances_are_never_negative():
    Z = np.full((3, 2), 1e8) + np.arange(6).reshape(3, 2) * 1e-9
    assert squared_distances(Z, Z).min() >= 0


@given(seed=st.integers(0, 2**32 - 1))
def test_clusters_far_apart_are_found(seed):
    rng = np.random.default_rng(seed)
    Z, truth = clusters(rng)
    runs = [kmeans(Z, 3, np.ones(len(Z)), rng) for _ in range(5)]  # two seeds in one cluster are rare, not impossible
    assert same_partition(min(runs, key=lambda labels: within(Z, labels, np.ones(len(Z)))), truth)


def test_weights_are_frequencies():
    Z = np.array([[0.0], [1.0], [1.0], [1.0], [5.0]])  # the middle point three times, or with weight 3
    w, repeated = np.array([1.0, 3.0, 1.0]), Z[[0, 1, 4]]
    for seed in range(20):
        once = kmeans(repeated, 2, w, np.random.default_rng(seed))
        assert within(repeated, once, w) == pytest.approx(within(Z, once[[0, 1, 1, 1, 2]], np.ones(5)))
    assert within(repeated, np.array([0, 0, 1]), w) == pytest.approx(0.75)


def test_points_without_weight_do_not_move_centres():
    Z, _ = clusters(np.random.default_rng(1))
    far = np.vstack([Z, [[1e6, 1e6]]])
    labels = kmeans(far, 3, np.append(np.ones(len(Z)), 0.0), np.random.default_rng(0))
    assert np.array_equal(labels[:-1], kmeans(Z, 3, np.ones(len(Z)), np.random.default_rng(0)))


@given(k=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_labels_are_at_a_fixed_point(k, seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(30, 2))
    labels = kmeans(Z, k, np.ones(30), rng, max_iter=1000)
    used = np.unique(labels)
    centres = np.array([Z[labels == j].mean(axis=0) for j in used])
    assert np.array_equal(used[squared_distances(Z, centres).argmin(axis=1)], labels)


def test_more_clusters_than_distinct_points_leaves_some_empty():
    labels = kmeans(np.ones((4, 2)), 3, np.ones(4), np.random.default_rng(0))
    assert same_partition(labels, np.zeros(4, dtype=int))


def test_iterations_can_be_limited():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 2))
    weight = np.ones(200)
    short, long = (kmeans(Z, 5, weight, np.random.default_rng(3), max_iter=m) for m in (0, 100))
    assert within(Z, long, weight) < within(Z, short, weight)


def test_seeds_are_distinct_points_where_there_are_enough():
    rng = np.random.default_rng(0)
    Z = np.repeat(np.arange(4.0), 10)[:, None]
    for _ in range(20):
        assert np.array_equal(np.sort(seeds(Z, 4, np.ones(40), rng)[:, 0]), np.arange(4.0))


def test_draws_are_proportional_to_mass():
    rng, mass, n = np.random.default_rng(0), np.array([0.0, 1.0, 0.0, 3.0, 0.0]), 4000
    counts = np.bincount([draw(mass, rng) for _ in range(n)], minlength=5)
    assert counts[[0, 2, 4]].sum() == 0
    assert abs(counts[1] - n / 4) < 5 * np.sqrt(n * 3 / 16)


def test_draws_without_mass_are_uniform():
    rng = np.random.default_rng(0)
    assert {draw(np.zeros(3), rng) for _ in range(100)} == {0, 1, 2}
