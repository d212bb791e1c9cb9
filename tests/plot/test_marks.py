import numpy as np
import pytest
from matplotlib.colors import to_rgb

from consilience.plot.drawing import COLOURS, GREY, mark, rgb, shades


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
