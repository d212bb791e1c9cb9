"""Options of a model that a method has, or refuses by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience import (
    ClusteredClients,
    FederatedEM,
    Federation,
    FedGrEM,
    FedMomentDescent,
    Method,
    MinimaxRegression,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
    SharedCentre,
)
from consilience.errors import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore::consilience.ConsilienceWarning")

Sites = dict[str, Any]


def two_sites(seed: int, n: int = 150) -> Sites:
    """Two groups that are far apart, with a gate that nearly tells them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    first = X[:, 0] + 0.5 * rng.logistic(size=n) > 0
    y = 3 * np.where(first, 0.8 * X[:, 1] + 0.5, -0.8 * X[:, 1] - 0.5) + 0.5 * rng.normal(size=n)
    return {"a": (X[: n // 2], y[: n // 2]), "b": (X[n // 2 :], y[n // 2 :])}


def pooled(sites: Sites) -> tuple[np.ndarray, np.ndarray]:
    X, y = zip(*sites.values(), strict=True)
    return np.vstack(X), np.concatenate(y)


@pytest.mark.slow
def test_a_step_that_no_message_can_have_is_shortened() -> None:
    """A Newton step of this fit led to variances of 1e114, which the sites could not be asked about."""
    sites = two_sites(0)
    model = MixtureOfExpertsRegressor(2, random_state=0)
    found = Federation(sites).fit(model).model
    assert found.converged_
    assert found.log_likelihood_ == pytest.approx(model.fit(*pooled(sites)).log_likelihood_, abs=1e-6)


@pytest.mark.parametrize("method", [OneShot(0), OneShot(1), SharedCentre()])
def test_a_large_ridge_is_no_precision_of_the_rows(method: Method) -> None:
    model = MixtureOfExpertsRegressor(2, random_state=0, n_init=1, expert_ridge=20.0)
    found = Federation(two_sites(1)).fit(model, method=method).model
    exact = Federation(two_sites(1)).fit(model, method=FederatedEM()).model
    assert found.log_likelihood_ > exact.log_likelihood_ - 2


@pytest.mark.parametrize("method", [FedGrEM(), FedMomentDescent(), MinimaxRegression()])
def test_a_ridge_that_steps_do_not_have_is_refused(method: Method) -> None:
    model = MixtureOfRegressions(2, random_state=0, expert_ridge=5.0)
    with pytest.raises(InvalidInputError, match=f"{type(method).__name__} has no expert_ridge: leave it out, or use"):
        Federation(two_sites(1)).fit(model, method=method)


@pytest.mark.parametrize("columns", [{"gate_features": [0]}, {"expert_features": [1]}])
def test_clustered_clients_read_the_same_covariates(columns: dict[str, list[int]]) -> None:
    model = MixtureOfExpertsRegressor(2, random_state=0, **columns)
    with pytest.raises(InvalidInputError, match="read the same covariates: leave gate_features and expert_features"):
        Federation(two_sites(1)).fit(model, method=ClusteredClients())


def test_a_constant_column_has_no_coefficient_in_fedgrem() -> None:
    sites = two_sites(1)
    for X, _ in sites.values():
        X[:, 2] = 1.0
    found = Federation(sites).fit(MixtureOfRegressions(2, random_state=0, n_init=1), method=FedGrEM(rounds=5))
    assert np.isfinite(found.model.log_likelihood_)


def test_steps_of_fedgrem_that_diverge_are_named() -> None:
    with pytest.raises(InvalidInputError, match="the steps diverge, as FedGrEM assumes noise of variance 1"):
        Federation(two_sites(1)).fit(MixtureOfRegressions(2, random_state=0, n_init=1), method=FedGrEM(step=30.0))
