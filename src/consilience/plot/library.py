"""Matplotlib, imported when a picture is drawn, and the Axes of a picture."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def axes_of(ax: Axes | None, height: float = HEIGHT) -> Axes:
    """Return the given Axes, or those of a new figure, without the frame's upper and right line."""
    plt = pyplot()
    found: Axes = plt.subplots(figsize=(WIDTH, height), layout="constrained")[1] if ax is None else ax
    bare(found)
    return found


def bare(ax: Axes) -> None:
    """Remove the upper and the right line of the frame."""
    ax.spines[["top", "right"]].set_visible(False)


def halo() -> list[Any]:
    """Return the path effect of a white border, which sets a line off from points of the same colour."""
    effects = import_module("matplotlib.patheffects")
    return [effects.withStroke(linewidth=3.4, foreground="white")]


def legend(ax: Axes) -> None:
    """Put the legend to the right of the Axes, where it covers nothing."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
