"""Tests of a covariate over all experts and the gate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from consilience import (
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    likelihood_ratio_test,
    wald_test,
)
from consilience.errors import InvalidInputError
from consilience.fit.parameters import Parameters
from simulated import simulated

N = 300


@cache
def table() -> tuple[pd.DataFrame, np.ndarray]:
    data, rng = simulated(n=N), np.random.default_rng(1)
    X = pd.DataFrame(data.X, columns=["age", "dose"])
    X["arm"] = rng.choice(["a", "b", "c"], N)
    return X, data.y


@cache
def model() -> MixtureOfExpertsRegressor:
    X, y = table()
    return MixtureOfExpertsRegressor(2, n_init=2, random_state=0, tol=1e-12).fit(X, y)


def test_the_ratio_is_that_of_a_fit_without_the_column() -> None:
    X, y = table()
    rest = ["age", "dose"]
    for part, options in {
        "both": {"gate_features": rest, "expert_features": rest},
        "gate": {"gate_features": rest},
        "experts": {"expert_features": rest},
    }.items():
        null = MixtureOfExpertsRegressor(2, n_init=2, random_state=0, tol=1e-12, **options).fit(X, y)
        found = likelihood_ratio_test(model(), X, y, "arm", part)
        assert found.statistic == pytest.approx(2 * (model().log_likelihood_ - null.log_likelihood_), abs=1e-6)
        assert found.degrees == {"both": 6, "gate": 2, "experts": 4}[part]
        assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, found.degrees))


def test_walds_statistic_is_that_of_its_coefficients() -> None:
    inference = model().inference_
    names = ["(intercept)", "age", "dose", "arm[b]", "arm[c]"]
    frame = model().to_frame()
    flat = [
        i
        for i, (part, k, term) in enumerate(zip(frame["part"], frame["expert"], frame["term"], strict=True))
        if term.startswith("arm") and (part == "expert" or k == 0)
    ]
    assert list(frame["term"][:5]) == names
    b, V = inference.estimates.flat()[flat], inference.covariance[np.ix_(flat, flat)]
    found = wald_test(model(), "arm")
    assert found.degrees == len(flat) == 6
    assert found.statistic == pytest.approx(b @ np.linalg.inv(V) @ b, rel=1e-9)
    assert wald_test(model(), "arm[b]").degrees == 3  # of one level: two experts and a gate
    assert wald_test(model(), "dose").p_value < 1e-10
    single = wald_test(model(), "age", "gate")
    row = model().tidy().query("part == 'gate' and term == 'age'").iloc[0]
    assert single.statistic == pytest.approx(row["statistic"] ** 2, rel=1e-9)
    assert single.p_value == pytest.approx(row["p_value"], rel=1e-6)


def test_both_tests_agree_on_a_weak_effect_where_there_are_many_rows() -> None:
    data, rng = simulated(n=3000), np.random.default_rng(0)
    X = np.column_stack([data.X, rng.normal(size=3000)])
    y = data.y + 0.05 * X[:, 2]
    large = MixtureOfExpertsRegressor(2, n_init=2, random_state=0).fit(X, y)
    found = likelihood_ratio_test(large, X, y, "x2")
    assert 3 < found.statistic < 30
    assert wald_test(large, "x2").statistic == pytest.approx(found.statistic, rel=0.1)


def test_classes_and_a_constant_gate_count_free_coefficients() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    y = (rng.random(N) + 0.3 * x[:, 0] > [[0.3], [0.7]]).sum(axis=0)
    single = MixtureOfExpertsClassifier(1).fit(x, y)
    ratio = likelihood_ratio_test(single, x, y, "x1")
    assert wald_test(single, "x1").degrees == ratio.degrees == 2
    assert wald_test(single, "x1").statistic == pytest.approx(ratio.statistic, rel=0.1)
    data = simulated(gate="constant", n=N)
    constant = MixtureOfRegressions(2, mixture_init=data.truth).fit(data.X, data.y)
    found = likelihood_ratio_test(constant, data.X, data.y, "x1")
    assert found.degrees == wald_test(constant, "x1").degrees == 2


def test_what_is_withheld_is_not_tested() -> None:
    silent = MixtureOfExpertsRegressor(2)
    vars(silent).update(vars(model()) | {"inference_": replace(model().inference_, withheld={"gate": "a reason"})})
    found = wald_test(silent, "dose")
    assert np.isnan(found.statistic)
    assert np.isnan(found.p_value)
    assert repr(found) == "Wald test of dose (experts and gate): withheld (gate: a reason)"
    assert wald_test(silent, "dose", "experts").statistic > 0
    assert isinstance(silent.inference_.estimates, Parameters)


def test_coefficients_that_are_not_identified_are_not_counted() -> None:
    X, y = table()
    with pytest.warns(UserWarning, match="not identified"):
        fit = MixtureOfExpertsRegressor(1).fit(X.assign(copy=2 * X["age"]), y)
    with pytest.raises(InvalidInputError, match="not identified"):
        wald_test(fit, "copy")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, _: wald_test(model(), "weight"), "has no column 'weight'; it has age, dose, arm"),
        (lambda X, _: wald_test(model(), "dose", "shapes"), "expected one of both, experts, gate"),
        (lambda X, _: wald_test(GaussianMixture(1).fit(X[["age"]]), "age"), "no covariates"),
        (lambda X, y: likelihood_ratio_test(model(), X, 2 * y, "dose"), "pass the data of the fit"),
        (lambda X, y: likelihood_ratio_test(model(), X, y, "dose", clusters=np.arange(N)), "use wald_test"),
        (lambda X, y: wald_test(MixtureOfRegressions(1).fit(X, y), "dose", "gate"), "nothing to test"),
    ],
)
def test_arguments_are_checked(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(*table())


def test_a_model_with_a_formula_finds_the_response_in_its_table() -> None:
    X, y = table()
    data = X.assign(stay=y)
    fit = MixtureOfRegressions.from_formula("stay ~ age * arm + dose", data, n_components=1)
    given = likelihood_ratio_test(fit, data, data["stay"], "arm")
    assert likelihood_ratio_test(fit, data, column="arm") == given
    assert given.degrees == 4  # two levels, alone and with age
    assert fit.bic(data) == fit.bic(data, data["stay"])
    with pytest.raises(InvalidInputError, match="X has no column 'stay', the response of the formula: pass y"):
        likelihood_ratio_test(fit, X, column="arm")
    with pytest.raises(InvalidInputError, match="the model has no column ''; it has age"):
        likelihood_ratio_test(fit, data)
