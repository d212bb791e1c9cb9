"""Mistakes that users make: each is answered with what was got, what is expected and what to do."""

from __future__ import annotations

import datetime as dt
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import consilience
from consilience import (
    DaskCluster,
    FederatedEM,
    Federation,
    GaussianMixture,
    Lasso,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
    order_test,
    select_order,
)
from consilience.errors import ConsilienceError, RoundStoppedError, UnknownParameterError
from consilience.federation import FederatedOrders
from consilience.messages.questions import FitSite

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = X[:, 0] + RNG.normal(size=N)
TEXT = np.where(np.arange(N) == 7, "21,64", "1.5")
FRAME = pd.DataFrame({"age": X[:, 0], "dose": TEXT})
FUELS = pd.DataFrame({"age": X[:, 0], "fuel": np.where(X[:, 1] > 0, "gas", "diesel")})
EXPERTS = MixtureOfExpertsRegressor(2, random_state=0, n_init=1)
REGRESSIONS = MixtureOfRegressions(2, random_state=0, n_init=1)
PIPELINE = make_pipeline(StandardScaler(), EXPERTS)


def sites(**changed: Any) -> Federation:
    return Federation({"north": (X, Y), "south": (X, Y), **changed})


def of_sites(north: Any, south: Any) -> Federation:
    return Federation({"north": (north, Y), "south": (south, Y)})


def counts(family: str = "poisson") -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(2, family=family, random_state=0, n_init=1)


def shared(names: Any, **options: Any) -> MixtureOfExpertsRegressor:
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1], "y": Y})
    read = frame if "formula" in options else frame[["age", "dose"]]
    return MixtureOfExpertsRegressor(2, shared=names, **options).fit(read, None if "formula" in options else Y)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a path as federation": (
        lambda: Federation("data/*.parquet"),
        r"got the text 'data/\*.parquet', expected a mapping .* Federation.from_parquet\('data/\*.parquet', target=",
    ),
    "a Path as federation": (lambda: Federation(Path("a.csv")), r"got the path 'a.csv', .*from_parquet\('a.csv'"),
    "a list as federation": (lambda: Federation([(X, Y), (X, Y)]), r"got a list, .* give each site a name, as in"),
    "a list of paths as federation": (lambda: Federation(["a.csv", "b.csv"]), r"got a list, .*from_parquet\(\[...\]"),
    "no site": (lambda: Federation({}), "at least one site"),
    "a site without a pair": (lambda: Federation({"north": X}), r"site north: expected \(X, y\), or a mapping"),
    "a site with another part": (lambda: Federation({"north": {"X": X, "target": Y}}), r"site north: .* got \['X', 't"),
    "a word as engine": (
        lambda: Federation({"a": (X, Y)}, engine="dask"),
        r"engine: got the text 'dask', .* DaskCluste",
    ),
    "a class as engine": (lambda: Federation({"a": (X, Y)}, DaskCluster), "engine: got the class DaskCluster"),
    "a word as method": (lambda: sites().fit(EXPERTS, method="one_shot"), r"'one_shot', .* mean method=OneShot\(\)\?"),
    "an unknown word as method": (
        lambda: sites().fit(EXPERTS, method="average"),
        r"'average', .* choose one of .*OneSh",
    ),
    "a class as method": (lambda: sites().fit(EXPERTS, method=OneShot), r"got the class OneShot, .* pass OneShot\(\)"),
    "a pipeline in a federation": (lambda: sites().fit(PIPELINE), r"got a Pipeline; .* transform .* at each site"),
    "a pipeline in federated order": (lambda: sites().select_order(PIPELINE, [1]), "got a Pipeline; expected Mixture"),
    "a foreign estimator": (lambda: sites().fit(LinearRegression()), "got a LinearRegression; expected MixtureOfExp"),
    "an estimator's class": (lambda: sites().fit(MixtureOfExpertsRegressor), r"pass MixtureOfExpertsRegressor\(\)"),
    "a foreign estimator in order": (
        lambda: select_order(LinearRegression(), X, Y),
        "got LinearRegression: expected a",
    ),
    "a pipeline in an order test": (lambda: order_test(PIPELINE, X, Y, K=1), r"order_test\(pipeline\[-1\]"),
    "one number as orders": (lambda: select_order(EXPERTS, X, Y, 5), r"orders=5: .* as in orders=range\(1, 6\)"),
    "one federated number as orders": (lambda: sites().select_order(EXPERTS, 5), r"orders=5: .*range\(1, 6\)"),
    "an order of zero": (lambda: sites().select_order(EXPERTS, [0, 1]), "orders has 0: expected whole numbers of at l"),
    "components of experts": (lambda: MixtureOfExpertsRegressor(n_components=3), "'n_components': .* is n_experts"),
    "components of classes": (lambda: MixtureOfExpertsClassifier(n_components=3), "number of experts is n_experts"),
    "experts of regressions": (lambda: MixtureOfRegressions(n_experts=3), "number of components is n_components"),
    "clusters of a mixture": (lambda: GaussianMixture(n_clusters=3), "number of components is n_components"),
    "components set": (lambda: clone(EXPERTS).set_params(n_components=3), "no parameter 'n_components': its number of"),
    "components set in a pipeline": (
        lambda: clone(PIPELINE).set_params(mixtureofexpertsregressor__n_components=3),
        "no parameter 'n_components': its number of experts is n_experts",
    ),
    "a misspelt parameter": (lambda: MixtureOfExpertsRegressor(max_iters=3), r"'max_iters': did you mean max_iter\?"),
    "a misspelt shared column": (lambda: shared(["agee"]), "shared: X has no column 'agee'; it has age, dose$"),
    "one name as shared": (lambda: shared("age"), "shared='age': expected a list of names or indices of columns"),
    "a number as shared": (lambda: shared(1), "shared=1: expected a list of names or indices of columns"),
    "a shared column that experts do not read": (
        lambda: shared(["age"], expert_features=["dose"]),
        "shared: the experts do not read age; they read dose$",
    ),
    "a shared intercept": (lambda: shared(["intercept"]), "set fit_intercept=False and add a column of ones to X"),
    "all coefficients shared": (
        lambda: shared(["age", "dose"], fit_intercept=False),
        "means would be the same: leave one out, or set fit_intercept=True",
    ),
    "shared terms of a formula": (
        lambda: shared(["age:dose"], formula="y ~ age + dose"),
        "shared: X has no column 'age:dose'; it has age, dose$",
    ),
    "shared coefficients in one file": (
        lambda: sites().fit(clone(EXPERTS).set_params(shared=[0]), OneShot()),
        r"OneShot fits no shared coefficients: leave shared out, or use FederatedEM\(\)",
    ),
    "shared coefficients of a lasso": (
        lambda: sites().fit(clone(EXPERTS).set_params(shared=[0]), Lasso()),
        "Lasso fits no shared coefficients: leave shared out",
    ),
    "shared coefficients with gates of sites": (
        lambda: sites().fit(clone(EXPERTS).set_params(shared=[0]), FederatedEM(per_site="gate")),
        "per_site='gate' with shared coefficients is not supported: leave one of the two out",
    ),
    "text in y": (lambda: clone(EXPERTS).fit(X, TEXT), "y has the text '21,64' in row 7, expected numbers"),
    "text in weights": (lambda: clone(EXPERTS).fit(X, Y, TEXT), "sample_weight has the text '21,64' in row 7"),
    "text in y of a site": (lambda: sites(south=(X, TEXT)).fit(EXPERTS), "site south: y has the text '21,64' in row 7"),
    "a missing value at a site": (
        lambda: sites(south=(np.where(X > 2, np.nan, X), np.r_[np.nan, Y[1:]])).fit(EXPERTS),
        r"site south: y contains NaN or missing values in 1 of 40 rows \(0\). Drop those rows",
    ),
    "another width at a site": (
        lambda: sites(south=(X[:, :1], Y)).fit(EXPERTS),
        "X of site south has 1 columns, that of site north 2",
    ),
    "no columns at a site": (lambda: sites(south=(X[:, 0], Y)).fit(EXPERTS), r"X of site south has shape \(40,\): exp"),
    "fewer columns at a site": (
        lambda: of_sites(FUELS, FUELS[["age"]]).fit(EXPERTS),
        r"X of site south has columns \['age'\], that of site north has \['age', 'fuel'\]",
    ),
    "more columns at a site": (
        lambda: of_sites(FUELS[["age"]], FUELS).fit(EXPERTS),
        r"X of site south has columns \['age', 'fuel'\], that of site north has \['age'\]",
    ),
    "another order at a site": (
        lambda: of_sites(FUELS, FUELS[["fuel", "age"]]).fit(EXPERTS),
        r"X of site south has columns \['fuel', 'age'\], .* in the same order",
    ),
    "text at one site only": (
        lambda: of_sites(FUELS, FUELS.assign(fuel=1.0)).fit(EXPERTS),
        "column 'fuel' is of kind number at site south and of kind text at site north",
    ),
    "text in one array only": (
        lambda: of_sites(FUELS.to_numpy(dtype=object), X).fit(clone(EXPERTS).set_params(categorical_features=[1])),
        "column 'x1' is of kind number at site south and of kind text at site north",
    ),
    "two columns of one name": (
        lambda: clone(EXPERTS).fit(FRAME.set_axis(["age"] * 2, axis=1), Y),
        "X has two columns of the name 'age'",
    ),
    "types as features of the gate": (
        lambda: clone(EXPERTS).set_params(gate_features="from_dtype").fit(X, Y),
        "gate_features='from_dtype': expected a list of names or indices of columns",
    ),
    "other columns at a site": (
        lambda: of_sites(FRAME[["age"]], FRAME[["age"]].rename(columns={"age": "Age"})).fit(EXPERTS),
        r"X of site south has columns \['Age'\], that of site north has \['age'\]",
    ),
    "a missing response": (
        lambda: clone(EXPERTS).fit(X, np.where(np.arange(N) % 9 == 1, np.nan, Y)),
        r"^y contains NaN or missing values in 5 of 40 rows \(1, 10, 19, …\). Drop those rows, or pass their values",
    ),
    "an infinite response": (
        lambda: clone(EXPERTS).fit(X, np.where(np.arange(N) == 3, np.inf, Y)),
        r"^y contains infinite values in 1 of 40 rows \(3\). Correct them, or drop those rows: is one the logarithm of",
    ),
    "an infinite covariate": (
        lambda: clone(EXPERTS).fit(FRAME[["age"]].assign(dose=np.where(np.arange(N) == 3, -np.inf, 0)), Y),
        r"^X contains infinite values: dose in 1 of 40 rows \(3\). Correct them",
    ),
    "an infinite covariate in prediction": (
        lambda: MixtureOfRegressions(1).fit(X, Y).predict(np.where(X[3, 1] == X, np.inf, X)),
        r"^X contains infinite values: x1 in 1 of 40 rows \(3\)",
    ),
    "a missing weight": (
        lambda: clone(EXPERTS).fit(X, Y, np.r_[np.nan, Y[1:] ** 2]),
        r"^sample_weight contains NaN or missing values in 1 of 40 rows \(0\)",
    ),
    "an exposure of 0": (
        lambda: counts().fit(X, np.ones(N), exposure=np.arange(N)),
        r"^exposure: expected one positive finite number per row, got 0 or less in 1 of 40 rows \(0\)",
    ),
    "an exposure of another length": (
        lambda: counts().fit(X, np.ones(N), exposure=np.ones(3)),
        r"^exposure has shape \(3,\) for 40 rows: expected one number per row",
    ),
    "another name of a family": (lambda: counts("normal").fit(X, Y), "family='normal': did you mean 'gaussian'. Exp"),
    "a short name of a family": (lambda: counts("negbin").fit(X, Y), "'negbin': did you mean 'negative_binomial'. E"),
    "a family of one trial": (lambda: counts("bernoulli").fit(X, Y), "'bernoulli': did you mean 'binomial'. Expected"),
    "a misspelt family": (lambda: counts("poison").fit(X, Y), "family='poison': did you mean 'poisson'. Expected one"),
    "a family of classes": (
        lambda: counts("multinomial").fit(X, Y),
        "family='multinomial': for classes, use MixtureOfExpertsClassifier; expected one of gaussian, poisson",
    ),
    "no family at all": (lambda: counts("weibull").fit(X, Y), "family='weibull': expected one of gaussian, poisson, g"),
    "a family's size at a site": (
        lambda: sites(south={"X": X, "y": Y, "exposure": np.ones(N)}).fit(EXPERTS),
        "site south: exposure is for family='poisson'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_mistake_is_answered_with_a_sentence(mistake: str) -> None:
    call, said = MISTAKES[mistake]
    with pytest.raises(ConsilienceError, match=said):
        call()


# ---------------------------------------------------------------------- columns that are no covariates


DAY = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - tables have dates without a zone
NO_COVARIATES: dict[str, tuple[list[Any], str]] = {
    "dates": ([DAY.date() + dt.timedelta(i) for i in range(N)], "pass numbers in a unit, such as the days since a fi"),
    "dates with a time": ([DAY + dt.timedelta(i) for i in range(N)], "dates, expected numbers: pass numbers in a unit"),
    "durations": (
        [dt.timedelta(i) for i in range(N)],
        "durations, expected numbers: divide by a unit, such as one day",
    ),
    "times of day": ([dt.time(i % 24) for i in range(N)], "times of day, .* such as the hours since midnight"),
    "lists": ([[1, 2]] * N, "values of other types, expected numbers: pass numbers, text, categories or booleans"),
}
TABLES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas objects": lambda columns: pd.DataFrame({name: objects(values) for name, values in columns.items()}),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "numpy": lambda columns: np.column_stack([objects(values) for values in columns.values()]),
}


def objects(values: Any) -> np.ndarray:
    listed = list(values)
    found = np.empty(len(listed), dtype=object)
    found[:] = listed
    return found


@pytest.mark.parametrize("kind", NO_COVARIATES)
@pytest.mark.parametrize("library", TABLES)
def test_a_column_that_is_no_covariate_is_refused_alike_in_all_libraries(kind: str, library: str) -> None:
    values, said = NO_COVARIATES[kind]
    X_of = TABLES[library]({"age": X[:, 0], "when": values})
    where = "column 1 of X" if library == "numpy" else "column 'when' of X"
    numbers = TABLES[library]({"age": X[:, 0], "when": X[:, 1]})
    fitted = MixtureOfRegressions(1).fit(numbers, Y)
    calls: list[tuple[str, Callable[[], Any]]] = [
        (where, lambda: clone(REGRESSIONS).fit(X_of, Y)),
        (where, lambda: fitted.predict(X_of)),
        (where, lambda: GaussianMixture(2).fit(X_of)),
        (where, lambda: of_sites(numbers, X_of).fit(REGRESSIONS)),
        ("^y", lambda: clone(REGRESSIONS).fit(X, objects(values))),
    ]
    for what, call in calls:
        with pytest.raises(ConsilienceError, match=f"{what}.* holds .*{said}"):
            call()


@pytest.mark.parametrize("kind", [kind for kind in NO_COVARIATES if kind != "lists"])
def test_a_column_of_a_file_that_is_no_covariate_is_refused_before_the_run(kind: str, tmp_path: Path) -> None:
    values, said = NO_COVARIATES[kind]
    write(tmp_path / "a.parquet", table(when=values))
    for roles in ({"target": "y"}, {"target": "when"}, {"target": "y", "weight": "when"}):
        with pytest.raises(ConsilienceError, match=rf"^column 'when' of .*a.parquet holds .*{said}"):
            Federation.from_parquet(str(tmp_path / "a.parquet"), **roles).fit(REGRESSIONS)


@pytest.mark.parametrize("library", TABLES)
def test_decimals_and_objects_that_are_numbers_are_read_as_numbers(library: str) -> None:
    doses, response = np.arange(N) / 4, np.arange(N) ** 2 % 17 / 4
    decimals = TABLES[library]({"age": X[:, 0], "dose": [Decimal(f"{dose:.2f}") for dose in doses]})
    found = MixtureOfRegressions(1).fit(decimals, objects(map(Decimal, response)))
    expected = MixtureOfRegressions(1).fit(np.column_stack([X[:, 0], doses]), response)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-12)


def test_a_missing_python_object_is_a_missing_value() -> None:
    gaps = pd.DataFrame({"dose": pd.Series([None, pd.NA, *X[2:, 0]], dtype=object)})
    with pytest.raises(ConsilienceError, match=r"missing values: dose in 2 of 40 rows \(0, 1\)"):
        clone(REGRESSIONS).fit(gaps, Y)
    with pytest.raises(ConsilienceError, match=r"^y contains NaN or missing values in 2 of 40 rows \(0, 1\)"):
        clone(REGRESSIONS).fit(X, gaps["dose"])


def test_an_unknown_parameter_is_also_the_error_that_python_raises() -> None:
    for kind in (TypeError, ValueError, UnknownParameterError):
        with pytest.raises(kind, match="n_experts"):
            MixtureOfExpertsRegressor(n_components=3)
    assert clone(MixtureOfExpertsRegressor(3)).get_params()["n_experts"] == 3


# ---------------------------------------------------------------------- files


def table(n: int = N, **changed: Any) -> pa.Table:
    columns = {"age": X[:n, 0], "dose": X[:n, 1], "y": Y[:n]}
    return pa.table(columns | changed)


def write(path: Path, rows: pa.Table) -> None:
    (parquet.write_table if path.suffix == ".parquet" else csv.write_csv)(rows, path)


FILES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a column missing": (
        "b.parquet",
        lambda path: write(path, table().drop_columns(["dose"])),
        "b.parquet: the data do not have the requested columns: .*b.parquet has no column named 'dose'",
    ),
    "a column missing in a CSV file": (
        "b.csv",
        lambda path: write(path, table().drop_columns(["dose"])),
        "b.csv has no column named 'dose'",
    ),
    "text in a CSV file": (
        "b.csv",
        lambda path: path.write_text('age,dose,y\n1,2,3\n4,6,"21,64"\n') and None,
        "b.csv: a column that must be numeric is not: .*b.csv, column 'y', line 3",
    ),
    "a missing value": (
        "b.parquet",
        lambda path: write(path, table(dose=[None, *X[1:, 1]])),
        "b.parquet: a column has missing or infinite values: fill or drop those rows: column 'dose'",
    ),
    "an empty CSV file": ("b.csv", lambda path: path.touch(), r"b.csv: .* which is empty \(0 bytes\)"),
    "an empty Parquet file": ("b.parquet", lambda path: path.touch(), r"b.parquet: .* which is empty \(0 bytes\)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", FILES)
def test_the_file_and_the_column_are_named(mistake: str, tmp_path: Path) -> None:
    name, make, said = FILES[mistake]
    first = tmp_path / f"a{Path(name).suffix}"
    write(first, table())
    make(tmp_path / name)
    files = Federation.from_parquet([str(first), str(tmp_path / name)], target="y")
    with pytest.raises(RoundStoppedError, match=said) as caught:
        files.fit(REGRESSIONS)
    assert "reference" not in str(caught.value)
    with pytest.warns(consilience.SetAsideWarning, match=said.removeprefix("b.parquet: ").removeprefix("b.csv: ")):
        files.fit(REGRESSIONS, on_drop="continue")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_two_types_of_a_feature_are_named_with_their_files(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"a{suffix}", table())
    write(tmp_path / f"b{suffix}", table(dose=[f"{value:.3f} mg" for value in X[:, 1]]))
    files = Federation.from_parquet(f"{tmp_path}/*{suffix}", target="y")
    said = rf"column 'dose' is of type string in .*b{suffix}, but of type double in .*a{suffix}: write it with one type"
    with pytest.raises(ConsilienceError, match=said):
        files.fit(REGRESSIONS)


def test_two_types_of_the_response_are_named_with_their_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", table())
    write(tmp_path / "b.parquet", table(y=[f"{value:.3f} mg" for value in Y]))
    files = Federation.from_parquet(f"{tmp_path}/*.parquet", target="y")
    said = "b.parquet: .* column 'y' is of type string, but of type double in a.parquet: write it as numbers"
    with pytest.raises(RoundStoppedError, match=said):
        files.fit(REGRESSIONS)


@pytest.mark.parametrize("pattern", ["table/*.parquet", "table/year=2024/*.parquet", "*/*/a.parquet"])
def test_the_files_of_a_delta_table_are_not_taken_by_a_pattern(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "year=2024").mkdir()
    for name in ("a.parquet", "year=2024/a.parquet"):
        write(tmp_path / "table" / name, table())
    said = rf"^{tmp_path}/table is a Delta table, whose files also have rows that .* DeltaTable\(.*file_uris"
    with pytest.raises(ConsilienceError, match=said):
        Federation.from_parquet(f"{tmp_path}/{pattern}", target="y")
    listed = [str(tmp_path / "table" / "a.parquet")]  # as DeltaTable.file_uris() does
    assert Federation.from_parquet(listed, target="y").fit(REGRESSIONS).model.n_rows_ == N


def test_a_file_without_rows_is_used_and_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", table())
    write(tmp_path / "b.parquet", table(0))
    with pytest.warns(consilience.SetAsideWarning, match="b.parquet: it has no rows"):
        Federation.from_parquet(f"{tmp_path}/*.parquet", target="y").fit(REGRESSIONS)


@pytest.mark.parametrize("role", ["target", "weight", "groups", "exposure"])
def test_a_role_for_a_column_that_is_not_there_is_named(role: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", table())
    roles = {"target": "y"} | {role: "Dose"}
    with pytest.raises(ConsilienceError, match=r"a.parquet has no column 'Dose'; its columns are age, dose, y$"):
        Federation.from_parquet(str(tmp_path / "a.parquet"), **roles)


def test_an_unexpected_error_says_where_its_traceback_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such luck")

    federation = sites()
    module = sys.modules["consilience.site.answer"]
    monkeypatch.setattr(module, "_contribution", broken)
    monkeypatch.setitem(module.OWN, FitSite, broken)
    with pytest.raises(RoundStoppedError, match=r"RuntimeError: no such luck; .* in Federation.traces\['north'\]"):
        federation.fit(EXPERTS)
    assert "no such luck" in federation.traces["north"][0]


# ---------------------------------------------------------------------- the name of the response


SERIES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.Series(Y, name="arr_delay"),
    "pandas frame": lambda: pd.DataFrame({"arr_delay": Y}),
    "polars": lambda: pl.Series("arr_delay", Y),
    "arrow": lambda: pa.table({"arr_delay": Y}),
}


@pytest.mark.parametrize("library", SERIES)
def test_the_response_keeps_its_name_in_texts_frames_and_files(library: str, tmp_path: Path) -> None:
    fitted = MixtureOfRegressions(1).fit(FRAME[["age"]], SERIES[library]())
    assert str(fitted.summary()).startswith("Mixture of regressions of arr_delay\n")
    assert fitted.describe().startswith("Mixture of regressions of arr_delay: 1 component")
    assert "it predicts arr_delay " in fitted.describe()
    assert "<strong>Mixture of regressions of arr_delay</strong>" in fitted._repr_html_()
    assert "arr_delay" in set(fitted.to_frame()["response"])
    fitted.save(tmp_path / "model.json")
    again = consilience.load(tmp_path / "model.json")
    assert again.summary() == fitted.summary()
    assert again.response_names_ == ("arr_delay",)


def test_the_response_keeps_its_name_over_sites_and_files(tmp_path: Path) -> None:
    of_memory = Federation({"a": (FRAME[["age"]], pd.Series(Y, name="arr_delay")), "b": (-FRAME[["age"]], 2 * Y)})
    write(tmp_path / "a.parquet", table())
    of_files = Federation.from_parquet(str(tmp_path / "a.parquet"), target="y", features=["age"])
    for federation, name in ((of_memory, "arr_delay"), (of_files, "y")):
        assert str(federation.fit(REGRESSIONS).model.summary()).startswith(f"Mixture of regressions of {name}\n")


def test_several_responses_and_classes_keep_their_names() -> None:
    two = MixtureOfRegressions(1).fit(X, pd.DataFrame({"systolic": Y, "diastolic": Y**2}))
    assert str(two.summary()).startswith("Mixture of regressions of systolic and diastolic\n")
    assert [*two.to_frame()["response"]][1:7] == ["systolic"] * 3 + ["diastolic"] * 3
    classes = MixtureOfExpertsClassifier(1).fit(X, pd.Series(np.where(Y > 0, "dead", "well"), name="status"))
    assert str(classes.summary()).startswith("Mixture of experts, classification of status\n")
    passed_on = MixtureOfRegressions(1).fit(FRAME[["age"]], 2 * FRAME["age"] + Y)  # which pandas calls age
    assert str(passed_on.summary()).startswith("Mixture of regressions\n")
    unnamed = MixtureOfRegressions(1).fit(X, Y)
    assert str(unnamed.summary()).startswith("Mixture of regressions\n")
    assert "y" in set(unnamed.to_frame()["response"])


# ---------------------------------------------------------------------- what is printed, and what is imported


def test_results_print_on_one_screen() -> None:
    federation = Federation({f"site {i}": (X[i::10], Y[i::10]) for i in range(10)})
    start = MixtureOfRegressions(1).fit(X, Y).mixture_
    one = MixtureOfRegressions(1, mixture_init=start, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", consilience.ConsilienceWarning)
        fitted = federation.fit(one)
    orders = FederatedOrders((1,), (fitted,), "bic", {})
    local = select_order(MixtureOfRegressions(random_state=0), X, Y, [1])
    assert repr(federation) == "Federation of 10 sites in memory (site 0, site 1, site 2, …, site 9), engine InProcess"
    for value in (fitted, orders, local):
        assert len(repr(value)) < 3000
        assert len(repr(value).splitlines()) < 25
        assert value._repr_html_().startswith("<div>")
    assert f"{fitted.fit.log_likelihood:.3f}, BIC {fitted.bic:.3f}" in repr(fitted)
    assert f"{fitted.record.bytes_received:,} received" in repr(fitted)
    assert "Selected by bic: 1." in repr(orders)
    assert f"{fitted.model.variances_[0]:.4g}" in fitted._repr_html_()


def test_warnings_are_importable_from_the_package() -> None:
    names = [name for name in consilience.__all__ if name.endswith("Warning")]
    assert len(names) == 10
    assert all(issubclass(getattr(consilience, name), consilience.ConsilienceWarning) for name in names)
