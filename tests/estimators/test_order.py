"""The choice of K."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from consilience import GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions, select_order
from consilience.errors import InvalidInputError, StartsDisagreeWarning
from consilience.estimators import OrderSelection
from simulated import simulated


def three_clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(c, 1, (100, 1)) for c in (0.0, 10.0, 20.0)])


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_the_true_number_of_clusters_is_chosen() -> None:
    selection = select_order(GaussianMixture(random_state=0), three_clusters(), orders=[1, 2, 3, 4])
    assert isinstance(selection, OrderSelection)
    assert selection.best_order == 3
    assert selection.orders == (1, 2, 3, 4)
    assert selection.best_estimator.n_components == 3
    assert selection.best_estimator is selection.estimators[selection.best_index]


@pytest.mark.parametrize("criterion", ["aic", "bic", "icl"])
def test_scores_are_those_of_the_fits_and_the_least_wins(criterion: str) -> None:
    data = simulated(gate="constant", n=200)
    selection = select_order(MixtureOfRegressions(random_state=0), data.X, data.y, orders=[1, 2], criterion=criterion)
    for name in ("aic", "bic", "icl"):
        expected = [getattr(model, name)(data.X, data.y) for model in selection.estimators]
        assert selection.scores[name] == pytest.approx(expected)
    assert selection.scores["log_likelihood"] == tuple(model.log_likelihood_ for model in selection.estimators)
    values = selection.scores[criterion]
    assert selection.best_order == selection.orders[values.index(min(values))] == 2


def test_table_has_a_row_per_order() -> None:
    data = simulated(gate="constant", n=150)
    table = select_order(MixtureOfRegressions(random_state=0), data.X, data.y, orders=(1, 2)).to_frame()
    assert isinstance(table, pd.DataFrame)
    assert table["order"].tolist() == [1, 2]
    assert table.columns.tolist() == ["order", "aic", "bic", "icl", "log_likelihood", "converged", "starts_agree"]
    assert table["converged"].all()


def test_fit_parameters_reach_fit_and_criteria() -> None:
    data = simulated("poisson", n=200, exposure=True, weights=True)
    metadata = {"sample_weight": data.rows.weight, "exposure": data.rows.exposure}
    model = MixtureOfExpertsRegressor(family="poisson", random_state=0, n_init=2)
    selection = select_order(model, data.X, data.y, orders=[1], **metadata)
    alone = selection.best_estimator
    assert alone.n_labels_ == data.rows.weight.sum()
    assert selection.scores["aic"][0] == pytest.approx(alone.aic(data.X, data.y, **metadata))


@pytest.mark.filterwarnings("ignore::consilience.errors.DegenerateFitWarning")
def test_disagreeing_starts_are_a_warning_that_names_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.fit.fitting.Fit.starts_agree", property(lambda fit: fit.mixture.K != 3))
    with pytest.warns(StartsDisagreeWarning, match=r"order \[3\]: raise n_init") as record:
        selection = select_order(GaussianMixture(random_state=0), three_clusters(), orders=[2, 3])
    assert record[0].filename == __file__
    assert selection.to_frame()["starts_agree"].tolist() == [True, False]


def test_the_given_estimator_is_left_alone() -> None:
    estimator = GaussianMixture(7, random_state=0)
    select_order(estimator, three_clusters(), orders=[1])
    assert estimator.n_components == 7
    assert not hasattr(estimator, "mixture_")


def test_unknown_criterion_and_no_orders_are_errors() -> None:
    with pytest.raises(InvalidInputError, match="expected one of aic, bic, icl"):
        select_order(GaussianMixture(), three_clusters(), criterion="dic")
    with pytest.raises(InvalidInputError, match="orders is empty"):
        select_order(GaussianMixture(), three_clusters(), orders=[])
