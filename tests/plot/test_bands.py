import copy

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm, t

from consilience import MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.fit.parameters import parameters
from consilience.plot.curves import expert_bands, mean_curves


def test_the_band_of_one_regression_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal((5.0, 0.0), 1.0, (60, 2))
    y = 1 + X @ [2.0, -1.0] + rng.normal(size=60)
    model = MixtureOfExpertsRegressor(1, random_state=0).fit(X, y)
    model.inference_ = model.infer(X, y, kind="observed")
    at = rng.normal(size=(7, 2))
    A, B = np.column_stack([np.ones(60), X]), np.column_stack([np.ones(7), at])
    b = np.linalg.lstsq(A, y, rcond=None)[0]
    s2 = np.sum((y - A @ b) ** 2) / (60 - 3)
    reach = t.ppf(0.95, 57) * np.sqrt(s2 * np.einsum("ni,ij,nj->n", B, np.linalg.inv(A.T @ A), B))
    lower, upper = expert_bands(model, at, 0, 0.9)
    np.testing.assert_allclose(lower[0], B @ b - reach, rtol=1e-6)
    np.testing.assert_allclose(upper[0], B @ b + reach, rtol=1e-6)


def test_the_band_of_counts_is_that_of_the_predictor_through_the_link(counts):
    model, X, _ = counts[0]
    at = X[:9]
    panel = np.column_stack([np.ones(9), at])
    lower, upper = expert_bands(model, at, 0, 0.95)
    first = model.inference_.estimates.gate.size
    for k in range(2):
        own = slice(first + 3 * k, first + 3 * k + 3)
        eta = model.intercept_[k] + at @ model.coef_[k]
        se = np.sqrt(np.einsum("ni,ij,nj->n", panel, model.inference_.covariance[own, own], panel))
        q = t.ppf(0.975, model.inference_.degrees_of_freedom().experts[k].min())
        np.testing.assert_allclose(lower[k], np.exp(eta - q * se), rtol=1e-12)
        np.testing.assert_allclose(upper[k], np.exp(eta + q * se), rtol=1e-12)


def test_the_band_of_a_class_is_that_of_its_log_odds_by_the_delta_method(classifier):
    """The gradient of the log odds by the reported coefficients is taken by finite differences."""
    model, X, _ = classifier
    inference, at = model.inference_, X[:5]
    panel = np.column_stack([np.ones(5), at])

    def log_odds(coefficients):  # (C, p)
        eta = panel @ coefficients.T
        p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
        return logit(p[:, 2])

    b = parameters(model.mixture_).experts[0]
    step = 1e-6
    slopes = [log_odds(b + step * e.reshape(b.shape)) - log_odds(b - step * e.reshape(b.shape)) for e in np.eye(b.size)]
    G = np.array(slopes).T / (2 * step)  # (n, C p)
    first = inference.estimates.gate.size
    C = inference.covariance[first : first + b.size, first : first + b.size]
    q = t.ppf(0.975, inference.degrees_of_freedom().experts[0].min())
    reach = q * np.sqrt(np.einsum("ni,ij,nj->n", G, C, G))
    lower, upper = expert_bands(model, at, 2, 0.95)
    np.testing.assert_allclose(lower[0], expit(log_odds(b) - reach), rtol=1e-7)
    np.testing.assert_allclose(upper[0], expit(log_odds(b) + reach), rtol=1e-7)


def test_two_classes_and_the_binomial_family_have_the_same_band():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (rng.random(400) < expit(X[:, 0] - 0.5)).astype(float)
    ridge = {"expert_ridge": 1e-3, "random_state": 0}
    one = MixtureOfExpertsClassifier(1, **ridge).fit(X, y)
    other = MixtureOfRegressions(1, family="binomial", **ridge).fit(X, y)
    lower, upper = expert_bands(one, X[:8], 1, 0.9)
    assert np.all((lower < mean_curves(one, X[:8], 1)) & (mean_curves(one, X[:8], 1) < upper))
    for a, b in zip((lower, upper), expert_bands(other, X[:8], 0, 0.9), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)  # the ridges of the two parametrisations differ
    np.testing.assert_allclose(upper, 1 - expert_bands(one, X[:8], 0, 0.9)[0], rtol=1e-12)


def test_bands_of_several_responses_are_those_of_their_own_coefficients(two_responses):
    model, X, _ = two_responses
    panel = np.column_stack([np.ones(4), X[:4]])
    first = model.inference_.estimates.gate.size
    own = slice(first + 4 + 2, first + 4 + 4)  # expert 1, second response
    se = np.sqrt(np.einsum("ni,ij,nj->n", panel, model.inference_.covariance[own, own], panel))
    lower, upper = expert_bands(model, X[:4], 1, 0.95)
    q = t.ppf(0.975, model.inference_.degrees_of_freedom().experts[1].min())
    np.testing.assert_allclose(upper[1] - lower[1], 2 * q * se, rtol=1e-10)


def test_a_row_of_zeros_has_no_uncertainty_without_an_intercept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    model = MixtureOfRegressions(1, fit_intercept=False, random_state=0).fit(X, 2 * X[:, 0] + rng.normal(size=80))
    lower, upper = expert_bands(model, np.array([[0.0], [1.0]]), 0, 0.95)
    assert lower[0, 0] == upper[0, 0] == 0
    assert lower[0, 1] < model.coef_[0, 0] < upper[0, 1]


@pytest.mark.parametrize("reason", ["withheld", "unknown"])
def test_there_are_no_bands_where_intervals_are_withheld(lines, reason):
    model = copy.copy(lines.model)
    inference = copy.copy(model.inference_)
    if reason == "withheld":
        object.__setattr__(inference, "withheld", {"experts": "a reason"})
    else:
        object.__setattr__(inference, "covariance", np.full_like(inference.covariance, np.nan))
    model.inference_ = inference
    assert expert_bands(model, lines.X, 0, 0.95) is None


def test_the_level_is_that_of_the_normal_distribution_for_infinite_degrees_of_freedom(counts):
    model, X, _ = counts[0]
    other = copy.copy(model)
    other.inference_ = copy.copy(model.inference_)
    object.__setattr__(other.inference_, "degrees", None)
    wide, narrow = (
        np.log(expert_bands(other, X[:3], 0, level)[1] / mean_curves(other, X[:3], 0)) for level in (0.99, 0.5)
    )
    np.testing.assert_allclose(wide / narrow, norm.ppf(0.995) / norm.ppf(0.75), rtol=1e-10)
