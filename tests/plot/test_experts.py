import copy
import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.markers import MarkerStyle

from consilience import MixtureOfExpertsRegressor, plot
from consilience.federation import FederatedFit
from consilience.plot.curves import expert_bands
from consilience.plot.drawing import mark, shades


def points(ax, K) -> Sequence:
    """Return the collections of points, one for each expert."""
    return ax.collections[:K]


def test_lines_are_the_means_of_the_experts_with_the_others_at_their_means(regressor):
    model, X, _ = regressor
    ax = plot.experts(*regressor, "dose")
    assert len(ax.lines) == 3
    for k, line in enumerate(ax.lines):
        x, y = line.get_data()
        at = np.tile(X.mean().to_numpy(), (len(x), 1))
        at[:, 1] = x
        np.testing.assert_allclose(y, model.intercept_[k] + at @ model.coef_[k], rtol=0, atol=1e-12)
        assert to_hex(line.get_color()).upper() == mark(k).colour
    assert (x[0], x[-1]) == (X["dose"].min(), X["dose"].max())


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
    assert ax.get_xlabel() == "body mass index\n(other covariates at their means)"
    assert ax.get_ylabel() == "pressure"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["expert 0", "expert 1", "expert 2"]
    ax = plot.experts(*lines)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "y")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["component 0", "component 1"]


def test_a_name_and_a_number_give_the_same_picture(regressor):
    one, other = plot.experts(*regressor, "dose"), plot.experts(*regressor, 1)
    np.testing.assert_array_equal(one.lines[2].get_ydata(), other.lines[2].get_ydata())


def test_indicators_of_categories_are_held_at_their_means(cars):
    model, X, _ = cars
    ax = plot.experts(*cars, "age")
    assert len(ax.collections) == 4  # points and bands
    for k, line in enumerate(ax.lines):
        gas = np.mean(X["fuel"] == "gas")
        expected = model.intercept_[k] + model.coef_[k, 0] * line.get_xdata() + model.coef_[k, 1] * gas
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=0, atol=1e-12)


def test_counts_are_divided_by_their_exposure(counts):
    (model, X, y), exposure = counts
    ax = plot.experts(model, X, y, 0, exposure=exposure)
    drawn = np.sort(np.concatenate([part.get_offsets()[:, 1] for part in points(ax, 2)]))
    np.testing.assert_allclose(drawn, np.sort(y / exposure), rtol=1e-12)
    assert ax.get_ylabel() == "y / exposure"
    x = ax.lines[0].get_xdata()
    at = np.column_stack([x, np.full(len(x), X[:, 1].mean())])
    expected = np.exp(model.intercept_[1] + at @ model.coef_[1])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), expected, rtol=1e-12)


def test_the_axis_is_cut_if_a_small_exposure_gives_a_far_rate(counts):
    (model, X, y), exposure = counts
    small = exposure.copy()
    small[y.argmax()] = 1e-3
    ax = plot.experts(model, X, y, 0, exposure=small)
    above = np.sum(y / small > ax.get_ylim()[1])
    assert 0 < above <= 5
    assert ax.get_ylabel() == f"y / exposure\n(rows above, not shown: {above})"
    assert max(line.get_ydata().max() for line in ax.lines) < ax.get_ylim()[1] < y.max() / 1e-3


def test_a_class_is_drawn_above_one_and_the_others_below_zero(binary):
    model, X, y = binary
    ax = plot.experts(model, X, y, 0, response=0)
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
