"""Mean responses of the experts and their standard errors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from consilience import (
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    average_predictions,
)
from consilience.fit import Inference, Specification, fit_mixture, infer
from consilience.fit.inference import expert_means, mean_errors
from consilience.fit.parameters import parameters
from consilience.model import Design, Mixture, Rows, SoftmaxGate
from consilience.model.families.registry import family_of
from families import CASES, NAMES
from simulated import simulated


@dataclass(frozen=True)
class Shape:
    K: int = 3
    q: int = 2
    C: int = 3


def random_mixture(case: str, shape: Shape) -> Mixture:
    rng = np.random.default_rng(0)
    return Mixture(Design.raw(2), SoftmaxGate(np.zeros((shape.K, 3))), CASES[case].experts(shape, 3, rng))


def moved(mixture: Mixture, change: np.ndarray) -> Mixture:
    """The mixture with ``change (K, channels, p)`` added to its free coefficients."""
    experts = mixture.experts.moved(change.ravel(), np.zeros(mixture.experts.shape_parameters))
    return replace(mixture, experts=experts)


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_errors_are_those_of_a_numerical_delta_method(case: str, C: int) -> None:
    mixture = random_mixture(case, Shape(C=C))
    K, f, p = mixture.K, mixture.experts.channels, mixture.experts.p
    rng = np.random.default_rng(1)
    A = rng.normal(size=(K * f * p, K * f * p))
    free = A @ A.T / 100  # covariance of the free coefficients
    read = np.kron(np.eye(K), np.kron(mixture.experts.coefficient_map(), np.eye(p)))
    estimates = parameters(mixture)
    covariance = np.zeros((len(estimates.flat()),) * 2)
    own = slice(estimates.gate.size, estimates.gate.size + estimates.experts.size)
    covariance[own, own] = read @ free @ read.T
    X = rng.normal(size=(4, 2))
    found = mean_errors(mixture, Inference(estimates, covariance, "observed", 0.0), X)
    step, slopes = 1e-6, []
    for i in range(K * f * p):
        change = step * (np.arange(K * f * p) == i).reshape(K, f, p)
        slopes.append((expert_means(moved(mixture, change), X) - expert_means(moved(mixture, -change), X)) / (2 * step))
    variance = np.einsum("anm...,ab,bnm...->nm...", np.array(slopes), free, np.array(slopes))
    assert np.allclose(found, np.sqrt(variance), rtol=1e-5)
    assert found.shape == expert_means(mixture, X).shape


@pytest.mark.parametrize("family", NAMES)
def test_shapes_of_predictions_of_experts(family: str) -> None:
    data = simulated(family, n=120)
    estimator = MixtureOfExpertsClassifier if family == "categorical" else MixtureOfExpertsRegressor
    options = {} if family == "categorical" else {"family": family}
    model = estimator(2, mixture_init=data.truth, max_iter=2000, **options).fit(data.X, data.y)
    mean, error = model.predict_experts(data.X[:7], return_std_error=True)
    assert mean.shape == error.shape == ((7, 2, 3) if family == "categorical" else (7, 2))
    assert np.array_equal(mean, model.predict_experts(data.X[:7]))
    together = np.einsum("nk,nk...->n...", model.predict_gate(data.X[:7]), mean)
    assert np.allclose(together, model.mixture_.mean(data.X[:7]).squeeze())


def test_several_responses_have_an_axis_of_their_own() -> None:
    data = simulated(q=2, n=200)
    model = MixtureOfExpertsRegressor(2, mixture_init=data.truth).fit(data.X, data.y)
    mean, error = model.predict_experts(data.X[:5], return_std_error=True)
    assert mean.shape == error.shape == (5, 2, 2)


def test_the_error_at_the_origin_is_that_of_the_intercept() -> None:
    data = simulated(n=300)
    model = MixtureOfExpertsRegressor(2, mixture_init=data.truth).fit(data.X, data.y)
    _, error = model.predict_experts(np.zeros((1, 2)), return_std_error=True)
    assert np.allclose(error[0], model.inference_.standard_errors().experts[:, 0, 0])


def test_withheld_intervals_give_no_errors() -> None:
    data = simulated(n=300)
    model = MixtureOfExpertsRegressor(2, mixture_init=data.truth).fit(data.X, data.y)
    model.inference_ = replace(model.inference_, withheld={"gate": "of the gate alone"})
    assert np.isfinite(model.predict_experts(data.X, return_std_error=True)[1]).all()
    model.inference_ = replace(model.inference_, withheld={"experts": "a reason"})
    mean, error = model.predict_experts(data.X, return_std_error=True)
    assert np.isfinite(mean).all()
    assert np.isnan(error).all()


@pytest.mark.parametrize("offset", [1e4, 1e9])
def test_errors_lost_to_rounding_are_not_shown(offset: float) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 1)), rng.normal(size=(200, 1))
    errors = []
    for shift in (0.0, offset):
        rows = Rows(x + shift, y)
        fit = fit_mixture(rows, Specification(K=1), rng=rng)
        errors.append(mean_errors(fit.mixture, infer(fit, rows), rows.X))
    if offset < 1e6:
        assert np.allclose(errors[0], errors[1], rtol=1e-3)
    else:
        assert np.isnan(errors[1]).all()


def test_no_rows_have_no_predictions() -> None:
    assert expert_means(random_mixture("poisson", Shape()), np.empty((0, 2))).shape == (0, 3, 1)


@pytest.mark.long
@pytest.mark.parametrize("family", ["gaussian", "poisson", "binomial", "gamma", "student", "negative_binomial"])
def test_intervals_of_expert_means_cover(family: str) -> None:
    X = np.random.default_rng(9).normal(size=(20, 2))
    inside, draws = [], 60
    for seed in range(draws):
        data = simulated(family, gate="constant", n=400, seed=seed, exposure=True)
        sizes = {family_of(family).size_name or "exposure": data.rows.exposure}
        model = MixtureOfRegressions(2, family=family, mixture_init=data.truth).fit(data.X, data.y, **sizes)
        mean, error = model.predict_experts(X, return_std_error=True)
        truth = expert_means(data.truth, X)[:, :, 0]
        close = np.argsort(((mean[:, :, None] - truth[:, None]) ** 2).sum(axis=0).argmin(axis=1))
        inside.append(np.abs(mean[:, close] - truth) <= 1.96 * error[:, close])
    coverage = np.mean(inside)
    assert 0.90 <= coverage <= 0.985, coverage


@pytest.mark.parametrize("family", NAMES)
def test_errors_of_one_expert_are_those_of_the_mean_of_the_mixture(family: str) -> None:
    """They count the share of zeros where the mean depends on it."""
    data = simulated(family, n=200)
    estimator = MixtureOfExpertsClassifier if family == "categorical" else MixtureOfExpertsRegressor
    model = estimator(1, **({} if family == "categorical" else {"family": family})).fit(data.X, data.y)
    _, error = model.predict_experts(data.X[:1], return_std_error=True)
    found = average_predictions(model, data.X[:1])["std_error"].to_numpy()
    np.testing.assert_allclose(error.ravel(), found, rtol=1e-9)
    assert np.isfinite(found).all()
