"""Which changes without an institution are unusual."""

import numpy as np

from consilience.fitted.site_influence import are_unusual

RNG = np.random.default_rng(0)


def test_changes_of_sites_that_are_alike_are_usual():
    assert not are_unusual(0.3 * RNG.standard_normal((10, 12)), np.full((10, 12), 0.3)).any()


def test_one_that_pulls_the_others_is_unusual_alone():
    z = np.array([[5.0], [-2.5], [-2.5]])  # of three sites alike
    assert are_unusual(z, np.full((3, 1), 0.6)).ravel().tolist() == [True, False, False]


def test_of_two_neither_is():
    assert not are_unusual(np.array([[50.0], [-50.0]]), np.ones((2, 1))).any()


def test_where_sites_differ_more_than_by_chance_the_usual_change_counts():
    z = 3 * RNG.standard_normal((10, 12))
    assert not are_unusual(z, np.full((10, 12), 0.3)).any()
    z[4, 3] = 20.0
    assert np.argwhere(are_unusual(z, np.full((10, 12), 0.3))).tolist() == [[4, 3]]


def test_what_is_not_known_is_not_unusual():
    z, chance = np.array([[np.nan, 9.0], [1.0, 0.1], [0.1, 0.2]]), np.array([[0.1, np.nan], [0.1, 0.1], [0.1, 0.1]])
    assert not are_unusual(z, chance)[0].any()
    assert not are_unusual(np.full((3, 2), np.nan), np.ones((3, 2))).any()
