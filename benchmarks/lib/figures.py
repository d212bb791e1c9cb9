"""Box plots and traces as small PNG files; needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Record = dict[str, Any]

COLOURS = {
    "G": "#444444",
    "R": "#0072b2",
    "R+1": "#56b4e9",
    "R-row": "#d55e00",
    "Mid": "#e69f00",
    "W": "#009e73",
    "Fisher": "#cc79a7",
}
PANELS = (
    ("relaxed", "Transport divergence from the truth (relaxed)", "log"),
    ("below", "Log-likelihood per row, below the truth's", "log"),
    ("MSE", "Mean squared error of the parameters", "log"),
    ("RPE", "Relative prediction error", "log"),
    ("ARI", "Adjusted Rand index", "linear"),
    ("seconds", "Learning time (CPU s)", "log"),
)
DPI = 100


def available() -> bool:
    return find_spec("matplotlib") is not None


def boxes(path: Path, groups: Mapping[str, Sequence[Record]], title: str) -> None:
    """The six metrics: for each group of replications one box for each estimator."""
    figure, axes = canvas(2, 3, (12.5, 6.6))
    for axis, (metric, label, scale) in zip(axes.flat, PANELS, strict=True):
        for i, records in enumerate(groups.values()):
            for j, (name, colour) in enumerate(COLOURS.items()):
                values = [v for r in records if (v := r["fits"][name].get(metric)) is not None]
                positive = [v for v in values if v > 0] if scale == "log" else values
                box(axis, positive, i + (j - (len(COLOURS) - 1) / 2) * 0.12, colour)
        axis.set_xticks(range(len(groups)), list(groups))
        axis.set_yscale(scale)
        axis.set_title(label, fontsize=10)
        tidy(axis)
    handles = [axes.flat[0].plot([], [], "s", color=colour, label=name)[0] for name, colour in COLOURS.items()]
    figure.legend(handles=handles, ncol=len(handles), loc="upper right", frameon=False, fontsize=10)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    save(figure, path)


def box(axis: Any, values: Sequence[float], place: float, colour: str) -> None:
    if not values:
        return
    line = {"color": colour, "linewidth": 1.1}
    axis.boxplot(
        [values],
        positions=[place],
        widths=0.105,
        patch_artist=True,
        boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.55},
        medianprops={"color": "black", "linewidth": 1.1},
        whiskerprops=line,
        capprops=line,
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": colour},
        manage_ticks=False,
    )


def traces(path: Path, found: Mapping[str, Record]) -> None:
    """The objective over iterations, for each data set: both plans, several starts."""
    figure, axes = canvas(1, len(found), (5.2 * len(found), 3.4))
    for axis, (key, record) in zip(axes.flat, found.items(), strict=True):
        for plan, colour, size in (("row", COLOURS["R-row"], 2), ("expert", COLOURS["R"], 5)):
            for i, values in enumerate(record[plan]):
                label = f"plan per {plan}" if i == 0 else None
                axis.plot(values, "o-", color=colour, markersize=size, linewidth=1, alpha=0.75, label=label)
        name, n, M, _ = key.split("/")
        axis.set_title(f"{name}, N = {int(n):,}, M = {M}", fontsize=10)
        axis.set_yscale("log")
        axis.set_xlabel("iteration", fontsize=9)
        axis.set_ylabel("objective per row", fontsize=9)
        tidy(axis)
        axis.legend(frameon=False, fontsize=9)
    save(figure, path)


def canvas(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def tidy(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9)


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=DPI, facecolor="white", metadata={"Software": None})
