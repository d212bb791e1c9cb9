"""The mean log predictive density as a scorer of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import (
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    log_density_scorer,
)
from consilience.errors import InvalidInputError
from consilience.estimators import LogDensityScorer
from simulated import simulated


def test_it_is_the_mean_log_density() -> None:
    data = simulated(n=120)
    model = MixtureOfExpertsRegressor(2, mixture_init=data.truth).fit(data.X, data.y)
    assert log_density_scorer(model, data.X, data.y) == pytest.approx(model.log_density(data.X, data.y).mean())
    weight = np.arange(120.0)
    weighted = np.average(model.log_density(data.X, data.y), weights=weight)
    assert log_density_scorer(model, data.X, data.y, sample_weight=weight) == pytest.approx(weighted)


def test_classes_and_points_have_a_density_too() -> None:
    data = simulated("categorical", n=120)
    model = MixtureOfExpertsClassifier(2, mixture_init=data.truth).fit(data.X, data.y)
    own = np.log(model.predict_proba(data.X)[np.arange(120), data.y.astype(int)]).mean()
    assert log_density_scorer(model, data.X, data.y) == pytest.approx(own)
    points = GaussianMixture(1).fit(data.X)
    assert log_density_scorer(points, data.X) == pytest.approx(points.score(data.X))
    assert cross_val_score(GaussianMixture(1), data.X, scoring=log_density_scorer, cv=2).shape == (2,)


def test_a_pipeline_is_scored_after_its_steps() -> None:
    data = simulated(n=120)
    pipeline = make_pipeline(StandardScaler(), MixtureOfExpertsRegressor(1)).fit(data.X, data.y)
    expected = pipeline[-1].log_density(pipeline[:-1].transform(data.X), data.y).mean()
    assert log_density_scorer(pipeline, data.X, data.y) == pytest.approx(expected)
    alone = make_pipeline(MixtureOfExpertsRegressor(1)).fit(data.X, data.y)
    assert log_density_scorer(alone, data.X, data.y) == pytest.approx(expected)


def test_it_chooses_the_number_of_experts_and_r2_does_not() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 1))
    y = np.where(rng.random(300) < 0.5, 3, -3) * x[:, 0] + 0.3 * rng.normal(size=300)  # of mean 0 at every x
    model = MixtureOfRegressions(n_init=1, random_state=0)
    search = GridSearchCV(model, {"n_components": [1, 2]}, scoring=log_density_scorer, cv=3, error_score="raise")
    assert search.fit(x, y).best_params_ == {"n_components": 2}
    assert np.ptp(search.cv_results_["mean_test_score"]) > 1
    explained = GridSearchCV(model, {"n_components": [1, 2]}, cv=3, error_score="raise").fit(x, y)
    assert np.ptp(explained.cv_results_["mean_test_score"]) < 0.05


def test_exposure_reaches_it_by_routing_and_its_absence_is_an_error() -> None:
    data = simulated("poisson", n=120, exposure=True)
    sizes = {"exposure": data.rows.exposure}
    with sklearn.config_context(enable_metadata_routing=True):
        model = MixtureOfRegressions(1, family="poisson").set_fit_request(exposure=True)
        options = {"scoring": log_density_scorer, "cv": 2, "error_score": "raise"}
        scores = cross_val_score(make_pipeline(StandardScaler(), model), data.X, data.y, params=sizes, **options)
        search = GridSearchCV(model, {"n_components": [1]}, **options).fit(data.X, data.y, **sizes)
    halves = slice(0, 60), slice(60, 120)
    expected = []
    for held_out, kept in (halves, halves[::-1]):
        alone = MixtureOfRegressions(1, family="poisson")
        alone.fit(data.X[kept], data.y[kept], exposure=sizes["exposure"][kept])
        at = alone.log_density(data.X[held_out], data.y[held_out], exposure=sizes["exposure"][held_out])
        expected.append(at.mean())
    assert np.allclose(scores, expected, atol=1e-3)
    assert search.best_score_ == pytest.approx(np.mean(expected))
    model = MixtureOfRegressions(1, family="poisson").fit(data.X, data.y, **sizes)
    with pytest.raises(InvalidInputError, match="fitted with exposure"):
        log_density_scorer(model, data.X, data.y)


def test_groups_are_scored_whole_where_asked_for() -> None:
    data = simulated(gate="constant", n=120, group_size=4)
    codes = data.rows.groups.codes
    scorer = LogDensityScorer()
    with sklearn.config_context(enable_metadata_routing=True):
        model = MixtureOfRegressions(2, mixture_init=data.truth).set_fit_request(groups=True)
        scores = cross_val_score(
            model,
            data.X,
            data.y,
            scoring=clone(scorer.set_score_request(groups=True)),
            cv=GroupKFold(2),
            params={"groups": codes},
            error_score="raise",
        )
    model = MixtureOfRegressions(2, mixture_init=data.truth).fit(data.X, data.y, groups=codes)
    per_group = model.log_likelihood_ / 30
    assert scores.mean() == pytest.approx(per_group, rel=0.1)
    assert scorer(model, data.X, data.y, groups=codes) == pytest.approx(per_group)


def test_what_is_no_mixture_is_named() -> None:
    with pytest.raises(InvalidInputError, match="got LinearRegression: expected a mixture of this library"):
        log_density_scorer(LinearRegression(), np.zeros((2, 1)), np.zeros(2))
