"""Weights, groups and exposures travel through scikit-learn's tools by metadata routing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from packaging.version import parse
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor
from consilience.errors import InvalidInputError
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


def requesting(final: MixtureOfExpertsRegressor, name: str) -> MixtureOfExpertsRegressor:
    """The estimator that asks for a size of rows in each of its methods."""
    final.set_fit_request(**{name: True}).set_score_request(**{name: True})
    return final.set_predict_request(**{name: True})


@pytest.mark.parametrize(("family", "name"), [("poisson", "exposure"), ("binomial", "trials")])
def test_sizes_reach_fit_score_and_predict_of_a_pipeline(family: str, name: str) -> None:
    data = simulated(family, n=200, exposure=True)
    sizes = {name: data.rows.exposure}
    pipeline = make_pipeline(StandardScaler(), requesting(MixtureOfExpertsRegressor(1, family=family), name))
    pipeline.fit(data.X, data.y, **sizes)
    Z = pipeline[:-1].transform(data.X)
    assert pipeline.score(data.X, data.y, **sizes) == pipeline[-1].score(Z, data.y, **sizes)
    assert np.array_equal(pipeline.predict(data.X, **sizes), pipeline[-1].predict(Z, **sizes))
    if parse(sklearn.__version__) < parse("1.7"):
        pytest.skip("scikit-learn < 1.7 passes no metadata to the score of a pipeline in cross-validation")
    scores = cross_val_score(pipeline, data.X, data.y, cv=2, params=sizes, error_score="raise")
    halves = slice(0, 100), slice(100, 200)
    for (held_out, kept), score in zip((halves, halves[::-1]), scores, strict=True):
        alone = MixtureOfExpertsRegressor(1, family=family)
        alone.fit(data.X[kept], data.y[kept], **{name: data.rows.exposure[kept]})
        expected = alone.score(data.X[held_out], data.y[held_out], **{name: data.rows.exposure[held_out]})
        assert score == pytest.approx(expected, abs=1e-3)  # a ridge of 0.001 and the scale of the covariates


def test_sizes_that_reach_the_fit_alone_are_an_error() -> None:
    data = simulated("poisson", n=200, exposure=True)
    model = MixtureOfExpertsRegressor(1, family="poisson").set_fit_request(exposure=True)
    model.set_score_request(exposure=False)
    with pytest.raises(InvalidInputError, match="enable scikit-learn's metadata routing"):
        cross_val_score(model, data.X, data.y, cv=2, params={"exposure": data.rows.exposure}, error_score="raise")


def test_grid_search_over_the_number_of_components() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 1, (60, 1)) for c in (0.0, 9.0)])[rng.permutation(120)]
    search = GridSearchCV(
        GaussianMixture(random_state=0, n_init=2), {"n_components": [1, 2]}, cv=3, error_score="raise"
    )
    assert search.fit(X).best_params_ == {"n_components": 2}
