"""The choice of K."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from consilience import (
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    select_order,
)
from consilience.errors import DegenerateFitWarning, InvalidInputError, StartsDisagreeWarning, TooFewRowsError
from consilience.estimators import OrderSelection
from simulated import simulated


def three_clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(c, 1, (100, 1)) for c in (0.0, 10.0, 20.0)])


@pytest.mark.slow
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
    assert table.columns.tolist() == [
        "order",
        "aic",
        "bic",
        "icl",
        "log_likelihood",
        "converged",
        "starts_agree",
        "set_aside",
    ]
    assert table["converged"].all()


def test_fit_parameters_reach_fit_and_criteria() -> None:
    data = simulated("poisson", n=200, exposure=True, weights=True)
    metadata = {"sample_weight": data.rows.weight, "exposure": data.rows.exposure}
    model = MixtureOfExpertsRegressor(family="poisson", random_state=0, n_init=2)
    selection = select_order(model, data.X, data.y, orders=[1], **metadata)
    alone = selection.best_estimator
    assert alone.n_labels_ == data.rows.weight.sum()
    assert selection.scores["aic"][0] == pytest.approx(alone.aic(data.X, data.y, **metadata))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.DegenerateFitWarning")
def test_disagreeing_starts_are_a_warning_that_names_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    two = GaussianMixture(2, random_state=0).fit(three_clusters()).log_likelihood_  # that of three is higher
    monkeypatch.setattr("consilience.fit.starts.StartEnds.agree", property(lambda ends: ends.values[0] < two + 1))
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


# ---------------------------------------------------------------------- cross-validation


def heavy_tailed(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """One regression with t errors on 3 degrees of freedom."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1))
    return X, 1 + X[:, 0] + rng.standard_t(3, n)


def test_cross_validated_density_is_that_of_fits_without_the_fold() -> None:
    data = simulated(gate="constant", n=120)
    sites = np.repeat(["north", "south", "west"], 40)
    model = MixtureOfRegressions(random_state=0)
    selection = select_order(model, data.X, data.y, orders=[1], folds=sites)
    held_out = np.concatenate(
        [
            MixtureOfRegressions(1)
            .fit(data.X[sites != s], data.y[sites != s])
            .log_density(data.X[sites == s], data.y[sites == s])
            for s in ("north", "south", "west")
        ]
    )
    assert selection.scores["cv"][0] == pytest.approx(held_out.mean(), rel=1e-6)
    assert selection.scores["cv_std_error"][0] == pytest.approx(held_out.std(ddof=1) / np.sqrt(120), rel=1e-6)


@pytest.mark.slow
def test_cross_validation_is_computed_where_asked_for_and_repeatable() -> None:
    data = simulated(gate="constant", n=200)
    arguments = MixtureOfRegressions(random_state=0), data.X, data.y, [1, 2]
    assert "cv" not in select_order(*arguments).scores
    first, second = (select_order(*arguments, criterion="cv") for _ in range(2))
    assert first.scores["cv"] == second.scores["cv"]
    assert first.best_order == 2
    assert {"cv", "cv_std_error"} <= set(first.to_frame().columns)
    assert "cv" in select_order(*arguments, folds=3).scores
    with pytest.raises(InvalidInputError, match="was not computed: pass folds"):
        select_order(*arguments).preferred("cv")


def test_folds_keep_groups_weights_and_exposure() -> None:
    data = simulated("poisson", n=240, group_size=6, exposure=True, weights=True)
    metadata = {"sample_weight": data.rows.weight, "exposure": data.rows.exposure, "groups": data.rows.groups.codes}
    model = MixtureOfExpertsRegressor(family="poisson", random_state=0)
    fold = data.rows.groups.codes % 2
    selection = select_order(model, data.X, data.y, orders=[1], folds=fold, **metadata)
    held_out = []
    for i in (0, 1):
        kept, left_out = ({name: of[chosen] for name, of in metadata.items()} for chosen in (fold != i, fold == i))
        alone = MixtureOfExpertsRegressor(1, family="poisson").fit(data.X[fold != i], data.y[fold != i], **kept)
        rows = alone.rows(data.X[fold == i], data.y[fold == i], **left_out)
        held_out.append(alone.mixture_.log_density(rows).mean())
    assert selection.scores["cv"][0] == pytest.approx(np.mean(held_out), rel=1e-6)
    assert np.isfinite(select_order(model, data.X, data.y, orders=[1], folds=4, **metadata).scores["cv"][0])
    with pytest.raises(InvalidInputError, match="rows of a group must be in one fold"):
        select_order(model, data.X, data.y, orders=[1], folds=np.arange(240) % 2, **metadata)


def test_a_class_that_a_fold_lacks_has_a_density() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 1)), np.r_[np.zeros(30), np.ones(29), 2.0]
    selection = select_order(MixtureOfExpertsClassifier(random_state=0), X, y, orders=[1], folds=3)
    assert np.isfinite(selection.scores["cv"][0])


@pytest.mark.parametrize("folds", [1, 301, np.zeros(300), np.zeros(7)])
def test_impossible_folds_are_errors(folds: object) -> None:
    with pytest.raises(InvalidInputError, match="folds"):
        select_order(GaussianMixture(random_state=0), three_clusters(), orders=[1], folds=folds)


def test_one_standard_error_favours_the_smaller_order() -> None:
    scores = {
        "bic": (9.0, 5.0, 4.0),
        "icl": (3.0, 5.0, 7.0),
        "cv": (-3.0, -2.1, -2.0),
        "cv_std_error": (0.2, 0.2, 0.15),
    }
    selection = OrderSelection((1, 2, 3), tuple(MixtureOfRegressions(K) for K in (1, 2, 3)), scores, "cv")
    assert selection.best_order == 2
    assert selection.verdict.startswith(
        "BIC prefers 3, ICL prefers 1 and cross-validated density (within one standard error) prefers 2 experts: "
        "extra experts probably model heavy tails or unequal variances"
    )


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_disagreeing_criteria_are_a_sentence_of_the_result() -> None:
    X, y = heavy_tailed()
    selection = select_order(MixtureOfRegressions(random_state=0), X, y, orders=[1, 2])
    assert selection.preferred("bic") == 2
    assert selection.preferred("icl") == 1
    for text in (selection.verdict, selection.summary(), repr(selection)):
        assert "BIC prefers 2 and ICL prefers 1 experts: either experts overlap, or extra experts" in text
        assert "heavy tails or unequal variances" in text


def test_agreeing_criteria_are_said_to_agree() -> None:
    data = simulated(gate="constant", n=300)
    selection = select_order(MixtureOfRegressions(random_state=0), data.X, data.y, orders=[1, 2])
    assert selection.verdict == "BIC and ICL prefer 2 experts."


def test_experts_that_predict_but_overlap_are_said_to_do_so() -> None:
    scores = {"bic": (9.0, 5.0), "icl": (3.0, 5.0), "cv": (-3.0, -2.0), "cv_std_error": (0.2, 0.2)}
    models = tuple(MixtureOfExpertsClassifier(K) for K in (1, 2))
    verdict = OrderSelection((1, 2), models, scores, "bic").verdict
    assert "improve the held-out density: either they overlap with others, or they model a shape" in verdict
    assert "consider family" not in verdict


# ---------------------------------------------------------------------- degenerate fits


def with_duplicates() -> tuple[np.ndarray, np.ndarray]:
    """One regression, and half of the rows on an exact line, which an expert of its own fits without error."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 1))
    y = X[:, 0] + rng.normal(size=120)
    y[:60] = 3 - X[:60, 0]
    return X, y


def test_a_degenerate_fit_is_set_aside_without_a_warning() -> None:
    X, y = with_duplicates()
    selection = select_order(MixtureOfRegressions(shape_ratio=1e9, random_state=0, n_init=2), X, y, orders=[1, 2])
    assert selection.set_aside == {2: "the variance of expert 2, with 60 rows, is at its floor (set by reg_covar)"}
    assert selection.scores["bic"][1] < selection.scores["bic"][0], "the exact fit no longer wins: change the data"
    assert selection.best_order == selection.preferred("icl") == 1
    assert selection.to_frame()["set_aside"].tolist() == ["", selection.set_aside[2]]
    assert "2 experts are set aside: the variance of expert 2, with 60 rows, is at its floor" in repr(selection)


def test_if_all_fits_are_degenerate_they_are_compared_with_a_warning() -> None:
    X, y = with_duplicates()
    with pytest.warns(DegenerateFitWarning, match="fits of all orders are degenerate"):
        selection = select_order(MixtureOfRegressions(random_state=0, n_init=2), X, y, orders=[2])
    assert selection.best_order == 2


def test_more_parameters_than_rows_are_set_aside() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 5)), rng.poisson(3.0, 12)
    selection = select_order(MixtureOfRegressions(family="poisson", random_state=0, n_init=2), X, y, orders=[1, 2])
    assert selection.best_order == 1
    said = "2 experts have 13 parameters, more than the 12 observed responses: fit at most 1 expert"
    assert selection.orders == (1,)
    assert selection.set_aside == {2: said}
    assert f"2 experts are set aside: {said}." in repr(selection)
    with pytest.raises(TooFewRowsError, match=said):
        select_order(MixtureOfRegressions(family="poisson", random_state=0, n_init=2), X, y, orders=[2, 3])


def test_cross_validation_skips_what_is_set_aside() -> None:
    scores = {"cv": (-3.0, -2.9, -1.0), "cv_std_error": (0.01, 0.01, 0.01)}
    models = tuple(MixtureOfRegressions(K) for K in (1, 2, 3))
    assert OrderSelection((1, 2, 3), models, scores, "cv", {3: "a reason"}).best_order == 2


# ---------------------------------------------------------------------- pipelines


def test_a_pipeline_is_fitted_as_its_steps_in_turn() -> None:
    data = simulated(gate="constant", n=150)
    pipeline = make_pipeline(StandardScaler(), MixtureOfRegressions(7, random_state=0, n_init=2))
    selection = select_order(pipeline, data.X, data.y, orders=[1, 2])
    Z = StandardScaler().fit_transform(data.X)
    alone = select_order(pipeline[-1], Z, data.y, orders=[1, 2])
    assert selection.scores == alone.scores
    assert selection.best_order == 2
    best = selection.best_estimator
    assert isinstance(best, Pipeline)
    assert np.array_equal(best.predict(data.X), alone.best_estimator.predict(Z))
    assert not hasattr(pipeline[-1], "mixture_")
    assert selection.to_frame()["converged"].all()


def test_steps_of_a_pipeline_are_fitted_within_each_fold() -> None:
    data = simulated(gate="constant", n=120)
    fold = np.repeat([0, 1, 2], 40)
    X = pd.DataFrame(data.X * [1, 50] + [5, 0], columns=["a", "b"])
    pipeline = make_pipeline(PCA(1), MixtureOfRegressions(random_state=0))
    selection = select_order(pipeline, X, data.y, orders=[1], folds=fold)
    held_out = []
    for i in range(3):
        kept = make_pipeline(PCA(1), MixtureOfRegressions(1)).fit(X[fold != i], data.y[fold != i])
        held_out.append(kept[-1].log_density(kept[:-1].transform(X[fold == i]), data.y[fold == i]))
    assert selection.scores["cv"][0] == pytest.approx(np.mean(held_out), rel=1e-9)


def test_metadata_and_groups_reach_the_mixture_of_a_pipeline() -> None:
    data = simulated("poisson", n=240, group_size=6, exposure=True, weights=True)
    metadata = {"sample_weight": data.rows.weight, "exposure": data.rows.exposure, "groups": data.rows.groups.codes}
    model = MixtureOfExpertsRegressor(family="poisson", random_state=0)
    fold = data.rows.groups.codes % 2
    alone = select_order(model, data.X, data.y, orders=[1], folds=fold, **metadata)
    piped = select_order(make_pipeline("passthrough", model), data.X, data.y, orders=[1], folds=fold, **metadata)
    assert piped.scores["icl"] == alone.scores["icl"]
    assert piped.scores["cv"] == pytest.approx(alone.scores["cv"], rel=1e-6)


def test_a_fold_of_a_pipeline_may_lack_a_class_or_a_column() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "b": np.where(np.arange(60) < 57, "u", "v")})
    y = np.r_[np.zeros(30), np.ones(29), 2.0]
    steps = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["b"]), remainder="passthrough")
    pipeline = make_pipeline(steps, MixtureOfExpertsClassifier(random_state=0, fit_intercept=False))
    selection = select_order(pipeline, X, y, orders=[1], folds=np.arange(60) // 20)
    assert np.isfinite(selection.scores["cv"][0])


def test_what_is_no_mixture_and_no_orders_is_named() -> None:
    with pytest.raises(
        InvalidInputError, match="got LinearRegression: expected a mixture of this library, alone or as"
    ):
        select_order(make_pipeline(StandardScaler(), LinearRegression()), three_clusters())
    with pytest.raises(
        InvalidInputError, match=r"orders=5: expected several numbers of experts, as in orders=range\(1, 6\)"
    ):
        select_order(GaussianMixture(), three_clusters(), orders=5)
