"""Estimators: what they offer to everybody, and what text, pictures and reports use of a fitted one."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from consilience import (
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    select_order,
)
from consilience.fitted.protocols import (
    FittedMixture,
    is_federated_comparison,
    is_federated_result,
    is_local_comparison,
)

ESTIMATORS = (MixtureOfExpertsRegressor, MixtureOfExpertsClassifier, MixtureOfRegressions, GaussianMixture)
COMMON = {
    *("fit", "predict", "predict_gate", "responsibilities", "sample", "score", "aic", "bic", "icl"),  # of the design
    *("summary", "to_frame", "describe", "infer", "save", "report", "to_onnx", "tidy", "glance"),
    *("covariates", "rows"),  # data in the form that the mixture reads, for pictures
    *("set_params", "get_params", "get_metadata_routing"),  # scikit-learn's
    *("title", "order_name", "family", "response_names_", "derivation_"),
}
OWN = {
    MixtureOfExpertsRegressor: {"log_density", "from_formula", "predict_experts", "predict_quantiles", "gate_kind"},
    MixtureOfRegressions: {"log_density", "from_formula", "predict_experts", "predict_quantiles", "gate_kind"},
    MixtureOfExpertsClassifier: {"log_density", "from_formula", "predict_experts", "predict_proba"},
    GaussianMixture: {"predict_proba", "fit_predict", "score_samples"},
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimator_has_no_other_public_name(estimator: type) -> None:
    found = {name for name in dir(estimator) if not name.startswith("_")}
    requests = {name for name in found if name.startswith("set_") and name.endswith("_request")}
    assert found - requests == COMMON | OWN[estimator]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (120, 1))
    return x, np.where(rng.random(120) < 0.5, 3, -3) * x[:, 0] + 0.3 * rng.normal(size=120)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_fitted_estimator_has_what_the_protocol_says(estimator: type, data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    classes = estimator is MixtureOfExpertsClassifier
    model = estimator(2, n_init=1, max_iter=3, tol=1.0, random_state=0).fit(X, y > 0 if classes else y)
    methods = {name for name, _ in inspect.getmembers(FittedMixture, inspect.isfunction) if not name.startswith("_")}
    expected = {*FittedMixture.__annotations__, *methods} - (set() if classes else {"classes_"})
    assert [name for name in sorted(expected) if not hasattr(model, name)] == []


def test_results_over_sites_are_told_from_models(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    sites = Federation({"north": (X[::2], y[::2]), "south": (X[1::2], y[1::2])})
    estimator = MixtureOfRegressions(1, random_state=0)
    result, orders = sites.fit(estimator), sites.select_order(estimator, orders=[1])
    selection = select_order(estimator, X, y, orders=[1])
    kinds = (is_federated_result, is_federated_comparison, is_local_comparison)
    found = [[follows(value) for follows in kinds] for value in (result, orders, selection, result.model)]
    assert found == [[True, False, False], [False, True, False], [False, False, True], [False, False, False]]
