import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from consilience.fit import Fit, Specification, fit_mixture, infer
from consilience.model import GaussianExperts, Penalty, Rows, expect
from consilience.model.families.covariance import STRUCTURES
from consilience.model.information import free_parameters, ridge, score
from consilience.numerics.arrays import Array
from families import GAUSSIAN
from strategies import Shape, label_count, shapes

gaussian = st.sampled_from(GAUSSIAN)


def log_densities(mixture, rows):
    """``log f_k(y_i | x_i)``, ``(K, n)``, as the experts see a pass."""
    return np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])


@given(shape=shapes(family=gaussian, labels="row"))
def test_log_density_is_that_of_scipy(shape):
    mixture, rows = shape.problem()
    mean = mixture.experts.B @ mixture.design.panel(rows.X)  # (K, q, n)
    for k, Sigma in enumerate(mixture.experts.matrices):
        expected = stats.multivariate_normal(np.zeros(shape.q), Sigma).logpdf(rows.Y - mean[k].T)
        np.testing.assert_allclose(log_densities(mixture, rows)[k], np.atleast_1d(expected), rtol=1e-10)


@settings(max_examples=80)
@given(shape=shapes(family=gaussian, n=st.integers(12, 25)))
def test_step_is_weighted_least_squares_and_its_residual_covariance(shape):
    mixture, rows = shape.problem()
    rng = np.random.default_rng(shape.seed)
    tau = rng.dirichlet(np.ones(shape.K), label_count(rows)).T
    new = mixture.maximise(expect(mixture, rows, given=tau), Penalty()).experts
    row_tau = tau if rows.groups is None else tau[:, rows.groups.codes]
    w = row_tau * (1.0 if rows.weight is None else rows.weight)
    panel = mixture.design.panel(rows.X)
    scatter = np.empty((shape.K, shape.q, shape.q))
    for k in range(shape.K):
        root = np.sqrt(w[k])
        zero_start, *_ = np.linalg.lstsq((panel * root).T, rows.Y * root[:, None], rcond=None)
        residual = rows.Y.T - zero_start.T @ panel
        fitted, expected = new.B[k] @ (panel * root), zero_start.T @ (panel * root)
        np.testing.assert_allclose(fitted, expected, rtol=1e-6, atol=1e-7)  # coefficients need not be identified
        scatter[k] = (residual * w[k]) @ residual.T
    assert_covariance(new, scatter, w.sum(axis=1))


def assert_covariance(experts, scatter, n):
    mean = scatter / n[:, None, None]
    expected = {
        "full": mean,
        "tied": scatter.sum(axis=0) / n.sum(),
        "diag": np.einsum("kqq->kq", mean),
        "spherical": np.einsum("kqq->k", mean) / experts.q,
    }[experts.structure]
    np.testing.assert_allclose(experts.covariance, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("q", [1, 2])
def test_from_zero_an_underdetermined_step_is_the_solution_of_least_norm(q):
    shape = Shape(gate="constant", K=1, d=6, q=q, n=4)
    mixture, rows = shape.problem()
    zero = GaussianExperts(np.zeros((1, q, 7)), np.eye(q)[None])
    start = type(mixture)(mixture.design, mixture.gate, zero)
    statistics = expect(start, rows)
    new = start.maximise(statistics, Penalty(floor=1e-6 * np.eye(q)))
    expected, *_ = np.linalg.lstsq(mixture.design.panel(rows.X).T, rows.Y, rcond=None)
    np.testing.assert_allclose(new.experts.B[0].T, expected, rtol=1e-6, atol=1e-9)
    assert new.experts.admissible(Penalty(floor=1e-6 * np.eye(q)))


def test_rank_is_judged_by_experts_with_enough_rows():
    mixture, rows = Shape(K=2, d=2, n=30).problem()
    labels = np.zeros((2, 30))
    labels[0, :28] = labels[1, 28:] = 1.0  # two rows cannot show three coefficients, nor are they asked to
    assert mixture.experts.full_rank(expect(mixture, rows, given=labels).experts)
    twice = Rows(rows.X[:, [0, 0]], rows.Y)  # the same column twice
    plain = type(mixture)(type(mixture.design).raw(2), mixture.gate, mixture.experts)
    assert not plain.experts.full_rank(expect(plain, twice, given=labels).experts)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_structures_agree_where_they_overlap(structure):
    rng = np.random.default_rng(0)
    B, sigma2 = rng.normal(size=(2, 1, 3)), np.array([0.5, 0.5])
    stored = {"full": sigma2[:, None, None], "tied": sigma2[:1, None], "diag": sigma2[:, None], "spherical": sigma2}
    experts = GaussianExperts(B, stored[structure], structure)
    np.testing.assert_allclose(experts.matrices, 0.5 * np.ones((2, 1, 1)))
    np.testing.assert_allclose(experts.variances, 0.5 * np.ones((2, 1)))
    assert experts.parameter_count == 6 + (1 if structure == "tied" else 2)


@given(shape=shapes(family=gaussian, q=1))
def test_distribution_function_and_quantiles_are_those_of_scipy(shape):
    mixture, rows = shape.problem()
    panel, y = mixture.design.panel(rows.X), rows.Y[:, 0]
    law = stats.norm(mixture.experts.mean(panel)[:, 0], np.sqrt(mixture.experts.variances))
    np.testing.assert_allclose(mixture.experts.cdf(panel, y), law.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(mixture.experts.quantile(panel, 0.9), law.ppf(0.9), rtol=1e-10)


@pytest.mark.parametrize("family", GAUSSIAN)
def test_samples_have_the_mean_and_covariance_of_their_expert(family):
    n = 20_000
    mixture, _ = Shape(family=family, K=2, d=1, q=2, n=1).problem()
    X, rng = np.random.default_rng(1).normal(size=(n, 1)), np.random.default_rng(0)
    panel, labels = mixture.design.panel(X), np.arange(n) % 2
    Y = mixture.experts.sample(panel, labels, rng)
    mean = mixture.experts.mean(panel)[labels, :, np.arange(n)]
    for k, Sigma in enumerate(mixture.experts.matrices):
        z = np.linalg.solve(np.linalg.cholesky(Sigma), (Y - mean)[labels == k].T)  # standard normal
        m = z.shape[1]
        assert np.all(np.abs(z.mean(axis=1)) < 5 / np.sqrt(m))
        assert np.all(np.abs(z @ z.T / m - np.eye(2)) < 5 * np.sqrt(np.eye(2) + 1) / np.sqrt(m))
        assert stats.kstest(z[0], "norm").pvalue > 1e-6


@pytest.mark.parametrize("structure", ["full", "tied"])
@pytest.mark.parametrize("floor", [0.0, 1e-6])
def test_a_covariance_that_rounding_made_indefinite_is_not_admissible(structure: str, floor: float) -> None:
    """A Newton step may lead to variances of 1e13 beside small ones: eigenvalues alone do not show it."""
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))[0]
    S = (Q * np.r_[-8e-4, 1e-4, np.full(6, 1.0), 2e4, 9e13]) @ Q.T
    stored = S[None] if structure == "full" else S
    experts = GaussianExperts(np.zeros((1, 10, 1)), 0.5 * (stored + np.swapaxes(stored, -1, -2)), structure)
    assert not experts.admissible(Penalty(floor=floor * np.eye(10)))


# ---------------------------------------------------------------------- the ridge


def ridged(X: Array, y: Array, ridge: float | None, K: int = 1, structure: str = "full") -> Fit:
    specification = Specification(K=K, gate="constant", structure=structure, expert_ridge=ridge)
    return fit_mixture(Rows(X, y), specification, rng=np.random.default_rng(0), n_init=2, tol=1e-13)


def test_without_a_ridge_experts_are_least_squares() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = X[:, :1] + rng.normal(size=(100, 1))
    b = np.linalg.lstsq(np.c_[np.ones(100), X], y, rcond=None)[0]
    np.testing.assert_allclose(ridged(X, y, None).mixture.experts.B[0, 0], b[:, 0], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["full", "diag", "spherical", "tied"])
def test_a_ridge_ends_where_the_penalised_likelihood_is_flat(structure: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    label = rng.random(200) < 0.5
    Y = np.where(label[:, None], X[:, :2] + 3, -X[:, 1:]) + rng.normal(size=(200, 2)) @ [[1.0, 0.6], [0.0, 1.0]]
    fit = ridged(X, Y, 20.0, K=2, structure=structure)
    mixture = fit.ascent.mixture
    gradient = score(mixture, fit.ascent.statistics) - ridge(mixture, fit.penalty) @ free_parameters(mixture)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-3)
    assert np.all(np.diff(fit.ascent.trace) > -1e-8)
    plain = ridged(X, Y, 0.0, K=2, structure=structure)
    assert np.sum(mixture.experts.B[:, :, 1:] ** 2) < 0.95 * np.sum(plain.ascent.mixture.experts.B[:, :, 1:] ** 2)


def test_a_ridge_weighs_as_many_rows_in_any_unit_of_the_response() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 4))
    y = X[:, :1] + rng.normal(size=(80, 1))
    one, other = ridged(X, y, 10.0), ridged(X, 1000 * y, 10.0)
    np.testing.assert_allclose(other.mixture.experts.B, 1000 * one.mixture.experts.B, rtol=1e-6)


def test_a_ridge_withholds_intervals() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4))
    y = X[:, :1] + rng.normal(size=(80, 1))
    assert "is the penalty and not the data" in infer(ridged(X, y, 20.0)).withheld["expert 0"]
    assert not infer(ridged(X, y, 0.01)).withheld
