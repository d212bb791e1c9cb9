"""Averages of the mixture's mean over rows: predictions, contrasts and marginal effects."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import (
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    average_contrasts,
    average_marginal_effects,
    average_predictions,
    likelihood_ratio_test,
    wald_test,
)
from consilience.errors import InvalidInputError
from simulated import simulated

N = 400


@cache
def table() -> tuple[pd.DataFrame, np.ndarray]:
    data, rng = simulated(n=N), np.random.default_rng(1)
    X = pd.DataFrame(data.X, columns=["age", "dose"], index=np.arange(N) * 3)
    X["arm"], X["male"] = rng.choice(["a", "b", "c"], N), rng.integers(2, size=N)
    return X, data.y + (X["arm"] == "b").to_numpy() + 0.5 * X["male"].to_numpy()


def fitted(X: object, y: np.ndarray) -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, n_init=2, random_state=0).fit(X, y)


@cache
def model() -> MixtureOfExpertsRegressor:
    return fitted(*table())


def test_derivatives_are_those_of_finite_differences_of_predictions() -> None:
    X, _ = table()
    found = average_marginal_effects(model(), X, ["age", "dose"]).set_index("column")
    assert (found["contrast"] == "dy/dx").all()
    for name in ("age", "dose"):
        up, down = (model().predict(X.assign(**{name: X[name] + h})) for h in (1e-4, -1e-4))
        assert found.loc[name, "estimate"] == pytest.approx(np.mean(up - down) / 2e-4, rel=1e-6)


def test_errors_are_the_delta_method_by_differences_in_the_parameters() -> None:
    """An independent derivation: move each free parameter, and average the predictions again."""
    X, _ = table()
    row = average_marginal_effects(model(), X, ["dose"]).iloc[0]
    terms, mixture, inference = model().covariates(X), model().mixture_, model().inference_
    place = model().columns_.terms.index("dose")

    def effect(free: np.ndarray) -> float:
        gate, coefficients = np.split(free, [mixture.gate.parameter_count])
        moved = replace(
            mixture,
            gate=mixture.gate.moved(gate),
            experts=mixture.experts.moved(coefficients, np.zeros(mixture.experts.shape_parameters)),
        )
        change = 1e-3 * (np.arange(terms.shape[1]) == place)
        return float(np.mean(moved.mean(terms + change) - moved.mean(terms - change)) / 2e-3)

    K, p = mixture.gate.read().shape
    kept = [*range((K - 1) * p), *range(K * p, 2 * K * p)]  # contrasts of two centred experts, and coefficients
    V = inference.covariance[np.ix_(kept, kept)] * np.outer(*[np.r_[np.full(p, 2.0), np.ones(2 * p)]] * 2)
    steps = 1e-4 * np.eye(len(kept))
    slopes = np.array([(effect(step) - effect(-step)) / 2e-4 for step in steps])
    assert row["std_error"] == pytest.approx(np.sqrt(slopes @ V @ slopes), rel=1e-6)
    assert row["statistic"] == pytest.approx(row["estimate"] / row["std_error"])
    assert row["lower"] < row["estimate"] < row["upper"]


def test_categories_and_columns_of_0_and_1_have_contrasts() -> None:
    X, _ = table()
    found = average_marginal_effects(model(), X).set_index(["column", "contrast"])
    assert list(found.index) == [
        ("age", "dy/dx"),
        ("dose", "dy/dx"),
        ("arm", "b - a"),
        ("arm", "c - a"),
        ("male", "1 - 0"),
    ]
    for name, (before, after) in {"arm": ("a", "b"), "male": (0, 1)}.items():
        ends = [model().predict(X.assign(**{name: value})).mean() for value in (before, after)]
        assert found.loc[(name, f"{after} - {before}"), "estimate"] == pytest.approx(ends[1] - ends[0], rel=1e-9)
    alone = average_contrasts(model(), X, "arm")
    pd.testing.assert_frame_equal(alone.set_index(["column", "contrast"]), found.loc[["arm"]])


def test_contrasts_are_between_the_values_asked_for() -> None:
    X, _ = table()
    row = average_contrasts(model(), X, "dose", (-1, 2)).iloc[0]
    ends = [model().predict(X.assign(dose=value)).mean() for value in (-1, 2)]
    assert row["contrast"] == "2 - -1"
    assert row["estimate"] == pytest.approx(ends[1] - ends[0], rel=1e-9)
    plus = average_contrasts(model(), X, "dose").iloc[0]
    assert plus["contrast"] == "+1"
    difference = model().predict(X.assign(dose=X["dose"] + 1)) - model().predict(X)
    assert plus["estimate"] == pytest.approx(difference.mean(), rel=1e-9)
    back = average_contrasts(model(), X, "arm", ("c", "a")).iloc[0]
    assert back["contrast"] == "a - c"


def test_predictions_by_group_are_averages_of_predictions() -> None:
    X, _ = table()
    found = average_predictions(model(), X, by="arm").set_index("arm")
    means = pd.Series(model().predict(X), index=X.index).groupby(X["arm"]).mean()
    np.testing.assert_allclose(found["estimate"], means, rtol=1e-12)
    assert (found["lower"] < found["estimate"]).all()
    whole = average_predictions(model(), X).iloc[0]
    assert whole["group"] == "all"
    assert whole["std_error"] < found["std_error"].min()
    weight = (X["arm"] == "b").to_numpy(dtype=float)
    only = average_predictions(model(), X, sample_weight=weight).iloc[0]
    assert only["estimate"] == pytest.approx(found.loc["b", "estimate"], rel=1e-12)
    assert only["std_error"] == pytest.approx(found.loc["b", "std_error"], rel=1e-9)
    labels = np.where(X["age"] > 0, "old", "young")
    assert average_predictions(model(), X, by=labels)["group"].tolist() == ["old", "young"]


def test_frames_arrays_pipelines_and_federated_fits_say_the_same() -> None:
    X, y = table()
    numbers = X[["age", "dose"]]
    alone = fitted(numbers, y)
    expected = average_marginal_effects(alone, numbers)
    as_polars = average_marginal_effects(fitted(pl.from_pandas(numbers), y), pl.from_pandas(numbers))
    assert isinstance(as_polars, pl.DataFrame)
    array = average_marginal_effects(fitted(numbers.to_numpy(), y), numbers.to_numpy())
    scaled = make_pipeline(StandardScaler(), MixtureOfExpertsRegressor(2, n_init=2, random_state=0)).fit(numbers, y)
    after = average_marginal_effects(scaled, numbers)
    for name in ("estimate", "std_error", "lower"):
        np.testing.assert_allclose(as_polars[name].to_numpy(), expected[name], rtol=1e-9)
        np.testing.assert_allclose(array[name], expected[name], rtol=1e-9)
        np.testing.assert_allclose(after[name], expected[name], rtol=1e-4)
    assert array["column"].tolist() == ["x0", "x1"]
    parts = {"north": (numbers[::2], y[::2]), "south": (numbers[1::2], y[1::2])}
    result = Federation(parts).fit(MixtureOfExpertsRegressor(2, mixture_init=alone.mixture_))
    over_sites = average_marginal_effects(result, numbers)
    np.testing.assert_allclose(over_sites["estimate"], expected["estimate"], rtol=1e-6)


def test_text_arrays_and_truth_values_keep_their_values() -> None:
    X, y = table()
    texts = np.column_stack([X["age"].to_numpy().astype(str), X["arm"].to_numpy().astype(str)])
    texts[texts[:, 1] == "c", 1] = "longer than the rest"
    several = X.assign(arm=texts[:, 1])[["age", "arm"]].to_numpy()
    fit = MixtureOfExpertsRegressor(1, categorical_features=[1]).fit(several, y)
    assert average_contrasts(fit, several, 1)["contrast"].tolist() == ["b - a", "longer than the rest - a"]
    frame = X.assign(male=X["male"] == 1)[["age", "male"]]
    assert average_contrasts(MixtureOfExpertsRegressor(1).fit(frame, y), frame, "male")["contrast"].tolist() == [
        "True - False"
    ]


def test_a_column_of_a_formula_changes_all_its_terms() -> None:
    X, y = table()
    data = X.assign(y=y, name=[f"row {i}" for i in range(N)])
    fit = MixtureOfExpertsRegressor.from_formula("y ~ age * arm + spline(dose) | age", data, n_init=1, random_state=0)
    found = average_marginal_effects(fit, data).set_index(["column", "contrast"])
    assert sorted(found.index) == [("age", "dy/dx"), ("arm", "b - a"), ("arm", "c - a"), ("dose", "dy/dx")]
    for name in ("age", "dose"):
        up, down = (fit.predict(data.assign(**{name: data[name] + h})) for h in (1e-4, -1e-4))
        assert found.loc[(name, "dy/dx"), "estimate"] == pytest.approx(np.mean(up - down) / 2e-4, rel=1e-6)
    assert wald_test(fit, "age").degrees == 7  # of two experts the slope and two of its products, and of one gate
    assert wald_test(fit, "arm", "experts").degrees == 8
    assert likelihood_ratio_test(fit, data, y, "age").degrees == 7


def test_each_class_has_an_effect_and_they_sum_to_zero() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=N)})
    y = np.array(["no", "perhaps", "yes"])[(rng.random(N) + 0.2 * X["x"].to_numpy() > [[0.3], [0.7]]).sum(axis=0)]
    found = average_marginal_effects(MixtureOfExpertsClassifier(1).fit(X, y), X)
    assert found["response"].tolist() == ["no", "perhaps", "yes"]
    assert found["estimate"].sum() == pytest.approx(0, abs=1e-9)
    assert found["std_error"].notna().all()


def test_what_is_withheld_stays_withheld_with_the_reason() -> None:
    X, _ = table()
    silent = MixtureOfExpertsRegressor(2)
    vars(silent).update(vars(model()) | {"inference_": replace(model().inference_, withheld={"gate": "a reason"})})
    found = average_marginal_effects(silent, X)
    assert set(found["withheld"]) == {"gate: a reason"}
    assert found[["std_error", "statistic", "p_value", "lower", "upper"]].isna().all(axis=None)
    assert found["estimate"].notna().all()


def test_a_column_without_influence_has_no_error() -> None:
    X, y = table()
    X = X.assign(copy=2 * X["age"])[["age", "dose", "copy"]]
    with pytest.warns(UserWarning, match="not identified"):
        fit = MixtureOfExpertsRegressor(1).fit(X, y)
    found = average_marginal_effects(fit, X, ["dose", "copy"]).set_index("column")
    assert found.loc["copy", "estimate"] == 0
    assert np.isnan(found.loc["copy", "std_error"])
    assert found.loc["dose", "std_error"] > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: average_contrasts(model(), X, "weight"), "X has no column 'weight'"),
        (lambda X: average_contrasts(model(), X, "dose", (1, 2, 3)), "expected two values"),
        (lambda X: average_contrasts(model(), X, "arm", ("a", "z")), "levels that were not in the fit"),
        (lambda X: average_predictions(model(), X, by=[1, 2]), "label for each of the 400 rows"),
        (lambda X: average_predictions(model(), X, level=2), "strictly between 0 and 1"),
        (lambda X: average_predictions(model(), X, sample_weight=-np.ones(N)), "at least 0"),
        (lambda X: average_predictions(MixtureOfExpertsRegressor(2), X), "call fit first"),
        (lambda X: average_predictions(GaussianMixture(1).fit(X[["age"]]), X), "no covariates"),
        (lambda X: average_predictions(BaseEstimator(), X), "expected a mixture of this library"),
    ],
)
def test_arguments_are_checked(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(table()[0])
