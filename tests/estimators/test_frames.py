"""Frames in, frames out: pandas, polars, and pyarrow where neither is asked for."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.columns import frames
from consilience.errors import InvalidInputError
from simulated import simulated

DATA = simulated(n=200)
NAMES = ["age", "dose"]
COLUMNS = {"age": DATA.X[:, 0], "dose": DATA.X[:, 1]}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
PARTS = ["part", "expert", "response", "term", "estimate", "std_error", "lower", "upper"]


def regressor() -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, random_state=0, n_init=2)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_give_the_same_fit_as_arrays_and_keep_their_names(kind: str) -> None:
    X = KINDS[kind](COLUMNS)
    model = regressor().fit(X, DATA.y)
    plain = regressor().fit(DATA.X, DATA.y)
    assert np.allclose(model.coef_, plain.coef_)
    assert model.feature_names_in_.tolist() == NAMES
    assert not hasattr(plain, "feature_names_in_")
    assert np.allclose(model.predict(X), plain.predict(DATA.X))
    assert np.allclose(model.log_density(X, DATA.y), plain.log_density(DATA.X, DATA.y))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_come_back_in_the_library_of_X(kind: str) -> None:
    X = KINDS[kind](COLUMNS)
    frame = regressor().fit(X, DATA.y).to_frame()
    assert type(frame) is type(X)
    found = frame.column_names if kind == "pyarrow" else list(frame.columns)
    assert found == PARTS


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_checked_at_prediction(kind: str) -> None:
    model = regressor().fit(KINDS[kind](COLUMNS), DATA.y)
    renamed = KINDS[kind]({"age": DATA.X[:, 0], "weight": DATA.X[:, 1]})
    swapped = KINDS[kind]({"dose": DATA.X[:, 1], "age": DATA.X[:, 0]})
    for wrong in (renamed, swapped):
        with pytest.raises(ValueError, match=r"feature names should match|pass those, in that order"):
            model.predict(wrong)


def test_polars_columns_error_names_both() -> None:
    model = regressor().fit(pl.DataFrame(COLUMNS), DATA.y)
    with pytest.raises(InvalidInputError, match=r"\['dose', 'age'\].*\['age', 'dose'\]: pass those, in that order"):
        model.predict(pl.DataFrame({"dose": DATA.X[:, 1], "age": DATA.X[:, 0]}))


def test_another_number_of_columns_is_an_error() -> None:
    model = regressor().fit(DATA.X, DATA.y)
    with pytest.raises(ValueError, match=r"1 features, but .* expecting 2"):
        model.predict(DATA.X[:, :1])


def test_a_frame_can_be_read_by_a_model_of_arrays_and_an_array_by_a_model_of_frames() -> None:
    of_arrays = regressor().fit(DATA.X, DATA.y)
    assert np.allclose(of_arrays.predict(pl.DataFrame(COLUMNS)), of_arrays.predict(DATA.X))
    of_frames = regressor().fit(pl.DataFrame(COLUMNS), DATA.y)
    with pytest.warns(UserWarning, match="valid feature names"):
        assert np.allclose(of_frames.predict(DATA.X), of_arrays.predict(DATA.X))


def test_names_that_are_no_strings_are_no_names() -> None:
    model = regressor().fit(pd.DataFrame(DATA.X), DATA.y)
    assert not hasattr(model, "feature_names_in_")
    assert isinstance(model.to_frame(), pd.DataFrame)
    assert set(model.to_frame()["term"]) == {"", "(intercept)", "x0", "x1"}


def test_refitting_on_an_array_forgets_the_names() -> None:
    model = regressor().fit(pl.DataFrame(COLUMNS), DATA.y)
    model.fit(DATA.X, DATA.y)
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("series", [pd.Series, pl.Series])
def test_responses_weights_groups_and_exposures_may_be_series(series) -> None:
    data = simulated("poisson", n=120, group_size=3, exposure=True, weights=True)
    codes = np.char.add("g", data.rows.groups.codes.astype(str))
    metadata = {"sample_weight": data.rows.weight, "groups": codes, "exposure": data.rows.exposure}
    model = MixtureOfExpertsRegressor(2, family="poisson", random_state=0, n_init=2)
    plain = model.fit(data.X, data.y, **metadata).coef_
    inside = {name: series(values) for name, values in metadata.items()}
    assert np.allclose(model.fit(data.X, series(data.y), **inside).coef_, plain)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_several_responses_may_be_a_frame(kind: str) -> None:
    data = simulated(q=2, n=150)
    Y = KINDS[kind]({"u": data.y[:, 0], "v": data.y[:, 1]})
    model = MixtureOfRegressions(2, random_state=0, n_init=2)
    assert np.allclose(model.fit(data.X, Y).coef_, model.fit(data.X, data.y).coef_)


def test_without_a_frame_tables_are_pandas_and_without_pandas_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regressor().fit(DATA.X, DATA.y)
    assert isinstance(model.to_frame(), pd.DataFrame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = model.to_frame()
    assert isinstance(table, pa.Table)
    assert table.column_names == PARTS


def test_tidy_table_of_a_gated_regression() -> None:
    model = regressor().fit(pd.DataFrame(COLUMNS), DATA.y)
    table = model.to_frame(level=0.9)
    assert table["part"].value_counts().to_dict() == {"gate": 6, "expert": 6, "log_variance": 2}
    row = table.query("part == 'expert' and expert == 1 and term == 'dose'").iloc[0]
    assert row["estimate"] == model.coef_[1, 1]
    assert row["response"] == "y"
    expert = table.query("part == 'expert'")
    degrees = model.inference_.degrees_of_freedom()
    assert np.all(np.isfinite(degrees.experts))
    reach = stats.t.ppf(0.95, degrees.experts.ravel())
    assert np.allclose((expert["upper"] - expert["lower"]) / expert["std_error"], 2 * reach)
    gate = table.query("part == 'gate' and std_error > 0")
    assert np.allclose((gate["upper"] - gate["lower"]) / gate["std_error"], 2 * 1.6448536269514722)
    variance = table.query("part == 'log_variance' and expert == 0").iloc[0]
    assert np.exp(variance["estimate"]) == pytest.approx(model.variances_[0])


@pytest.mark.slow
def test_tidy_table_of_other_kinds() -> None:
    classes = simulated("categorical", n=150)
    model = MixtureOfExpertsClassifier(2, random_state=0, n_init=2).fit(classes.X, classes.y.astype(int))
    assert set(model.to_frame().query("part == 'expert'")["response"]) == {"0", "1", "2"}
    binary = model.fit(classes.X, np.where(classes.y > 0, "yes", "no"))
    assert set(binary.to_frame().query("part == 'expert'")["response"]) == {"yes"}
    X = np.random.default_rng(0).normal(size=(100, 2))
    mixture = GaussianMixture(1).fit(pd.DataFrame(X, columns=["u", "v"])).to_frame()
    assert mixture["part"].tolist() == ["weight", "expert", "expert", "log_variance", "log_variance"]
    assert mixture["response"].tolist() == ["", "u", "v", "u", "v"]
    two = simulated(q=2, n=150)
    joint = regressor().fit(two.X, two.y).to_frame()
    assert set(joint.query("part == 'expert'")["response"]) == {"y0", "y1"}


def test_rows_of_the_tidy_table_of_several_responses_have_the_numbers_of_their_names() -> None:
    two = simulated(q=2, n=150)
    model = regressor().fit(two.X, two.y)
    table = model.to_frame().query("part == 'expert'").set_index(["expert", "response", "term"])
    inference = model.inference_
    estimates, errors = inference.estimates.experts, inference.standard_errors().experts
    assert np.all(np.isfinite(errors))
    for k in range(2):
        for j, response in enumerate(["y0", "y1"]):
            rows = [(k, response, term) for term in ["(intercept)", "x0", "x1"]]
            np.testing.assert_array_equal(table.loc[rows, "estimate"], estimates[k, j])
            np.testing.assert_array_equal(table.loc[rows, "std_error"], errors[k, j])


@pytest.mark.parametrize("kind", KINDS)
def test_the_backend_of_a_frame_is_the_name_of_its_module(kind: str) -> None:
    assert frames.backend_of(KINDS[kind](COLUMNS)) == kind


def test_without_the_library_of_X_a_table_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regressor().fit(pl.DataFrame(COLUMNS), DATA.y)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="polars"):
        model.to_frame()


def test_arrays_are_no_frames() -> None:
    assert frames.backend_of(DATA.X) is None
    assert frames.frame_names(DATA.X) is None
    assert frames.as_array(DATA.X) is DATA.X
