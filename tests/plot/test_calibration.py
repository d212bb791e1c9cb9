import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta, kstest, norm

from consilience import GaussianMixture, MixtureOfExpertsRegressor, plot
from consilience.datasets import soft
from consilience.errors import InvalidInputError
from consilience.model import Rows
from consilience.plot.diagnostics import predictive_cdf, quantile_residuals


def residuals(ax):
    return ax.lines[1].get_data()


def test_points_are_sorted_quantile_residuals_against_normal_quantiles(lines):
    model, X, y = lines
    x, r = residuals(plot.calibration(model, X, y))
    means = model.intercept_ + X * model.coef_[:, 0]
    F = norm.cdf((y[:, None] - means) / np.sqrt(model.variances_)) @ model.predict_gate(X)[0]
    np.testing.assert_allclose(r, np.sort(norm.ppf(F)), rtol=0, atol=1e-9)
    np.testing.assert_allclose(x, norm.ppf((np.arange(300) + 0.5) / 300), rtol=0, atol=1e-12)


def test_the_predictive_distribution_inverts_the_quantiles(regressor, counts):
    model, X, _ = regressor
    q = model.predict_quantiles(X[:20], [0.3])[:, 0]
    rows = Rows(X[:20].to_numpy(), q[:, None])
    np.testing.assert_allclose(predictive_cdf(model.mixture_, rows, 0, q), 0.3, atol=1e-8)


def test_the_band_contains_each_order_statistic_with_its_probability(lines):
    ax = plot.calibration(*lines, level=0.9)
    drawn = ax.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose(drawn.min(), ndtri(beta.ppf(0.05, 1, 300)), rtol=1e-9)
    np.testing.assert_allclose(drawn.max(), ndtri(beta.ppf(0.95, 300, 1)), rtol=1e-9)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["90 % band, pointwise", "residuals"]


def test_residuals_under_the_truth_are_normal():
    data = soft(2000, n_experts=3, n_features=2, random_state=0)
    found = quantile_residuals(data.truth, Rows(data.X, data.y[:, None]), 0, np.random.default_rng(0))
    assert kstest(found, "norm").pvalue > 0.01


def test_residuals_of_counts_are_between_their_limits_and_repeatable(counts):
    (model, X, y), exposure = counts
    ax = plot.calibration(model, X, y, exposure=exposure)
    rows = model.rows(X, y, exposure=exposure)
    rng = np.random.default_rng(0)
    found = quantile_residuals(model.mixture_, rows, 0, rng)
    low, high = (predictive_cdf(model.mixture_, rows, 0, y - shift) for shift in (1.0, 0.0))
    assert np.all((ndtri(low) <= found) & (found <= ndtri(high)))
    again = plot.calibration(model, X, y, exposure=exposure)
    np.testing.assert_array_equal(residuals(ax)[1], residuals(again)[1])
    other = plot.calibration(model, X, y, exposure=exposure, random_state=1)
    assert np.any(residuals(ax)[1] != residuals(other)[1])


def test_residuals_of_one_of_several_responses_are_those_of_its_margin(two_responses):
    model, X, Y = two_responses
    ax = plot.calibration(model, X, Y, response=1)
    means = model.intercept_[:, 1] + X * model.coef_[:, 1, 0]
    F = norm.cdf((Y["total"].to_numpy()[:, None] - means) / np.sqrt(model.variances_[:, 1]))
    F = np.sum(F * model.predict_gate(X), axis=1)
    np.testing.assert_allclose(residuals(ax)[1], np.sort(norm.ppf(F)), rtol=0, atol=1e-9)
    assert ax.get_ylabel() == "quantile residual of total"


@pytest.mark.slow
def test_a_column_of_a_gaussian_mixture_is_a_response(two_responses):
    Y = two_responses.y
    model = GaussianMixture(2, random_state=0).fit(Y)
    ax = plot.calibration(model, Y, response="motor")
    F = norm.cdf((Y["motor"].to_numpy()[:, None] - model.means_[:, 0]) / np.sqrt(model.covariances_[:, 0, 0]))
    np.testing.assert_allclose(residuals(ax)[1], np.sort(norm.ppf(F @ model.predict_gate(Y)[0])), rtol=0, atol=1e-9)


def test_of_many_residuals_some_are_drawn_with_the_extremes_and_their_number_is_stated(lines):
    model, X, y = lines
    x, r = residuals(ax := plot.calibration(model, np.tile(X, (20, 1)), np.tile(y, 20)))
    every = np.sort(quantile_residuals(model.mixture_, model.rows(X, y), 0, np.random.default_rng(0)))
    assert (r[0], r[-1]) == (every[0], every[-1])
    assert len(r) < 2001
    assert ax.get_legend().get_texts()[1].get_text() == f"{len(r):,} of 6,000\nresiduals"
    np.testing.assert_allclose(r, np.repeat(every, 20)[np.rint(norm.cdf(x) * 6000 - 0.5).astype(int)])


def test_a_far_outlier_has_a_finite_residual(lines):
    model, X, y = lines
    far = np.array([1e6, -1e6, *y[2:]])
    assert np.all(np.isfinite(residuals(plot.calibration(model, X, far))[1]))


@pytest.mark.slow
def test_reliability_compares_frequencies_with_mean_probabilities(binary):
    model, X, y = binary
    ax = plot.calibration(model, X, y)
    p = model.predict_proba(X)[:, 1]
    order = np.argsort(p, kind="stable").reshape(10, 80)
    x, f = ax.lines[1].get_data()
    np.testing.assert_allclose(x, p[order].mean(axis=1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(f, y[order].mean(axis=1), rtol=0, atol=1e-12)
    assert ax.get_legend().get_texts()[0].get_text() == "10 bins of 80 rows"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted P(y = 1)", "observed frequency, 95 % interval")


def test_intervals_of_frequencies_are_wilsons(binary):
    ax = plot.calibration(*binary, level=0.9)
    z = norm.ppf(0.95)
    for f, segment in zip(ax.lines[1].get_ydata(), ax.collections[0].get_segments(), strict=True):
        for bound in segment[:, 1]:  # the bounds solve (f - b)² = z² b (1 - b) / n
            assert (f - bound) ** 2 == pytest.approx(z**2 * bound * (1 - bound) / 80, abs=1e-12)


def test_few_rows_give_fewer_bins(classifier):
    model, X, y = classifier
    ax = plot.calibration(model, X[:4], y[:4], response="none")
    assert len(ax.lines[1].get_xdata()) == 4


def test_groups_are_an_error(lines):
    with pytest.raises(InvalidInputError, match="groups: the residuals of a row do not use the other rows"):
        plot.calibration(*lines, groups=np.arange(300) // 2)


def test_a_wrong_model_leaves_the_band():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = X[:, 0] + rng.standard_t(1.5, 400)
    model = MixtureOfExpertsRegressor(1, random_state=0).fit(X, y)
    ax = plot.calibration(model, X, y)
    vertices = ax.collections[0].get_paths()[0].vertices
    x, r = residuals(ax)
    upper = np.array([vertices[np.isclose(vertices[:, 0], at), 1].max() for at in x])
    assert np.mean(r > upper) > 0.1
