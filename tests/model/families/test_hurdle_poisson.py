"""Hurdle Poisson experts against an independent optimiser and against sums over counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import poisson

from consilience import MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.model.families.hurdle_poisson import HurdlePoissonExperts, mean_above, variance_above
from consilience.model.families.zero_odds import ODDS


def negative_log_likelihood(t: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    mu, above = np.exp(t[0] + X @ t[1:3]), y > 0
    truncated = poisson.logpmf(y[above], mu[above]) - np.log(1 - np.exp(-mu[above]))
    return float(-(truncated.sum() + np.sum(~above) * t[3] - len(y) * np.logaddexp(0, t[3])))


@pytest.mark.parametrize(("zeros", "seed"), [(0.5, 0), (0.05, 1), (0.9, 2)])
def test_the_maximum_is_that_of_an_independent_optimiser(zeros: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(900, 2))
    mu = np.exp(0.3 + X @ [0.4, -0.3])
    y = poisson.ppf(rng.uniform(np.exp(-mu), 1.0), mu) * (rng.random(900) >= zeros)
    best = minimize(negative_log_likelihood, [0.1, 0, 0, 0], (X, y), method="BFGS", options={"gtol": 1e-7})
    model = MixtureOfExpertsRegressor(1, family="hurdle_poisson", expert_ridge=0.0).fit(X, y)
    assert model.converged_
    assert model.zero_shares_[0] == pytest.approx(np.mean(y == 0), abs=1e-12)
    assert model.log_likelihood_ == pytest.approx(-best.fun, abs=1e-6)
    np.testing.assert_allclose([*model.intercept_.ravel(), *model.coef_.ravel()], best.x[:3], rtol=0, atol=2e-6)


def test_two_experts_are_found_among_the_counts_above_zero() -> None:
    rng = np.random.default_rng(3)
    X, first = rng.uniform(-1, 1, (4000, 1)), rng.random(4000) < 0.4
    truth = HurdlePoissonExperts(np.array([[0.3, 0.6], [2.5, -0.5]]), np.full(2, 0.25))
    y = truth.sample(np.vstack([np.ones(4000), X.T]), np.where(first, 0, 1), rng)[:, 0]
    model = MixtureOfRegressions(2, family="hurdle_poisson", random_state=0).fit(X, y)
    order = np.argsort(model.intercept_)
    np.testing.assert_allclose(model.weights_[order], [0.4, 0.6], atol=0.04)
    np.testing.assert_allclose(model.zero_shares_, 0.2, atol=0.02)
    np.testing.assert_allclose(model.intercept_[order], truth.B[:, 0], atol=0.1)
    np.testing.assert_allclose(model.coef_.ravel()[order], truth.B[:, 1], atol=0.1)


def test_mean_variance_and_distribution_are_those_of_the_truncated_counts() -> None:
    mu, y = np.array([1e-8, 0.002, 0.7, 3.0, 40.0]), np.arange(1, 400.0)[:, None]
    mass = poisson.pmf(y, mu) / -np.expm1(-mu)
    mean = (y * mass).sum(axis=0)
    np.testing.assert_allclose(mean_above(mu), mean, rtol=1e-12)
    np.testing.assert_allclose(variance_above(mu), ((y - mean) ** 2 * mass).sum(axis=0), rtol=1e-6)
    experts = HurdlePoissonExperts(np.log(mu)[:, None], np.full(5, 0.25))
    panel = np.ones((1, 1))
    for count in (0, 1, 4, 45):
        expected = 0.2 + 0.8 * mass[:count].sum(axis=0)
        np.testing.assert_allclose(experts.cdf(panel, np.full(1, float(count)))[:, 0], expected, rtol=1e-12)
    assert np.all(experts.cdf(panel, np.full(1, -1.0)) == 0)
    assert np.all(experts.quantile(panel, 0.19) == 0)
    for probability in (0.3, 0.5, 0.95):
        found = np.ceil(experts.quantile(panel, probability)[:, 0])
        below = np.cumsum(mass, axis=0) >= (probability - 0.2) / 0.8
        np.testing.assert_allclose(found, np.argmax(below, axis=0) + 1, atol=1)


def test_draws_have_the_mean_and_the_share_of_zeros() -> None:
    experts = HurdlePoissonExperts(np.log([[0.05], [2.0]]), np.full(2, 0.5))
    labels = np.repeat([0, 1], 40_000)
    drawn = experts.sample(np.ones((1, 80_000)), labels, np.random.default_rng(0))[:, 0]
    for k in (0, 1):
        own = drawn[labels == k]
        assert np.mean(own == 0) == pytest.approx(1 / 3, abs=0.01)
        assert own.mean() == pytest.approx(experts.mean(np.ones((1, 1)))[k, 0, 0], rel=0.02)


def test_counts_without_zeros_end_at_the_bound_without_a_standard_error() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(500, 1))
    model = MixtureOfExpertsRegressor(1, family="hurdle_poisson").fit(X, 1 + rng.poisson(np.exp(0.3 * X[:, 0])))
    assert model.converged_
    assert model.mixture_.experts.omega[0] == ODDS.least
    errors = model.inference_.standard_errors()
    assert np.all(np.isnan(errors.log_shapes))
    assert np.all(np.isfinite(errors.experts))


def test_a_hurdle_has_no_exposure() -> None:
    with pytest.raises(Exception, match="exposure"):
        MixtureOfExpertsRegressor(1, family="hurdle_poisson").fit([[0.0], [1.0]], [0, 1], exposure=[1, 2])
