"""Simulated clients: what the text promises about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.datasets import clients
from consilience.errors import InvalidInputError
from consilience.model import Groups, Rows


def test_shapes_and_order() -> None:
    data = clients([3, 1, 5], n_clusters=2, n_features=4, random_state=0)
    assert data.X.shape == (9, 4)
    assert data.y.shape == (9,)
    np.testing.assert_array_equal(data.groups, [0, 0, 0, 1, 2, 2, 2, 2, 2])
    assert data.labels.shape == (3,)
    np.testing.assert_array_equal(data.truth.experts.B[:, 0], data.theta)


def test_responses_follow_the_regression_of_the_client() -> None:
    data = clients(np.full(400, 25), n_features=6, noise=0.3, random_state=1)
    own = np.sum(data.X * data.theta[data.labels[data.groups]], axis=1)
    assert np.std(data.y - own) == pytest.approx(0.3, rel=0.03)
    assert abs(np.corrcoef(data.y - own, own)[0, 1]) < 0.03


def test_the_truth_is_the_mixture_that_clients_follow() -> None:
    data = clients(np.full(300, 20), n_features=6, shares=(0.2, 0.3, 0.5), random_state=2)
    rows = Rows(data.X, data.y[:, None], groups=Groups.of(data.groups))
    assert np.mean(data.truth.responsibilities(rows).argmax(axis=1) == data.labels) == 1
    np.testing.assert_array_equal(data.truth.gate.probabilities, [0.2, 0.3, 0.5])
    np.testing.assert_allclose(np.bincount(data.labels) / 300, [0.2, 0.3, 0.5], atol=0.08)


def test_coefficients_have_the_norm_that_was_asked_for() -> None:
    norms = np.linalg.norm(clients([1], n_clusters=200, n_features=50, norm=3.0, random_state=0).theta, axis=1)
    assert norms.mean() == pytest.approx(3.0, rel=0.03)


@pytest.mark.parametrize("spread", [1.0, 2.5])
def test_covariances_differ_by_cluster_only_where_asked(spread: float) -> None:
    data = clients(np.full(60, 2_000), n_clusters=2, n_features=5, spread=spread, random_state=3)
    variances = np.array([data.X[data.labels[data.groups] == k].var(axis=0) for k in range(2)])
    assert np.all((variances > 0.96 / spread) & (variances < 1.04 * spread))
    assert (np.abs(np.log(variances[0] / variances[1])).max() > 0.3) == (spread > 1)
    assert np.abs(np.corrcoef(data.X[data.labels[data.groups] == 0].T) - np.eye(5)).max() < 0.03


def test_a_seed_fixes_everything() -> None:
    one, again, other = (clients([4, 9], n_features=3, random_state=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.y, again.y)
    assert not np.array_equal(one.y, other.y)
    generator = np.random.default_rng(5)
    np.testing.assert_array_equal(clients([4, 9], n_features=3, random_state=generator).y, one.y)


@pytest.mark.parametrize(
    "arguments",
    [
        {"sizes": []},
        {"sizes": [0, 3]},
        {"sizes": [1.5]},
        {"sizes": [[1, 2]]},
        {"sizes": [3], "shares": (0.5, 0.5)},
        {"sizes": [3], "shares": (0.5, 0.6, -0.1)},
        {"sizes": [3], "noise": 0.0},
        {"sizes": [3], "norm": -1.0},
        {"sizes": [3], "spread": 0.5},
        {"sizes": [3], "n_clusters": 0},
        {"sizes": [3], "n_features": 0},
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        clients(**arguments)
