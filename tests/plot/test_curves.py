"""Curves along covariates: experts with their bands, and the gate."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.markers import MarkerStyle
from scipy.special import expit, logit
from scipy.stats import norm, t

from consilience import MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions, plot
from consilience.errors import InvalidInputError
from consilience.federation import FederatedFit
from consilience.fit.parameters import parameters
from consilience.plot.curves import expert_bands, mean_curves
from consilience.plot.drawing import mark, shades


def points(ax, K) -> Sequence:
    """Return the collections of points, one for each expert."""
    return ax.collections[:K]


def test_lines_are_the_means_of_the_experts_with_the_others_at_their_means(regressor):
    model, X, _ = regressor
    ax = plot.experts(*regressor, "dose", partial=True)
    assert len(ax.lines) == 3
    for k, line in enumerate(ax.lines):
        x, y = line.get_data()
        at = np.tile(X.mean().to_numpy(), (len(x), 1))
        at[:, 1] = x
        np.testing.assert_allclose(y, model.intercept_[k] + at @ model.coef_[k], rtol=0, atol=1e-12)
        assert to_hex(line.get_color()).upper() == mark(k).colour
    assert (x[0], x[-1]) == (X["dose"].min(), X["dose"].max())


def test_lines_pass_through_the_rows_if_covariates_are_correlated(correlated):
    model, X, y = correlated
    ax = plot.experts(*correlated, "minutes")
    x = ax.lines[0].get_xdata()
    others = [np.polynomial.Polynomial.fit(X["minutes"], X[name], 1)(x) for name in ("distance", "night")]
    low, high = X.min(), X.max()
    at = np.column_stack([np.clip(others[0], low.iloc[0], high.iloc[0]), x, np.clip(others[1], 0, 1)])
    for k, line in enumerate(ax.lines):
        np.testing.assert_allclose(line.get_ydata(), model.intercept_[k] + at @ model.coef_[k], rtol=0, atol=1e-8)
    assert ax.get_xlabel() == "minutes\n(other covariates at their means given minutes)"
    off = [_distance_from_own_line(plot.experts(*correlated, "minutes", partial=partial), y) for partial in (0, 1)]
    assert max(off) < 5  # raw responses about lines through them; moved ones about partial lines


def _distance_from_own_line(ax, y):
    """Return the median distance of points from the line of their expert."""
    distances = [
        np.abs(part.get_offsets().data[:, 1] - np.interp(part.get_offsets().data[:, 0], *line.get_data()))
        for part, line in zip(points(ax, 2), ax.lines, strict=True)
    ]
    return np.median(np.concatenate(distances))


def test_a_partial_line_has_the_slope_of_its_coefficient_and_residuals_of_the_rows(correlated):
    model, X, y = correlated
    ax = plot.experts(*correlated, "minutes", partial=True)
    likely = model.responsibilities(X, y).argmax(axis=1)
    mean = X.mean().to_numpy()
    for k, (part, line) in enumerate(zip(points(ax, 2), ax.lines, strict=True)):
        x, height = line.get_data()
        np.testing.assert_allclose(np.diff(height) / np.diff(x), model.coef_[k, 1], rtol=1e-8)
        own = likely == k
        residuals = y[own] - model.intercept_[k] - X[own].to_numpy() @ model.coef_[k]
        moved = model.intercept_[k] + np.array([[mean[0], v, mean[2]] for v in X["minutes"][own]]) @ model.coef_[k]
        np.testing.assert_allclose(part.get_offsets()[:, 1], moved + residuals, rtol=0, atol=1e-8)
    assert ax.get_xlabel() == "minutes\n(other covariates at their means)"


def test_a_line_ends_where_the_gate_gives_its_expert_nothing():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 600)
    y = np.where(x < 0, 5 + x, -x) + 0.3 * rng.normal(size=600)
    model = MixtureOfExpertsRegressor(2, random_state=0).fit(x[:, None], y)
    below = int(model.predict_gate([[-3.0]]).argmax())
    ax = plot.experts(model, x[:, None], y)
    shown = [line.get_xdata()[np.isfinite(line.get_ydata())] for line in ax.get_lines()[:2]]
    assert shown[below].min() < -2.9
    assert shown[below].max() < 1
    assert shown[1 - below].max() > 2.9
    assert shown[1 - below].min() > -1


def test_lines_weighted_by_the_gate_are_the_prediction(lines):
    ax = plot.experts(*lines)
    x = ax.lines[0].get_xdata()[:, None]
    gate = lines.model.predict_gate(x)
    mean = sum(gate[:, k] * line.get_ydata() for k, line in enumerate(ax.lines))
    np.testing.assert_allclose(mean, lines.model.predict(x), rtol=0, atol=1e-12)


def test_bands_are_drawn_in_the_colour_of_the_expert(lines):
    model, X, y = lines
    ax = plot.experts(model, X, y, level=0.8)
    at = ax.lines[0].get_xdata()[:, None]
    lower, upper = expert_bands(model, at, 0, 0.8)
    bands = ax.collections[2:]
    assert len(bands) == 2
    for k, band in enumerate(bands):
        drawn = band.get_paths()[0].vertices[:, 1]
        np.testing.assert_allclose([drawn.min(), drawn.max()], [lower[k].min(), upper[k].max()], rtol=0, atol=1e-12)
        assert to_hex(band.get_facecolor()[0]).upper() == mark(k).colour


def test_each_row_is_a_point_in_the_shade_of_its_responsibilities(regressor):
    model, X, y = regressor
    resp = model.responsibilities(X, y)
    likely, colours = resp.argmax(axis=1), shades(resp)
    drawn = points(plot.experts(*regressor, "age"), 3)
    for k, part in enumerate(drawn):
        mine = likely == k
        expected = np.column_stack([X["age"], y])[mine]
        np.testing.assert_allclose(part.get_offsets(), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(part.get_facecolors()[:, :3], colours[mine], rtol=0, atol=1e-12)
        own = MarkerStyle(mark(k).marker)
        np.testing.assert_allclose(
            part.get_paths()[0].vertices, own.get_path().transformed(own.get_transform()).vertices
        )
    assert sum(len(part.get_offsets()) for part in drawn) == len(y)


def test_labels_are_the_names_of_the_columns(regressor, lines):
    ax = plot.experts(*regressor, 2)
    assert ax.get_xlabel() == "body mass index\n(other covariates at their means given body mass index)"
    assert ax.get_ylabel() == "pressure"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["expert 1", "expert 2", "expert 3"]
    ax = plot.experts(*lines)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "y")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["component 1", "component 2"]


def test_a_name_and_a_number_give_the_same_picture(regressor):
    one, other = plot.experts(*regressor, "dose"), plot.experts(*regressor, 1)
    np.testing.assert_array_equal(one.lines[2].get_ydata(), other.lines[2].get_ydata())


def test_indicators_of_categories_are_held_at_their_means(cars):
    model, X, _ = cars
    ax = plot.experts(*cars, "age", partial=True)
    assert len(ax.collections) == 4  # points and bands
    for k, line in enumerate(ax.lines):
        gas = np.mean(X["fuel"] == "gas")
        expected = model.intercept_[k] + model.coef_[k, 0] * line.get_xdata() + model.coef_[k, 1] * gas
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=0, atol=1e-12)


def test_counts_with_exposure_are_drawn_as_rates_of_bins(counts):
    (model, X, y), exposure = counts
    ax = plot.experts(model, X, y, 0, exposure=exposure, partial=True)
    x = ax.lines[0].get_xdata()
    at = np.column_stack([x, np.full(len(x), X[:, 1].mean())])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.exp(model.intercept_[1] + at @ model.coef_[1]), rtol=1e-10)
    assert ax.get_ylabel() == "y / exposure"
    ax = plot.experts(model, X, y, 0, exposure=exposure)
    resp, rank = model.responsibilities(X, y, exposure=exposure), np.argsort(np.argsort(X[:, 0]))
    bin_of = rank // 25  # 500 rows in 20 bins
    for k, part in enumerate(points(ax, 2)):
        weights = [resp[bin_of == b, k] for b in range(20)]
        place = [np.average(X[bin_of == b, 0], weights=w) for b, w in enumerate(weights)]
        rate = [w @ y[bin_of == b] / (w @ exposure[bin_of == b]) for b, w in enumerate(weights)]
        np.testing.assert_allclose(part.get_offsets(), np.column_stack([place, rate]), rtol=1e-10)


def test_rates_moved_to_the_means_of_the_others_lie_about_the_line(counts):
    """The score of the intercept is zero at the maximum: weighted responses are weighted sizes times fitted rates."""
    (model, X, y), exposure = counts
    resp = model.responsibilities(X, y, exposure=exposure)
    fitted = np.exp(model.intercept_ + X @ model.coef_.T)
    np.testing.assert_allclose(resp.T @ y, np.sum(resp * fitted * exposure[:, None], axis=0), rtol=1e-4)
    ax = plot.experts(model, X, y, 0, exposure=exposure, partial=True)
    for part, line in zip(points(ax, 2), ax.lines, strict=True):
        offsets = part.get_offsets().data
        assert np.median(np.abs(np.log(offsets[:, 1] / np.interp(offsets[:, 0], *line.get_data())))) < 0.15


def test_the_area_of_a_bin_grows_with_its_size(counts):
    model, X, y = counts[0]
    sizes = np.where(X[:, 0] > 0.5, 20.0, 1.0)
    resp, bin_of = model.responsibilities(X, y, exposure=sizes), np.argsort(np.argsort(X[:, 0])) // 25
    total = np.array([[own[bin_of == b] @ sizes[bin_of == b] for b in range(20)] for own in resp.T])
    drawn = [part.get_sizes() for part in points(plot.experts(model, X, y, 0, exposure=sizes), 2)]
    for k in range(2):
        shown = np.array([resp[bin_of == b, k].sum() > 0.25 for b in range(20)])
        np.testing.assert_allclose(drawn[k], np.maximum(90 * total[k, shown] / total.max(), 12), rtol=1e-10)
    assert min(map(min, drawn)) < max(map(max, drawn))


def test_a_category_is_one_picture(ports):
    model, X, _ = ports
    ax = plot.experts(*ports, "port")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["Lisbon", "Oslo", "Riga"]
    at = pd.DataFrame({"load": X.groupby("port")["load"].mean(), "port": ["Lisbon", "Oslo", "Riga"]})
    means = model.predict_experts(at)
    expected = means if means.shape[0] == 3 else means.T
    high = int(np.argmax(model.intercept_))
    for k, line in enumerate(ax.lines[:2]):
        shown = expected[:, k].copy()
        if k == high:
            shown[2] = np.nan  # the gate gives no row of Riga this expert
        np.testing.assert_allclose(line.get_ydata(), shown, rtol=0, atol=1e-8)
        assert line.get_linestyle() == "None"
        np.testing.assert_allclose(line.get_xdata(), np.arange(3) + (-0.175, 0.175)[k], rtol=0, atol=1e-12)
    assert ax.get_xlabel() == "port\n(other covariates at their means given port)"


def test_bars_of_a_category_are_the_intervals_of_its_means(ports):
    model, X, _ = ports
    ax = plot.experts(*ports, "port", partial=True)
    at = np.column_stack([np.full(3, X["load"].mean()), [0, 1, 0], [0, 0, 1]])
    lower, upper = expert_bands(model, at, 0, 0.95)
    low = 1 - int(np.argmax(model.intercept_))
    bars = np.array([segment[:, 1] for segment in ax.collections[2 + low].get_segments()])
    np.testing.assert_allclose(bars, np.column_stack([lower[low], upper[low]]), rtol=1e-10)


def test_rows_of_a_category_lie_in_the_strip_of_their_level_and_expert(ports):
    model, X, y = ports
    likely = model.responsibilities(X, y).argmax(axis=1)
    place = X["port"].map({"Lisbon": 0, "Oslo": 1, "Riga": 2}).to_numpy()
    for k, part in enumerate(points(plot.experts(*ports, "port"), 2)):
        x, height = part.get_offsets().T
        assert np.abs(x - place[likely == k] - (-0.175, 0.175)[k]).max() < 0.15
        np.testing.assert_array_equal(height, y[likely == k])


def test_a_gate_over_a_category_has_the_probabilities_of_its_levels(ports):
    model, X, _ = ports
    ax = plot.gate(model, X, "port")
    at = pd.DataFrame({"load": X.groupby("port")["load"].mean(), "port": ["Lisbon", "Oslo", "Riga"]})
    for k, line in enumerate(ax.lines):
        np.testing.assert_allclose(line.get_ydata(), model.predict_gate(at)[:, k], rtol=0, atol=1e-8)
        assert line.get_linestyle() == "None"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["Lisbon", "Oslo", "Riga"]


def test_a_category_that_is_all_that_is_read_needs_no_name(cars):
    ax = plot.gate(cars.model, cars.X)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["False", "True"]


def test_names_of_many_levels_are_turned():
    rng = np.random.default_rng(0)
    names = [f"a long name of level {i}" for i in range(4)]
    X = pd.DataFrame({"port": rng.choice(names, 200)})
    model = MixtureOfRegressions(1, random_state=0).fit(X, rng.normal(size=200))
    ax = plot.experts(model, X, rng.normal(size=200))
    assert {text.get_rotation() for text in ax.get_xticklabels()} == {90}


def test_a_class_is_drawn_above_one_and_the_others_below_zero(binary):
    model, X, y = binary
    ax = plot.experts(model, X, y, 0, response=0, partial=True)
    likely = model.responsibilities(X, y).argmax(axis=1)
    for k, part in enumerate(points(ax, 2)):
        away = 0.03 * (k + 1)
        np.testing.assert_allclose(part.get_offsets()[:, 1], np.where(y[likely == k] == 0, 1 + away, -away), atol=1e-12)
    assert ax.get_ylabel() == "P(y = 0)"
    x = ax.lines[0].get_xdata()
    at = np.column_stack([x, np.full(len(x), X[:, 1].mean())])
    gate = model.predict_gate(at)
    mean = sum(gate[:, k] * line.get_ydata() for k, line in enumerate(ax.lines))
    np.testing.assert_allclose(mean, model.predict_proba(at)[:, 0], rtol=0, atol=1e-12)


def test_one_of_several_responses_is_drawn(two_responses):
    ax = plot.experts(*two_responses, response=1)
    drawn = np.sort(np.concatenate([part.get_offsets()[:, 1] for part in points(ax, 2)]))
    np.testing.assert_allclose(drawn, np.sort(two_responses.y["total"]), rtol=0, atol=1e-12)
    assert ax.get_ylabel() == "total"


def test_withheld_intervals_give_no_band_and_are_named(lines):
    model = copy.copy(lines.model)
    model.inference_ = copy.copy(model.inference_)
    object.__setattr__(model.inference_, "withheld", {"experts": "the likelihood is flat"})
    ax = plot.experts(model, lines.X, lines.y)
    assert len(ax.collections) == 2
    assert ax.get_xlabel() == "x0\nIntervals withheld: the likelihood is flat."


def test_rows_of_a_group_have_the_colour_of_the_group(lines):
    model, X, y = lines
    groups = np.arange(len(y)) // 2
    resp = model.responsibilities(X, y, groups=groups)
    drawn = points(plot.experts(model, X, y, groups=groups), 2)
    np.testing.assert_allclose(drawn[0].get_facecolors()[:, :3], shades(resp)[resp.argmax(axis=1) == 0], atol=1e-12)


def test_many_points_are_stored_as_an_image(lines):
    model, X, y = lines
    few, many = plot.experts(model, X, y), plot.experts(model, np.tile(X, (7, 1)), np.tile(y, 7))
    assert not any(part.get_rasterized() for part in few.collections)
    assert all(part.get_rasterized() for part in points(many, 2))
    assert not many.lines[0].get_rasterized()


def test_a_federated_result_gives_the_picture_of_its_model(lines):
    result = FederatedFit(lines.model, record=None, fit=None)
    one, other = plot.experts(result, lines.X, lines.y), plot.experts(*lines)
    np.testing.assert_array_equal(one.lines[0].get_ydata(), other.lines[0].get_ydata())


@pytest.mark.parametrize("K", [1, 6])
def test_one_and_six_experts(K):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    model = MixtureOfExpertsRegressor(K, random_state=0, n_init=1, max_iter=3)
    with warnings.catch_warnings(action="ignore"):  # three iterations are not enough
        model.fit(X, rng.normal(size=300))
    ax = plot.experts(model, X, rng.normal(size=300))
    assert len(ax.lines) == len(ax.get_legend().get_texts()) == K
    assert len({line.get_color() for line in ax.lines}) == K


def test_the_band_of_one_regression_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal((5.0, 0.0), 1.0, (60, 2))
    y = 1 + X @ [2.0, -1.0] + rng.normal(size=60)
    model = MixtureOfExpertsRegressor(1, random_state=0).fit(X, y)
    model.inference_ = model.infer(X, y, kind="observed")
    at = rng.normal(size=(7, 2))
    A, B = np.column_stack([np.ones(60), X]), np.column_stack([np.ones(7), at])
    b = np.linalg.lstsq(A, y, rcond=None)[0]
    s2 = np.sum((y - A @ b) ** 2) / (60 - 3)
    reach = t.ppf(0.95, 57) * np.sqrt(s2 * np.einsum("ni,ij,nj->n", B, np.linalg.inv(A.T @ A), B))
    lower, upper = expert_bands(model, at, 0, 0.9)
    np.testing.assert_allclose(lower[0], B @ b - reach, rtol=1e-6)
    np.testing.assert_allclose(upper[0], B @ b + reach, rtol=1e-6)


def test_the_band_of_counts_is_that_of_the_predictor_through_the_link(counts):
    model, X, _ = counts[0]
    at = X[:9]
    panel = np.column_stack([np.ones(9), at])
    lower, upper = expert_bands(model, at, 0, 0.95)
    first = model.inference_.estimates.gate.size
    for k in range(2):
        own = slice(first + 3 * k, first + 3 * k + 3)
        eta = model.intercept_[k] + at @ model.coef_[k]
        se = np.sqrt(np.einsum("ni,ij,nj->n", panel, model.inference_.covariance[own, own], panel))
        q = t.ppf(0.975, model.inference_.degrees_of_freedom().experts[k].min())
        np.testing.assert_allclose(lower[k], np.exp(eta - q * se), rtol=1e-12)
        np.testing.assert_allclose(upper[k], np.exp(eta + q * se), rtol=1e-12)


def test_the_band_of_a_class_is_that_of_its_log_odds_by_the_delta_method(classifier):
    """The gradient of the log odds by the reported coefficients is taken by finite differences."""
    model, X, _ = classifier
    inference, at = model.inference_, X[:5]
    panel = np.column_stack([np.ones(5), at])

    def log_odds(coefficients):  # (C, p)
        eta = panel @ coefficients.T
        p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
        return logit(p[:, 2])

    b = parameters(model.mixture_).experts[0]
    step = 1e-6
    slopes = [log_odds(b + step * e.reshape(b.shape)) - log_odds(b - step * e.reshape(b.shape)) for e in np.eye(b.size)]
    G = np.array(slopes).T / (2 * step)  # (n, C p)
    first = inference.estimates.gate.size
    C = inference.covariance[first : first + b.size, first : first + b.size]
    q = t.ppf(0.975, inference.degrees_of_freedom().experts[0].min())
    reach = q * np.sqrt(np.einsum("ni,ij,nj->n", G, C, G))
    lower, upper = expert_bands(model, at, 2, 0.95)
    np.testing.assert_allclose(lower[0], expit(log_odds(b) - reach), rtol=1e-7)
    np.testing.assert_allclose(upper[0], expit(log_odds(b) + reach), rtol=1e-7)


def test_two_classes_and_the_binomial_family_have_the_same_band():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (rng.random(400) < expit(X[:, 0] - 0.5)).astype(float)
    ridge = {"expert_ridge": 1e-3, "random_state": 0}
    one = MixtureOfExpertsClassifier(1, **ridge).fit(X, y)
    other = MixtureOfRegressions(1, family="binomial", **ridge).fit(X, y)
    lower, upper = expert_bands(one, X[:8], 1, 0.9)
    assert np.all((lower < mean_curves(one, X[:8], 1)) & (mean_curves(one, X[:8], 1) < upper))
    for a, b in zip((lower, upper), expert_bands(other, X[:8], 0, 0.9), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)  # the ridges of the two parametrisations differ
    np.testing.assert_allclose(upper, 1 - expert_bands(one, X[:8], 0, 0.9)[0], rtol=1e-12)


def test_bands_of_several_responses_are_those_of_their_own_coefficients(two_responses):
    model, X, _ = two_responses
    panel = np.column_stack([np.ones(4), X[:4]])
    first = model.inference_.estimates.gate.size
    own = slice(first + 4 + 2, first + 4 + 4)  # expert 1, second response
    se = np.sqrt(np.einsum("ni,ij,nj->n", panel, model.inference_.covariance[own, own], panel))
    lower, upper = expert_bands(model, X[:4], 1, 0.95)
    q = t.ppf(0.975, model.inference_.degrees_of_freedom().experts[1].min())
    np.testing.assert_allclose(upper[1] - lower[1], 2 * q * se, rtol=1e-10)


def test_a_row_of_zeros_has_no_uncertainty_without_an_intercept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    model = MixtureOfRegressions(1, fit_intercept=False, random_state=0).fit(X, 2 * X[:, 0] + rng.normal(size=80))
    lower, upper = expert_bands(model, np.array([[0.0], [1.0]]), 0, 0.95)
    assert lower[0, 0] == upper[0, 0] == 0
    assert lower[0, 1] < model.coef_[0, 0] < upper[0, 1]


@pytest.mark.parametrize("reason", ["withheld", "unknown"])
def test_bounds_are_missing_where_intervals_are_withheld(lines, reason):
    model = copy.copy(lines.model)
    inference = copy.copy(model.inference_)
    if reason == "withheld":
        object.__setattr__(inference, "withheld", {"experts": "a reason"})
    else:
        object.__setattr__(inference, "covariance", np.full_like(inference.covariance, np.nan))
    model.inference_ = inference
    assert np.isnan(expert_bands(model, lines.X, 0, 0.95)).all()


def test_an_expert_without_intervals_leaves_the_others_their_bands(lines):
    model = copy.copy(lines.model)
    model.inference_ = copy.copy(model.inference_)
    object.__setattr__(model.inference_, "withheld", {"expert 0": "it has few rows"})
    ax = plot.experts(model, lines.X, lines.y)
    (band,) = ax.collections[2:]
    assert to_hex(band.get_facecolor()[0]).upper() == mark(1).colour
    assert ax.get_xlabel() == "x0\nIntervals of component 1 withheld: it has few rows."


def test_the_level_is_that_of_the_normal_distribution_for_infinite_degrees_of_freedom(counts):
    model, X, _ = counts[0]
    other = copy.copy(model)
    other.inference_ = copy.copy(model.inference_)
    object.__setattr__(other.inference_, "degrees", None)
    wide, narrow = (
        np.log(expert_bands(other, X[:3], 0, level)[1] / mean_curves(other, X[:3], 0)) for level in (0.99, 0.5)
    )
    np.testing.assert_allclose(wide / narrow, norm.ppf(0.995) / norm.ppf(0.75), rtol=1e-10)


def test_curves_are_the_gate_probabilities(regressor):
    model, X, _ = regressor
    ax = plot.gate(model, X, "age", partial=True)
    assert len(ax.lines) == 3
    x = ax.lines[0].get_xdata()
    at = X.mean().to_frame().T.loc[np.zeros(len(x), dtype=int)].assign(age=x)
    expected = model.predict_gate(at)
    for k, line in enumerate(ax.lines):
        np.testing.assert_allclose(line.get_ydata(), expected[:, k], rtol=0, atol=1e-12)
        assert to_hex(line.get_color()).upper() == mark(k).colour
    assert ax.get_xlabel() == "age\n(other covariates at their means)"
    assert ax.get_ylim() == (-0.02, 1.02)


def test_a_gate_along_an_indicator_ends_at_the_probabilities_of_its_levels(cars):
    model, X, _ = cars
    ax = plot.gate(model, X, "city[True]")
    ends = model.predict_gate(X.assign(city=[False, True] * 250)[:2])
    for k, line in enumerate(ax.lines):
        np.testing.assert_allclose(line.get_ydata()[[0, -1]], ends[:, k], rtol=0, atol=1e-12)


def test_a_map_has_the_shades_of_the_gate_probabilities(regressor):
    model, X, _ = regressor
    ax = plot.gate(model, X, ("age", 1), partial=True)
    (image,) = ax.images
    drawn = image.get_array()
    left, right, bottom, top = image.get_extent()
    side = drawn.shape[0]
    i, j = 7, 150  # row, column
    age = left + (j + 0.5) * (right - left) / side
    dose = bottom + (i + 0.5) * (top - bottom) / side
    at = X.mean().to_frame().T.assign(age=age, dose=dose)
    np.testing.assert_allclose(drawn[i, j], shades(model.predict_gate(at))[0], rtol=0, atol=1e-12)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age\n(other covariates at their means)", "dose")
    likely = {int(k) for k in _likely(model, X)}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"expert {k + 1}" for k in sorted(likely)]


def _likely(model, X):
    """Return the experts that are most probable anywhere on a grid of age and dose."""
    age, dose = (np.linspace(X[name].min(), X[name].max(), 201) for name in ("age", "dose"))
    at = X.mean().to_frame().T.loc[np.zeros(201 * 201, dtype=int)]
    return np.unique(model.predict_gate(at.assign(age=np.tile(age, 201), dose=np.repeat(dose, 201))).argmax(axis=1))


def test_the_border_of_a_map_has_equal_probabilities(binary):
    model, X, _ = binary
    ax = plot.gate(model, X, (0, 1))
    border = ax.collections[1].get_paths()[0].vertices  # after the first entry of the legend
    np.testing.assert_allclose(model.predict_gate(border), 0.5, atol=0.02)  # interpolated between points of the grid
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "x1")


def test_constant_weights_are_level_lines(lines):
    ax = plot.gate(lines.model, lines.X)
    for k, line in enumerate(ax.lines):
        np.testing.assert_allclose(line.get_ydata(), lines.model.predict_gate(lines.X)[0, k], rtol=0, atol=1e-12)


def test_the_gate_along_correlated_covariates_is_that_of_rows_that_exist(correlated):
    _, X, y = correlated
    model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
    ax = plot.gate(model, X, "minutes")
    x = ax.lines[0].get_xdata()
    others = [np.polynomial.Polynomial.fit(X["minutes"], X[name], 1)(x) for name in ("distance", "night")]
    at = X.iloc[np.zeros(len(x), dtype=int)].assign(
        distance=np.clip(others[0], X["distance"].min(), X["distance"].max()), minutes=x, night=np.clip(others[1], 0, 1)
    )
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.predict_gate(at)[:, 0], rtol=0, atol=1e-8)
    assert ax.get_xlabel() == "minutes\n(other covariates at their means given minutes)"
    assert plot.gate(model, feature="minutes").get_xlabel() == "minutes\n(other covariates at their means)"


def test_a_constant_gate_without_a_covariate_is_an_error_that_says_so(correlated):
    with pytest.raises(InvalidInputError, match=r"the gate is constant.*model.weights_"):
        plot.gate(correlated.model, correlated.X)


@pytest.mark.parametrize("feature", [("age", "dose", "body mass index"), ("age", 0), ()])
def test_another_number_of_features_is_an_error(regressor, feature):
    with pytest.raises(InvalidInputError, match="expected one covariate, or two different ones for a map, of 'age'"):
        plot.gate(regressor.model, regressor.X, feature)


def test_an_unknown_feature_of_a_map_is_an_error_that_names_the_known_ones(regressor):
    with pytest.raises(InvalidInputError, match="feature='sex': expected one of 'age', 'dose', 'body mass index'"):
        plot.gate(regressor.model, regressor.X, ("age", "sex"))


@pytest.mark.slow
def test_a_gate_that_reads_one_column_needs_no_name(regressor):
    _, X, y = regressor
    model = MixtureOfExpertsRegressor(2, gate_features=["age"], expert_features=["dose"], random_state=0).fit(X, y)
    assert plot.gate(model, X).get_xlabel() == "age"
    assert plot.experts(model, X, y).get_xlabel().split("\n")[0] == "dose"
    assert "other covariates" not in plot.experts(model, X, y).get_xlabel()
