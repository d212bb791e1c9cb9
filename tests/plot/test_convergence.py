from dataclasses import replace

import numpy as np

from consilience import GaussianMixture, plot
from consilience.federation import FederatedFit


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
