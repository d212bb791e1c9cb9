"""Data frames with categories: coded against a reference level, named in every table, and checked by name."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline

from consilience import (
    FederatedEM,
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
    load,
)
from consilience.columns import frames
from consilience.errors import InvalidInputError, RoundStoppedError

N = 500
FUELS = np.array(["diesel", "gas", "petrol"])


def frame(seed=0, n=N) -> tuple[pd.DataFrame, np.ndarray]:
    """A number, a text, a boolean and an ordered category; two regressions that depend on all of them."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "fuel": FUELS[rng.integers(3, size=n)],
            "smoker": rng.random(n) < 0.4,
            "dose": pd.Categorical(np.array(["low", "high"])[rng.integers(2, size=n)], ["low", "high"], ordered=True),
        }
    )
    first = rng.random(n) < 0.5
    z = (table.age - 50) / 10
    gas, smoker, high = (table.fuel == "gas") * 1.0, table.smoker * 1.0, (table.dose == "high") * 1.0
    mean = np.where(first, 2 * z + 3 * gas + high, -2 * z + 10 - 3 * smoker)
    return table, np.asarray(mean + 0.5 * rng.normal(size=n))


def by_hand(table: pd.DataFrame) -> np.ndarray:
    return np.column_stack(
        [table.age, table.fuel == "gas", table.fuel == "petrol", table.smoker, table.dose == "high"]
    ).astype(float)


TERMS = ["age", "fuel[gas]", "fuel[petrol]", "smoker[True]", "dose[high]"]
FRAMES = {
    "pandas": lambda t: t,
    "pandas categories": lambda t: t.astype({"fuel": "category"}),
    "pandas strings": lambda t: t.astype({"fuel": "string"}),
    "polars": lambda t: pl.from_pandas(t).with_columns(pl.col("dose").cast(pl.Enum(["low", "high"]))),
    "arrow": lambda t: pa.Table.from_pandas(t, preserve_index=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("library", FRAMES)
def test_a_frame_with_categories_is_coded_as_by_hand(library):
    table, y = frame()
    X = FRAMES[library](table)
    model = MixtureOfRegressions(2, random_state=0).fit(X, y)
    expected = MixtureOfRegressions(2, random_state=0).fit(by_hand(table), y)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.columns_.terms == tuple(TERMS)
    assert list(model.feature_names_in_) == ["age", "fuel", "smoker", "dose"]
    assert model.n_features_in_ == 4
    np.testing.assert_array_equal(model.predict(X), expected.predict(by_hand(table)))
    assert model.bic(X, y) == expected.bic(by_hand(table), y)


def test_terms_are_named_in_all_tables():
    table, y = frame()
    model = MixtureOfExpertsRegressor(2, random_state=0, n_init=2).fit(table, y)
    for term in TERMS:
        assert term in model.summary()
        assert term in model._repr_html_()
    assert set(TERMS) < set(model.to_frame()["term"])


def test_the_reference_level_can_be_chosen():
    table, y = frame()
    plain = MixtureOfRegressions(2, random_state=0).fit(table, y)
    chosen = MixtureOfRegressions(2, random_state=0, reference_levels={"fuel": "petrol"}).fit(table, y)
    assert chosen.columns_.terms[1:3] == ("fuel[diesel]", "fuel[gas]")
    np.testing.assert_allclose(chosen.predict(table), plain.predict(table), atol=1e-8)
    np.testing.assert_allclose(chosen.coef_[:, 1], -plain.coef_[:, 2], atol=1e-7)


def test_numbers_can_be_categories_by_name_or_index():
    table, y = frame()
    codes = table.assign(fuel=np.searchsorted(FUELS, table.fuel))[["age", "fuel"]]
    model = MixtureOfRegressions(2, random_state=0, n_init=2, categorical_features=["fuel"]).fit(codes, y)
    assert model.columns_.terms == ("age", "fuel[1]", "fuel[2]")
    array = MixtureOfRegressions(2, random_state=0, n_init=2, categorical_features=[1]).fit(codes.to_numpy(), y)
    assert array.columns_.terms == ("x0", "x1[1.0]", "x1[2.0]")
    np.testing.assert_array_equal(array.predict(codes.to_numpy()), model.predict(codes))


MISTAKES = [
    (lambda t: t.assign(fuel="hydrogen"), "column 'fuel' has levels that were not in the fit: 'hydrogen'; expected"),
    (lambda t: t.assign(fuel=1.0), "column 'fuel' has levels that were not in the fit"),
    (lambda t: t.drop(columns="fuel"), r"X has columns \['age', 'smoker', 'dose'\], the model was fitted on"),
    (lambda t: t.assign(age=np.nan), r"missing values: age in 500 of 500 rows \(0, 1, 2, …\)"),
    (lambda t: t.assign(fuel=None), r"missing values: fuel in 500 of 500 rows"),
    (by_hand, r"X has shape \(500, 5\), the model was fitted on 4 columns"),
]


@pytest.mark.parametrize(("spoilt", "said"), MISTAKES, ids=range(len(MISTAKES)))
def test_new_data_that_do_not_fit_are_refused_by_name(spoilt, said):
    table, y = frame()
    model = MixtureOfRegressions(2, random_state=0, n_init=1).fit(table, y)
    with pytest.raises(InvalidInputError, match=said):
        model.predict(spoilt(table))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"categorical_features": ["wheels"]}, "X has no column 'wheels'; it has age, fuel, smoker, dose"),
        ({"categorical_features": [7]}, "X has no column 7"),
        ({"categorical_features": "fuel"}, "expected 'from_dtype', or a list"),
        ({"categorical_features": ["fuel"]}, "column 'smoker' is text, a category or boolean and is not in"),
        ({"reference_levels": {"fuel": "hydrogen"}}, "fuel has no level 'hydrogen' to be the reference"),
        ({"reference_levels": {"wheels": 4}}, "reference_levels: X has no column wheels"),
        ({"reference_levels": {"age": 4}}, "it is a column of numbers"),
    ],
)
def test_wrong_parameters_are_explained(options, said):
    table, y = frame()
    with pytest.raises(InvalidInputError, match=said):
        MixtureOfRegressions(2, **options).fit(table, y)


def test_missing_values_are_named_with_their_numbers():
    table, y = frame()
    table.loc[:2, "age"], table.loc[:6, "fuel"] = np.nan, None
    with pytest.raises(
        InvalidInputError, match=r"NaN or missing values: age in 3 of 500 rows \(.*\), fuel in 7 of 500 rows"
    ):
        MixtureOfRegressions(2).fit(table, y)
    X = by_hand(table)
    X[:4, 1] = np.nan
    with pytest.raises(InvalidInputError, match=r": x0 in 3 of 500 rows \(0, 1, 2\), x1 in 4 of 500 rows"):
        MixtureOfRegressions(2).fit(X, y)


def test_an_identifier_is_no_category():
    table, y = frame()
    with pytest.raises(InvalidInputError, match="id has 500 levels; a category has at most 255"):
        MixtureOfRegressions(2).fit(table.assign(id=[f"patient {i}" for i in range(N)]), y)


def test_a_gaussian_mixture_reads_numbers_only():
    table, _ = frame()
    with pytest.raises(InvalidInputError, match="column 'fuel' is not of numbers"):
        GaussianMixture(2).fit(table)


def test_a_classifier_reads_categories():
    table, y = frame()
    model = MixtureOfExpertsClassifier(2, random_state=0, n_init=1).fit(table, y > 5)
    assert model.columns_.terms == tuple(TERMS)
    assert model.predict_proba(table).shape == (N, 2)


def test_a_clone_has_the_same_coding():
    table, y = frame()
    model = clone(MixtureOfRegressions(2, random_state=0, n_init=1, reference_levels={"fuel": "gas"})).fit(table, y)
    assert model.columns_.terms[1:3] == ("fuel[diesel]", "fuel[petrol]")


def test_imputers_stand_in_front_as_usual():
    table, y = frame()
    table.loc[:9, "age"] = np.nan
    impute = ColumnTransformer([("age", SimpleImputer(), ["age"])], remainder="passthrough").set_output(
        transform="pandas"
    )
    model = make_pipeline(impute, MixtureOfRegressions(2, random_state=0, n_init=1)).fit(table, y)
    assert "remainder__fuel[gas]" in model[-1].columns_.terms


def test_cross_validation_keeps_the_levels_of_each_fold():
    table, y = frame()
    assert np.all(np.isfinite(cross_val_score(MixtureOfRegressions(2, random_state=0, n_init=1), table, y, cv=3)))


# ---------------------------------------------------------------------- sites and shards


def parts(table, y):
    """Three sites, of which the last has no petrol."""
    site = np.where(table.fuel == "petrol", np.arange(N) % 2, np.arange(N) % 3)
    return {f"site {m}": (table[site == m].reset_index(drop=True), y[site == m]) for m in range(3)}


@pytest.mark.slow
@pytest.mark.parametrize("method", [FederatedEM(n_climbs=2), OneShot(refine=1)], ids=["FederatedEM", "OneShot"])
def test_sites_with_different_levels_share_a_dictionary(method):
    table, y = frame()
    result = Federation(parts(table, y)).fit(MixtureOfRegressions(2, random_state=0), method=method)
    assert result.model.columns_.terms == tuple(TERMS)
    pooled = MixtureOfRegressions(2, random_state=0).fit(table, y)
    np.testing.assert_allclose(result.model.predict(table), pooled.predict(table), atol=0.05)
    assert "fuel[petrol]" in result.model.summary()


@pytest.fixture
def shards(tmp_path):
    table, y = frame()
    for name, (X, part) in parts(table, y).items():
        pq.write_table(pa.Table.from_pandas(X.assign(y=part), preserve_index=False), tmp_path / f"{name}.parquet")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_shards_with_text_columns_are_read_like_a_frame(shards, suffix):
    table, y = frame()
    if suffix == "csv":
        for file in shards.glob("*.parquet"):
            pd.read_parquet(file).to_csv(file.with_suffix(".csv"), index=False)
    table = table.assign(dose=table.dose.astype(str))  # files have no order of levels: they are sorted
    found = Federation.from_parquet(f"{shards}/*.{suffix}", target="y").fit(
        MixtureOfRegressions(2, random_state=0, reference_levels={"dose": "low"})
    )
    expected = Federation(parts(table, y)).fit(
        MixtureOfRegressions(2, random_state=0, reference_levels={"dose": "low"})
    )
    assert found.model.columns_ == expected.model.columns_
    np.testing.assert_allclose(found.model.coef_, expected.model.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.model.predict(table), expected.model.predict(table), rtol=1e-9)


def test_a_shard_with_missing_labels_is_named_by_the_run(shards):
    first = min(shards.glob("*.parquet"))
    table = pq.read_table(first)
    fuel = pa.array([None, *table["fuel"].to_pylist()[1:]])
    pq.write_table(table.set_column(table.column_names.index("fuel"), "fuel", fuel), first)
    with pytest.raises(RoundStoppedError, match=r"site 0.parquet: a column has missing"):
        Federation.from_parquet(f"{shards}/*.parquet", target="y").fit(MixtureOfRegressions(2, random_state=0))


def test_the_categories_of_polars_are_sorted():
    table, y = frame()
    model = MixtureOfRegressions(2, random_state=0, n_init=1).fit(
        pl.from_pandas(table[["age", "fuel"]]).with_columns(pl.col("fuel").cast(pl.Categorical)), y
    )
    assert model.columns_.columns[1].levels == ("diesel", "gas", "petrol")


# ---------------------------------------------------------------------- levels that were not in the fit


def by_site() -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table sorted by site: 30 rows of each of five."""
    rng = np.random.default_rng(3)
    age = rng.normal(size=150)
    site = np.repeat(list("abcde"), 30)
    return pd.DataFrame({"age": age, "site": site}), 2 * age + (site == "b") + 0.3 * rng.normal(size=150)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_reference_stands_in_for_a_level_that_was_not_in_the_fit(intercept: bool) -> None:
    table, y = by_site()
    options = {"fit_intercept": intercept, "reference_levels": {"site": "b"}, "unknown_levels": "reference"}
    model = MixtureOfRegressions(1, **options).fit(table, y)
    new = table[:6].assign(site=["new", "b", "a", "new", "b", "newer"])
    known = new.assign(site=["b", "b", "a", "b", "b", "b"])
    assert np.array_equal(model.predict(new), model.predict(known))


@pytest.mark.parametrize("weight", [None, np.arange(150.0)])
def test_the_average_stands_in_with_each_level_by_its_share(weight: np.ndarray | None, tmp_path: Path) -> None:
    table, y = by_site()
    model = MixtureOfExpertsRegressor(2, unknown_levels="average", random_state=0, n_init=2).fit(table, y, weight)
    shares = [np.average(table["site"] == level, weights=weight) for level in "bcde"]
    found = model.covariates(table[:3].assign(site=["new", "c", "newer"]))
    np.testing.assert_allclose(found[[0, 2], 1:], [shares, shares], rtol=1e-12)
    assert np.array_equal(found[1, 1:], [0, 1, 0, 0])
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    new = table.assign(site="new")
    assert np.array_equal(again.predict(new), model.predict(new))


@pytest.mark.parametrize(("chosen", "works"), [("error", False), ("reference", True), ("average", True)])
def test_cross_validation_on_a_table_sorted_by_site(chosen: str, works: bool) -> None:
    table, y = by_site()
    model = MixtureOfRegressions(1, unknown_levels=chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of scores that failed
        scores = cross_val_score(model, table, y, cv=KFold(5), error_score=np.nan)
    assert np.all(np.isfinite(scores)) == works
    if works:
        assert scores.min() > 0.7


def test_an_average_of_sites_is_the_average_over_all(tmp_path: Path) -> None:
    table, y = by_site()
    half = np.arange(150) % 2 == 0
    sites = Federation({"north": (table[half], y[half]), "south": (table[~half], y[~half])})
    model = sites.fit(MixtureOfRegressions(1, unknown_levels="average")).model
    np.testing.assert_allclose(model.covariates(table[:1].assign(site="new"))[0, 1:], 0.2, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unknown_levels": "mean"}, "unknown_levels='mean': expected one of error, reference, average"),
        ({"unknown_levels": "average", "fit_intercept": False}, "'average' needs fit_intercept=True"),
    ],
)
def test_a_rule_for_unknown_levels_that_cannot_be_is_named(options: dict[str, Any], said: str) -> None:
    table, y = by_site()
    with pytest.raises(InvalidInputError, match=said):
        MixtureOfRegressions(1, **options).fit(table, y)


def test_the_error_of_an_unknown_level_names_the_way_out() -> None:
    table, y = by_site()
    with pytest.raises(InvalidInputError, match="Set unknown_levels to 'reference' or 'average'"):
        MixtureOfRegressions(1).fit(table, y).predict(table.assign(site="new"))


def test_a_prediction_wraps_its_frame_three_times_at_most(monkeypatch) -> None:
    table, y = by_site()
    model = MixtureOfExpertsRegressor(1).fit(table, y)
    wrapped, wrap = [], frames.nw.from_native

    def counted(native: object, **options: Any) -> Any:
        wrapped.append(type(native))
        return wrap(native, **options)

    monkeypatch.setattr(frames.nw, "from_native", counted)
    model.predict(table[:1])
    assert wrapped.count(pd.DataFrame) <= 3  # for types, names and values
