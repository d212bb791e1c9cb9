import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from consilience import GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions, plot
from consilience.errors import InvalidInputError
from consilience.plot.drawing import find_place, grid_along, response_label, response_place

OF_A_MODEL = {
    "experts": lambda model: plot.experts(model, np.zeros((3, 1)), np.zeros(3)),
    "gate": lambda model: plot.gate(model, np.zeros((3, 1))),
    "coefficients": plot.coefficients,
    "posteriors": lambda model: plot.posteriors(model, np.zeros((3, 1)), np.zeros(3)),
    "calibration": lambda model: plot.calibration(model, np.zeros((3, 1)), np.zeros(3)),
    "convergence": plot.convergence,
}


@pytest.mark.parametrize("draw", OF_A_MODEL.values(), ids=OF_A_MODEL)
def test_a_model_that_is_not_fitted_is_an_error(draw):
    with pytest.raises(NotFittedError, match="MixtureOfExpertsRegressor instance is not fitted yet"):
        draw(MixtureOfExpertsRegressor())


@pytest.mark.parametrize("draw", OF_A_MODEL.values(), ids=OF_A_MODEL)
def test_a_model_of_another_kind_is_an_error_that_says_what_to_pass(draw):
    with pytest.raises(
        InvalidInputError, match=r"model is a Pipeline: expected a fitted estimator.*pass the last step"
    ):
        draw(make_pipeline(MixtureOfRegressions()))


@pytest.mark.parametrize("name", ["experts", "gate"])
def test_a_gaussian_mixture_is_an_error_where_a_regression_is_needed(name):
    X = np.random.default_rng(0).normal(size=(100, 1))
    model = GaussianMixture(1, random_state=0).fit(X)
    with pytest.raises(InvalidInputError, match="GaussianMixture, which has no covariates: expected a mixture of expe"):
        OF_A_MODEL[name](model)


@pytest.mark.parametrize("wanted", ["weight", 3, -1, True, 1.0, None])
def test_an_unknown_feature_is_an_error_that_names_the_known_ones(regressor, wanted):
    message = "expected one of 'age', 'dose', 'body mass index', or a number from 0 to 2"
    with pytest.raises(InvalidInputError, match=f"feature={wanted!r}: {message}"):
        plot.experts(*regressor, wanted)
    with pytest.raises(InvalidInputError, match=f"feature={wanted!r}: {message}"):
        plot.gate(regressor.model, regressor.X, wanted)


def test_an_error_names_at_most_twenty_features():
    with pytest.raises(InvalidInputError, match=r"'x19', … \(50 in all\)"):
        find_place("z", [f"x{j}" for j in range(50)], "feature")


def test_numpy_integers_are_numbers():
    assert find_place(np.int64(1), ["a", "b"], "feature") == 1


def test_the_other_covariates_are_held_at_their_means():
    X = np.random.default_rng(0).normal(size=(50, 3))
    values, rows = grid_along(X, 1)
    assert (values[0], values[-1]) == (X[:, 1].min(), X[:, 1].max())
    np.testing.assert_array_equal(rows[:, 1], values)
    np.testing.assert_array_equal(rows[:, [0, 2]], np.tile(X.mean(axis=0)[[0, 2]], (len(values), 1)))


def test_one_of_several_responses_must_be_chosen(two_responses, classifier):
    with pytest.raises(InvalidInputError, match="the model has 2 responses: choose one with response=, of 'y0', 'y1'"):
        plot.experts(*two_responses)
    with pytest.raises(InvalidInputError, match="3 classes: choose one with response=, of 'mild', 'none', 'severe'"):
        plot.calibration(*classifier)
    with pytest.raises(InvalidInputError, match="response='bad': expected one of the classes 'mild', 'none', 'severe'"):
        plot.calibration(*classifier, response="bad")
    with pytest.raises(
        InvalidInputError, match="response='motor': expected one of 'y0', 'y1', or a number from 0 to 1"
    ):
        plot.experts(*two_responses, response="motor")


def test_the_second_of_two_classes_is_shown_unless_another_is_chosen(binary):
    assert response_place(binary.model, None) == 1
    assert [response_place(binary.model, 0), response_place(binary.model, "0"), response_place(binary.model, 1.0)] == [
        0,
        0,
        1,
    ]


def test_labels_of_responses_are_the_names_of_columns(regressor, two_responses, binary, lines):
    assert response_label(regressor.model, regressor.y, 0) == "pressure"
    assert response_label(two_responses.model, two_responses.y, 1) == "total"
    assert response_label(two_responses.model, two_responses.y.to_numpy(), 1) == "y1"
    assert response_label(lines.model, lines.y, 0) == "y"
    assert response_label(binary.model, binary.y, 1) == "P(y = 1)"


@pytest.mark.parametrize("level", [0, 1, 95])
def test_a_level_outside_0_and_1_is_an_error(regressor, level):
    for draw in (
        lambda: plot.experts(*regressor, 0, level=level),
        lambda: plot.coefficients(regressor.model, level=level),
        lambda: plot.calibration(*regressor, level=level),
    ):
        with pytest.raises(InvalidInputError, match=f"level={level}: expected a number strictly between 0 and 1"):
            draw()
