from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from scipy import stats
from scipy.special import gammaln
from sklearn.linear_model import LogisticRegression

from consilience import MixtureOfExpertsRegressor
from consilience.errors import InvalidInputError
from consilience.fit import Specification, fit_mixture
from consilience.model import ConstantGate, Design, Groups, Mixture, Rows, expect
from consilience.model.families.binomial import BinomialExperts
from consilience.model.information import score
from strategies import shapes


def log_choose(rows):
    m, y = rows.exposure, rows.Y[:, 0]
    return gammaln(m + 1) - gammaln(y + 1) - gammaln(m - y + 1)


def trial_by_trial(rows):
    """The rows as groups of 0/1 rows, one for each trial."""
    m = rows.exposure.astype(int)
    record = np.repeat(np.arange(rows.n), m)
    place = np.arange(m.sum()) - np.repeat(np.cumsum(m) - m, m)
    success = (place < rows.Y[record, 0]).astype(float)
    return Rows(rows.X[record], success[:, None], None, None, Groups.of(record))


def problem(n, seed):
    """Rows of one logistic regression with 1 to 9 trials."""
    rng = np.random.default_rng(seed)
    X, trials = rng.normal(size=(n, 2)), rng.integers(1, 10, n)
    successes = rng.binomial(trials, 1 / (1 + np.exp(-(0.3 + X @ [0.8, -0.5]))))
    return Rows(X, successes[:, None].astype(float), None, trials.astype(float))


def one_expert(rows):
    specification = Specification(K=1, family="binomial", gate="constant", expert_ridge=0.0)
    return fit_mixture(rows, specification, rng=np.random.default_rng(0))


@given(shape=shapes(family="binomial", labels="row"))
def test_log_density_is_that_of_scipy(shape):
    mixture, rows = shape.problem()
    share = mixture.experts.mean(mixture.design.panel(rows.X))[:, 0]
    expected = stats.binom(rows.exposure, share).logpmf(rows.Y[:, 0])
    log_density = np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])
    np.testing.assert_allclose(log_density, expected, rtol=1e-9, atol=1e-11)


@given(shape=shapes(family="binomial"))
def test_no_trials_are_one_trial(shape):
    mixture, rows = shape.problem()
    rows = replace(rows, Y=np.minimum(rows.Y, 1.0))
    plain, unit = replace(rows, exposure=None), replace(rows, exposure=np.ones(rows.n))
    np.testing.assert_allclose(mixture.log_density(plain), mixture.log_density(unit), rtol=1e-13, atol=1e-13)


@given(shape=shapes(family="binomial", labels="row", weights=None))
def test_a_row_of_trials_is_a_group_of_single_ones(shape):
    mixture, rows = shape.problem()
    single = trial_by_trial(rows)
    choose = log_choose(rows)
    np.testing.assert_allclose(mixture.log_density(rows), mixture.log_density(single) + choose, rtol=1e-10, atol=1e-10)
    ours, theirs = (expect(mixture, each, information=True) for each in (rows, single))
    np.testing.assert_allclose(score(mixture, ours), score(mixture, theirs), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.information, theirs.information, rtol=1e-9, atol=1e-9)


def test_fits_to_trials_and_to_single_ones_differ_by_the_binomial_coefficients():
    rows = problem(120, seed=0)
    ours, single = one_expert(rows), one_expert(replace(trial_by_trial(rows), groups=None))
    np.testing.assert_allclose(ours.mixture.experts.B, single.mixture.experts.B, atol=1e-6)
    assert ours.log_likelihood == pytest.approx(single.log_likelihood + log_choose(rows).sum(), abs=1e-8)


def test_one_expert_agrees_with_scikit_learn():
    rows = problem(150, seed=1)
    m, y = rows.exposure, rows.Y[:, 0]
    theirs = LogisticRegression(C=np.inf, tol=1e-10, solver="newton-cholesky").fit(
        np.tile(rows.X, (2, 1)), np.repeat([1, 0], rows.n), np.concatenate([y, m - y])
    )
    np.testing.assert_allclose(one_expert(rows).mixture.experts.B[0], [*theirs.intercept_, *theirs.coef_[0]], atol=1e-6)


@pytest.mark.parametrize(
    ("successes", "trials", "inside"),
    [
        ([0, 3], [1, 3], True),
        ([0, 1], None, True),
        ([0, 2], None, False),
        ([0, 4], [1, 3], False),
        ([0, 1], [1, 2.5], False),
        ([0, 0.5], [1, 3], False),
        ([-1, 1], [1, 3], False),
    ],
)
def test_successes_and_trials_are_whole_numbers_in_order(successes, trials, inside):
    X, Y = np.empty((2, 0)), np.array(successes, dtype=float)[:, None]
    rows = Rows(X, Y, None, None if trials is None else np.array(trials, dtype=float))
    assert BinomialExperts(np.zeros((1, 1))).in_range(rows) == inside


def test_more_successes_than_trials_are_refused_with_the_range():
    X, y = np.arange(6.0)[:, None], np.array([0, 1, 2, 3, 2, 5])
    with pytest.raises(InvalidInputError, match="from 0 to the number of trials"):
        MixtureOfExpertsRegressor(1, family="binomial").fit(X, y, trials=np.full(6, 4))


def test_a_huge_linear_predictor_does_not_overflow():
    mixture = Mixture(Design.raw(0), ConstantGate(np.full(3, 1 / 3)), BinomialExperts(np.array([[1e6], [0.0], [-1e6]])))
    rows = Rows(np.empty((3, 0)), np.array([[0.0], [7.0], [20.0]]), None, np.full(3, 20.0))
    assert np.all(np.isfinite(mixture.log_density(rows)))
    assert np.all(np.isfinite(expect(mixture, rows, information=True).to_array()))


def test_predictions_are_of_one_trial():
    experts, panel = BinomialExperts(np.array([[-1.0], [2.0]])), np.ones((1, 5))
    theirs = stats.bernoulli(experts.mean(panel)[:, 0])
    y = np.array([-0.5, 0.0, 0.5, 1.0, 3.0])
    np.testing.assert_allclose(experts.cdf(panel, y), theirs.cdf(y), rtol=1e-12)
    for probability in (0.05, 0.2, 0.5, 0.8, 0.95):
        np.testing.assert_array_equal(experts.quantile(panel, probability), theirs.ppf(probability))


def test_samples_have_the_mean_and_variance_of_their_trials():
    n, rng = 20_000, np.random.default_rng(0)
    trials = np.tile([1.0, 12.0], n // 2)
    experts = BinomialExperts(np.array([[0.7]]))
    y = experts.sample(np.ones((1, n)), np.zeros(n, dtype=int), rng, trials)[:, 0]
    for m in (1, 12):
        own, (mean, variance, kurtosis) = y[trials == m], stats.binom(m, 1 / (1 + np.exp(-0.7))).stats("mvk")
        assert abs(own.mean() - mean) < 5 * np.sqrt(variance / len(own))
        assert abs(own.var() - variance) < 5 * variance * np.sqrt((kurtosis + 2) / len(own))


def test_quantiles_and_distribution_function_are_those_of_the_trials():
    experts, panel, trials = (
        BinomialExperts(np.array([[-1.0], [2.0]])),
        np.ones((1, 4)),
        np.array([1.0, 2.0, 30.0, 1e4]),
    )
    theirs = stats.binom(trials, experts.mean(panel)[:, 0])
    y = np.array([0.0, 1.0, 12.0, 8800.0])
    np.testing.assert_allclose(experts.cdf(panel, y, trials), theirs.cdf(y), rtol=1e-9)
    for probability in (0.05, 0.5, 0.95):
        np.testing.assert_array_equal(experts.quantile(panel, probability, trials), theirs.ppf(probability))
