"""Redundant columns: fits, criteria and predictions do not depend on them, and they are named."""

import warnings

import numpy as np
import pandas as pd
import pytest

from consilience import (
    FederatedEM,
    Federation,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
)
from consilience.errors import RankDeficientWarning

N = 600
ESTIMATORS = {
    "softmax": lambda: MixtureOfExpertsRegressor(2, random_state=0),
    "constant": lambda: MixtureOfRegressions(2, random_state=0),
    "poisson": lambda: MixtureOfExpertsRegressor(2, family="poisson", random_state=0),
    "classes": lambda: MixtureOfExpertsClassifier(2, random_state=0),
}


def data():
    """Two regressions on a number and a factor of three levels, with a gate that reads both."""
    rng = np.random.default_rng(3)
    x, level = rng.normal(size=N), rng.integers(3, size=N)
    first = rng.random(N) < 1 / (1 + np.exp(-(1.2 * x + 0.6 * (level == 1))))
    mean = np.where(first, 1.5 * x + 1.0 * (level == 2), -1.0 * x - 2.0 + 0.8 * (level == 1))
    return x, level, mean, rng


def response(name, mean, rng):
    if name == "poisson":
        return rng.poisson(np.exp(np.clip(mean, -3, 3))).astype(float)
    return (mean + 0.5 * rng.normal(size=N) > 0).astype(int) if name == "classes" else mean + 0.5 * rng.normal(size=N)


def codings(x, level):
    """The same space of linear predictors in other columns; the first is the usual coding."""
    dummies = (level[:, None] == np.arange(3)).astype(float)
    usual = np.column_stack([x, dummies[:, 1:]])
    return {
        "usual": usual,
        "a column twice": np.column_stack([usual, x]),
        "a constant column": np.column_stack([usual, np.full(N, 7.0)]),
        "all dummies": np.column_stack([x, dummies]),
        "another reference": np.column_stack([x, dummies[:, [0, 2]]]),
    }


def fitted(name, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankDeficientWarning)
        return ESTIMATORS[name]().fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in {"classes", "poisson"} else ()) for name in ESTIMATORS],
)
def test_criteria_and_predictions_do_not_depend_on_the_coding(name):
    x, level, mean, rng = data()
    y, designs = response(name, mean, rng), codings(x, level)
    usual = fitted(name, designs["usual"], y)
    predicted = usual.predict_proba if name == "classes" else usual.predict
    for coding, X in designs.items():
        model = fitted(name, X, y)
        assert model.n_parameters_ == usual.n_parameters_, coding
        for criterion in ("aic", "bic", "icl"):
            expected = getattr(usual, criterion)(designs["usual"], y)
            assert getattr(model, criterion)(X, y) == pytest.approx(expected, abs=1e-6), coding
        found = model.predict_proba(X) if name == "classes" else model.predict(X)
        np.testing.assert_allclose(found, predicted(designs["usual"]), atol=1e-8, rtol=1e-8, err_msg=coding)
        np.testing.assert_allclose(model.predict_gate(X), usual.predict_gate(designs["usual"]), atol=1e-8)


def test_the_criteria_of_a_summary_do_not_count_a_duplicated_column():
    x, level, mean, rng = data()
    y, designs = response("constant", mean, rng), codings(x, level)
    once, twice = (fitted("constant", designs[name], y) for name in ("usual", "a column twice"))
    line = next(line for line in once.summary().splitlines() if "Parameters" in line)
    assert line in twice.summary()
    assert twice.bic(designs["a column twice"], y) == pytest.approx(once.bic(designs["usual"], y), abs=1e-6)


def test_redundant_columns_are_named_and_have_no_standard_errors():
    x, level, mean, rng = data()
    X = np.column_stack([x, (level[:, None] == np.arange(3)).astype(float), np.full(N, 7.0)])
    with pytest.warns(RankDeficientWarning, match=r"x3 is a linear function of x1, x2; x4 is constant. .* set to 0"):
        model = MixtureOfRegressions(2, random_state=0).fit(X, response("constant", mean, rng))
    assert "Not identified: x3 is a linear function of x1, x2; x4 is constant." in model.summary()
    se = model.inference_.standard_errors().experts
    assert np.all(np.isnan(se[:, :, [4, 5]]))
    assert np.all(np.isfinite(se[:, :, :4]))
    assert np.all(model.coef_[:, [3, 4]] == 0)


@pytest.mark.slow
def test_standard_errors_are_those_without_the_redundant_columns():
    x, level, mean, rng = data()
    y, designs = response("softmax", mean, rng), codings(x, level)
    usual, twice = fitted("softmax", designs["usual"], y), fitted("softmax", designs["a column twice"], y)
    for part in ("gate", "experts"):
        shown = getattr(twice.inference_.standard_errors(), part)
        np.testing.assert_allclose(shown[..., :-1], getattr(usual.inference_.standard_errors(), part), rtol=1e-6)
        assert np.all(np.isnan(shown[..., -1]))
    contrasts, errors = twice.inference_.gate_contrasts(0)
    assert np.all(np.isfinite(errors[1, :-1]))
    assert np.isnan(errors[1, -1])
    assert contrasts[1, -1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=2)], ids=["FederatedEM", "OneShot"])
def test_a_level_that_a_site_does_not_have_is_carried(method):
    """Site 2 has no row of the third level: there its column is constant, and nowhere else."""
    x, level, mean, rng = data()
    y, X = response("softmax", mean, rng), codings(x, level)["usual"]
    site = np.where(level == 2, rng.integers(2, size=N), rng.integers(3, size=N))
    sites = Federation({f"site {m}": (X[site == m], y[site == m]) for m in range(3)})
    pooled = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
    result = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=method)
    assert result.model.unidentified_ == []
    se = pooled.inference_.standard_errors().experts[:, 0]
    gap = np.column_stack([result.model.intercept_, result.model.coef_]) - np.column_stack(
        [pooled.intercept_, pooled.coef_]
    )
    assert np.abs(gap / se).max() < 0.5


def test_a_column_that_is_collinear_at_one_site_only_is_combined_rightly():
    """At site 0 the second column is minus the first: it says nothing about their sum."""
    rng = np.random.default_rng(0)
    parts = {}
    for m in range(4):
        X = rng.normal(size=(400, 2))
        if m == 0:
            X[:, 1] = -X[:, 0]
        parts[f"site {m}"] = (X, 1 + X @ [2.0, -1.0] + 0.3 * rng.normal(size=400))
    result = Federation(parts).fit(MixtureOfRegressions(1, random_state=0), method=OneShot(refine=0))
    np.testing.assert_allclose(result.model.coef_, [[2.0, -1.0]], atol=0.06)
    assert np.all(np.isfinite(result.model.inference_.standard_errors().experts))


@pytest.mark.slow
@pytest.mark.parametrize("refine", [0, 1])
def test_redundant_columns_of_all_sites_are_named_by_one_shot(refine):
    x, level, mean, rng = data()
    y, X = response("constant", mean, rng), codings(x, level)["all dummies"]
    sites = Federation({f"site {m}": (X[m::3], y[m::3]) for m in range(3)})
    with pytest.warns(RankDeficientWarning, match="x3 is a linear function of x1, x2"):
        result = sites.fit(MixtureOfRegressions(2, random_state=0), method=OneShot(refine=refine))
    se = result.model.inference_.standard_errors().experts[:, 0]
    assert np.all(np.isnan(se[:, 4]))
    assert np.all(np.isfinite(se[:, :4]))
    assert "x3" in result.model.summary()


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_a_category_with_one_level_is_named_as_constant() -> None:
    x, _, mean, rng = data()
    table = pd.DataFrame({"fuel": ["gas"] * N, "x": x})
    y = response("softmax", mean, rng)
    with pytest.warns(RankDeficientWarning, match="fuel is constant"):
        model = ESTIMATORS["softmax"]().fit(table, y)
    assert model.unidentified_ == ["fuel is constant"]
    whole = Federation({"a": (table[:300], y[:300]), "b": (table[300:], y[300:])})
    assert whole.fit(ESTIMATORS["softmax"](), method=FederatedEM()).model.unidentified_ == ["fuel is constant"]
