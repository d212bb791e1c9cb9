from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import digamma
from sklearn.linear_model import GammaRegressor

from consilience.errors import InvalidInputError
from consilience.fit import Specification, fit_mixture
from consilience.model import ConstantGate, Design, Mixture, Penalty, Rows, expect
from consilience.model.families.gamma import LEAST_SHAPE, GammaExperts, best_shape
from consilience.model.information import move_parameters
from strategies import shapes


def law(experts, panel):
    nu = experts.nu[:, None]
    return stats.gamma(nu, scale=experts.mean(panel)[:, 0] / nu)


def raised(mixture, shift):
    """The mixture with ``shift`` added to the intercepts."""
    return replace(mixture, experts=replace(mixture.experts, B=mixture.experts.B + shift * np.eye(1, mixture.design.p)))


def drawn(n, seed):
    """Rows of two experts far from each other, and their mixture."""
    rng = np.random.default_rng(seed)
    experts = GammaExperts(np.array([[0.5, 0.4], [2.5, -0.5]]), np.array([3.0, 10.0]))
    mixture = Mixture(Design.raw(1), ConstantGate(np.array([0.6, 0.4])), experts)
    X = rng.normal(size=(n, 1))
    return mixture, Rows(X, mixture.sample(X, rng)[0])


@given(shape=shapes(family="gamma", labels="row"))
def test_log_density_and_distribution_function_are_those_of_scipy(shape):
    mixture, rows = shape.problem()
    panel, y = mixture.design.panel(rows.X), rows.Y[:, 0]
    theirs = law(mixture.experts, panel)
    log_density = np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])
    np.testing.assert_allclose(log_density, theirs.logpdf(y), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mixture.experts.cdf(panel, y), theirs.cdf(y), rtol=1e-10)
    np.testing.assert_allclose(mixture.experts.quantile(panel, 0.3), theirs.ppf(0.3), rtol=1e-8)


@given(log_excess=st.floats(-6, 2.9))
def test_the_best_shape_solves_its_equation(log_excess):
    excess = np.array([10.0**log_excess])
    nu = best_shape(excess)
    np.testing.assert_allclose(np.log(nu) - digamma(nu), excess, rtol=1e-8)


def test_the_best_shape_is_that_of_scipy_and_has_a_least_value():
    y = np.random.default_rng(0).gamma(2.5, 3.0, 200)
    nu = best_shape(np.array([np.log(y.mean()) - np.log(y).mean()]))
    assert nu[0] == pytest.approx(stats.gamma.fit(y, floc=0)[0], rel=1e-6)
    assert best_shape(np.array([1e6]))[0] == LEAST_SHAPE
    assert np.isfinite(best_shape(np.array([0.0, -1e-17]))).all()


@given(shape=shapes(family="gamma", intercept=True), factor=st.floats(1e-3, 1e3))
def test_the_unit_of_the_response_is_in_the_intercepts(shape, factor):
    mixture, rows = shape.problem()
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    size = 1.0 if rows.groups is None else np.bincount(rows.groups.codes, weight)
    expected = mixture.log_density(rows) - size * np.log(factor)
    found = raised(mixture, np.log(factor)).log_density(replace(rows, Y=factor * rows.Y))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-6, 1e9])
def test_steps_and_fits_do_not_depend_on_the_unit_of_the_response(factor):
    ours, rows = drawn(300, seed=0)
    scaled_rows = replace(rows, Y=factor * rows.Y)
    scaled = raised(ours, np.log(factor))
    for _ in range(5):
        ours = ours.maximise(expect(ours, rows), Penalty())
        scaled = scaled.maximise(expect(scaled, scaled_rows), Penalty())
    np.testing.assert_allclose(scaled.experts.B, raised(ours, np.log(factor)).experts.B, rtol=1e-9)
    np.testing.assert_allclose(scaled.experts.nu, ours.experts.nu, rtol=1e-9)
    specification = Specification(K=2, family="gamma")
    first, second = (fit_mixture(each, specification, rng=np.random.default_rng(0)) for each in (rows, scaled_rows))
    # Newton steps begin where a gain is small beside the likelihood, which has a unit: the two fits stop elsewhere
    np.testing.assert_allclose(second.mixture.experts.B, raised(first.mixture, np.log(factor)).experts.B, atol=1e-4)
    np.testing.assert_allclose(second.mixture.experts.nu, first.mixture.experts.nu, rtol=1e-4)
    assert second.log_likelihood == pytest.approx(first.log_likelihood - rows.n * np.log(factor), abs=1e-5)


def test_one_expert_agrees_with_scikit_learn_and_its_shape_with_the_equation():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(250, 2))
    y = rng.gamma(2.0, np.exp(0.3 + X @ [0.5, -0.4]) / 2.0)
    specification = Specification(K=1, family="gamma", gate="constant", expert_ridge=0.0)
    experts = fit_mixture(Rows(X, y[:, None]), specification, rng=rng).mixture.experts
    theirs = GammaRegressor(alpha=0.0, tol=1e-10, max_iter=1000, solver="newton-cholesky").fit(X, y)
    np.testing.assert_allclose(experts.B[0], [theirs.intercept_, *theirs.coef_], atol=1e-6)
    ratio = y / theirs.predict(X)
    excess = np.mean(ratio - np.log(ratio) - 1)
    assert np.log(experts.nu[0]) - digamma(experts.nu[0]) == pytest.approx(excess, rel=1e-6)


def test_steps_respect_the_least_dispersion():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    rows = Rows(X, np.exp(0.5 * X + 1e-6 * rng.normal(size=(60, 1))))  # dispersion 1e-12
    penalty = Penalty(0.0, 0.0, np.full((1, 1), 1e-4))
    mixture = Mixture(Design.raw(1), ConstantGate(np.ones(1)), GammaExperts(np.zeros((1, 2)), np.ones(1)))
    for _ in range(20):
        mixture = mixture.maximise(expect(mixture, rows), penalty)
        assert mixture.experts.admissible(penalty)
    assert 1 / mixture.experts.nu[0] == pytest.approx(1e-4)
    np.testing.assert_allclose(mixture.experts.B, [[0.0, 0.5]], atol=1e-5)
    below = move_parameters(mixture, np.array([0.0, 0.0, 0.01]))  # log ν is the last parameter
    assert not below.experts.admissible(penalty)


def test_responses_are_positive_and_not_constant():
    experts = GammaExperts(np.zeros((1, 1)), np.ones(1))
    X = np.empty((2, 0))
    assert experts.in_range(Rows(X, np.array([[1e-9], [2.0]])))
    assert not experts.in_range(Rows(X, np.array([[0.0], [2.0]])))
    assert not experts.in_range(Rows(X, np.ones((2, 2))))
    with pytest.raises(InvalidInputError, match="its dispersion has no estimate"):
        fit_mixture(Rows(X, np.full((2, 1), 3.0)), Specification(K=1, family="gamma"), rng=np.random.default_rng(0))


def test_a_huge_linear_predictor_does_not_overflow():
    experts = GammaExperts(np.array([[1e6], [0.0], [-1e6]]), np.array([0.1, 1.0, 50.0]))
    mixture = Mixture(Design.raw(0), ConstantGate(np.full(3, 1 / 3)), experts)
    rows = Rows(np.empty((3, 0)), np.array([[1e-12], [7.0], [1e12]]))
    assert np.all(np.isfinite(mixture.log_density(rows)))
    assert np.all(np.isfinite(expect(mixture, rows, information=True).to_array()))


def test_samples_have_the_mean_and_variance_of_their_expert():
    n, rng = 40_000, np.random.default_rng(0)
    experts = GammaExperts(np.array([[0.0], [1.5]]), np.array([0.8, 6.0]))
    labels = np.arange(n) % 2
    y = experts.sample(np.ones((1, n)), labels, rng)[:, 0]
    for k, theirs in enumerate((stats.gamma(0.8, scale=1 / 0.8), stats.gamma(6.0, scale=np.exp(1.5) / 6.0))):
        own, (mean, variance, kurtosis) = y[labels == k], theirs.stats("mvk")
        assert abs(own.mean() - mean) < 5 * np.sqrt(variance / len(own))
        assert abs(own.var() - variance) < 5 * variance * np.sqrt((kurtosis + 2) / len(own))
