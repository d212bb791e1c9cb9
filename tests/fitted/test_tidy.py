"""Tables for publication: each parameter once, on the scale that papers report, with nothing that is withheld."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.datasets import soft
from consilience.errors import InvalidInputError
from simulated import simulated

N = 500


@cache
def regressor(K: int = 2) -> MixtureOfExpertsRegressor:
    data = simulated(n=N) if K == 2 else soft(N, n_experts=K, n_features=2, random_state=0)
    X = pd.DataFrame(data.X, columns=["age", "dose"])
    return MixtureOfExpertsRegressor(K, mixture_init=data.truth).fit(X, data.y)


def test_coefficients_have_statistic_p_and_interval() -> None:
    model = regressor()
    table, inference = model.tidy(level=0.9).set_index(["part", "expert", "term"]), model.inference_
    row = table.loc["expert", "expert 2", "dose"]
    se, df = inference.standard_errors().experts[1, 0, 2], inference.degrees_of_freedom().experts[1, 0, 2]
    assert row["estimate"] == model.coef_[1, 1]
    assert row["std_error"] == se
    assert row["statistic"] == pytest.approx(model.coef_[1, 1] / se, rel=1e-12)
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(abs(model.coef_[1, 1] / se), df), rel=1e-9)
    lower, upper = inference.interval(0.9)
    assert (row["lower"], row["upper"]) == (lower.experts[1, 0, 2], upper.experts[1, 0, 2])
    assert np.isnan(row["effect"])  # it adds to the mean


def test_each_gate_row_stands_once_and_effects_are_odds() -> None:
    model = regressor()
    gate = model.tidy().query("part == 'gate'")
    assert gate["expert"].tolist() == ["expert 1"] * 3
    contrast = model.tidy(reference=1).query("part == 'gate'")
    assert contrast["expert"].tolist() == ["expert 1"] * 3
    np.testing.assert_allclose(contrast["estimate"], 2 * gate["estimate"], rtol=1e-12)
    for name in ("effect", "effect_lower", "effect_upper"):  # of two experts the odds are the same in both codings
        np.testing.assert_allclose(contrast[name], gate[name], rtol=1e-9)
    np.testing.assert_allclose(contrast["effect"], np.exp(contrast["estimate"]), rtol=1e-12)
    three = regressor(3).tidy().query("part == 'gate'")
    assert three["expert"].tolist() == [f"expert {k}" for k in (1, 2, 3) for _ in range(3)]
    assert set(regressor(3).tidy(reference=0).query("part == 'gate'")["expert"]) == {"expert 2", "expert 3"}


def test_shapes_and_shares_are_on_their_natural_scale() -> None:
    model = regressor()
    table, inference = model.tidy().set_index(["part", "expert"]), model.inference_
    row, (lower, upper) = table.loc["shape", "expert 1"], inference.interval()
    assert row["term"] == "variance"
    assert row["estimate"] == pytest.approx(model.variances_[0], rel=1e-12)
    assert row["std_error"] == pytest.approx(
        model.variances_[0] * inference.standard_errors().log_shapes[0, 0], rel=1e-12
    )
    assert row["lower"] == pytest.approx(np.exp(lower.log_shapes[0, 0]), rel=1e-12)
    assert row["upper"] == pytest.approx(np.exp(upper.log_shapes[0, 0]), rel=1e-12)
    assert np.isnan(row["p_value"])
    assert table.loc["share"]["estimate"].tolist() == model.weights_.tolist()
    data = simulated(gate="constant", n=N)
    constant = MixtureOfRegressions(2, mixture_init=data.truth).fit(data.X, data.y)
    shares = constant.tidy().query("part == 'share'")
    np.testing.assert_array_equal(shares["std_error"], constant.inference_.standard_errors().gate[:, 0])
    assert not shares["p_value"].notna().any()


def test_rates_are_multiplied_by_the_effect() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    y = rng.poisson(np.exp(0.3 + 0.5 * x))
    row = MixtureOfRegressions(1, family="poisson").fit(x[:, None], y).tidy().query("term == 'x0'").iloc[0]
    for effect, name in (("effect", "estimate"), ("effect_lower", "lower"), ("effect_upper", "upper")):
        assert row[effect] == pytest.approx(np.exp(row[name]), rel=1e-12)


def test_odds_of_a_class_are_against_the_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    y = np.array(["a", "b", "c"])[(rng.random(600) + 0.3 * x > [[0.3], [0.7]]).sum(axis=0)]
    model = MixtureOfExpertsClassifier(1).fit(x[:, None], y)
    table = model.tidy().query("part == 'expert' and term == 'x0'").set_index("response")
    b = model.coef_[0, :, 0]
    others = np.exp(b[0] - b[1:].mean())
    assert table.loc["a", "effect"] == pytest.approx(others, rel=1e-9)


def test_what_is_withheld_has_the_reason_and_no_interval() -> None:
    model = regressor()
    withheld = {"gate": "a reason", "expert 1": "another", "shapes": "a third"}
    silent = MixtureOfExpertsRegressor(2).set_params(**model.get_params())
    vars(silent).update(vars(model) | {"inference_": replace(model.inference_, withheld=withheld)})
    table = silent.tidy()
    for part, expert, reason in (("gate", "expert 1", "a reason"), ("expert", "expert 2", "another")):
        rows = table[(table["part"] == part) & (table["expert"] == expert)]
        assert set(rows["withheld"]) == {reason}
        assert rows[["std_error", "statistic", "p_value", "lower", "upper", "effect_lower"]].isna().all(axis=None)
    rows = table[(table["part"] == "expert") & (table["expert"] == "expert 1")]
    assert rows["lower"].notna().all()
    assert set(rows["withheld"]) == {""}
    assert table[table["part"] == "shape"]["withheld"].tolist() == ["a third", "another"]
    assert silent.glance()["withheld"].tolist() == ["gate, expert 2 and shapes"]


def test_a_glance_is_one_row_on_the_fit() -> None:
    model, data = regressor(), simulated(n=N)
    (row,) = model.glance().to_dict("records")
    X = pd.DataFrame(data.X, columns=["age", "dose"])
    assert row["bic"] == pytest.approx(model.bic(X, data.y), rel=1e-9)
    assert row["aic"] == pytest.approx(model.aic(X, data.y), rel=1e-9)
    assert (row["experts"], row["rows_or_groups"], row["parameters"], row["family"]) == (2, N, 11, "gaussian")
    assert row["bic_of_one"] == model.single_bic_
    assert (row["converged"], row["withheld"], row["in_doubt"]) == (True, "", "")


def test_frames_are_of_the_library_that_the_data_came_from() -> None:
    data = simulated(gate="constant")
    model = MixtureOfRegressions(2, mixture_init=data.truth).fit(pl.DataFrame(data.X, schema=["a", "b"]), data.y)
    assert isinstance(model.tidy(), pl.DataFrame)
    assert isinstance(model.glance(), pl.DataFrame)


def test_a_gaussian_mixture_has_means_and_no_gate() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal(6, 1, (100, 2))])
    table = GaussianMixture(2, n_init=1, random_state=0).fit(X).tidy()
    assert table["part"].value_counts().to_dict() == {"share": 2, "expert": 4, "shape": 4}
    assert GaussianMixture(1).fit(X).tidy()["part"].value_counts().to_dict() == {"expert": 2, "shape": 2}


@pytest.mark.parametrize("options", [{"reference": 2}, {"reference": -1}, {"level": 1.0}])
def test_arguments_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        regressor().tidy(**options)
