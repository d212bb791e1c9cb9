"""Forest plots of coefficients, and criteria for the number of experts."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from matplotlib.colors import to_hex

from consilience import GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions, plot, select_order
from consilience.columns import Dictionary
from consilience.errors import InvalidInputError, RankDeficientWarning
from consilience.federation import FederatedOrders
from consilience.plot.drawing import mark


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def drawn(ax, k):
    """Return the estimates of expert k with an interval, and those without."""
    filled, open_ = [line for line in ax.lines if line.get_color() == mark(k).colour][:2]
    assert open_.get_markerfacecolor() == "white"
    return filled.get_xdata(), open_.get_xdata()


@pytest.mark.parametrize("part", ["expert", "gate"])
def test_estimates_and_intervals_are_those_of_to_frame(regressor, part):
    table = regressor.model.to_frame(level=0.9)
    table = table[(table["part"] == part) & (table["term"] != "(intercept)")]
    ax = plot.coefficients(regressor.model, standardised=False, part=part, level=0.9)
    for k in range(3):
        own = table[table["expert"] == k]
        np.testing.assert_allclose(drawn(ax, k)[0], own["estimate"], rtol=0, atol=1e-12)
        bars = np.array([segment[:, 0] for segment in ax.collections[k].get_segments()])
        np.testing.assert_allclose(bars, own[["lower", "upper"]], rtol=0, atol=1e-12)
        assert to_hex(ax.collections[k].get_color()[0]).upper() == mark(k).colour
    assert labels(ax) == ["age", "dose", "body mass index"]
    assert "90 % interval" in ax.get_xlabel()


def test_names_choose_the_terms_and_their_order(regressor):
    ax = plot.coefficients(regressor.model, ["dose", "(intercept)"], standardised=False)
    assert labels(ax) == ["dose", "(intercept)"]
    expected = [regressor.model.coef_[1, 1], regressor.model.intercept_[1]]
    np.testing.assert_allclose(drawn(ax, 1)[0], expected, rtol=0, atol=1e-12)
    assert labels(plot.coefficients(regressor.model, "dose")) == ["dose"]


@pytest.mark.parametrize("part", ["expert", "gate"])
def test_coefficients_are_per_standard_deviation(regressor, part):
    model, X, _ = regressor
    ax = plot.coefficients(model, part=part)
    table = model.to_frame()
    table = table[(table["part"] == part) & (table["term"] != "(intercept)")]
    for k in range(3):
        own, deviations = table[table["expert"] == k], X.std(ddof=0).to_numpy()
        np.testing.assert_allclose(drawn(ax, k)[0], own["estimate"] * deviations, rtol=1e-9)
        bars = np.array([segment[:, 0] for segment in ax.collections[k].get_segments()])
        np.testing.assert_allclose(bars, own[["lower", "upper"]].to_numpy() * deviations[:, None], rtol=1e-9)
    assert " per standard deviation, 95 % interval" in ax.get_xlabel()


def test_a_unit_of_a_covariate_does_not_change_the_picture(lines):
    finer = MixtureOfRegressions(2, random_state=0).fit(1000 * lines.X, lines.y)
    for k in range(2):
        one, other = drawn(plot.coefficients(lines.model), k)[0], drawn(plot.coefficients(finer), k)[0]
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_coefficient_of_a_category_compares_it_with_its_reference(cars):
    model, X, _ = cars
    ax = plot.coefficients(model)
    np.testing.assert_allclose(drawn(ax, 0)[0], model.coef_[0, :2] * [X["age"].std(ddof=0), 1.0], rtol=1e-9)
    assert ax.get_xlabel() == (
        "coefficient per standard deviation\n(of a category: against its reference), 95 % interval"
    )
    assert plot.coefficients(model, ["fuel[gas]"]).get_xlabel() == "coefficient, 95 % interval"


@pytest.fixture(scope="module")
def outlier():
    """Return a model of which one of eight coefficients is a hundred times the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 8))
    y = X @ [1.0, -1.0, 0.5, 100.0, 1.0, -0.5, 0.8, 1.2] + rng.normal(size=400)
    return MixtureOfExpertsRegressor(1, random_state=0).fit(X, y)


def test_the_axis_is_cut_before_an_outlier_whose_number_stands_at_an_arrow(outlier):
    ax = plot.coefficients(outlier)
    low, high = ax.get_xlim()
    inside = np.delete(drawn(ax, 0)[0], 3)
    assert np.all((low < inside) & (inside < high))
    assert high < 5
    (arrow,) = [line for line in ax.lines if line.get_marker() == ">"]
    np.testing.assert_allclose(arrow.get_data(), [[high], [3.0]])
    (number,) = ax.texts
    table = outlier.to_frame()
    own = table[(table["part"] == "expert") & (table["term"] == "x3")].iloc[0]
    shown = own[["estimate", "lower", "upper"]] * outlier.coordinates_[0].scale[3]
    assert number.get_text() == "{:.4g} [{:.4g}, {:.4g}]".format(*shown)
    assert number.xy == (high, 3.0)
    assert ax.get_xlabel().endswith("\n(arrow: beyond the axis)")


def test_the_axis_is_not_cut_without_an_outlier(outlier, regressor):
    for ax in (plot.coefficients(outlier, ["x0", "x1", "x2"]), plot.coefficients(regressor.model)):
        assert not ax.texts
        assert not [line for line in ax.lines if line.get_marker() in "<>"]
        assert "arrow" not in ax.get_xlabel()


def test_an_interval_that_is_cut_ends_in_an_arrow_without_a_number(outlier):
    model = copy.copy(outlier)
    model.inference_ = copy.copy(outlier.inference_)
    covariance = outlier.inference_.covariance.copy()
    first = outlier.inference_.estimates.gate.size
    covariance[first + 1, first + 1] *= 1e6  # of x0, after the intercept
    object.__setattr__(model.inference_, "covariance", covariance)
    ax = plot.coefficients(model, ["x0", "x1", "x2", "x4", "x5", "x6", "x7"])
    assert not ax.texts
    assert {line.get_marker() for line in ax.lines} & {"<", ">"} == {"<", ">"}


def test_a_withheld_interval_is_an_open_marker_without_a_bar_and_is_named(regressor):
    model = copy.copy(regressor.model)
    model.inference_ = copy.copy(model.inference_)
    object.__setattr__(model.inference_, "withheld", {"experts": "the likelihood is flat"})
    ax = plot.coefficients(model, standardised=False)
    for k in range(3):
        np.testing.assert_allclose(drawn(ax, k)[1], model.coef_[k], rtol=0, atol=1e-12)
        assert len(drawn(ax, k)[0]) == len(ax.collections[k].get_segments()) == 0
    assert ax.get_xlabel() == "coefficient, 95 % interval\nIntervals withheld: the likelihood is flat."
    assert "withheld" not in plot.coefficients(model, part="gate").get_xlabel()
    assert len(ax.get_legend().get_texts()) == 3


def test_an_expert_whose_intervals_are_withheld_leaves_the_others_theirs(regressor):
    model = copy.copy(regressor.model)
    model.inference_ = copy.copy(model.inference_)
    object.__setattr__(model.inference_, "withheld", {"expert 1": "it has few rows"})
    ax = plot.coefficients(model)
    assert [len(drawn(ax, k)[1]) for k in range(3)] == [0, 3, 0]
    assert ax.get_xlabel().endswith("interval\nIntervals of expert 2 withheld: it has few rows.")
    object.__setattr__(model.inference_, "withheld", {"expert 0": "few rows", "expert 2": "few rows"})
    assert plot.coefficients(model).get_xlabel().endswith("\nIntervals of expert 1 and expert 3 withheld: few rows.")


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
    model = cars.model
    assert labels(plot.coefficients(model)) == ["age", "fuel[gas]"]
    assert labels(plot.coefficients(model, part="gate")) == ["city[True]"]


def test_long_names_continue_on_a_new_line(regressor):
    model = copy.copy(regressor.model)
    model.columns_ = Dictionary.of_numbers(["systolic blood pressure at admission (mmHg)", "b", "c"])
    assert labels(plot.coefficients(model))[0] == "systolic blood pressure at\nadmission (mmHg)"


def test_lines_of_several_responses_are_grouped_by_response(two_responses, classifier):
    assert labels(plot.coefficients(two_responses.model)) == ["motor: x0", "total: x0"]
    assert labels(plot.coefficients(two_responses.model, response="total")) == ["x0"]
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
    with pytest.raises(InvalidInputError, match="response='z': expected one of 'pressure'"):
        plot.coefficients(regressor.model, response="z")


RINGS = 12


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(0, 1, (100, 1)), rng.normal(8, 1, (100, 1))])


@pytest.fixture(scope="module")
def selection(X):
    return select_order(GaussianMixture(random_state=0), X, orders=[1, 3, 2], folds=3)


def curves(ax):
    """Return the curve of each criterion by its label."""
    return {container.get_label(): container.lines[0].get_data() for container in ax.containers}


def rings(ax):
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_markersize() == RINGS]


@pytest.mark.slow
def test_curves_are_the_criteria_by_increasing_order(selection):
    ax = plot.orders(selection)
    found = curves(ax)
    assert list(found) == ["AIC", "BIC", "ICL", "cross-validation ± SE"]
    for name in ("aic", "bic", "icl"):
        x, y = found[name.upper()]
        np.testing.assert_array_equal(x, [1, 2, 3])
        np.testing.assert_allclose(y, np.array(selection.scores[name])[[0, 2, 1]], rtol=1e-12)
    np.testing.assert_allclose(found["cross-validation ± SE"][1], -400 * np.array(selection.scores["cv"])[[0, 2, 1]])
    bars = ax.containers[3].lines[2][0].get_segments()
    half = np.array([segment[1, 1] - segment[0, 1] for segment in bars]) / 2
    np.testing.assert_allclose(half, 400 * np.array(selection.scores["cv_std_error"])[[0, 2, 1]])
    assert ax.get_xlabel().startswith("number of components")


def test_rings_are_at_the_preferred_orders(selection):
    ax = plot.orders(selection)
    names = ("aic", "bic", "icl", "cv")
    assert [x for x, _ in rings(ax)] == [selection.preferred(name) for name in names]
    assert rings(ax)[1][1] == min(selection.scores["bic"])


def test_doubtful_fits_are_open_markers_and_are_explained(X):
    with warnings.catch_warnings(action="ignore"):  # one iteration is not enough
        doubtful = select_order(GaussianMixture(random_state=0, max_iter=1, n_init=1, tol=0), X, orders=[1, 4])
    assert not all(model.converged_ for model in doubtful.estimators)
    ax = plot.orders(doubtful)
    assert "open marker: not converged" in ax.get_xlabel()
    open_ = [line.get_xdata() for line in ax.lines if line.get_markerfacecolor() == "white"]
    expected = [K for K, model in zip((1, 4), doubtful.estimators, strict=True) if not model.converged_]
    np.testing.assert_array_equal(open_[0], expected)


def test_an_open_marker_is_drawn_above_the_curve_with_its_filled_marker(X):
    with warnings.catch_warnings(action="ignore"):  # one iteration is not enough
        doubtful = select_order(GaussianMixture(random_state=0, max_iter=1, n_init=1, tol=0), X, orders=[1, 4])
    ax = plot.orders(doubtful)
    covered = max(part.get_zorder() for container in ax.containers for part in container.get_children())
    open_ = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert len(open_) == 3
    assert min(line.get_zorder() for line in open_) > covered


@pytest.mark.slow
def test_a_federated_selection_has_aic_and_bic(federation):
    with warnings.catch_warnings(action="ignore"):  # far is unlike the others
        found = federation.select_order(MixtureOfRegressions(random_state=0, n_init=1), [1, 2])
    ax = plot.orders(found)
    np.testing.assert_allclose(curves(ax)["BIC"][1], [fit.bic for fit in found.fits], rtol=1e-12)
    np.testing.assert_allclose(curves(ax)["AIC"][1], [fit.aic for fit in found.fits], rtol=1e-12)
    assert rings(ax)[1][0] == found.best_order


def test_something_else_is_an_error(lines):
    with pytest.raises(
        InvalidInputError, match="selection is a MixtureOfRegressions: expected the result of select_or"
    ):
        plot.orders(lines.model)


def test_a_method_with_one_model_per_site_has_no_criteria(shared):
    with pytest.raises(InvalidInputError, match="AIC is not defined for a method that fits one mixture per site"):
        plot.orders(FederatedOrders((2,), (shared,), "bic"))
