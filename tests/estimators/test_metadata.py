"""Weights, groups and exposures travel through scikit-learn's tools by metadata routing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor
from simulated import simulated


@pytest.fixture(autouse=True)
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


DATA = simulated(n=240, group_size=6)
GROUPS = DATA.rows.groups.codes


def test_groups_reach_both_the_splitter_and_the_fit() -> None:
    model = MixtureOfExpertsRegressor(2, random_state=0, n_init=2).set_fit_request(groups=True)
    result = cross_validate(
        model,
        DATA.X,
        DATA.y,
        cv=GroupKFold(3),
        params={"groups": GROUPS},
        return_estimator=True,
        error_score="raise",
    )
    assert [fitted.n_labels_ for fitted in result["estimator"]] == pytest.approx([40 * 2 / 3] * 3, abs=1)


def test_weights_reach_the_fit_where_asked_for() -> None:
    weight = np.where(np.arange(240) < 200, 1.0, 0.0)
    kept = MixtureOfExpertsRegressor(1).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    result = cross_validate(
        kept, DATA.X, DATA.y, cv=2, params={"sample_weight": weight}, return_estimator=True, error_score="raise"
    )
    assert [fitted.n_labels_ for fitted in result["estimator"]] == [80, 120]
    ignored = MixtureOfExpertsRegressor(1).set_fit_request(sample_weight=False).set_score_request(sample_weight=True)
    result = cross_validate(
        ignored, DATA.X, DATA.y, cv=2, params={"sample_weight": weight}, return_estimator=True, error_score="raise"
    )
    assert [fitted.n_labels_ for fitted in result["estimator"]] == [120, 120]


def test_groups_pass_through_a_pipeline() -> None:
    final = MixtureOfExpertsClassifier(2, random_state=0, n_init=2).set_fit_request(groups=True)
    model = make_pipeline(StandardScaler(), final)
    model.fit(DATA.X, DATA.y > 0, groups=GROUPS)
    assert model[-1].n_labels_ == 40


def test_exposure_may_be_requested() -> None:
    data = simulated("poisson", n=200, exposure=True)
    final = MixtureOfExpertsRegressor(1, family="poisson").set_fit_request(exposure=True)
    pipeline = make_pipeline(StandardScaler(), final).fit(data.X, data.y, exposure=data.rows.exposure)
    alone = MixtureOfExpertsRegressor(1, family="poisson").fit(
        StandardScaler().fit_transform(data.X), data.y, exposure=data.rows.exposure
    )
    assert np.allclose(pipeline[-1].coef_, alone.coef_)


def test_grid_search_over_the_number_of_components() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 1, (60, 1)) for c in (0.0, 9.0)])[rng.permutation(120)]
    search = GridSearchCV(
        GaussianMixture(random_state=0, n_init=2), {"n_components": [1, 2]}, cv=3, error_score="raise"
    )
    assert search.fit(X).best_params_ == {"n_components": 2}
