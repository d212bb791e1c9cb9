"""What pictures share: Matplotlib, marks of experts, and names of covariates and responses."""

from __future__ import annotations

import subprocess
import sys
from copy import copy

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from consilience import GaussianMixture, MixtureOfExpertsRegressor, MixtureOfRegressions, plot
from consilience.errors import InvalidInputError
from consilience.plot.along import rows_at
from consilience.plot.drawing import (
    COLOURS,
    GREY,
    find_place,
    mark,
    prepare_axes,
    pyplot,
    response_label,
    response_place,
    rgb,
    shades,
)


def test_the_import_error_names_the_command_that_installs_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"consilience.plot needs Matplotlib: pip install 'consilience\[plot\]'"):
        pyplot()


@pytest.mark.slow  # a new process imports the library
def test_importing_the_pictures_does_not_import_matplotlib():
    code = "import sys, consilience; consilience.plot.gate; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_axes_are_new_unless_they_are_given():
    _, ax = plt.subplots()
    assert prepare_axes(ax) is ax
    assert prepare_axes(None).figure is not ax.figure
    assert not ax.spines["top"].get_visible()


def test_marks_of_experts_differ_in_colour_and_line():
    found = {(mark(k).colour, mark(k).line) for k in range(35)}
    assert len(found) == 35
    assert len({mark(k).colour for k in range(7)}) == len({mark(k).marker for k in range(9)}) - 2 == 7


def test_rgb_is_that_of_matplotlib():
    for colour in (*COLOURS, GREY):
        np.testing.assert_allclose(rgb(colour), to_rgb(colour), rtol=0, atol=1e-15)


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
DEFICIENCY = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


@pytest.mark.parametrize("deficiency", DEFICIENCY)
def test_colours_differ_for_readers_with_a_colour_vision_deficiency(deficiency):
    linear = np.array([rgb(colour) for colour in COLOURS]) ** 2.2
    seen = np.clip(linear @ np.array(DEFICIENCY[deficiency]).T, 0, 1) ** (1 / 2.2)
    gaps = np.linalg.norm(seen[:, None] - seen, axis=2)[np.triu_indices(len(COLOURS), 1)]
    assert gaps.min() > 0.15


def test_shades_have_the_hue_of_the_most_probable_expert_and_fade_to_grey():
    even, sure, half = shades(np.array([[1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0], [1 / 6, 2 / 3, 1 / 6]]))
    np.testing.assert_allclose(even, rgb(GREY), atol=1e-15)
    np.testing.assert_allclose(sure, rgb(mark(1).colour), atol=1e-15)
    np.testing.assert_allclose(half, (rgb(GREY) + rgb(mark(1).colour)) / 2, atol=1e-15)


def test_the_shade_of_a_single_expert_is_its_colour():
    np.testing.assert_array_equal(shades(np.ones((2, 1))), [rgb(mark(0).colour)] * 2)


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


def test_the_others_of_a_partial_picture_are_held_at_their_means():
    X = np.random.default_rng(0).normal(size=(50, 3))
    values = np.array([[0.0], [5.0]])
    rows = rows_at(X, [1], values, partial=True)
    np.testing.assert_array_equal(rows[:, [1]], values)
    np.testing.assert_array_equal(rows[:, [0, 2]], np.tile(X.mean(axis=0)[[0, 2]], (2, 1)))


def test_the_others_are_at_their_means_given_the_covariate_within_their_range():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 500)
    X = np.column_stack([x, 3 - 2 * x, rng.normal(size=500), (x > 0) * 1.0])
    values = np.linspace(-1, 1, 5)[:, None]
    rows = rows_at(X, [0], values, partial=False)
    np.testing.assert_allclose(rows[1:4, 1], 3 - 2 * values[1:4, 0], rtol=0, atol=1e-10)
    fitted = np.polynomial.Polynomial.fit(x, X[:, 2], 1)(values[:, 0])
    np.testing.assert_allclose(rows[:, 2], fitted, rtol=0, atol=1e-10)
    assert np.all((X.min(axis=0) <= rows)[:, 1:] & (rows <= X.max(axis=0))[:, 1:])
    assert rows[0, 1] == X[:, 1].max()  # 5 is outside


def test_the_others_at_a_level_are_at_the_means_of_its_rows():
    rng = np.random.default_rng(0)
    level = rng.integers(3, size=300)
    X = np.column_stack([level == 1, level == 2, rng.normal(size=300) + level]).astype(float)
    rows = rows_at(X, [0, 1], np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), partial=False)
    np.testing.assert_allclose(rows[:, 2], [X[level == v, 2].mean() for v in range(3)], rtol=0, atol=1e-10)


def test_one_of_several_responses_must_be_chosen(two_responses, classifier):
    with pytest.raises(
        InvalidInputError, match="the model has 2 responses: choose one with response=, of 'motor', 'total'"
    ):
        plot.experts(*two_responses)
    with pytest.raises(InvalidInputError, match="3 classes: choose one with response=, of 'mild', 'none', 'severe'"):
        plot.calibration(*classifier)
    with pytest.raises(InvalidInputError, match="response='bad': expected one of the classes 'mild', 'none', 'severe'"):
        plot.calibration(*classifier, response="bad")
    with pytest.raises(
        InvalidInputError, match="response='UPDRS': expected one of 'motor', 'total', or a number from 0 to 1"
    ):
        plot.experts(*two_responses, response="UPDRS")


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
    assert response_label(two_responses.model, two_responses.y.to_numpy(), 1) == "total"
    assert response_label(lines.model, lines.y, 0) == "y"
    assert response_label(binary.model, binary.y, 1) == "P(y = 1)"
    named = copy(binary.model)
    named.response_names_ = ("dead",)
    assert response_label(named, binary.y, 1) == "P(dead = 1)"


@pytest.mark.parametrize("level", [0, 1, 95])
def test_a_level_outside_0_and_1_is_an_error(regressor, level):
    for draw in (
        lambda: plot.experts(*regressor, 0, level=level),
        lambda: plot.coefficients(regressor.model, level=level),
        lambda: plot.calibration(*regressor, level=level),
    ):
        with pytest.raises(InvalidInputError, match=f"level={level}: expected a number strictly between 0 and 1"):
            draw()
