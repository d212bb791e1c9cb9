from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from consilience.model import ConstantGate, Design, Mixture, PoissonExperts, Rows, expect
from consilience.model.families.glm import LARGEST_PREDICTOR
from strategies import Shape, shapes


def log_densities(mixture, rows):
    return np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])


@given(shape=shapes(family="poisson", labels="row"))
def test_log_density_is_that_of_scipy(shape):
    mixture, rows = shape.problem()
    rate = mixture.experts.mean(mixture.design.panel(rows.X))[:, 0] * rows.exposure
    expected = stats.poisson(rate).logpmf(rows.Y[:, 0])
    np.testing.assert_allclose(log_densities(mixture, rows), expected, rtol=1e-9, atol=1e-12)


@given(shape=shapes(family="poisson"))
def test_no_exposure_is_unit_exposure(shape):
    mixture, rows = shape.problem()
    plain, unit = replace(rows, exposure=None), replace(rows, exposure=np.ones(rows.n))
    np.testing.assert_allclose(mixture.log_density(plain), mixture.log_density(unit), rtol=1e-13, atol=1e-13)


@given(shape=shapes(family="poisson", labels="row", intercept=True), factor=st.floats(0.1, 10))
def test_exposure_is_an_offset_of_the_log_rate(shape, factor):
    mixture, rows = shape.problem()
    shift = np.zeros(mixture.design.p)
    shift[0] = np.log(factor)
    raised = replace(mixture, experts=PoissonExperts(mixture.experts.B + shift))
    scaled = replace(rows, exposure=factor * rows.exposure)
    np.testing.assert_allclose(mixture.log_density(scaled), raised.log_density(rows), rtol=1e-9, atol=1e-10)


def test_a_huge_linear_predictor_does_not_overflow():
    experts = PoissonExperts(np.array([[1e6], [0.0], [-1e6]]))
    mixture = replace(
        Shape(family="poisson", gate="constant", K=3, d=0).problem()[0], design=Design.raw(0), experts=experts
    )
    rows = Rows(np.empty((3, 0)), np.array([[0.0], [7.0], [1e6]]))
    assert np.all(np.isfinite(mixture.log_density(rows)))
    assert np.all(np.isfinite(expect(mixture, rows, information=True).to_array()))
    assert experts.mean(np.ones((1, 1))).max() == pytest.approx(np.exp(LARGEST_PREDICTOR))
    assert np.all(np.isfinite(experts.sample(np.ones((1, 3)), np.arange(3), np.random.default_rng(0))))


@given(shape=shapes(family="poisson"))
def test_distribution_function_is_that_of_scipy(shape):
    mixture, rows = shape.problem()
    panel = mixture.design.panel(rows.X)
    law = stats.poisson(mixture.experts.mean(panel)[:, 0])
    for y in (rows.Y[:, 0], rows.Y[:, 0] + 0.5, np.zeros(rows.n), np.full(rows.n, -0.5), np.full(rows.n, -3.0)):
        np.testing.assert_allclose(mixture.experts.cdf(panel, y), law.cdf(y), rtol=1e-10)


def test_samples_have_mean_and_variance_of_their_rate():
    n = 40_000
    experts, rng = PoissonExperts(np.array([[0.0], [1.5]])), np.random.default_rng(0)
    labels = np.arange(n) % 2
    counts = experts.sample(np.ones((1, n)), labels, rng)[:, 0]
    for k, rate in enumerate(np.exp([0.0, 1.5])):
        own = counts[labels == k]
        assert abs(own.mean() - rate) < 5 * np.sqrt(rate / len(own))
        assert abs(own.var() - rate) < 5 * np.sqrt((rate + 2 * rate**2) / len(own))


def test_samples_are_proportional_to_exposure():
    n, rng = 20_000, np.random.default_rng(0)
    exposure = np.tile([0.5, 4.0], n // 2)
    experts = PoissonExperts(np.array([[1.0]]))
    counts = experts.sample(np.ones((1, n)), np.zeros(n, dtype=int), rng, exposure)[:, 0]
    for level in (0.5, 4.0):
        own, rate = counts[exposure == level], level * np.e
        assert abs(own.mean() - rate) < 5 * np.sqrt(rate / len(own))


@pytest.mark.parametrize("mean", [1e3, 1e6, 1e8, 2e9, 1e12, 1e15, 1e30])
def test_quantiles_of_large_means_are_the_mean_and_its_spread(mean):
    mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), PoissonExperts(np.array([[np.log(mean)]])))
    lower, middle, upper = (mixture.quantile(np.empty((1, 0)), p)[0] for p in (0.05, 0.5, 0.95))
    reach = 1.6448536 * np.sqrt(mean)
    slack = 2.0 + 1e-14 * mean
    assert abs(middle - mean) < slack
    assert abs(mean - reach - lower) < slack
    assert abs(mean + reach - upper) < slack


def test_exposure_multiplies_the_mean_of_quantiles_and_distribution_function():
    experts, exposure = PoissonExperts(np.array([[1.0], [3.0]])), np.array([0.1, 1.0, 50.0])
    panel, y = np.ones((1, 3)), np.array([0.0, 8.0, 300.0])
    law = stats.poisson(np.exp([[1.0], [3.0]]) * exposure)
    np.testing.assert_allclose(experts.cdf(panel, y, exposure), law.cdf(y), rtol=1e-10)
    alone = [Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts.permuted([k])) for k in (0, 1)]
    found = [mixture.quantile(np.empty((3, 0)), 0.9, exposure) for mixture in alone]
    np.testing.assert_array_equal(found, law.ppf(0.9))
