"""Arrays of numbers as JSON lists: null is NaN, and infinite numbers are the words "Infinity" and "-Infinity"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.numerics.arrays import Array

WORDS = {np.inf: "Infinity", -np.inf: "-Infinity"}


def listed(values: Array) -> list[Any]:
    """Return an array as nested lists.

    Examples
    --------
    >>> listed(np.array([0.1, np.nan, -np.inf]))
    [0.1, None, '-Infinity']
    """
    found: list[Any] = values.tolist() if np.all(np.isfinite(values)) else _words(values).tolist()
    return found


def _words(values: Array) -> np.ndarray:
    words = values.astype(object)
    for number, word in WORDS.items():
        words[values == number] = word
    words[np.isnan(values)] = None
    return words


def array(values: Sequence[Any], axes: Sequence[int], name: str) -> Array:
    """Return nested lists as an array with one of the given numbers of axes; raise an error if they are ragged.

    Examples
    --------
    >>> array([[1.0, None], ["Infinity", 2]], [2], "B")
    array([[ 1., nan],
           [inf,  2.]])
    """
    try:
        found = np.array(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"{name} has rows of different lengths") from error
    if found.ndim not in axes or not found.size:
        expected = " or ".join(map(str, axes))
        raise InvalidInputError(f"{name} is a list of shape {found.shape}; expected numbers on {expected} levels")
    return found


def vector(values: Sequence[Any], size: int, name: str) -> Array:
    """Return a list of ``size`` numbers as an array."""
    if len(values) != size:
        raise InvalidInputError(f"{name} has {len(values)} numbers; expected {size}")
    return np.array(values, dtype=np.float64)


def number(value: float) -> float | str | None:
    """Return a float as a JSON value.

    Examples
    --------
    >>> number(float("nan")), number(0.5)
    (None, 0.5)
    """
    return None if np.isnan(value) else WORDS.get(value, float(value))


def real(value: float | str | None) -> float:
    """Return the float of a JSON value, the inverse of :func:`number`.

    Examples
    --------
    >>> real("Infinity"), real(None)
    (inf, nan)
    """
    return np.nan if value is None else float(value)
