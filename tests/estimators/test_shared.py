"""``shared=``: names of covariates whose coefficients are equal in all experts, in one table and over sites."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import consilience
from consilience import (
    FederatedEM,
    Federation,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    compare,
    likelihood_ratio_test,
    plot,
    select_order,
    wald_test,
)

NAMES = ["age", "dose", "ward"]


@cache
def table() -> pd.DataFrame:
    """Two kinds of rows whose responses differ in the effect of the dose alone."""
    rng, n = np.random.default_rng(0), 600
    found = pd.DataFrame({"age": rng.normal(50, 10, n), "dose": rng.normal(size=n), "ward": rng.choice(list("abc"), n)})
    first = rng.random(n) < 1 / (1 + np.exp(-0.5 * found["dose"]))
    same = 0.1 * found["age"] + (found["ward"] == "b")
    found["y"] = np.where(first, 2 * found["dose"], 10 - 2 * found["dose"]) + same + rng.normal(size=n)
    return found


@cache
def model(*shared: str) -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, shared=list(shared) or None, random_state=0).fit(table()[NAMES], table()["y"])


def test_a_category_is_shared_in_all_its_levels() -> None:
    found = model("age", "ward")
    assert np.array_equal(found.coef_[0, [0, 2, 3]], found.coef_[1, [0, 2, 3]])
    assert np.abs(found.coef_[0, 1] - found.coef_[1, 1]) > 3
    assert found.n_parameters_ == model().n_parameters_ - 3
    assert found.log_likelihood_ < model().log_likelihood_
    assert found.bic(table()[NAMES], table()["y"]) < model().bic(table()[NAMES], table()["y"])


def test_an_index_stands_for_a_name() -> None:
    by_index = MixtureOfExpertsRegressor(2, shared=[0, 2], random_state=0).fit(table()[NAMES], table()["y"])
    assert np.array_equal(by_index.coef_, model("age", "ward").coef_)


def test_a_formula_and_columns_give_the_same_bits() -> None:
    options: dict[str, Any] = {"shared": ["age", "ward"], "random_state": 0}
    by_formula = MixtureOfExpertsRegressor.from_formula("y ~ age + dose + ward", table(), **options)
    assert np.array_equal(by_formula.coef_, model("age", "ward").coef_)
    assert np.array_equal(by_formula.inference_.covariance, model("age", "ward").inference_.covariance)


@pytest.mark.slow
def test_a_term_of_a_formula_stands_for_all_its_columns() -> None:
    formula = "y ~ age * ward + spline(dose, df=3) | age"
    found = MixtureOfExpertsRegressor.from_formula(
        formula, table(), shared=["ward:age", "spline(dose, df=3)"], random_state=0, n_init=2
    )
    same = [term for term, a, b in zip(found.columns_.terms, *found.coef_, strict=True) if a == b]
    assert same == ["age:ward[b]", "age:ward[c]", *(f"spline(dose, df=3)[{i}]" for i in (1, 2, 3))]


def test_tables_and_words_say_what_is_shared() -> None:
    found = model("age", "ward")
    text = found.summary()
    assert text.count("age (shared)") == 2
    assert "ward[b] (shared)" in text
    assert "dose (shared)" not in text
    tidy = found.tidy()
    once = tidy[tidy["expert"] == "all experts"]
    assert list(once["term"]) == ["age", "ward[b]", "ward[c]"]
    assert len(tidy[(tidy["part"] == "expert") & (tidy["term"] == "dose")]) == 2
    words = found.describe()
    assert "Alike in all experts: y is higher by" in words
    assert words.count("deviation of age") == 1
    figures = compare({"own": model(), "shared": found}).to_frame()
    assert list(figures["parameters"]) == [model().n_parameters_, found.n_parameters_]


def test_wald_counts_a_shared_coefficient_once() -> None:
    found = model("age", "ward")
    assert [wald_test(found, name, "experts").degrees for name in ("age", "ward", "dose")] == [1, 2, 2]
    place = found.inference_.estimates.like(np.arange(len(found.inference_.estimates.flat()))).experts[0, 0, 1]
    z = found.coef_[0, 0] / np.sqrt(found.inference_.covariance[int(place), int(place)])
    assert wald_test(found, "age", "experts").statistic == pytest.approx(z**2)


@pytest.mark.slow
def test_a_likelihood_ratio_counts_a_shared_coefficient_once() -> None:
    tested = likelihood_ratio_test(model("age", "ward"), table()[NAMES], table()["y"], "ward", "experts")
    assert tested.degrees == 2
    assert tested.p_value < 0.01


def test_a_picture_marks_what_is_shared() -> None:
    pytest.importorskip("matplotlib")
    axes = plot.coefficients(model("age", "ward"))
    labels = [label.get_text() for label in np.ravel(axes)[0].get_yticklabels()]
    assert "age (shared)" in labels
    assert "dose" in labels


@pytest.mark.slow
def test_a_report_says_which_effects_were_set_to_be_alike(tmp_path: Path) -> None:
    X, y = table()[NAMES], table()["y"]
    sites = Federation({"north": (X[:300], y[:300]), "south": (X[300:], y[300:])})
    found = sites.fit(MixtureOfExpertsRegressor(2, shared=["age", "ward"], random_state=0), FederatedEM(n_climbs=1))
    found.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.count("(alike in all kinds)") == 3
    assert "set to be so before the fit" in text
    assert "this table has 5." in text
    assert "the coefficients of age and ward being equal in all components" in text
    assert "age (shared)" in text


def test_a_saved_model_knows_what_is_shared(tmp_path: Path) -> None:
    found = model("age", "ward")
    found.save(tmp_path / "model.json")
    again: Any = consilience.load(tmp_path / "model.json")
    assert again.shared == ["age", "ward"]
    assert (again.n_parameters_, again.summary()) == (found.n_parameters_, found.summary())
    assert np.array_equal(again.predict(table()[NAMES]), found.predict(table()[NAMES]))


def test_an_order_counts_shared_coefficients_once() -> None:
    few = MixtureOfRegressions(shared=["age"], n_init=2, random_state=0)
    found = select_order(few, table()[["age", "dose"]], table()["y"], orders=(1, 2))
    assert [each.n_parameters_ for each in found.estimators] == [4, 8]


def test_an_intercept_is_shared_as_a_column_of_ones() -> None:
    X = table()[["dose"]].assign(one=1.0)
    found = MixtureOfRegressions(2, shared=["one"], fit_intercept=False, random_state=0).fit(X, table()["y"])
    assert found.coef_[0, 1] == found.coef_[1, 1] != 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["experts", "regressions"])
def test_one_table_and_four_sites_are_alike(kind: str) -> None:
    X, y = table()[NAMES], table()["y"]
    many: Any = MixtureOfExpertsRegressor if kind == "experts" else MixtureOfRegressions
    estimator = many(2, shared=["age", "ward"], random_state=0)
    one = many(2, shared=["age", "ward"], random_state=0).fit(X, y)
    cuts = [0, 100, 220, 380, 600]
    parts = {f"site {i}": slice(*cuts[i : i + 2]) for i in range(4)}
    sites = Federation({name: (X[part], y[part]) for name, part in parts.items()})
    for method in (FederatedEM(), FederatedEM(totals_only=True)):
        found = sites.fit(estimator, method)
        np.testing.assert_allclose(found.model.coef_, one.coef_, atol=1e-8)
        np.testing.assert_allclose(found.model.inference_.covariance, one.inference_.covariance, atol=1e-8)
        assert found.bic == pytest.approx(one.bic(X, y), abs=1e-8)
        assert found.model.n_parameters_ == one.n_parameters_
