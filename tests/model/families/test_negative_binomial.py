from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.special import gammaln

from consilience import MixtureOfRegressions
from consilience.errors import InvalidInputError
from consilience.fit import Specification, fit_mixture, infer
from consilience.model import ConstantGate, Design, Mixture, Rows, expect
from consilience.model.families.base import Share
from consilience.model.families.negative_binomial import SIZES, NegativeBinomialExperts, log_rising
from consilience.model.information import score
from strategies import Shape, shapes


def law(experts, mean):
    theta = experts.theta[:, None]
    return stats.nbinom(theta, theta / (theta + mean))


def single(n, theta, seed, exposure=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    size = rng.uniform(0.5, 4.0, n) if exposure else None
    mu = np.exp(1 + X @ [0.5, -0.3]) * (1.0 if size is None else size)
    counts = rng.poisson(mu if theta is None else mu * rng.gamma(theta, 1 / theta, n))
    return Rows(X, counts[:, None].astype(float), None, size)


def fitted(rows, K=1, start=None, **options):
    specification = Specification(K=K, family="negative_binomial", gate="constant", **options)
    return fit_mixture(rows, specification, rng=np.random.default_rng(0), start=start)


@given(shape=shapes(family="negative_binomial", labels="row"))
def test_log_density_and_distribution_function_are_those_of_scipy(shape):
    mixture, rows = shape.problem()
    panel, y = mixture.design.panel(rows.X), rows.Y[:, 0]
    mean = mixture.experts.mean(panel)[:, 0]
    log_density = np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])
    np.testing.assert_allclose(log_density, law(mixture.experts, mean * rows.exposure).logpmf(y), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mixture.experts.cdf(panel, y), law(mixture.experts, mean).cdf(y), rtol=1e-9)


@pytest.mark.parametrize("probability", [0.01, 0.5, 0.99])
def test_quantiles_are_those_of_scipy(probability):
    experts = NegativeBinomialExperts(np.array([[0.3], [4.0], [6.0]]), np.array([0.4, 2.0, 500.0]))
    for k in range(3):
        one = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts.permuted(np.array([k])))
        theirs = law(one.experts, np.exp(experts.B[k, 0])).ppf(probability)
        assert one.quantile(np.empty((1, 0)), probability)[0] == theirs


@given(log_theta=st.floats(-6, 13), y=st.integers(0, 10_000))
def test_log_rising_factorials_do_not_cancel(log_theta, y):
    theta = np.exp(log_theta)
    exact = np.sum(np.log(theta + np.arange(y)))
    np.testing.assert_allclose(log_rising(np.array([theta]), np.array([float(y)])), exact, rtol=1e-12, atol=1e-11)


def test_at_the_bound_the_log_density_is_poisson():
    experts = NegativeBinomialExperts(np.array([[1.0]]), np.array([SIZES.most]))
    mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    y = np.arange(12.0)
    found = mixture.log_density(Rows(np.empty((12, 0)), y[:, None]))
    np.testing.assert_allclose(found, y - np.e - gammaln(y + 1), atol=1e-4)


@pytest.mark.parametrize("exposure", [False, True])
@pytest.mark.parametrize("theta", [0.7, 5.0])
def test_one_expert_is_at_the_maximum_that_scipy_finds(theta, exposure):
    rows = single(400, theta, seed=1, exposure=exposure)

    def loss(p):
        size, mu = np.exp(p[3]), np.exp(p[0] + rows.X @ p[1:3]) * (1.0 if rows.exposure is None else rows.exposure)
        return -stats.nbinom.logpmf(rows.Y[:, 0], size, size / (size + mu)).sum()

    theirs = optimize.minimize(loss, [1, 0, 0, 1.0], method="BFGS", options={"gtol": 1e-7})
    found = fitted(rows, expert_ridge=0.0)
    experts, errors = found.mixture.experts, infer(found, rows).standard_errors()
    assert found.log_likelihood == pytest.approx(-theirs.fun, abs=1e-5)
    assert np.abs((experts.B[0] - theirs.x[:3]) / errors.experts[0, 0]).max() < 2e-3
    assert abs(np.log(experts.theta[0]) - theirs.x[3]) < 2e-3 * errors.log_shapes[0, 0]


def test_poisson_counts_end_at_the_bound_with_the_fit_and_the_standard_errors_of_poisson_experts():
    rows = single(600, None, seed=1)
    found = fitted(rows)
    poisson = fit_mixture(rows, Specification(K=1, family="poisson", gate="constant"), rng=np.random.default_rng(0))
    assert found.ascent.stop.converged
    assert found.mixture.experts.theta[0] == SIZES.most
    assert found.log_likelihood == pytest.approx(poisson.log_likelihood, abs=0.01)
    errors = infer(found, rows).standard_errors()
    assert np.isnan(errors.log_shapes[0, 0])
    np.testing.assert_allclose(errors.experts, infer(poisson, rows).standard_errors().experts, rtol=1e-3)


def test_a_size_leaves_a_bound_that_the_likelihood_does_not_prefer():
    rows = single(400, 2.0, seed=1)
    best = fitted(rows)
    at_bound = replace(best.mixture, experts=replace(best.mixture.experts, theta=np.array([SIZES.most])))
    assert score(at_bound, expect(at_bound, rows))[-1] < 0
    assert fitted(rows, start=at_bound).log_likelihood == pytest.approx(best.log_likelihood, abs=1e-5)


@pytest.mark.slow
def test_two_experts_are_recovered():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 1))
    first = rng.random(2500) < 0.6
    mu = np.exp(np.where(first, 3.5 + 0.5 * X[:, 0], 0.5 - 0.5 * X[:, 0]))
    y = rng.poisson(mu * np.where(first, rng.gamma(5.0, 1 / 5.0, 2500), rng.gamma(2.0, 1 / 2.0, 2500)))
    model = MixtureOfRegressions(2, family="negative_binomial", random_state=0).fit(X, y)
    assert model.converged_
    np.testing.assert_allclose(model.coef_.ravel(), [0.5, -0.5], atol=0.12)
    np.testing.assert_allclose(model.intercept_, [3.5, 0.5], atol=0.12)
    np.testing.assert_allclose(model.dispersions_, [0.2, 0.5], atol=0.12)
    assert "dispersion" in model.summary()


def test_responses_are_counts():
    X = np.zeros((3, 1))
    with pytest.raises(InvalidInputError, match="one column of counts"):
        MixtureOfRegressions(1, family="negative_binomial").fit(X, [0.5, 1.0, 2.0])


def test_extreme_counts_and_predictors_are_finite():
    experts = NegativeBinomialExperts(np.array([[1e6], [0.0], [-1e6]]), np.array([1e-3, 1.0, 1e6]))
    mixture = Mixture(Design.raw(0), ConstantGate(np.full(3, 1 / 3)), experts)
    rows = Rows(np.empty((3, 0)), np.array([[0.0], [7.0], [1e12]]))
    assert np.all(np.isfinite(mixture.log_density(rows)))
    assert np.all(np.isfinite(expect(mixture, rows, information=True).to_array()))
    assert np.all(np.isfinite(mixture.quantile(np.empty((1, 0)), 0.9)))


def test_samples_have_the_distribution_of_their_expert():
    n, rng = 40_000, np.random.default_rng(0)
    experts = NegativeBinomialExperts(np.array([[0.0], [2.0]]), np.array([0.8, 6.0]))
    labels, exposure = np.arange(n) % 2, np.full(n, 2.0)
    y = experts.sample(np.ones((1, n)), labels, rng, exposure)[:, 0]
    for k in range(2):
        mean = 2 * np.exp(experts.B[k, 0])
        variance = mean + mean**2 / experts.theta[k]
        own = y[labels == k]
        assert abs(own.mean() - mean) < 5 * np.sqrt(variance / len(own))
        assert own.var() == pytest.approx(variance, rel=0.08)


# ---------------------------------------------------------------------- combining


def test_divergence_is_the_sum():
    mixture, _ = Shape("negative_binomial", K=2, n=3).problem()
    other, rows = Shape("negative_binomial", K=3, n=3, seed=1).problem()
    panel = mixture.design.panel(rows.X)
    found, y = mixture.experts.divergence(other.experts, panel), np.arange(20_000)
    for k, l, i in np.ndindex(2, 3, 3):
        ours, theirs = (e.permuted(np.array([j])) for e, j in ((mixture.experts, k), (other.experts, l)))
        f, g = (law(e, e.mean(panel)[:, 0, [i]]).logpmf(y)[0] for e in (ours, theirs))
        assert found[k, l, i] == pytest.approx(np.sum(np.exp(f) * (f - g)), rel=1e-7, abs=1e-9)


def test_the_barycentre_of_equal_experts_is_that_expert():
    experts = NegativeBinomialExperts(np.array([[1.0, 0.5]] * 2), np.array([3.0, 3.0]))
    panel = np.vstack([np.ones(50), np.linspace(-1, 1, 50)])
    start = NegativeBinomialExperts(np.array([[0.0, 0.0]]), np.array([20.0]))
    found = start.barycentres([Share(experts, panel, np.ones((2, 50)), np.zeros((2, 1), dtype=int))])
    np.testing.assert_allclose(found.B, [[1.0, 0.5]], atol=1e-6)
    np.testing.assert_allclose(found.theta, 3.0, rtol=1e-6)


def test_the_barycentre_of_experts_with_different_means_is_overdispersed():
    experts = NegativeBinomialExperts(np.array([[1.0], [3.0]]), np.array([1e6, 1e6]))
    share = Share(experts, np.ones((1, 1)), np.ones((2, 1)), np.zeros((2, 1), dtype=int))
    found = NegativeBinomialExperts(np.zeros((1, 1)), np.ones(1)).barycentres([share])
    mean = np.exp([1.0, 3.0]).mean()
    assert np.exp(found.B[0, 0]) == pytest.approx(mean, rel=1e-6)
    assert 1 < found.theta[0] < 4
