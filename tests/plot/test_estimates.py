"""Forest plots of coefficients, and criteria for the number of experts."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from matplotlib.colors import to_hex

from consilience import GaussianMixture, MixtureOfRegressions, plot, select_order
from consilience.columns import Dictionary
from consilience.errors import InvalidInputError, RankDeficientWarning
from consilience.federation import FederatedOrders
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
