"""HTML representation of a fitted estimator, for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

from consilience.estimators import text
from consilience.estimators.table import unit
from consilience.numerics.arrays import Array

CELL = "padding:2px 10px;text-align:right"
NAME = "padding:2px 10px;text-align:left"


def html(estimator: Any) -> str:
    """Render a fit as HTML tables: overview, experts, gate, notes."""
    parts = [*text.wide_parts(estimator), text.gate_part(estimator, None)]
    tables = "".join(_table(estimator, *part) for part in parts if part is not None)
    tables += "".join(_table(estimator, *part, cells="I² (τ²)") for part in text.between_parts(estimator))
    notes = "".join(f"<li>{escape(note)}</li>" for note in [str(estimator.stop_reason_), *text.notes(estimator)])
    return f"<div><strong>{escape(estimator.title)}</strong>{_facts(estimator)}{tables}<ul>{notes}</ul></div>"


def _facts(estimator: Any) -> str:
    styles = (NAME, CELL, NAME, CELL)
    rows = (
        "".join(f'<td style="{style}">{value}</td>' for style, value in zip(styles, row, strict=True))
        for row in text.head_rows(estimator)
    )
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _table(
    estimator: Any,
    title: str,
    names: list[str],
    estimate: Array,
    se: Array,
    *,
    cells: str = "coefficient (standard error)",
) -> str:
    """Render one table: a row per term, a column per expert; ``estimate, se (K, terms)``."""
    K, shown = min(len(estimate), text.EXPERTS_SHOWN), names[: text.TERMS_SHOWN]
    head = "".join(
        f'<th style="{CELL}">{unit(estimator)} {k}<br>share {estimator.weights_[k]:.3f}</th>' for k in range(K)
    )
    body = "".join(
        f'<tr><td style="{NAME}">{escape(name)}</td>'
        + "".join(f'<td style="{CELL}">{text.number(estimate[k, j])} ({text.number(se[k, j])})</td>' for k in range(K))
        + "</tr>"
        for j, name in enumerate(shown)
    )
    caption = f"{escape(title)}: {cells}"
    return f'<table><caption style="text-align:left">{caption}</caption><tr><th></th>{head}</tr>{body}</table>'
