"""A fitted model in a notebook: what is in doubt, its tables, and a small picture of the coefficients as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import exp, isfinite, log

import numpy as np

from consilience.fitted.effects import Effect, expert_effects, is_of_points
from consilience.fitted.protocols import FittedMixture, expert_label, follows_noise, model_title, response_names
from consilience.fitted.summaries import (
    EXPERTS_SHOWN,
    TERMS_SHOWN,
    CoefficientTable,
    between_parts,
    cut_note,
    doubt_notes,
    error_notes,
    expert_facts,
    format_cell,
    gate_part,
    head_rows,
    wide_parts,
)
from consilience.fitted.typeset import CELL_STYLE, NAME_STYLE, facts_html, list_html
from consilience.report.svg import WIDTH, Axis, log_ticks, nice_values

LEVEL = 0.95
"""Confidence level of the intervals that are drawn."""
LINE = 13
TERMS_DRAWN = 10
EXPERTS_DRAWN = 4
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Colours of the first experts, by Okabe and Ito, seen on white and on black."""
LETTER = 6.2
"""Width of a letter."""
LONGEST_NAME = 22
LARGEST_EXPONENT = 30.0
"""Largest coefficient whose exponential is drawn."""


def notebook_html(estimator: FittedMixture) -> str:
    """Render a fit for a notebook: what is in doubt, the facts, its tables, and a picture of the coefficients."""
    first, *others = wide_parts(estimator)
    gate = gate_part(estimator, None)
    shapes = {name: values for name, values in expert_facts(estimator).items() if name != "(share)"}
    rest = (*others, *(() if gate is None else (gate,)), *between_parts(estimator))
    tables = [_table_html(estimator, first, shapes), *(_table_html(estimator, part, {}) for part in rest)]
    parts = [
        f"<strong>{escape(model_title(estimator))}</strong>",
        facts_html(head_rows(estimator)),
        _doubts_html(estimator),
        *tables,
        effects_picture(estimator),
        list_html([str(estimator.stop_reason_), *error_notes(estimator)]),
    ]
    return f"<div>{''.join(parts)}</div>"


def _doubts_html(estimator: FittedMixture) -> str:
    """Return what is in doubt about a fit, or that nothing is."""
    late = not (estimator.converged_ or estimator.stop_reason_.by_choice)
    degenerate = estimator.degeneracy_ and not follows_noise(estimator)
    doubts = [
        *(["The fit has not converged."] if late else []),
        *([f"The fit is degenerate: {estimator.degeneracy_}."] if degenerate else []),
        *(f"{doubt[0].upper()}{doubt[1:]}." for doubt in estimator.doubts_),
        *doubt_notes(estimator),
    ]
    if not doubts:
        return '<div style="margin-top:8px">Nothing is in doubt by the checks of the fit.</div>'
    return f'<div style="margin-top:8px"><strong>In doubt</strong>{list_html(doubts)}</div>'


def _table_html(estimator: FittedMixture, table: CoefficientTable, facts: Mapping[str, list[str]]) -> str:
    """Render one table: a row per fact and per term, a column per expert."""
    experts = table.experts[:EXPERTS_SHOWN]
    head = "".join(
        f'<th style="{CELL_STYLE}">{expert_label(estimator, k)}<br>share {estimator.weights_[k]:.3f}</th>'
        for k in experts
    )
    lines = [(name, [values[k] for k in experts]) for name, values in facts.items()]
    lines += [(name, [format_cell(table, k, j) for k in experts]) for j, name in enumerate(table.names[:TERMS_SHOWN])]
    body = "".join(
        f'<tr><td style="{NAME_STYLE}">{escape(name)}</td>'
        + "".join(f'<td style="{CELL_STYLE}">{cell}</td>' for cell in cells)
        + "</tr>"
        for name, cells in lines
    )
    title = f'<div style="margin-top:8px">{escape(table.title)}: {escape(table.cells)}</div>'
    more = f"<div>{escape(cut_note(table))}</div>" if cut_note(table) else ""
    return f'{title}<div style="overflow-x:auto"><table><tr><th></th>{head}</tr>{body}</table></div>{more}'


# ---------------------------------------------------------------------- the picture


def effects_picture(estimator: FittedMixture) -> str:
    """Draw what goes with each covariate within each expert, with intervals; empty where there is not one response.

    A hollow mark has no interval. Of many covariates the strongest are drawn; many experts have a figure of their own.
    """
    K = estimator.mixture_.K
    if is_of_points(estimator) or len(response_names(estimator)) > 1:
        return ""
    if K > EXPERTS_DRAWN:
        return f"<div>plot.coefficients(model) draws the coefficients of more than {EXPERTS_DRAWN} experts.</div>"
    found = [expert_effects(estimator, k, LEVEL) for k in range(K)]
    if not found[0]:
        return ""
    strength = np.max([[effect.strength for effect in own] for own in found], axis=0)
    drawn = np.sort(np.argsort(-strength, kind="stable")[:TERMS_DRAWN])
    rows = [[own[j] for own in found] for j in drawn]
    labels = [expert_label(estimator, k) for k in range(K)]
    return _draw(rows, labels, _title(rows[0][0], len(drawn), len(found[0])))


def _title(effect: Effect, drawn: int, count: int) -> str:
    changed = f"the {effect.of} is multiplied" if effect.ratio else f"{effect.of} is higher"
    of = f", the {drawn} strongest of {count} columns" if drawn < count else ""
    return f"By how much {changed}, per standard deviation of a column or for a level{of}"


def _draw(rows: list[list[Effect]], labels: list[str], title: str) -> str:
    names = [_cut(own[0].step.name) for own in rows]
    left = min(150.0, LETTER * max(map(len, names)) + 8)
    at = Axis(*_ends(rows), left, WIDTH - 12.0)
    marks, x = [], 0.0
    for k, label in enumerate(labels):
        marks += [_mark(x + 5, 8, k, hollow=False), _text(x + 13, 12, label)]
        x += LETTER * len(label) + 24
    y = 26.0
    top = y - 6
    for name, own in zip(names, rows, strict=True):
        marks.append(_text(0, y + LINE * (len(own) - 1) / 2 + 4, name))
        for k, effect in enumerate(own):
            if effect.known:
                marks.append(_interval(at(effect.lower), at(effect.upper), y, k))
            if isfinite(effect.estimate):
                marks.append(_mark(at(effect.estimate), y, k, hollow=not effect.known))
            y += LINE
        y += 5
    marks = [_rule(f"M{at(0):.1f} {top:.1f}V{y:.1f}"), *marks, _rule(f"M{left:.1f} {y:.1f}H{WIDTH - 12}")]
    for value, said in _ticks(at.low, at.high, ratio=rows[0][0].ratio):
        marks.append(_rule(f"M{at(value):.1f} {y:.1f}v4"))
        marks.append(_text(at(value), y + 15, said, "middle"))
    caption = f"{title}; {100 * LEVEL:.3g} % intervals"
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {y + 20:.0f}" role="img" aria-label="{escape(caption, quote=True)}" '
        f'style="width:100%;max-width:{1.25 * WIDTH:.0f}px;display:block" font-size="11" font-family="sans-serif">'
    )
    return f'<div style="margin:8px 0"><div>{escape(caption)}.</div>{picture}{"".join(marks)}</svg></div>'


def _cut(name: str) -> str:
    """Return a name without its middle if it is long: names of many columns differ at their ends."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"


def _ends(rows: list[list[Effect]]) -> tuple[float, float]:
    """Return the ends of the axis: all estimates, and as much of the intervals as leaves half of it to these."""
    effects = [effect for own in rows for effect in own]
    estimates = [0.0, *(effect.estimate for effect in effects if isfinite(effect.estimate))]
    if effects[0].ratio:
        estimates = [min(max(value, -LARGEST_EXPONENT), LARGEST_EXPONENT) for value in estimates]
    low, high = min(estimates), max(estimates)
    room = max(high - low, 1e-9)
    ends = [end for effect in effects if effect.known for end in (effect.lower, effect.upper)]
    low, high = max(min([low, *ends]), low - room / 2), min(max([high, *ends]), high + room / 2)
    return low - 0.04 * room, high + 0.04 * room


def _ticks(low: float, high: float, *, ratio: bool) -> list[tuple[float, str]]:
    """Return places of round values, or of the logarithms of round ratios, with their texts."""
    if not ratio:
        return [(value, f"{value:.3g}") for value in nice_values(low, high)]
    ends = exp(low), exp(high)
    return [(log(v), f"{v:.3g}") for v in (log_ticks(*ends) if ends[1] > 4 * ends[0] else nice_values(*ends))]


def _mark(x: float, y: float, k: int, *, hollow: bool) -> str:
    """Return the mark of an expert: a circle, a square, a triangle or a diamond."""
    paint = f'fill="{"none" if hollow else COLOURS[k]}" stroke="{COLOURS[k]}" stroke-width="1.4"'
    if k == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" {paint}/>'
    corners = {
        1: ((-3, -3), (3, -3), (3, 3), (-3, 3)),
        2: ((-3.8, 3), (0, -3.8), (3.8, 3)),
        3: ((-4, 0), (0, -4), (4, 0), (0, 4)),
    }[k]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" {paint}/>'


def _interval(low: float, high: float, y: float, k: int) -> str:
    return f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{COLOURS[k]}" stroke-width="2"/>'


def _rule(path: str) -> str:
    return f'<path d="{path}" stroke="currentColor" stroke-width="0.8" opacity="0.5"/>'


def _text(x: float, y: float, said: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">{escape(said)}</text>'
