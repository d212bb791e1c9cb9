"""Tables of text set as plain text, HTML, LaTeX and Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple, Self

GAP = 2
"""Least number of spaces between two columns."""
CELL_STYLE = "padding:2px 10px;text-align:right;white-space:nowrap"
NAME_STYLE = "padding:2px 10px;text-align:left"
LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "—": "---",
    "–": "--",
    "…": r"\dots{}",
    "≈": r"$\approx$",
    "²": r"$^2$",
    "τ": r"$\tau$",
    "π": r"$\pi$",
    "Σ": r"$\Sigma$",
}
"""What LaTeX sets for a character with a meaning, or that its fonts lack."""


class TextTable(NamedTuple):
    """A table of text: its first column is set to the left, the others to the right.

    ``least`` are the least widths of the columns in plain text, ``more`` says what is left out, and ``ruled`` whether
    a line divides it from the next table.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    least: tuple[int, ...] = ()
    more: str = ""
    ruled: bool = False

    def text(self) -> str:
        """Return the table as plain text."""
        least = self.least or (0,) * len(self.header)
        lines = [self.title, align_columns([self.header, *self.rows], least), self.more]
        return "\n".join(line for line in lines if line)


def align_columns(lines: list[list[str]], least: tuple[int, ...]) -> str:
    """Align columns: the first to the left, others to the right, each at least ``least`` wide and never touching."""
    widths = [
        max(width, *(len(line[j]) + GAP * (j > 0) for line in lines)) for j, width in enumerate(least[: len(lines[0])])
    ]
    return "\n".join(
        f"{line[0]:<{widths[0]}}"
        + "".join(f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in lines
    )


class Summary(str):
    """A text of a heading, facts, tables and notes, which is also HTML, LaTeX and Markdown.

    Examples
    --------
    >>> from consilience.fitted.typeset import Summary, TextTable
    >>> table = TextTable("Models", ["", "BIC"], [["one", "3.1"], ["two", "2.4"]])
    >>> print(Summary(table.text(), "Comparison", tables=[table]).to_markdown())
    **Comparison**
    <BLANKLINE>
    Models
    <BLANKLINE>
    |  | BIC |
    |:--|--:|
    | one | 3.1 |
    | two | 2.4 |
    """

    __slots__ = ("facts", "heading", "notes", "tables")

    heading: str
    facts: Sequence[Sequence[str]]
    tables: Sequence[TextTable]
    notes: Sequence[str]

    def __new__(
        cls,
        text: str,
        heading: str = "",
        facts: Sequence[Sequence[str]] = (),
        tables: Sequence[TextTable] = (),
        notes: Sequence[str] = (),
    ) -> Self:
        """Return the text with its parts; ``facts`` are rows of names and figures in turn."""
        self = super().__new__(cls, text)
        self.heading, self.facts, self.tables, self.notes = heading, facts, tables, notes
        return self

    def __repr__(self) -> str:
        """Return the text itself, so that it is shown as it is."""
        return str(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """Return HTML tables and a list of notes, escaped."""
        tables = "".join(table_html(table) for table in self.tables)
        return (
            f"<div><strong>{escape(self.heading)}</strong>{facts_html(self.facts)}{tables}{list_html(self.notes)}</div>"
        )

    def to_markdown(self) -> str:
        """Return Markdown with a table for each table."""
        parts = [f"**{_markdown(self.heading)}**"]
        if self.facts:
            parts.append(_markdown_rows([""] * len(self.facts[0]), self.facts))
        for table in self.tables:
            parts += [_markdown(table.title), _markdown_rows(table.header, table.rows), _markdown(table.more)]
        parts.append("\n".join(f"- {_markdown(note)}" for note in self.notes))
        return "\n\n".join(part for part in parts if part)

    def to_latex(self) -> str:
        """Return a LaTeX ``tabular`` for each table, with the rules of the package booktabs."""
        parts = [rf"\noindent\textbf{{{_latex(self.heading)}}}"]
        if self.facts:
            parts.append(_tabular("lr" * (len(self.facts[0]) // 2), [_latex_row(row) for row in self.facts]))
        for table in self.tables:
            lines = [_latex_row(table.header), r"\midrule", *map(_latex_row, table.rows)]
            body = _tabular("l" + "r" * (len(table.header) - 1), [r"\toprule", *lines, r"\bottomrule"])
            parts += [rf"\noindent {_latex(table.title)}" if table.title else "", body, _latex(table.more)]
        return "\n\n".join(part for part in [*parts, *map(_latex, self.notes)] if part)


# ---------------------------------------------------------------------- HTML


def facts_html(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of names and figures in turn as an HTML table; nothing without rows."""
    lines = ("".join(_cell(cell, j % 2 == 0) for j, cell in enumerate(row)) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if rows else ""


def table_html(table: TextTable) -> str:
    """Return a table as HTML."""
    head = "".join(
        f'<th style="{NAME_STYLE if j == 0 else CELL_STYLE}">{escape(each)}</th>' for j, each in enumerate(table.header)
    )
    body = "".join(f"<tr>{''.join(_cell(cell, j == 0) for j, cell in enumerate(row))}</tr>" for row in table.rows)
    title = f'<div style="margin-top:8px">{escape(table.title)}</div>' if table.title else ""
    more = f"<p>{escape(table.more)}</p>" if table.more else ""
    return f'{title}<div style="overflow-x:auto"><table><tr>{head}</tr>{body}</table></div>{more}'


def list_html(notes: Sequence[str]) -> str:
    """Return notes as an HTML list; nothing without notes."""
    return f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else ""


def _cell(text: str, is_name: bool, tag: str = "td") -> str:
    return f'<{tag} style="{NAME_STYLE if is_name else CELL_STYLE}">{escape(text)}</{tag}>'


# ---------------------------------------------------------------------- Markdown and LaTeX


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_|])", r"\\\1", text).replace("<", "&lt;")


def _markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|:--" + "|--:" * (len(header) - 1) + "|"
    lines = [f"| {' | '.join(map(_markdown, row))} |" for row in (header, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _tabular(columns: str, lines: Sequence[str]) -> str:
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *lines, r"\end{tabular}"])
