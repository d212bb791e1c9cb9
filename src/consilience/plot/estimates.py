"""Estimates with their uncertainty: a forest plot of the coefficients, and criteria for the number of experts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fitted import protocols
from consilience.fitted.effects import Step, covariate_steps, is_of_points, is_standardised
from consilience.fitted.protocols import (
    FederatedComparison,
    FederatedResult,
    FittedMixture,
    LocalComparison,
    expert_label,
    noun,
)
from consilience.numerics.arrays import Array
from consilience.plot import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Entry = dict[str, Any]

BOUNDS = ("estimate", "lower", "upper")

LEAST_HEIGHT, PER_MARK, PER_TERM = 2.2, 0.13, 0.12
"""Height in inches of a new figure, and what each mark and each term adds."""
WRAP = 28
"""Number of characters of a label after which it continues on a new line."""
FAR = 6.0
"""Multiple of the upper quartile of all coefficients beyond which one of them is an outlier."""


def coefficients(
    model: FittedMixture | FederatedResult,
    names: Sequence[str] | None = None,
    *,
    standardised: bool = True,
    part: str = "expert",
    response: str | int | None = None,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw the coefficients of each expert with confidence intervals, as a forest plot.

    Coefficients of experts and gate are those of ``to_frame`` per standard deviation of the covariate in the fit, so
    that they can be compared; those of categories and of columns of 0 and 1 compare a level with its reference. A
    coefficient whose interval is withheld, or which is not identified, is an open marker without a bar, and the label
    of the axis gives the reason.

    A coefficient far beyond all others would leave no room for them: the axis is cut before it, and an arrow at the
    edge has its number and interval. An arrow without a number is at the end of an interval that is cut.

    Parameters
    ----------
    model : fitted estimator, or FederatedFit
    names : sequence of str, optional
        Terms to show, in this order; by default all but the intercept, whose unit is another.
    standardised : bool
        False draws the numbers of ``to_frame`` unchanged, each in the units of its covariate.
    part : str
        Part of the model: ``"expert"`` (the default), ``"gate"``, or another entry of the column ``part`` of
        ``to_frame``, such as ``"weight"`` or ``"log_variance"``.
    response : str or int, optional
        Name or number of one of several responses or classes; by default all of them.
    level : float
        Confidence level of the intervals.
    ax : Axes, optional
        Where to draw; a new figure by default, as high as the number of coefficients needs.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor, plot
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> [label.get_text() for label in plot.coefficients(model).get_yticklabels()]
    ['x0', 'x1', 'x2']
    """
    estimator = drawing.estimator_of(model)
    protocols.check_level(level)
    entries = _entries(estimator, part, response, level)
    steps = _steps(estimator, part) if standardised else {}
    _scale_entries(entries, steps)
    groups = _group_entries(estimator, entries, names)
    K, count = estimator.mixture_.K, len(groups)
    ax = drawing.prepare_axes(ax, max(LEAST_HEIGHT, 1.0 + count * (K * PER_MARK + PER_TERM)))
    ax.axvline(0, color="0.6", lw=0.8, zorder=0)
    for g in range(1, count):
        ax.axhline(g - 0.5, color="0.9", lw=0.8, zorder=0)
    for k in range(K):
        own = [(g, entry) for g, group in enumerate(groups.values()) for entry in group if entry["expert"] == k]
        _draw_estimates(ax, own, k, K, expert_label(estimator, k))
    ax.set_yticks(range(count), [fill(label, WRAP) for label in groups])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(count - 0.5, -0.5)
    withheld = drawing.withheld_note(estimator, *_WITHHELD.get(part, _SHAPES))
    note = withheld or _unidentified_note(estimator, groups.values())
    cut = _cut_outliers(ax, groups.values(), K)
    ax.set_xlabel(_label(part, level, [steps[term] for term in _terms(groups) if term in steps]) + cut + note)
    drawing.add_legend(ax)
    return ax


_LABELS = {"expert": "coefficient", "gate": "gate coefficient (sum to zero over experts)"}
_WITHHELD = {"expert": ("experts",), "gate": ("gate",), "weight": ("gate",)}
_SHAPES = ("experts", "shapes")
"""Parts of ``Inference.withheld`` that concern a part of the table; other parts are shapes."""


def _label(part: str, level: float, steps: Sequence[Step]) -> str:
    """Return the label of the axis, for terms with these steps."""
    unit = " per standard deviation" if any(step.standardised for step in steps) else ""
    unit += "\n(of a category: against its reference)" if unit and not all(step.standardised for step in steps) else ""
    return f"{_LABELS.get(part, part.replace('_', ' '))}{unit}, {level:.0%} interval".replace("%", " %")


def _unidentified_note(estimator: FittedMixture, groups: Iterable[list[Entry]]) -> str:
    """Return which covariates have no coefficients of their own, if one of them is shown; else empty."""
    bare = any(not np.isfinite(entry["lower"]) for group in groups for entry in group)
    if not (bare and estimator.unidentified_):
        return ""
    return "\n" + fill(f"Not identified, and set to 0: {'; '.join(estimator.unidentified_)}.", 64)


def _entries(estimator: FittedMixture, part: str, response: str | int | None, level: float) -> list[Entry]:
    """Return the rows of the tidy table of one part, and of one response if it is given."""
    columns = protocols.parameter_table(estimator, level)
    entries = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    known = list(dict.fromkeys(entry["part"] for entry in entries))
    if part not in known:
        raise InvalidInputError(f"part={part!r}: expected one of {drawing.list_names(known)}")
    outputs = protocols.response_names(estimator)
    wanted = None if response is None else outputs[drawing.find_place(response, outputs, "response")]
    return [e for e in entries if e["part"] == part and (wanted is None or e["response"] in ("", wanted))]


def _steps(estimator: FittedMixture, part: str) -> dict[str, Step]:
    """Return the step of each term, of which a coefficient of a part is the effect; empty if it has none."""
    if part not in ("expert", "gate") or is_of_points(estimator) or not is_standardised(estimator):
        return {}
    design = estimator.coordinates_[part == "gate"]
    return {step.name: step for step in covariate_steps(estimator, design)}


def _scale_entries(entries: list[Entry], steps: Mapping[str, Step]) -> None:
    """Multiply the entries of each term by the size of its step."""
    for entry in entries:
        size = steps[entry["term"]].size if entry["term"] in steps else 1.0
        for name in BOUNDS:
            entry[name] *= size


def _group_entries(
    estimator: FittedMixture, entries: list[Entry], names: Sequence[str] | None
) -> dict[str, list[Entry]]:
    """Return the entries by label of their line: response and term, as far as they differ."""
    known = list(dict.fromkeys(entry["term"] for entry in entries))
    if names is None:
        chosen = [term for term in known if term != "(intercept)"] or known
    else:
        wanted = [names] if isinstance(names, str) else names
        chosen = [known[drawing.find_place(name, known, "names")] for name in wanted]
    outputs = list(dict.fromkeys(entry["response"] for entry in entries))
    found: dict[str, list[Entry]] = {}
    shown = dict(zip(protocols.term_names(estimator), protocols.expert_term_names(estimator), strict=True))
    for output, term in product(outputs, chosen):
        parts = [output] * (len(outputs) > 1)
        if term != "" and protocols.term_names(estimator) != [term]:
            parts.append(shown[term] if entries[0]["part"] == "expert" else term)
        label = ": ".join(parts) or entries[0]["part"].replace("_", " ")
        found[label] = [entry for entry in entries if (entry["response"], entry["term"]) == (output, term)]
    return found


def _terms(groups: Mapping[str, list[Entry]]) -> list[str]:
    """Return the terms that are shown."""
    return list(dict.fromkeys(entry["term"] for group in groups.values() for entry in group))


def _draw_estimates(ax: Axes, own: list[tuple[int, Entry]], k: int, K: int, label: str) -> None:
    """Draw the estimates of one expert: filled with a bar, or open without one."""
    colour, marker, _ = drawing.mark(k)
    y = _heights(np.array([g for g, _ in own]), k, K)
    x, lower, upper = (np.array([entry[name] for _, entry in own]) for name in BOUNDS)
    known = np.isfinite(lower) & np.isfinite(upper)
    ax.hlines(y[known], lower[known], upper[known], color=colour, lw=1.3)
    ax.plot(x[known], y[known], marker, color=colour, ms=5, label=label if known.any() else None)
    ax.plot(x[~known], y[~known], marker, color=colour, ms=5, mfc="white",
            label=None if known.any() else label)  # fmt: skip


def _heights(lines: Array, k: int, K: int) -> Array:
    """Return the height at which expert ``k`` is drawn on each line."""
    return np.asarray(lines + 0.72 * ((k + 0.5) / K - 0.5))


# ---------------------------------------------------------------------- outliers


def _cut_outliers(ax: Axes, groups: Iterable[list[Entry]], K: int) -> str:
    """Cut the axis before coefficients that are far beyond the others, mark these, and return a note; else empty."""
    shown = [(g, entry) for g, group in enumerate(groups) for entry in group]
    values = np.array([[entry[name] for name in BOUNDS] for _, entry in shown])
    values = np.where(np.isfinite(values), values, values[:, :1])  # without an interval
    reach = np.abs(values).max(axis=1)
    inside = reach <= FAR * np.quantile(reach, 0.75)
    if inside.all() or not values[inside].any():
        return ""
    low, high = min(values[inside].min(), 0.0), max(values[inside].max(), 0.0)
    room = 0.06 * (high - low)
    edges = low - room, high + room
    ax.set_xlim(*edges)
    for (g, entry), (estimate, lower, upper) in zip(shown, values, strict=True):
        height = float(_heights(np.array(g), entry["expert"], K))
        for side, bound in ((0, lower), (1, upper)):
            if (bound - edges[side]) * (2 * side - 1) > 0:
                _arrow(ax, entry, edges[side], height, side, numbered=not edges[0] <= estimate <= edges[1])
    return "\n(arrow: beyond the axis)"


def _arrow(ax: Axes, entry: Entry, edge: float, height: float, side: int, *, numbered: bool) -> None:
    """Draw an arrow at the left (0) or right (1) edge, with the number of an estimate that is beyond the axis."""
    colour = drawing.mark(entry["expert"]).colour
    ax.plot([edge], [height], "<>"[side], color=colour, ms=5, clip_on=False)
    if numbered and (entry["estimate"] > edge) == bool(side):
        known = np.isfinite(entry["lower"]) and np.isfinite(entry["upper"])
        interval = f" [{entry['lower']:.4g}, {entry['upper']:.4g}]" if known else ""
        ax.annotate(f"{entry['estimate']:.4g}{interval}", (edge, height), (6 - 12 * side, 0), color=colour,
                    textcoords="offset points", ha="left" if side == 0 else "right", va="center", fontsize=7,
                    path_effects=drawing.halo())  # fmt: skip


# ---------------------------------------------------------------------- number of experts


STYLES: dict[str, tuple[str, str, Any, str]] = {
    "aic": ("AIC", "0.65", (0, (1, 1)), "^"),
    "bic": ("BIC", "black", "-", "o"),
    "icl": ("ICL", "0.4", (0, (5, 1.5)), "s"),
    "cv": ("cross-validation ± SE", "0.25", (0, (5, 1.5, 1, 1.5)), "D"),
}
"""Label, colour, line style and marker of each criterion."""


def orders(selection: LocalComparison | FederatedComparison, *, ax: Axes | None = None) -> Axes:
    """Draw the criteria by the number of experts; a ring marks the number that each criterion prefers.

    All criteria are on the scale of ``-2 log-likelihood``, smaller is better. The mean held-out log density ``m`` of
    cross-validation is drawn as ``-2 n m`` with its standard error, for ``n`` rows or groups; it prefers the smallest
    number of experts within one standard error of the best. An open marker is a fit that did not converge or whose
    starts do not agree.

    Parameters
    ----------
    selection : OrderSelection or FederatedOrders
        Result of ``select_order`` or of ``Federation.select_order``.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import GaussianMixture, plot, select_order
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (200, 1))])
    >>> selection = select_order(GaussianMixture(random_state=0), X, orders=[1, 2, 3])
    >>> plot.orders(selection).get_legend_handles_labels()[1]
    ['AIC', 'BIC', 'ICL']
    """
    if not (protocols.is_local_comparison(selection) or protocols.is_federated_comparison(selection)):
        raise InvalidInputError(
            f"selection is a {type(selection).__name__}: expected the result of select_order or Federation.select_order"
        )
    models = selection.estimators if protocols.is_local_comparison(selection) else [fit.model for fit in selection.fits]
    orders_ = np.array(selection.orders)
    doubtful = np.array([not (model.converged_ and model.starts_agree_) for model in models])
    ax = drawing.prepare_axes(ax)
    for name, values, error, preferred in _criteria(selection):
        label, colour, line, marker = STYLES[name]
        by = np.argsort(orders_)
        ax.errorbar(orders_[by], values[by], yerr=None if error is None else error[by], color=colour, linestyle=line,
                    lw=1.4, marker=marker, ms=5, capsize=2.5, label=label)  # fmt: skip
        ax.plot(orders_[doubtful], values[doubtful], linestyle="", color=colour, marker=marker, ms=5, mfc="white",
                zorder=3)  # fmt: skip
        ax.plot(preferred, values[list(orders_).index(preferred)], "o", color="black", ms=12, mfc="none", mew=1.1)
    ax.set_xticks(sorted(selection.orders))
    open_ = "\nopen marker: not converged, or the starts do not agree" if doubtful.any() else ""
    ax.set_xlabel(f"number of {noun(models[0])}s (ring: preferred by the criterion){open_}")
    ax.set_ylabel("criterion, smaller is better")
    drawing.add_legend(ax)
    return ax


def _criteria(selection: LocalComparison | FederatedComparison) -> Iterator[tuple[str, Array, Array | None, int]]:
    """Yield name, values, standard errors and preferred order of each criterion."""
    if protocols.is_federated_comparison(selection):
        for name in ("aic", "bic"):
            values = np.array([float(getattr(fitted, name)) for fitted in selection.fits])
            yield name, values, None, selection.orders[int(values.argmin())]
        return
    for name in ("aic", "bic", "icl"):
        yield name, np.array(selection.scores[name]), None, selection.preferred(name)
    if "cv" in selection.scores:
        n = 2 * selection.estimators[0].n_labels_
        mean, error = np.array(selection.scores["cv"]), np.array(selection.scores["cv_std_error"])
        yield "cv", -n * mean, n * error, selection.preferred("cv")
