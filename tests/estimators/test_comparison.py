"""Fitted models beside each other."""

from __future__ import annotations

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, compare
from consilience.errors import InvalidInputError
from simulated import simulated

DATA = simulated(n=300)


def fitted(K: int, n: int = 300) -> MixtureOfExpertsRegressor:
    start = DATA.truth if K == 2 else None
    return MixtureOfExpertsRegressor(K, mixture_init=start).fit(DATA.X[:n], DATA.y[:n])


def test_a_line_for_each_model_with_its_criteria() -> None:
    models = {"one": fitted(1), "two": fitted(2)}
    found = compare(models)
    frame = found.to_frame().set_index("name")
    for name, model in models.items():
        assert frame.loc[name, "bic"] == pytest.approx(model.bic(DATA.X, DATA.y))
        assert f"{frame.loc[name, 'bic']:.1f}" in found
    assert frame.loc["two", "bic_above_least"] == 0
    assert frame.loc["one", "bic_above_least"] == pytest.approx(frame["bic"].max() - frame["bic"].min())
    assert "BIC prefers two" in found
    assert found.to_markdown().count("| one |") == 1
    assert compare(list(models.values())).to_frame()["name"].tolist() == ["model 1", "model 2"]


def test_pipelines_and_results_over_sites_are_compared_too() -> None:
    pipeline = make_pipeline(StandardScaler(), MixtureOfRegressions(1)).fit(DATA.X, DATA.y)
    sites = Federation({"north": (DATA.X[::2], DATA.y[::2]), "south": (DATA.X[1::2], DATA.y[1::2])})
    result = sites.fit(MixtureOfExpertsRegressor(2, mixture_init=DATA.truth))
    found = compare({"alone": fitted(2), "over sites": result, "scaled": pipeline}).to_frame()
    assert found["experts"].tolist() == [2, 2, 1]
    assert found["log_likelihood"][0] == pytest.approx(found["log_likelihood"][1], abs=1e-6)


def test_a_degenerate_fit_is_not_preferred_and_said() -> None:
    model, worse = fitted(2), fitted(1)
    model.degeneracy_ = "an expert has no rows"
    found = compare({"degenerate": model, "sound": worse})
    assert "BIC prefers sound" in found
    assert "degenerate: an expert has no rows." in found


def test_models_of_other_rows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"different numbers of rows or groups \(all 300, some 200\)"):
        compare({"all": fitted(1), "some": fitted(1, 200)})
    with pytest.raises(InvalidInputError, match="new: not fitted"):
        compare({"new": MixtureOfRegressions(2)})
    with pytest.raises(InvalidInputError, match="at least one"):
        compare([])
