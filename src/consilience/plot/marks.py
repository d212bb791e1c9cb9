"""Colour, marker and line style of each expert, the same in every picture.

Colours are those of Okabe and Ito, which people with a colour vision deficiency can tell apart, without yellow. They
belong to experts: everything else is drawn in black and grey.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from consilience.numerics.arrays import Array

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2, 1, 2, 1, 2)))
GREY = "#B3B3B3"
"""Colour of what belongs to no expert, and of a row that every expert explains equally well."""
MANY = 2000
"""Number of points above which a picture stores them as an image, so that the file stays small."""


class Mark(NamedTuple):
    """Colour, marker and line style of one expert."""

    colour: str
    marker: str
    line: Any


def mark(k: int) -> Mark:
    """Return the mark of expert ``k``; no two of the first 35 are equal in colour and line style.

    Examples
    --------
    >>> mark(0).colour, mark(1).marker
    ('#0072B2', 's')
    """
    return Mark(COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)], LINES[k % len(LINES)])


def rgb(colour: str) -> Array:
    """Return red, green and blue of a colour ``#RRGGBB``, from 0 to 1.

    Examples
    --------
    >>> rgb("#FF0000")
    array([1., 0., 0.])
    """
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def shades(probabilities: Array) -> Array:
    """Return the colours ``(..., 3)`` of probabilities ``(..., K)`` of the experts.

    The hue is that of the most probable expert, so that it never resembles that of another. It fades to grey as its
    probability falls from 1 to 1 / K.

    Examples
    --------
    >>> shades(np.array([[0.5, 0.5], [1.0, 0.0]])).round(2)
    array([[0.7 , 0.7 , 0.7 ],
           [0.  , 0.45, 0.7 ]])
    """
    K = probabilities.shape[-1]
    colours = np.array([rgb(mark(k).colour) for k in range(K)])
    top = np.take_along_axis(probabilities, probabilities.argmax(axis=-1)[..., None], axis=-1)
    certainty = np.clip((top - 1 / K) / (1 - 1 / K), 0.0, 1.0) if K > 1 else np.ones_like(top)
    found: Array = rgb(GREY) + certainty * (colours[probabilities.argmax(axis=-1)] - rgb(GREY))
    return found
