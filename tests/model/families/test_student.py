from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from consilience import MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import InvalidInputError
from consilience.fit import Specification, bic, fit_mixture, infer
from consilience.messages import LogLikelihood, decode, encode
from consilience.model import ConstantGate, Design, Mixture, Penalty, Rows, expect
from consilience.model.families.base import Share
from consilience.model.families.student import DEGREES, NODES, StudentExperts, quadrature
from consilience.model.information import free_parameters, move_parameters, ridge, score
from strategies import Shape, shapes


def law(experts, panel):
    return stats.t(experts.nu[:, None], loc=experts.mean(panel)[:, 0], scale=experts.scale[:, None])


def single(n, nu, seed, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    error = rng.normal(size=n) if nu is None else rng.standard_t(nu, n)
    return Rows(X, (1 + X @ [2.0, -1.0] + noise * error)[:, None])


def two(n, seed, nu=3.0):
    """Rows of two regressions with opposite slopes and errors with ``nu`` degrees of freedom."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1))
    first = rng.random(n) < 0.6
    y = np.where(first, 1 + 3 * X[:, 0], -1 - 3 * X[:, 0]) + 0.4 * rng.standard_t(nu, n)
    return X, y


def fitted(rows, K=1, **options):
    specification = Specification(K=K, family="student", gate="constant", **options)
    return fit_mixture(rows, specification, rng=np.random.default_rng(0))


@given(shape=shapes(family="student", labels="row"))
def test_log_density_and_distribution_function_are_those_of_scipy(shape):
    mixture, rows = shape.problem()
    panel, y = mixture.design.panel(rows.X), rows.Y[:, 0]
    theirs = law(mixture.experts, panel)
    log_density = np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])
    np.testing.assert_allclose(log_density, theirs.logpdf(y), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mixture.experts.cdf(panel, y), theirs.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(mixture.experts.quantile(panel, 0.3), theirs.ppf(0.3), rtol=1e-8, atol=1e-10)


@given(shape=shapes(family="student", n=14, K=st.integers(1, 2), d=st.integers(1, 2)), factor=st.floats(1e-6, 1e6))
def test_the_unit_of_the_response_is_in_coefficients_and_scales(shape, factor):
    mixture, rows = shape.problem()
    experts = mixture.experts
    scaled = replace(mixture, experts=replace(experts, B=factor * experts.B, scale=factor * experts.scale))
    other = replace(rows, Y=factor * rows.Y)
    ours, theirs = mixture.maximise(expect(mixture, rows), Penalty()), scaled.maximise(expect(scaled, other), Penalty())
    np.testing.assert_allclose(theirs.experts.scale, factor * ours.experts.scale, rtol=1e-6)
    np.testing.assert_allclose(theirs.experts.nu, ours.experts.nu, rtol=1e-6)


@pytest.mark.parametrize("nu", [3.0, 8.0])
def test_one_expert_is_at_the_maximum_that_scipy_finds(nu):
    rows = single(400, nu, seed=1)

    def loss(p):
        return -stats.t.logpdf(rows.Y[:, 0] - p[0] - rows.X @ p[1:3], np.exp(p[4]), scale=np.exp(p[3])).sum()

    theirs = optimize.minimize(loss, [0, 0, 0, 0, 1.0], method="BFGS", options={"gtol": 1e-7})
    found = fitted(rows)
    experts, errors = found.mixture.experts, infer(found, rows).standard_errors()
    assert found.log_likelihood == pytest.approx(-theirs.fun, abs=1e-5)
    assert np.abs((experts.B[0] - theirs.x[:3]) / errors.experts[0, 0]).max() < 2e-3
    assert np.abs((experts.log_shapes()[0] - theirs.x[3:]) / errors.log_shapes[0]).max() < 2e-3


def test_fixed_degrees_of_freedom_stay_and_are_no_parameter():
    rows = single(300, 3.0, seed=2)
    free, fixed = fitted(rows), fitted(rows, degrees_of_freedom=4)
    assert fixed.mixture.experts.nu[0] == 4.0
    assert fixed.mixture.parameter_count == free.mixture.parameter_count - 1
    assert fixed.log_likelihood < free.log_likelihood
    assert infer(fixed, rows).standard_errors().log_shapes.shape == (1, 1)

    def loss(p):
        return -stats.t.logpdf(rows.Y[:, 0] - p[0] - rows.X @ p[1:3], 4.0, scale=np.exp(p[3])).sum()

    assert fixed.log_likelihood == pytest.approx(-optimize.minimize(loss, np.zeros(4)).fun, abs=1e-5)
    assert decode(encode(LogLikelihood(fixed.mixture))).mixture.experts.degrees == "fixed"


def test_normal_errors_end_at_the_bound_with_the_standard_errors_of_least_squares():
    rows = single(600, None, seed=0)
    found = fitted(rows)
    assert found.ascent.stop.converged
    assert found.mixture.experts.nu[0] == DEGREES.most
    errors = infer(found, rows).standard_errors()
    assert np.isnan(errors.log_shapes[0, 1])
    assert np.isfinite(errors.log_shapes[0, 0])
    design = np.column_stack([np.ones(rows.n), rows.X])
    residual = rows.Y[:, 0] - design @ np.linalg.lstsq(design, rows.Y[:, 0], rcond=None)[0]
    classic = residual.std() * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose(errors.experts[0, 0], classic, rtol=0.02)


def test_degrees_of_freedom_leave_a_bound_that_the_likelihood_does_not_prefer():
    rows = single(400, 3.0, seed=1)
    best = fitted(rows)
    at_bound = replace(best.mixture, experts=replace(best.mixture.experts, nu=np.array([DEGREES.most])))
    assert score(at_bound, expect(at_bound, rows))[-1] < 0
    specification = Specification(K=1, family="student", gate="constant")
    again = fit_mixture(rows, specification, rng=np.random.default_rng(0), start=at_bound)
    assert again.log_likelihood == pytest.approx(best.log_likelihood, abs=1e-5)


@pytest.mark.slow
def test_two_experts_are_recovered():
    X, y = two(1500, seed=0)
    model = MixtureOfRegressions(2, family="student", random_state=0).fit(X, y)
    assert model.converged_
    np.testing.assert_allclose(model.coef_.ravel(), [3, -3], atol=0.1)
    np.testing.assert_allclose(model.intercept_, [1, -1], atol=0.1)
    estimates, errors = model.inference_.estimates, model.inference_.standard_errors()
    np.testing.assert_allclose(
        np.exp(estimates.log_shapes), np.column_stack([model.scales_, model.degrees_of_freedom_])
    )
    assert np.abs((estimates.log_shapes - np.log([0.4, 3.0])) / errors.log_shapes).max() < 4
    text = model.summary()
    assert "degrees of freedom" in text
    table = model.to_frame()
    assert list(table["part"]).count("log_scale") == list(table["part"]).count("log_degrees_of_freedom") == 2


def order_by_bic(rows, family):
    """The number of experts from 1 to 3 with the least BIC."""
    values = []
    for K in (1, 2, 3):
        specification = Specification(K=K, family=family, gate="constant")
        fit = fit_mixture(rows, specification, rng=np.random.default_rng(0))
        values.append(bic(fit.log_likelihood, fit.mixture.parameter_count, rows.n))
    return int(np.argmin(values)) + 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_bic_finds_two_experts_with_heavy_tails_where_gaussian_experts_need_a_third(seed):
    X, y = two(400, seed=seed)
    assert order_by_bic(Rows(X, y[:, None]), "student") == 2
    assert order_by_bic(Rows(X, y[:, None]), "gaussian") == 3


def test_extreme_responses_and_predictors_are_finite():
    experts = StudentExperts(np.array([[1e200], [0.0]]), np.array([1e-100, 1.0]), np.array([2.1, 200.0]))
    mixture = Mixture(Design.raw(0), ConstantGate(np.full(2, 0.5)), experts)
    rows = Rows(np.empty((4, 0)), np.array([[-1e300], [0.0], [1e200], [1e300]]))
    assert np.all(np.isfinite(mixture.log_density(rows)))
    assert np.all(np.isfinite(mixture.quantile(np.empty((1, 0)), 0.999)))
    one = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts.permuted(np.array([1])))
    assert np.all(np.isfinite(expect(one, rows, information=True).to_array()))


def test_responses_are_one_column_that_varies_and_degrees_are_in_range():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 1))
    with pytest.raises(InvalidInputError, match="one column of real numbers"):
        MixtureOfRegressions(1, family="student").fit(X, rng.normal(size=(30, 2)))
    with pytest.raises(InvalidInputError, match="its scale has no estimate"):
        fitted(Rows(X, np.ones((30, 1))))
    with pytest.raises(InvalidInputError, match=r"degrees_of_freedom=1: expected None"):
        MixtureOfRegressions(1, family="student", degrees_of_freedom=1).fit(X, X[:, 0])
    with pytest.raises(InvalidInputError, match="gaussian experts have none"):
        MixtureOfExpertsRegressor(1, degrees_of_freedom=4).fit(X, X[:, 0])
    start = fitted(single(60, 3.0, seed=0), degrees_of_freedom=4).mixture
    with pytest.raises(InvalidInputError, match="got fixed at 4, expected estimated"):
        MixtureOfRegressions(1, family="student", mixture_init=start).fit(np.hstack([X, X**2]), X[:, 0])


def test_steps_respect_the_least_scale():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    rows = Rows(X, 0.5 * X + 1e-9 * rng.normal(size=(60, 1)))
    penalty = Penalty(0.0, 0.0, np.full((1, 1), 1e-8))
    mixture = Mixture(
        Design.raw(1), ConstantGate(np.ones(1)), StudentExperts(np.zeros((1, 2)), np.ones(1), np.ones(1) * 5)
    )
    for _ in range(60):
        mixture = mixture.maximise(expect(mixture, rows), penalty)
        assert mixture.experts.admissible(penalty)
    assert mixture.experts.scale[0] == pytest.approx(1e-4)
    np.testing.assert_allclose(mixture.experts.B, [[0.0, 0.5]], atol=1e-6)
    assert not move_parameters(mixture, np.array([0.0, 0.0, -0.01, 0.0])).experts.admissible(penalty)


def test_samples_have_the_distribution_of_their_expert():
    n, rng = 20_000, np.random.default_rng(0)
    experts = StudentExperts(np.array([[0.0], [1.5]]), np.array([0.8, 6.0]), np.array([3.0, 30.0]))
    labels = np.arange(n) % 2
    y = experts.sample(np.ones((1, n)), labels, rng)[:, 0]
    for k in range(2):
        theirs = stats.t(experts.nu[k], loc=experts.B[k, 0], scale=experts.scale[k])
        assert stats.kstest(y[labels == k], theirs.cdf).pvalue > 1e-3


# ---------------------------------------------------------------------- combining


@pytest.mark.parametrize("nu", [2.1, 4.0, 200.0])
def test_the_quadrature_has_the_moments_of_the_distribution(nu):
    z, weight = quadrature(nu)
    assert len(z) == NODES
    assert weight.sum() == pytest.approx(1.0)
    c = nu / (nu + z**2)
    np.testing.assert_allclose([weight @ c, weight @ c**2], [nu / (nu + 1), nu * (nu + 2) / (nu + 1) / (nu + 3)])


@pytest.mark.slow
def test_divergence_is_the_integral():
    mixture, _ = Shape("student", K=2, n=3).problem()
    other, rows = Shape("student", K=3, n=3, seed=1).problem()
    panel = mixture.design.panel(rows.X)
    found = mixture.experts.divergence(other.experts, panel)
    for k, l, i in np.ndindex(2, 3, 3):
        ours, theirs = law(mixture.experts, panel[:, [i]]), law(other.experts, panel[:, [i]])

        def term(y, k=k, l=l, ours=ours, theirs=theirs):
            log_f, log_g = ours.logpdf(y)[k, 0], theirs.logpdf(y)[l, 0]
            return np.exp(log_f) * (log_f - log_g)

        centre, scale = mixture.experts.mean(panel)[k, 0, i], mixture.experts.scale[k]
        edges = centre + scale * np.array([-np.inf, -30, -3, 0, 3, 30, np.inf])
        expected = sum(integrate.quad(term, a, b)[0] for a, b in pairwise(edges))
        assert found[k, l, i] == pytest.approx(expected, rel=2e-3, abs=2e-5)


def test_the_barycentre_of_equal_experts_is_that_expert():
    experts = StudentExperts(np.array([[1.0, 2.0]] * 2), np.array([0.5, 0.5]), np.array([4.0, 4.0]))
    panel = np.vstack([np.ones(50), np.linspace(-1, 1, 50)])
    start = StudentExperts(np.array([[0.0, 0.0]]), np.array([3.0]), np.array([20.0]))
    found = start.barycentres([Share(experts, panel, np.ones((2, 50)), np.zeros((2, 1), dtype=int))])
    np.testing.assert_allclose(found.B, [[1.0, 2.0]], atol=1e-6)
    np.testing.assert_allclose([found.scale[0], found.nu[0]], [0.5, 4.0], rtol=1e-5)


# ---------------------------------------------------------------------- the ridge


@pytest.mark.slow
@pytest.mark.parametrize("nu", [None, 4.0])
def test_a_ridge_ends_where_the_penalised_likelihood_is_flat(nu):
    X, y = two(600, seed=0)
    rows = Rows(X, y[:, None])
    plain, fit = (fitted(rows, K=2, expert_ridge=size, degrees_of_freedom=nu) for size in (0.0, 1000.0))
    mixture = fit.ascent.mixture
    gradient = score(mixture, fit.ascent.statistics) - ridge(mixture, fit.penalty) @ free_parameters(mixture)
    assert fit.ascent.stop.converged
    np.testing.assert_allclose(gradient, 0.0, atol=5e-2)
    assert np.all(np.abs(mixture.experts.B[:, 1]) < 0.95 * np.abs(plain.ascent.mixture.experts.B[:, 1]))


def test_em_steps_never_lower_the_penalised_likelihood():
    X, y = two(300, seed=1)
    rows, penalty = Rows(X, y[:, None]), Penalty(expert_ridge=20.0)
    mixture = Mixture(
        Design.raw(1), ConstantGate(np.full(2, 0.5)), StudentExperts(np.eye(2), np.full(2, 3.0), np.full(2, 9.0))
    )
    values = []
    for _ in range(30):
        statistics = expect(mixture, rows)
        values.append(mixture.penalised(statistics, penalty))
        mixture = mixture.maximise(statistics, penalty, 0.5)
    assert np.all(np.diff(values) > -1e-9)
    assert values[-1] > values[0] + 10
