"""Models by a formula: the same bits as by columns made by hand, in all libraries, over sites and in files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from consilience import (
    Federation,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    load,
    plot,
    select_order,
)
from consilience.errors import ConsilienceError, InvalidInputError

N = 300
FAST: dict[str, Any] = {"random_state": 0, "n_init": 1}


def hospital() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({
        "age": rng.normal(60, 10, N),
        "admission": np.where(rng.random(N) < 0.4, "urgent", "planned"),
        "crp": rng.gamma(2, 20, N),
        "severity": rng.normal(size=N),
        "ward": rng.integers(1, 4, N),
        "beds": rng.integers(1, 9, N),
    })  # fmt: skip
    urgent = table["admission"] == "urgent"
    first = rng.random(N) < 1 / (1 + np.exp(-3 * table["severity"]))
    table["los"] = np.where(first, 3 + 0.1 * table["age"] + 2 * urgent, 15 - 0.1 * table["age"] * urgent)
    table["los"] += 0.5 * rng.normal(size=N)
    table["falls"] = rng.poisson(table["beds"] * np.exp(0.3 * table["severity"] - 1))
    table["dead"] = np.where(rng.random(N) < 1 / (1 + np.exp(3 - table["crp"] / 15)), "yes", "no")
    return table


DATA = hospital()
URGENT = (DATA["admission"] == "urgent").to_numpy(dtype=float)


def by_hand(name: str, df: int) -> dict[str, np.ndarray]:
    """Return the terms of a natural cubic spline with knots at quantiles."""
    x = DATA[name].to_numpy()
    t = np.quantile(x, np.linspace(0, 1, df + 1))
    bend = [(np.maximum(x - t[j], 0) ** 3 - np.maximum(x - t[-1], 0) ** 3) / (t[-1] - t[j]) for j in range(df)]
    bends = [(bend[j] - bend[-1]) / (t[-1] - t[0]) for j in range(df - 1)]
    label = f"spline({name})" if df == 4 else f"spline({name}, df={df})"
    return {f"{label}[{i + 1}]": column for i, column in enumerate([x, *bends])}


Analysis = tuple[Any, str, dict[str, Any], dict[str, Any], dict[str, Any]]
ANALYSES: dict[str, Analysis] = {
    "a gate with a term of its own": (
        MixtureOfExpertsRegressor(2, **FAST),
        "los ~ age * admission | age + severity",
        {"age": DATA["age"], "admission": DATA["admission"], "age:admission[urgent]": DATA["age"] * URGENT,
         "severity": DATA["severity"]},
        {"expert_features": ["age", "admission", "age:admission[urgent]"], "gate_features": ["age", "severity"]},
        {},
    ),
    "counts with exposure": (
        MixtureOfRegressions(1, family="poisson", **FAST),
        "falls ~ severity + category(ward)",
        {"severity": DATA["severity"], "category(ward)": DATA["ward"].astype(str)},
        {},
        {"exposure": DATA["beds"].to_numpy(dtype=float)},
    ),
    "classes and a spline": (
        MixtureOfExpertsClassifier(2, **FAST),
        "dead ~ spline(crp) + severity",
        {**by_hand("crp", 4), "severity": DATA["severity"]},
        {},
        {},
    ),
    "transforms and weights": (
        MixtureOfRegressions(2, **FAST),
        "los ~ log(crp) * severity + sqrt(age)",
        {"log(crp)": np.log(DATA["crp"]), "severity": DATA["severity"],
         "log(crp):severity": np.log(DATA["crp"]) * DATA["severity"], "sqrt(age)": np.sqrt(DATA["age"])},
        {},
        {"sample_weight": np.arange(N) % 3 + 1.0},
    ),
    "groups and a short spline": (
        MixtureOfExpertsRegressor(2, **FAST),
        "los ~ spline(age, df=3) + admission | 1",
        {**by_hand("age", 3), "admission": DATA["admission"]},
        {"expert_features": [*by_hand("age", 3), "admission"], "gate_features": []},
        {"groups": np.repeat(np.arange(N // 3), 3)},
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::consilience.ConsilienceWarning")
@pytest.mark.parametrize("analysis", ANALYSES)
def test_a_formula_and_its_columns_give_the_same_bits(analysis: str) -> None:
    estimator, formula, columns, chosen, metadata = ANALYSES[analysis]
    response = DATA[formula.split(" ~")[0]]
    X = pd.DataFrame(columns)
    expected = clone(estimator).set_params(**chosen).fit(X, response, **metadata)
    found = clone(estimator).set_params(formula=formula).fit(DATA, **metadata)
    assert found.columns_.terms == expected.columns_.terms
    assert np.array_equal(found.coef_, expected.coef_)
    assert np.array_equal(found.inference_.estimates.flat(), expected.inference_.estimates.flat(), equal_nan=True)
    assert np.array_equal(found.inference_.covariance, expected.inference_.covariance, equal_nan=True)
    assert found.log_likelihood_ == expected.log_likelihood_
    assert np.array_equal(found.predict(DATA), expected.predict(X))
    assert str(found.summary()) == str(expected.summary())


FORMULA = "los ~ age * admission + spline(crp) | age + severity"


@pytest.fixture(scope="module")
def fitted() -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor.from_formula(FORMULA, DATA, n_experts=2, **FAST)


@pytest.mark.parametrize("library", [pl.from_pandas, lambda data: pa.Table.from_pandas(data, preserve_index=False)])
def test_a_formula_reads_frames_of_all_libraries(library: Callable[[Any], Any], fitted: Any) -> None:
    data = library(DATA)
    other = MixtureOfExpertsRegressor.from_formula(FORMULA, data, n_experts=2, **FAST)
    assert np.array_equal(other.coef_, fitted.coef_)
    assert np.array_equal(other.predict(data), fitted.predict(DATA))


def test_a_formula_predicts_rows_in_any_order_and_without_other_columns(fitted: Any) -> None:
    some = DATA.sample(frac=0.2, random_state=2)[["severity", "crp", "admission", "age"]]
    assert np.array_equal(fitted.predict(some), fitted.predict(DATA)[some.index])


def test_names_of_terms_are_in_texts_tables_and_pictures(fitted: Any) -> None:
    assert fitted.columns_.terms[:4] == ("age", "admission[urgent]", "age:admission[urgent]", "spline(crp)[1]")
    assert "age:admission[urgent]" in str(fitted.summary())
    assert str(fitted.summary()).startswith("Mixture of experts, regression of los\n")
    assert {"age:admission[urgent]", "spline(crp)[4]"} <= set(fitted.to_frame()["term"])
    axes = plot.coefficients(fitted)
    drawn = {label.get_text() for label in np.ravel(axes)[0].get_yticklabels()}
    assert {"age:admission[urgent]", "spline(crp)[2]"} <= drawn
    plt.close("all")


def test_a_model_by_formula_is_saved_and_read(fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert np.array_equal(again.predict(DATA), fitted.predict(DATA))
    assert again.formula == FORMULA
    assert str(again.summary()) == str(fitted.summary())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"formula": "los ~ age * admission', '"formula": "los ~ crp * admission'),
        ('"spline(crp)": [', '"spline(age)": ['),
        ('"knots": {', '"knots": {"more": [3, 2, 1], '),
    ],
)
def test_a_file_whose_formula_was_changed_is_refused(fitted: Any, tmp_path: Path, old: str, new: str) -> None:
    fitted.save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    assert old in text
    (tmp_path / "model.json").write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidInputError):
        load(tmp_path / "model.json")


def test_a_formula_over_sites_is_that_of_the_pooled_table(fitted: Any) -> None:
    rows = DATA["ward"]
    sites = Federation({f"ward {i}": (DATA[rows == i],) for i in (1, 2, 3)})
    model = sites.fit(MixtureOfExpertsRegressor(2, formula=FORMULA, **FAST)).model
    assert model.columns_.terms == fitted.columns_.terms
    assert model.derivation_ == fitted.derivation_
    assert model.log_likelihood_ == pytest.approx(fitted.log_likelihood_, rel=1e-8)


def test_a_formula_is_cross_validated_and_compared() -> None:
    model = MixtureOfRegressions(1, formula="los ~ age * admission + severity", **FAST)
    assert np.all(np.isfinite(cross_val_score(model, DATA, DATA["los"], cv=3)))
    experts = MixtureOfExpertsRegressor(formula="los ~ age + admission | severity", **FAST)
    found = select_order(experts, DATA, DATA["los"], [1, 2])
    assert found.best_order == 2


def test_an_unknown_level_stands_in_products_too() -> None:
    model = MixtureOfRegressions.from_formula("los ~ age * admission", DATA, n_components=1, unknown_levels="reference")
    new = DATA[:5].assign(admission="by air")
    assert np.array_equal(model.predict(new), model.predict(new.assign(admission="planned")))
    average = MixtureOfRegressions.from_formula("los ~ age * admission", DATA, n_components=1, unknown_levels="average")
    found = average.covariates(new)
    np.testing.assert_allclose(found[:, 1], URGENT.mean(), rtol=1e-12)
    np.testing.assert_allclose(found[:, 2], new["age"] * URGENT.mean(), rtol=1e-12)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "an array": (lambda: MixtureOfRegressions(1, formula="y ~ x").fit(np.ones((9, 2))), "pass a data frame of pandas"),
    "no such column": (lambda: MixtureOfRegressions.from_formula("los ~ agee", DATA), "'agee'; did you mean 'age'"),
    "only an intercept": (lambda: MixtureOfRegressions.from_formula("los ~ 1", DATA), "no term but the intercept"),
    "a gate of regressions": (
        lambda: MixtureOfRegressions.from_formula("los ~ age | crp", DATA),
        "the gate of a MixtureOfRegressions is constant: leave out '|'",
    ),
    "features beside it": (
        lambda: MixtureOfExpertsRegressor(formula="los ~ age", gate_features=["age"]).fit(DATA),
        "gate_features beside a formula: write it in the formula",
    ),
    "categories beside it": (
        lambda: MixtureOfExpertsRegressor(formula="los ~ ward", categorical_features=["ward"]).fit(DATA),
        r"categorical_features beside a formula: .*category\(ward\)",
    ),
    "a spline of few values": (
        lambda: MixtureOfRegressions.from_formula("los ~ spline(ward, df=8)", DATA),
        "'ward' has too few different values for 8 terms of a spline: choose a smaller df",
    ),
    "a spline of text": (
        lambda: MixtureOfRegressions.from_formula("los ~ spline(admission)", DATA),
        "column 'admission' has values that are not numbers",
    ),
    "a logarithm of 0": (
        lambda: MixtureOfRegressions.from_formula("los ~ log(crp)", DATA.assign(crp=np.arange(N))),
        r"X contains infinite values: log\(crp\) in 1 of 300 rows \(0\)",
    ),
    "dates in a product": (
        lambda: MixtureOfRegressions.from_formula("los ~ age * crp", DATA.assign(crp=pd.Timestamp("2024-01-01"))),
        "column 'crp' of X holds dates",
    ),
    "a column that is gone": (
        lambda: MixtureOfRegressions.from_formula("los ~ age", DATA, n_components=1).predict(DATA[["crp"]]),
        "X has no column 'age', which the formula of the model names",
    ),
    "an array in prediction": (
        lambda: MixtureOfRegressions.from_formula("los ~ age", DATA, n_components=1).predict(np.ones((3, 1))),
        "the model has a formula, which reads columns by name: pass a data frame",
    ),
    "ONNX": (
        lambda: MixtureOfRegressions.from_formula("los ~ age", DATA, n_components=1).to_onnx("model.onnx"),
        "formula: an ONNX file has columns as they are",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_with_a_formula_is_answered_with_a_sentence(mistake: str) -> None:
    call, said = MISTAKES[mistake]
    with pytest.raises(ConsilienceError, match=said):
        call()


def test_files_of_a_federation_have_columns_as_they_are(tmp_path: Path) -> None:
    DATA.to_parquet(tmp_path / "a.parquet")
    files = Federation.from_parquet(str(tmp_path / "a.parquet"), target="los", features=["age", "crp"])
    with pytest.raises(ConsilienceError, match="formula: files do not say its levels and knots; state them in a study"):
        files.fit(MixtureOfRegressions(1, formula="los ~ age * crp"))
