"""HTML representation of a fitted estimator, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from consilience.estimators import text
from consilience.estimators.table import unit

CELL = "padding:2px 10px;text-align:right"
NAME = "padding:2px 10px;text-align:left"


def html(estimator: Any) -> str:
    """Render a fit as HTML tables: overview, experts with their shapes, gate, notes."""
    first, *others = text.wide_parts(estimator)
    gate = text.gate_part(estimator, None)
    shapes = {name: values for name, values in text.expert_facts(estimator).items() if name != "(share)"}
    tables = _table(estimator, first, shapes)
    rest = (*others, *(() if gate is None else (gate,)), *text.between_parts(estimator))
    tables += "".join(_table(estimator, part, {}) for part in rest)
    notes = "".join(f"<li>{escape(note)}</li>" for note in [str(estimator.stop_reason_), *text.notes(estimator)])
    return f"<div><strong>{escape(estimator.title)}</strong>{_facts(estimator)}{tables}<ul>{notes}</ul></div>"


def _facts(estimator: Any) -> str:
    styles = (NAME, CELL, NAME, CELL)
    rows = (
        "".join(f'<td style="{style}">{value}</td>' for style, value in zip(styles, row, strict=True))
        for row in text.head_rows(estimator)
    )
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _table(estimator: Any, table: text.Table, facts: Mapping[str, list[str]]) -> str:
    """Render one table: a row per fact and per term, a column per expert."""
    experts = table.experts[: text.EXPERTS_SHOWN]
    head = "".join(
        f'<th style="{CELL}">{unit(estimator)} {k}<br>share {estimator.weights_[k]:.3f}</th>' for k in experts
    )
    lines = [(name, [values[k] for k in experts]) for name, values in facts.items()]
    lines += [
        (name, [text.cell(table, k, j) for k in experts]) for j, name in enumerate(table.names[: text.TERMS_SHOWN])
    ]
    body = "".join(
        f'<tr><td style="{NAME}">{escape(name)}</td>'
        + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells)
        + "</tr>"
        for name, cells in lines
    )
    caption = f"{escape(table.title)}: {table.cells}"
    return f'<table><caption style="text-align:left">{caption}</caption><tr><th></th>{head}</tr>{body}</table>'
