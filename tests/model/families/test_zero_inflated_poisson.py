"""Zero-inflated Poisson experts against an independent optimiser and against Poisson experts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln

from consilience import MixtureOfExpertsRegressor
from consilience.model import FAMILIES
from consilience.model.families.zero_inflated_poisson import ODDS, ZeroInflatedPoissonExperts, solve_arrow


def counts(odds: float, seed: int, n: int = 800) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, exposure = rng.normal(size=(n, 2)), rng.uniform(0.5, 2.0, n)
    y = rng.poisson(exposure * np.exp(0.5 + X @ [0.4, -0.3]))
    return X, y * (rng.random(n) >= odds / (1 + odds)), exposure


def negative_log_likelihood(t: np.ndarray, X: np.ndarray, y: np.ndarray, exposure: np.ndarray) -> float:
    eta, log_odds = t[0] + X @ t[1:3] + np.log(exposure), t[3]
    mu = np.exp(eta)
    density = np.where(y == 0, np.logaddexp(log_odds, -mu), y * eta - mu - gammaln(y + 1))
    return float(-np.sum(density - np.logaddexp(0, log_odds)))


@pytest.mark.parametrize(("odds", "seed"), [(0.8, 0), (0.02, 1), (6.0, 3)])
def test_the_maximum_is_that_of_an_independent_optimiser(odds: float, seed: int) -> None:
    X, y, exposure = counts(odds, seed)
    best = minimize(negative_log_likelihood, [0.1, 0, 0, 0], (X, y, exposure), method="BFGS", options={"gtol": 1e-8})
    model = MixtureOfExpertsRegressor(1, family="zero_inflated_poisson", expert_ridge=0.0)
    model.fit(X, y, exposure=exposure)
    assert model.converged_
    assert model.log_likelihood_ == pytest.approx(-best.fun, abs=1e-6)
    found = [
        *model.intercept_.ravel(),
        *model.coef_.ravel(),
        np.log(model.zero_shares_[0] / (1 - model.zero_shares_[0])),
    ]
    np.testing.assert_allclose(found, best.x, rtol=0, atol=1e-6)


def test_counts_without_extra_zeros_end_at_the_bound_as_poisson_counts() -> None:
    X, y, exposure = counts(0.0, 2)
    fits = [MixtureOfExpertsRegressor(1, family=family) for family in ("zero_inflated_poisson", "poisson")]
    wide, narrow = (fit.fit(X, y, exposure=exposure) for fit in fits)
    assert wide.converged_
    assert wide.mixture_.experts.omega[0] == ODDS.least
    assert wide.log_likelihood_ == pytest.approx(narrow.log_likelihood_, abs=1e-3)
    np.testing.assert_allclose(wide.coef_, narrow.coef_, rtol=0, atol=1e-5)
    np.testing.assert_allclose(wide.to_frame()["std_error"][:3], narrow.to_frame()["std_error"][:3], rtol=1e-3)


def test_rare_counts_converge_although_zeros_hardly_tell_rates_from_extra_zeros() -> None:
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(20_000, 1)), 20_000
    y = rng.poisson(0.2 * np.exp(0.3 * X[:, 0])) * (rng.random(n) < 0.5)
    model = MixtureOfExpertsRegressor(1, family="zero_inflated_poisson").fit(X, y)
    assert model.converged_
    assert model.n_iter_ < 20


def test_an_extra_zero_is_in_the_distribution_function_and_below_the_quantiles() -> None:
    experts = ZeroInflatedPoissonExperts(np.array([[0.5, 1.0], [30.0, 0.0]]), np.array([1.0, 0.25]))
    panel = np.array([[1.0, 1.0], [0.2, 0.4]])
    poisson = FAMILIES["poisson"](experts.B)
    share = experts.share[:, None]
    np.testing.assert_allclose(experts.cdf(panel, np.zeros(2)), share + (1 - share) * poisson.cdf(panel, np.zeros(2)))
    assert np.all(experts.cdf(panel, np.full(2, -1.0)) == 0)
    assert np.all(experts.quantile(panel, 0.1) == 0)
    np.testing.assert_allclose(experts.quantile(panel, 0.9)[1], poisson.quantile(panel, 0.875)[1])


def test_a_step_of_a_shared_parameter_is_that_of_the_whole_system() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 4, 4))
    J, g = A @ A.transpose(0, 2, 1) + np.eye(4), rng.normal(size=(3, 4))
    whole, right = np.zeros((10, 10)), np.zeros(10)
    for k in range(3):
        place = [*range(3 * k, 3 * k + 3), 9]
        whole[np.ix_(place, place)] += J[k]
        right[place] += g[k]
    step = np.linalg.solve(whole, right)
    found = solve_arrow(J, g)
    np.testing.assert_allclose(found[:, :3].ravel(), step[:9])
    np.testing.assert_allclose(found[:, 3], step[9])
    assert solve_arrow(-J, g) is None
    J[:, 3, 3] = -5.0
    assert solve_arrow(J, g) is None
