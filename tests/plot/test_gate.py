import numpy as np
import pytest
from matplotlib.colors import to_hex

from consilience import MixtureOfExpertsRegressor, plot
from consilience.errors import InvalidInputError
from consilience.plot.drawing import mark, shades


def test_curves_are_the_gate_probabilities(regressor):
    model, X, _ = regressor
    ax = plot.gate(model, X, "age")
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
    ax = plot.gate(model, X, ("age", 1))
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
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"expert {k}" for k in sorted(likely)]


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
