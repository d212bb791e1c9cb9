"""Each method of the literature finds a truth that it can find, once and small; tests/published has the rest."""

from __future__ import annotations

import numpy as np
import pytest

from consilience import (
    Federation,
    FedGrEM,
    FedMomentDescent,
    GaussianMixture,
    GradientEM,
    MinimaxRegression,
    MixtureOfRegressions,
)
from consilience.datasets import clients

TRUTH = np.array([1.0, 2.0, -2.0])


def opposite_pair(n: int = 900) -> Federation:
    """Two sites with rows of ``y = ± xᵀ b``."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = rng.choice([-1, 1], n) * (X @ TRUTH) + 0.5 * rng.normal(size=n)
    return Federation({"north": (X[:300], y[:300]), "south": (X[300:], y[300:])})


@pytest.mark.parametrize("method", [GradientEM(symmetric=True), MinimaxRegression(symmetric=True)], ids=repr)
def test_the_symmetric_methods_find_both_signs(method) -> None:
    found = opposite_pair().fit(MixtureOfRegressions(2, fit_intercept=False, random_state=0), method=method).model.coef_
    one, other = found.reshape(2, 3)
    np.testing.assert_allclose(one, -other, atol=1e-9)
    np.testing.assert_allclose(one * np.sign(one[0]), TRUTH, atol=0.15)


@pytest.mark.slow
def test_fedgrem_finds_means() -> None:
    rng = np.random.default_rng(0)
    sites = {name: (np.r_[rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (40, 2))],) for name in "abcd"}
    means = Federation(sites).fit(GaussianMixture(2, random_state=0), method=FedGrEM()).model.means_
    np.testing.assert_allclose(means[np.argsort(means[:, 0])], [[0, 0], [6, 6]], atol=0.4)


def test_fed_moment_descent_finds_clusters_of_clients() -> None:
    fleet = clients([20] * 150, n_clusters=2, n_features=5, random_state=0)
    sites = Federation({"all": {"X": fleet.X, "y": fleet.y, "groups": fleet.groups}})
    model = MixtureOfRegressions(2, fit_intercept=False, random_state=0)
    found = sites.fit(model, method=FedMomentDescent()).model.coef_
    assert np.linalg.norm(found[:, None] - fleet.theta, axis=2).min(axis=0).max() < 0.05
