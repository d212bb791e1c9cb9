import copy

import numpy as np
import pytest
from matplotlib.colors import to_hex

from consilience import GaussianMixture, MixtureOfRegressions, plot
from consilience.columns import Dictionary
from consilience.errors import InvalidInputError, RankDeficientWarning
from consilience.plot.drawing import mark


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def drawn(ax, k):
    """Return the estimates of expert k with an interval, and those without."""
    own = [line for line in ax.lines if line.get_color() == mark(k).colour]
    filled, open_ = own
    assert open_.get_markerfacecolor() == "white"
    return filled.get_xdata(), open_.get_xdata()


@pytest.mark.parametrize("part", ["expert", "gate"])
def test_estimates_and_intervals_are_those_of_to_frame(regressor, part):
    table = regressor.model.to_frame(level=0.9)
    table = table[(table["part"] == part) & (table["term"] != "(intercept)")]
    ax = plot.coefficients(regressor.model, part=part, level=0.9)
    for k in range(3):
        own = table[table["expert"] == k]
        np.testing.assert_allclose(drawn(ax, k)[0], own["estimate"], rtol=0, atol=1e-12)
        bars = np.array([segment[:, 0] for segment in ax.collections[k].get_segments()])
        np.testing.assert_allclose(bars, own[["lower", "upper"]], rtol=0, atol=1e-12)
        assert to_hex(ax.collections[k].get_color()[0]).upper() == mark(k).colour
    assert labels(ax) == ["age", "dose", "body mass index"]
    assert "90 % interval" in ax.get_xlabel()


def test_names_choose_the_terms_and_their_order(regressor):
    ax = plot.coefficients(regressor.model, ["dose", "(intercept)"])
    assert labels(ax) == ["dose", "(intercept)"]
    expected = [regressor.model.coef_[1, 1], regressor.model.intercept_[1]]
    np.testing.assert_allclose(drawn(ax, 1)[0], expected, rtol=0, atol=1e-12)
    assert labels(plot.coefficients(regressor.model, "dose")) == ["dose"]


def test_with_data_coefficients_are_per_standard_deviation(regressor):
    model, X, _ = regressor
    ax = plot.coefficients(model, X=X)
    for k in range(3):
        np.testing.assert_allclose(drawn(ax, k)[0], model.coef_[k] * X.std(ddof=0), rtol=1e-12)
    assert ax.get_xlabel().startswith("coefficient per standard deviation of its covariate, ")


def test_a_withheld_interval_is_an_open_marker_without_a_bar_and_is_named(regressor):
    model = copy.copy(regressor.model)
    model.inference_ = copy.copy(model.inference_)
    object.__setattr__(model.inference_, "withheld", {"experts": "the likelihood is flat"})
    ax = plot.coefficients(model)
    for k in range(3):
        np.testing.assert_allclose(drawn(ax, k)[1], model.coef_[k], rtol=0, atol=1e-12)
        assert len(drawn(ax, k)[0]) == len(ax.collections[k].get_segments()) == 0
    assert ax.get_xlabel() == "coefficient, 95 % interval\nIntervals withheld: the likelihood is flat."
    assert "withheld" not in plot.coefficients(model, part="gate").get_xlabel()
    assert len(ax.get_legend().get_texts()) == 3


def test_a_coefficient_that_is_not_identified_is_an_open_marker_and_is_named(lines):
    X = np.hstack([lines.X, 1 - 2 * lines.X])
    with pytest.warns(RankDeficientWarning):
        model = MixtureOfRegressions(2, random_state=0, n_init=1).fit(X, lines.y)
    ax = plot.coefficients(model)
    assert drawn(ax, 0)[1].tolist() == [0.0]
    assert len(drawn(ax, 0)[0]) == 1
    assert ax.get_xlabel().endswith("Not identified, and set to 0: x1 is a linear function of x0.")
    assert "Not identified" not in plot.coefficients(model, ["x0"]).get_xlabel()


def test_gate_and_experts_show_the_terms_that_they_read(cars):
    model, X, _ = cars
    assert labels(plot.coefficients(model)) == ["age", "fuel[gas]"]
    assert labels(plot.coefficients(model, part="gate")) == ["city[True]"]
    np.testing.assert_allclose(
        drawn(plot.coefficients(model, ["age"], X=X), 0)[0], model.coef_[0, 0] * X["age"].std(ddof=0)
    )


def test_long_names_continue_on_a_new_line(regressor):
    model = copy.copy(regressor.model)
    model.columns_ = Dictionary.of_numbers(["systolic blood pressure at admission (mmHg)", "b", "c"])
    assert labels(plot.coefficients(model))[0] == "systolic blood pressure at\nadmission (mmHg)"


def test_lines_of_several_responses_are_grouped_by_response(two_responses, classifier):
    assert labels(plot.coefficients(two_responses.model)) == ["y0: x0", "y1: x0"]
    assert labels(plot.coefficients(two_responses.model, response="y1")) == ["x0"]
    assert labels(plot.coefficients(classifier.model, ["x1"])) == ["mild: x1", "none: x1", "severe: x1"]


@pytest.mark.slow
def test_components_of_a_gaussian_mixture_have_means(lines):
    model = GaussianMixture(2, random_state=0).fit(np.column_stack([lines.X, lines.y]))
    ax = plot.coefficients(model)
    assert labels(ax) == ["x0", "x1"]
    np.testing.assert_allclose(drawn(ax, 1)[0], model.means_[1], rtol=0, atol=1e-12)


def test_other_parts_are_those_of_to_frame(lines):
    table = lines.model.to_frame()
    for part in ("weight", "log_variance"):
        ax = plot.coefficients(lines.model, part=part)
        expected = table.loc[(table["part"] == part) & (table["expert"] == 0), "estimate"]
        np.testing.assert_allclose(np.concatenate(drawn(ax, 0)), expected, rtol=0, atol=1e-12)
        assert labels(ax) == [part.replace("_", " ")]


def test_a_new_figure_is_as_high_as_it_needs_to_be(regressor):
    few, all_ = plot.coefficients(regressor.model, ["age"]), plot.coefficients(regressor.model)
    assert few.figure.get_figheight() < all_.figure.get_figheight()


def test_unknown_arguments_are_errors_that_name_the_known_ones(regressor):
    with pytest.raises(InvalidInputError, match="names='sex': expected one of '\\(intercept\\)', 'age', 'dose'"):
        plot.coefficients(regressor.model, ["sex"])
    with pytest.raises(InvalidInputError, match="part='slope': expected one of 'gate', 'expert', 'log_variance'"):
        plot.coefficients(regressor.model, part="slope")
    with pytest.raises(InvalidInputError, match="response='z': expected one of 'y'"):
        plot.coefficients(regressor.model, response="z")
