"""Calibration, responsibilities and convergence."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.special import ndtri
from scipy.stats import beta, kstest, norm

from consilience import GaussianMixture, MixtureOfExpertsRegressor, plot
from consilience.datasets import soft
from consilience.errors import InvalidInputError
from consilience.federation import FederatedFit
from consilience.model import Rows
from consilience.model.tails import predictive_cdf
from consilience.plot.diagnostics import quantile_residuals
from consilience.plot.drawing import mark


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


def heights(panel):
    return np.array([bar.get_height() for bar in panel.patches])


def test_bars_count_the_responsibilities_that_are_not_negligible(regressor):
    model, X, y = regressor
    resp = model.responsibilities(X, y)
    panels = plot.posteriors(model, X, y)
    assert panels.shape == (3,)
    for k, panel in enumerate(panels):
        expected, _ = np.histogram(resp[resp[:, k] >= 1e-4, k], 20, (0, 1))
        np.testing.assert_array_equal(heights(panel), expected)
        assert heights(panel).sum() == np.sum(resp[:, k] >= 1e-4) < len(y)
        assert to_hex(panel.patches[0].get_facecolor()).upper() == mark(k).colour
        assert panel.get_title() == f"expert {k + 1}"


def test_counts_are_on_a_square_root_scale_that_all_panels_share(regressor):
    panels = plot.posteriors(*regressor)
    top = max(heights(panel).max() for panel in panels)
    for panel in panels:
        assert panel.get_ylim() == (0, 1.05 * top)
        low, quarter, whole = (panel.transData.transform((0, y))[1] for y in (0, 25, 100))
        assert quarter - low == pytest.approx((whole - low) / 2)


def test_a_group_counts_once(lines):
    model, X, y = lines
    panels = plot.posteriors(model, X, y, groups=np.arange(300) // 3)
    resp = model.responsibilities(X, y, groups=np.arange(300) // 3)[::3]
    assert heights(panels[0]).sum() == np.sum(resp[:, 0] >= 1e-4)
    assert panels[0].get_ylabel() == "groups"


def test_panels_may_be_given(lines):
    _, given = plt.subplots(2, 1)
    found = plot.posteriors(*lines, ax=given)
    assert list(found) == list(given)
    with pytest.raises(InvalidInputError, match="ax has 1 Axes: expected 2, one for each component"):
        plot.posteriors(*lines, ax=given[0])


@pytest.mark.slow
@pytest.mark.parametrize("K", [1, 4, 5])
def test_any_number_of_components(K):
    X = np.random.default_rng(0).normal(size=(300, 1)) + 20 * (np.arange(300) % K)[:, None]
    panels = plot.posteriors(GaussianMixture(K, random_state=0).fit(X), X)
    assert len(panels) == len(panels[0].figure.axes) == K
    assert [heights(panel)[-1] for panel in panels] == [300 / K] * K
    assert [panel.get_xlabel() for panel in panels][-1] == "responsibility"


def test_the_trace_is_drawn_with_the_reason_why_the_fit_stopped(lines):
    ax = plot.convergence(lines.model)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), lines.model.trace_)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(len(lines.model.trace_)))
    assert ax.get_xlabel().replace("\n", " ") == f"iteration {lines.model.stop_reason_}"


def test_the_ends_of_the_starts_are_drawn(lines):
    ax = plot.convergence(lines.model)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), lines.model.starts_.values)
    assert ax.get_legend().get_texts()[0].get_text() == f"ends of {lines.model.starts_.count} starts"


def test_a_given_start_has_no_ends(regressor):
    ax = plot.convergence(regressor.model)
    assert ax.get_legend() is None
    assert len(ax.lines) == 1


def test_the_axis_spans_at_least_one_unit_of_log_likelihood():
    X = np.random.default_rng(0).normal(size=(200, 1))
    model = GaussianMixture(1, random_state=0).fit(X)
    assert np.ptp(model.trace_) < 0.5
    low, high = plot.convergence(model).get_ylim()
    assert high - low >= 1 - 1e-9
    assert low < model.trace_.min() <= model.trace_.max() < high


def test_the_trace_is_broken_where_a_site_left(lines):
    fit = lines.model._fit_result
    n = len(lines.model.trace_)
    left = FederatedFit(lines.model, None, replace(fit, ascent=replace(fit.ascent, segments=(0, 1))))
    ax = plot.convergence(left)
    assert [len(line.get_xdata()) for line in ax.lines[:2]] == [1, n - 1]
