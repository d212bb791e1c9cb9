"""Fitted attributes: shapes for every kind of response, and what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.fit import StopReason
from consilience.model.families.covariance import STRUCTURES
from simulated import Simulated, simulated

K = 2


def regressor(data: Simulated, **options: object) -> MixtureOfExpertsRegressor:
    model = MixtureOfExpertsRegressor(K, family=data.specification.family, random_state=0, n_init=2, **options)
    return model.fit(data.X, data.y, exposure=data.rows.exposure)


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("intercept", [True, False])
def test_gaussian_shapes(q: int, intercept: bool) -> None:
    data = simulated(q=q, d=3, intercept=intercept)
    model = regressor(data, fit_intercept=intercept)
    tail = () if q == 1 else (q,)
    assert model.coef_.shape == (K, *tail, 3)
    assert model.intercept_.shape == (K, *tail)
    assert model.variances_.shape == (K, *tail)
    assert model.gate_coef_.shape == (K, 3)
    assert model.gate_intercept_.shape == (K,)
    assert model.weights_.shape == (K,)
    assert np.allclose(model.gate_coef_.sum(axis=0), 0)
    assert np.isclose(model.weights_.sum(), 1)
    if not intercept:
        assert np.all(model.intercept_ == 0)
        assert np.all(model.gate_intercept_ == 0)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_covariances_are_stored_by_structure_and_variances_are_their_diagonals(structure: str) -> None:
    data = simulated(q=2, structure=structure)
    model = regressor(data, covariance_type=structure)
    expected = {"full": (K, 2, 2), "diag": (K, 2), "spherical": (K,), "tied": (2, 2)}[structure]
    assert model.covariances_.shape == expected
    assert np.allclose(model.variances_, np.diagonal(model.mixture_.experts.matrices, axis1=1, axis2=2))


@pytest.mark.slow
@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("gate", ["softmax", "constant"])
def test_classifier_shapes(C: int, gate: str) -> None:
    data = simulated("categorical", C=C, gate=gate)
    names = np.array(["low", "middle", "top"])[data.y.astype(int)]
    model = MixtureOfExpertsClassifier(K, gate=gate, random_state=0, n_init=2).fit(data.X, names)
    tail = () if C == 2 else (C,)
    assert model.classes_.tolist() == sorted(set(names))
    assert model.coef_.shape == (K, *tail, 2)
    assert model.intercept_.shape == (K, *tail)
    assert hasattr(model, "gate_coef_") == (gate == "softmax")
    if C == 3:
        assert np.allclose(model.coef_.sum(axis=1), 0)


def test_two_classes_have_the_log_odds_of_the_second() -> None:
    data = simulated("categorical", C=2, n=500)
    model = MixtureOfExpertsClassifier(1, random_state=0).fit(data.X, data.y)
    log_odds = model.intercept_[0] + data.X @ model.coef_[0]
    assert np.allclose(model.predict_proba(data.X)[:, 1], 1 / (1 + np.exp(-log_odds)))


def test_poisson_with_exposure_has_rates_not_counts() -> None:
    data = simulated("poisson", exposure=True, n=1000)
    model = regressor(data)
    assert model.coef_.shape == (K, 2)
    assert not hasattr(model, "variances_")
    tripled = MixtureOfExpertsRegressor(K, family="poisson", random_state=0, n_init=2)
    tripled.fit(data.X, data.y, exposure=3 * data.rows.exposure)
    assert np.allclose(tripled.coef_, model.coef_, atol=1e-3)
    assert np.allclose(tripled.intercept_, model.intercept_ - np.log(3), atol=1e-3)


def test_mixture_of_regressions_has_constant_shares() -> None:
    data = simulated(gate="constant", n=500)
    model = MixtureOfRegressions(K, random_state=0).fit(data.X, data.y)
    assert not hasattr(model, "gate_coef_")
    assert np.all(np.diff(model.weights_) <= 0)
    shares = model.mixture_.gate.probabilities
    assert np.array_equal(model.predict_gate(data.X), np.tile(shares, (500, 1)))
    left = 2 * model.inference_.decrement * shares * (1 - shares) / 500  # the gradient is √(2 decrement J) at most
    assert np.all(np.abs(model.weights_ - shares) <= np.sqrt(left))
    assert np.allclose(model.weights_, shares, atol=1e-4)
    poisson = MixtureOfRegressions(K, family="poisson", random_state=0)
    counts = simulated("poisson", gate="constant")
    assert poisson.fit(counts.X, counts.y).coef_.shape == (K, 2)


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
def test_gaussian_mixture_shapes(structure: str) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (80, 3)), rng.normal(6, 1, (40, 3))])
    model = GaussianMixture(K, covariance_type=structure, random_state=0).fit(X)
    expected = {"full": (K, 3, 3), "diag": (K, 3), "spherical": (K,), "tied": (3, 3)}[structure]
    assert model.means_.shape == (K, 3)
    assert model.covariances_.shape == expected
    assert np.allclose(model.weights_, [2 / 3, 1 / 3], atol=0.01)
    assert np.allclose(model.means_[1], X[80:].mean(axis=0), atol=0.1)


def test_evidence_of_the_fit_is_kept() -> None:
    data = simulated()
    model = regressor(data)
    assert model.converged_
    assert model.stop_reason_ is StopReason.CONVERGED_NEWTON
    assert len(model.trace_) == model.n_iter_ + 1
    assert np.all(np.diff(model.trace_) >= -1e-9)
    assert model.log_likelihood_ == pytest.approx(model.log_density(data.X, data.y).sum())
    assert model.log_likelihood_ >= model.trace_[-1]
    assert model.starts_agree_
    assert model.n_features_in_ == 2
    assert np.allclose(model.weights_, model.responsibilities(data.X, data.y).mean(axis=0))


def test_groups_count_as_one_label_each() -> None:
    data = simulated(n=300, group_size=10)
    model = MixtureOfExpertsRegressor(K, random_state=0, n_init=2)
    model.fit(data.X, data.y, groups=data.rows.groups.codes)
    assert model.n_labels_ == 30
    by_row = model.responsibilities(data.X, data.y, groups=data.rows.groups.codes)
    assert by_row.shape == (300, K)
    assert np.allclose(by_row[:10], by_row[0])
    assert model.log_likelihood_ == pytest.approx(model.mixture_.log_density(data.rows).sum())


def test_weights_are_frequencies() -> None:
    data = simulated(weights=True)
    weight = data.rows.weight
    a = MixtureOfExpertsRegressor(K, random_state=0, n_init=2).fit(data.X, data.y, sample_weight=weight)
    twice = np.repeat(np.arange(len(weight)), weight.astype(int))
    b = clone(a).fit(data.X[twice], data.y[twice])
    assert a.n_labels_ == b.n_labels_ == weight.sum()
    for name in ("coef_", "intercept_", "variances_", "gate_coef_", "weights_"):
        assert np.allclose(getattr(a, name), getattr(b, name), atol=1e-6)


@pytest.mark.parametrize("random_state", [0, np.random.RandomState(0), np.random.default_rng(0), None])
def test_any_random_state_will_do(random_state: object) -> None:
    data = simulated(gate="constant")
    model = MixtureOfRegressions(K, random_state=random_state).fit(data.X, data.y)
    assert model.converged_


def test_same_seed_same_fit() -> None:
    data = simulated()
    first, second = (regressor(data) for _ in range(2))
    assert np.array_equal(first.coef_, second.coef_)


def test_warm_start_from_an_earlier_mixture() -> None:
    data = simulated()
    model = regressor(data)
    again = regressor(data, mixture_init=model.mixture_)
    assert again.n_iter_ <= 3
    assert again.log_likelihood_ == pytest.approx(model.log_likelihood_, rel=1e-9)
    assert np.allclose(again.coef_, model.coef_, atol=1e-4)
    more = simulated(seed=1)
    moved = MixtureOfExpertsRegressor(K, mixture_init=model.mixture_).fit(more.X, more.y)
    assert moved.converged_


@pytest.mark.parametrize(
    "estimator",
    [
        MixtureOfExpertsRegressor(3, family="poisson", tol=1e-5),
        MixtureOfExpertsClassifier(3, gate="constant", expert_ridge=0.1),
        MixtureOfRegressions(4, covariance_type="tied"),
        GaussianMixture(2, reg_covar=1e-3),
    ],
)
def test_clone_keeps_parameters_and_forgets_the_fit(estimator) -> None:
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(max_iter=7).max_iter == 7
    assert not [name for name in vars(copy) if name.endswith("_")]


def test_verbose_shows_progress_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    data = simulated()
    quiet = regressor(data)
    assert capsys.readouterr().err == ""
    loud = regressor(data, verbose=True)
    assert "MixtureOfExpertsRegressor" in capsys.readouterr().err
    assert np.array_equal(quiet.coef_, loud.coef_)
