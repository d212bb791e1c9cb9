"""What pictures share: Matplotlib and its Axes, marks of experts, and the model, covariates and responses by name.

Colours are those of Okabe and Ito, which people with a colour vision deficiency can tell apart, without yellow. They
belong to experts: everything else is drawn in black and grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from numbers import Integral
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from consilience.columns import frames
from consilience.errors import InvalidInputError
from consilience.fitted import protocols
from consilience.fitted.protocols import FederatedResult, FittedMixture, response_names, term_names
from consilience.numerics.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 6.4, 4.0
"""Size of a new figure in inches."""


def pyplot() -> Any:
    """Import ``matplotlib.pyplot``, or raise an error with the command that installs it."""
    try:
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("consilience.plot needs Matplotlib: pip install 'consilience[plot]'") from error


def prepare_axes(ax: Axes | None, height: float = HEIGHT) -> Axes:
    """Return the given Axes, or those of a new figure, without the frame's upper and right line."""
    plt = pyplot()
    found: Axes = plt.subplots(figsize=(WIDTH, height), layout="constrained")[1] if ax is None else ax
    remove_frame(found)
    return found


def remove_frame(ax: Axes) -> None:
    """Remove the upper and the right line of the frame."""
    ax.spines[["top", "right"]].set_visible(False)


def halo() -> list[Any]:
    """Return the path effect of a white border, which sets a line off from points of the same colour."""
    effects = import_module("matplotlib.patheffects")
    return [effects.withStroke(linewidth=3.4, foreground="white")]


def add_legend(ax: Axes) -> None:
    """Put the legend to the right of the Axes, where it covers nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)


# ---------------------------------------------------------------------- marks of experts


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
    """Return the mark of expert ``k``; no two of the first 35 are equal in colour and line style."""
    return Mark(COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)], LINES[k % len(LINES)])


def rgb(colour: str) -> Array:
    """Return red, green and blue of a colour ``#RRGGBB``, from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def shades(probabilities: Array) -> Array:
    """Return the colours ``(..., 3)`` of probabilities ``(..., K)`` of the experts.

    The hue is that of the most probable expert, so that it never resembles that of another. It fades to grey as its
    probability falls from 1 to 1 / K.
    """
    K = probabilities.shape[-1]
    colours = np.array([rgb(mark(k).colour) for k in range(K)])
    top = np.take_along_axis(probabilities, probabilities.argmax(axis=-1)[..., None], axis=-1)
    certainty = np.clip((top - 1 / K) / (1 - 1 / K), 0.0, 1.0) if K > 1 else np.ones_like(top)
    found: Array = rgb(GREY) + certainty * (colours[probabilities.argmax(axis=-1)] - rgb(GREY))
    return found


# ---------------------------------------------------------------------- the model


NAMES_SHOWN = 20
"""Maximum number of names in an error message."""


def estimator_of(model: FittedMixture | FederatedResult) -> FittedMixture:
    """Return the fitted estimator: ``model`` itself, or that of a federated result."""
    found = model.model if protocols.is_federated_result(model) else model
    if isinstance(found, type) or not hasattr(found, "order_name"):
        raise InvalidInputError(
            f"model is a {type(model).__name__}: expected a fitted estimator of this library, or the result of "
            "Federation.fit; of a pipeline pass the last step, with X as that step gets it"
        )
    check_is_fitted(found)
    return found


def regression_of(model: FittedMixture | FederatedResult) -> FittedMixture:
    """Return the fitted estimator of ``y`` given ``X``."""
    found = estimator_of(model)
    if found.mixture_.design.d == 0:
        raise InvalidInputError(
            f"model is a {type(found).__name__}, which has no covariates: expected a mixture of experts or of "
            "regressions"
        )
    return found


# ---------------------------------------------------------------------- covariates


def feature_names(estimator: FittedMixture) -> list[str]:
    """Return the names of the covariates: the terms without the intercept."""
    return term_names(estimator)[int(estimator.mixture_.design.intercept) :]


def feature_place(estimator: FittedMixture, feature: str | int | None, read: Sequence[int]) -> int:
    """Return the column of a covariate; None is allowed if the gate or the experts ``read`` only one term beside 1."""
    columns = covariate_columns(estimator, read)
    if feature is None and len(columns) == 1:
        return columns[0]
    return find_place(feature, feature_names(estimator), "feature")


def covariate_columns(estimator: FittedMixture, read: Sequence[int]) -> list[int]:
    """Return the columns of covariates among the terms that are read."""
    first = int(estimator.mixture_.design.intercept)
    return [term - first for term in read if term >= first]


def find_place(wanted: str | int | None, names: Sequence[str], what: str) -> int:
    """Return the place of ``wanted``, a name or a number, in ``names``, or raise an error that names what is known."""
    if isinstance(wanted, str) and wanted in names:
        return list(names).index(wanted)
    if isinstance(wanted, Integral) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
        return int(wanted)
    raise InvalidInputError(
        f"{what}={wanted!r}: expected one of {list_names(names)}, or a number from 0 to {len(names) - 1}"
    )


def list_names(names: Sequence[str]) -> str:
    """Return the names in quotes, the first ones of many."""
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    return shown if len(names) <= NAMES_SHOWN else f"{shown}, … ({len(names)} in all)"


def around_mean(estimator: FittedMixture) -> Array:
    """Return two rows of covariates ``(2, d)``: two standard deviations below and above their means in the fit."""
    design = estimator.coordinates_[0]
    rows = np.zeros((2, design.d))
    columns = list(range(design.d)) if design.columns is None else list(design.columns)
    rows[:, columns] = design.centre + np.array([[-2.0], [2.0]]) * design.scale
    return rows


# ---------------------------------------------------------------------- responses


def response_place(estimator: FittedMixture, response: Any) -> int:
    """Return the place of a response among several, or of a class; None for the only one, or the second of two classes.

    A class is chosen by its label.
    """
    classes = estimator.mixture_.experts.classes
    names = [str(c) for c in estimator.classes_] if classes else response_names(estimator)
    what = "classes" if classes else "responses"
    if response is None:
        if len(names) > 1 + classes:
            raise InvalidInputError(
                f"the model has {len(names)} {what}: choose one with response=, of {list_names(names)}"
            )
        return len(names) - 1
    if not classes:
        return find_place(response, names, "response")
    for at, label in enumerate(estimator.classes_):
        if str(label) == str(response) or label == response:
            return at
    raise InvalidInputError(f"response={response!r}: expected one of the classes {list_names(names)}")


def response_label(estimator: FittedMixture, y: Any, at: int) -> str:
    """Return the name of a response, from the columns of ``y`` if they have names; of a class, its probability."""
    named = frames.frame_names(y)
    name = named[0 if estimator.mixture_.experts.classes else at] if named is not None else getattr(y, "name", None)
    known = isinstance(name, str) and name != ""
    if estimator.mixture_.experts.classes:
        own = next(iter(estimator.response_names_), "y")
        return f"P({name if known else own} = {estimator.classes_[at]})"
    return str(name) if known else response_names(estimator)[at]


# ---------------------------------------------------------------------- intervals


def withheld_note(estimator: FittedMixture, *parts: str) -> str:
    """Return why intervals of these parts are withheld, for further lines of an axis label; else empty.

    The part ``"experts"`` includes those of single experts.
    """
    withheld = estimator.inference_.withheld
    notes = [f"Intervals withheld: {withheld[part]}." for part in parts if part in withheld][:1]
    if "experts" in parts and not notes:
        silent = [k for k in range(estimator.mixture_.K) if not estimator.inference_.shows_expert(k)]
        reasons = dict.fromkeys(map(estimator.inference_.reason, silent))
        for reason in reasons:
            names = [protocols.expert_label(estimator, k) for k in silent if estimator.inference_.reason(k) == reason]
            notes.append(f"Intervals of {protocols.join_words(names)} withheld: {reason}.")
    return "".join("\n" + fill(note, 64) for note in notes)
