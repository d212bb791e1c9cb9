"""The size of a row as a column of the table, by its name."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import cross_val_score

from consilience import Federation, MixtureOfRegressions, load
from consilience.errors import InvalidInputError

N = 240


def machines() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"load": rng.uniform(0, 1, N), "hours": rng.uniform(1, 10, N)})
    return table, rng.poisson(table["hours"] * np.exp(table["load"] - 1)).astype(float)


TABLE, FAULTS = machines()
HOURS, LOAD = TABLE["hours"].to_numpy(), TABLE[["load"]]
POISSON = MixtureOfRegressions(1, family="poisson", random_state=0)


def named(**options: Any) -> MixtureOfRegressions:
    return MixtureOfRegressions(1, family="poisson", random_state=0, **options)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas])
def test_a_column_is_the_same_as_its_values(library: Any) -> None:
    table = library(TABLE)
    found, expected = named().fit(table, FAULTS, exposure="hours"), named().fit(LOAD, FAULTS, exposure=HOURS)
    assert found.columns_.terms == ("load",)
    assert np.array_equal(found.coef_, expected.coef_)
    assert np.array_equal(found.predict(table), expected.predict(LOAD))  # a rate, unless a size is given
    assert np.array_equal(found.predict(table, exposure="hours"), expected.predict(LOAD, exposure=HOURS))
    assert np.array_equal(
        found.predict_experts(table, exposure="hours"), expected.predict_experts(LOAD, exposure=HOURS)
    )
    quantiles = [
        m.predict_quantiles(t, 0.9, exposure=e) for m, t, e in ((found, table, "hours"), (expected, LOAD, HOURS))
    ]
    assert np.array_equal(*quantiles)
    assert np.array_equal(found.log_density(table, FAULTS), expected.log_density(LOAD, FAULTS, exposure=HOURS))
    assert found.score(table, FAULTS) == expected.score(LOAD, FAULTS, exposure=HOURS)
    assert found.bic(table, FAULTS) == expected.bic(LOAD, FAULTS, exposure=HOURS)


def test_rows_are_compared_by_their_column_in_cross_validation() -> None:
    scores = cross_val_score(POISSON, TABLE, FAULTS, params={"exposure": "hours"}, cv=3)
    assert np.all(scores > 0.3)


def test_a_formula_and_sites_take_the_column_too(tmp_path: Path) -> None:
    expected = named().fit(LOAD, FAULTS, exposure=HOURS)
    data = TABLE.assign(faults=FAULTS)
    found = MixtureOfRegressions.from_formula(
        "faults ~ .", data, n_components=1, family="poisson", random_state=0, exposure="hours"
    )
    assert np.array_equal(found.coef_, expected.coef_)
    found.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again.score(data, FAULTS) == found.score(data, FAULTS)
    halves = {"a": slice(None, 120), "b": slice(120, None)}
    sites = Federation({name: {"X": TABLE[at], "y": FAULTS[at], "exposure": "hours"} for name, at in halves.items()})
    np.testing.assert_allclose(sites.fit(POISSON).model.coef_, expected.coef_, rtol=1e-6)


@pytest.mark.parametrize(
    ("X", "column", "said"),
    [
        (TABLE, "hour", "X has no column 'hour'; it has load, hours: pass its values, or a frame that has it"),
        (TABLE.to_numpy(), "hours", "X has no column 'hours'; it has no names of columns"),
        (TABLE.assign(hours=0), "hours", "exposure: expected one positive finite number per row, got 0 or less in 240"),
    ],
)
def test_a_column_that_is_no_size_is_named(X: Any, column: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        named().fit(X, FAULTS, exposure=column)


def test_a_table_without_the_column_says_what_is_needed() -> None:
    found = named().fit(TABLE, FAULTS, exposure="hours")
    with pytest.raises(InvalidInputError, match="the model was fitted with exposure: pass exposure= beside y"):
        found.score(LOAD, FAULTS)
