"""Every picture can be drawn and saved, into a new figure and into given Axes, with all text inside the figure."""

import io

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from consilience import plot

PICTURES = {
    "experts": lambda f, **ax: plot.experts(*f("regressor"), "age", **ax),
    "experts of classes": lambda f, **ax: plot.experts(*f("binary"), 0, **ax),
    "gate": lambda f, **ax: plot.gate(*f("regressor")[:2], "age", **ax),
    "map": lambda f, **ax: plot.gate(*f("regressor")[:2], ("age", "dose"), **ax),
    "coefficients": lambda f, **ax: plot.coefficients(f("regressor").model, **ax),
    "calibration": lambda f, **ax: plot.calibration(*f("regressor"), **ax),
    "reliability": lambda f, **ax: plot.calibration(*f("binary"), **ax),
    "convergence": lambda f, **ax: plot.convergence(f("lines").model, **ax),
    "sites": lambda f, **ax: plot.sites(f("combined"), "x0", **ax),
    "sites of a centre": lambda f, **ax: plot.sites(f("shared"), "x0", **ax),
    "transport": lambda f, **ax: plot.transport(f("combined"), **ax),
    "sharing": lambda f, **ax: plot.sharing(f("shared"), **ax),
    "shares": lambda f, **ax: plot.shares(f("own_gates"), **ax),
}


def outside(figure) -> float:
    """Return how far ink reaches out of the figure, in inches."""
    figure.canvas.draw()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    return max(-box.x0, -box.y0, box.x1 - width, box.y1 - height)


@pytest.mark.slow
@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_a_new_figure_holds_all_of_its_text(draw, request):
    ax = draw(request.getfixturevalue)
    assert outside(ax.figure) < 0.02


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_given_axes_are_returned_and_no_figure_is_made(draw, request):
    figure, ax = plt.subplots()
    assert draw(request.getfixturevalue, ax=ax) is ax
    assert plt.get_fignums() == [figure.number]


@pytest.mark.slow
def test_a_picture_can_be_saved_as_vectors(regressor):
    file = io.BytesIO()
    plot.experts(*regressor, "age").figure.savefig(file, format="svg")
    assert b"<image" not in file.getvalue()
    many = plot.experts(regressor.model, *(pd.concat([v, v]) for v in (regressor.X, regressor.y)), 0)
    file = io.BytesIO()
    many.figure.savefig(file, format="svg")
    assert b"<image" in file.getvalue()
