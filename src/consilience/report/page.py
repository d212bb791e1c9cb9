"""A report as a page: its parts as values, and the page as HTML.

Everything that was not written here is escaped. The page has no script, loads nothing, and forbids styles that are not
its own.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import count

from consilience.report.svg import colour
from consilience.report.verdict import ReportVerdict, Use


@dataclass(frozen=True)
class Tag:
    """A few words that are marked: "yes", "care", "no" or "note" by their class; and words after them."""

    said: str
    css: str
    more: str = ""


@dataclass(frozen=True)
class Drawing:
    """A small picture in a cell of a table."""

    svg: str


Cell = str | Tag | Drawing


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows. A row of one cell is a heading of those below it.

    Parameters
    ----------
    caption : str
        What it shows; a number is put before it.
    header : tuple of str
    rows : tuple of tuple of Cell
        Texts, marked words or small pictures.
    numbers : tuple of int
        Columns of numbers, which are aligned to the right.
    note : str
        The rest of the caption.
    key : str
        Name of its file of comma-separated values, without the ending.
    long : bool
        Whether it may be broken over pages.
    is_file_only : bool
        Whether it is too large for the page, and a file alone has it.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: tuple[int, ...] = ()
    note: str = ""
    key: str = ""
    long: bool = False
    is_file_only: bool = False


@dataclass(frozen=True)
class Panel:
    """One of several pictures beside each other: its title, the place of its colour (-1: none), and words below it."""

    title: str
    svg: str
    colour: int = -1
    below: str = ""


@dataclass(frozen=True)
class Figure:
    """Pictures with one caption, in two or three columns, with groups of panels under headings."""

    caption: str
    note: str
    groups: tuple[tuple[str, tuple[Panel, ...]], ...]
    columns: int = 2


@dataclass(frozen=True)
class Card:
    """A kind on the first screen: its name, its number, what it means, and its effects."""

    title: str
    big: str
    said: str
    items: tuple[str, ...]
    colour: int


@dataclass(frozen=True)
class Cards:
    """Cards beside each other."""

    cards: tuple[Card, ...]


@dataclass(frozen=True)
class FlowChart:
    """Steps from what was asked to what was used, each a number and a sentence."""

    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Paste:
    """Paragraphs to be taken over into a paper, each with its heading."""

    paragraphs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Commands."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    rows: tuple[tuple[str, str | Tag], ...]


@dataclass(frozen=True)
class Bullets:
    """A list: what, and a sentence about it; the first may be empty."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Note:
    """Small print."""

    text: str


Block = str | Table | Figure | Cards | FlowChart | Paste | Code | Facts | Bullets | Note


@dataclass(frozen=True)
class Section:
    """A section of a report: its title, its name in links, and its parts; a text is a paragraph."""

    title: str
    key: str
    blocks: tuple[Block, ...]
    supplement: bool = False


@dataclass(frozen=True)
class Head:
    """What stands above the verdict."""

    kicker: str
    title: str
    banner: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class NextStep:
    """The box at the top of a page that has no verdict: what waits, its colour as of a tag, and what to do."""

    title: str
    css: str
    blocks: tuple[Block, ...]


def numbered(sections: Sequence[Section]) -> list[Section]:
    """Return sections, tables and figures with their numbers; those of the supplement have an S."""
    tables, figures, more = count(1), count(1), count(1)
    found = []
    for i, section in enumerate(sections):
        blocks: list[Block] = []
        for block in section.blocks:
            if isinstance(block, Table) and block.is_file_only:
                blocks.append(Note(f"{block.caption} The table is too large for a page: {block.key}.csv."))
            elif isinstance(block, Table):
                number = f"S{next(more)}" if section.supplement else str(next(tables))
                blocks.append(replace(block, caption=f"Table {number}. {block.caption}"))
            elif isinstance(block, Figure):
                blocks.append(replace(block, caption=f"Figure {next(figures)}. {block.caption}"))
            else:
                blocks.append(block)
        found.append(replace(section, title=f"{i + 1}. {section.title}", blocks=tuple(blocks)))
    return found


# ---------------------------------------------------------------------- HTML

CLASSES = {Use.YES: "yes", Use.CARE: "care", Use.NO: "no"}
SENTENCE = 40
"""Number of characters from which the texts of a column take the whole width of a phone."""


def render_page(head: Head, top: ReportVerdict | NextStep | None, sections: Sequence[Section], footer: str) -> str:
    """Return a whole page: head, verdict or next step if there is one, contents and sections."""
    style = files("consilience.report").joinpath("style.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    shown = numbered(sections)
    links = "".join(f'<li><a href="#{each.key}">{_text(each.title.partition(" ")[2])}</a></li>' for each in shown)
    body = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">',
        f'<title>{escape(head.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<div class="wrap">',
        f'<a class="skip" href="#{shown[0].key}">Skip to the first section</a>' if shown else "",
        _head_html(head),
        "<main>",
        "" if top is None else _top_html(top),
        f'<nav aria-label="Contents"><ol>{links}</ol></nav>',
        *(_section_html(each) for each in shown),
        f"</main>\n<footer>{_text(footer)}</footer>\n</div>\n</body>\n</html>\n",
    ]
    return "\n".join(body)


def _text(said: str) -> str:
    """Return escaped text, in which a percentage is not broken over lines."""
    return escape(said).replace(" %", "\u00a0%")


def _head_html(head: Head) -> str:
    banner = f'<p class="banner">{_text(head.banner)}</p>\n' if head.banner else ""
    title = f"<h1>{escape(head.title)}</h1>"
    return f'<header>\n<p class="kicker">{_text(head.kicker)}</p>\n{title}\n{banner}{_facts_html(head.facts)}</header>'


def _verdict_html(judged: ReportVerdict) -> str:
    boxes = "".join(
        f'<div class="box {CLASSES[part.use] if part.decides else "note"}"><h3>{_text(part.title)}</h3>'
        f'<p><span class="tag {CLASSES[part.use] if part.decides else "note"}">{_text(part.tag)}</span></p>'
        f"<ul>{''.join(f'<li>{_text(each)}</li>' for each in part.sentences)}</ul></div>\n"
        for part in judged.parts
    )
    return (
        f'<section class="verdict {CLASSES[judged.use]}" aria-labelledby="verdict">\n'
        f'<h2 id="verdict">{_text(str(judged.use))}</h2>\n<p>{_text(judged.about)}</p>\n'
        f'<div class="three">\n{boxes}</div>\n</section>'
    )


def _top_html(top: ReportVerdict | NextStep) -> str:
    if isinstance(top, ReportVerdict):
        return _verdict_html(top)
    blocks = "\n".join(map(_block_html, top.blocks))
    return (
        f'<section class="verdict {top.css}" aria-labelledby="top">\n'
        f'<h2 id="top">{_text(top.title)}</h2>\n{blocks}\n</section>'
    )


def _section_html(section: Section) -> str:
    blocks = "\n".join(map(_block_html, section.blocks))
    return f'<section>\n<h2 id="{section.key}">{_text(section.title)}</h2>\n{blocks}\n</section>'


def _block_html(block: Block) -> str:  # noqa: PLR0911 - one line for each kind of block
    if isinstance(block, str):
        return f"<p>{_text(block)}</p>"
    if isinstance(block, Table):
        return _table_html(block)
    if isinstance(block, Figure):
        return _figure_html(block)
    if isinstance(block, Cards):
        return f'<div class="two">\n{"".join(map(_card_html, block.cards))}</div>'
    if isinstance(block, FlowChart):
        return f'<ol class="flow">{"".join(f"<li><b>{_text(a)}</b> {_text(b)}</li>" for a, b in block.steps)}</ol>'
    if isinstance(block, Paste):
        return f'<div class="paste">{"".join(f"<p><b>{a}.</b> {_text(b)}</p>" for a, b in block.paragraphs)}</div>'
    if isinstance(block, Code):
        return f"<pre>{escape(block.text)}</pre>"
    if isinstance(block, Facts):
        return _facts_html(block.rows)
    if isinstance(block, Bullets):
        items = (f"<li>{f'<b>{_text(a)}</b> ' if a else ''}{_text(b)}</li>" for a, b in block.items)
        return f"<ul>{''.join(items)}</ul>"
    return f'<p class="fn">{_text(block.text)}</p>'


def _facts_html(rows: Iterable[tuple[str, str | Tag]]) -> str:
    return f'<dl class="facts">{"".join(f"<dt>{_text(a)}</dt><dd>{_cell_html(b)}</dd>" for a, b in rows)}</dl>\n'


def _cell_html(cell: Cell) -> str:
    if isinstance(cell, Drawing):
        return cell.svg
    if isinstance(cell, Tag):
        return f'<span class="tag {cell.css}">{_text(cell.said)}</span> {_text(cell.more)}'.rstrip()
    return _text(cell)


def text_of_cell(cell: Cell) -> str:
    """Return a cell as text; a picture has none."""
    if isinstance(cell, Tag):
        return f"{cell.said} {cell.more}".rstrip()
    return cell if isinstance(cell, str) else ""


def _card_html(card: Card) -> str:
    items = "".join(f"<li>{_text(each)}</li>" for each in card.items)
    css = f"t{colour(card.colour)}"
    big = f'<p class="big {css}">{_text(card.big)}</p>' if card.big else ""
    listed = f"<ul>{items}</ul>" if items else ""
    return (
        f'<div class="kind b{colour(card.colour)}"><h3 class="{css}">{_text(card.title)}</h3>{big}'
        f"<p>{_text(card.said)}</p>{listed}</div>\n"
    )


def _figure_html(figure: Figure) -> str:
    groups = "".join(
        f'<div class="group">{f"<h3>{_text(title)}</h3>" if title else ""}'
        f'<div class="grid{figure.columns}">{"".join(map(_panel_html, panels))}</div></div>'
        for title, panels in figure.groups
    )
    return f"<figure><figcaption><b>{_text(figure.caption)}</b> {_text(figure.note)}</figcaption>{groups}</figure>"


def _panel_html(panel: Panel) -> str:
    css = "" if panel.colour < 0 else f" t{colour(panel.colour)}"
    title = f'<p class="ct{css}">{_text(panel.title)}</p>' if panel.title else ""
    below = f"<p>{_text(panel.below)}</p>" if panel.below else ""
    return f'<div class="cell">{title}{panel.svg}{below}</div>'


def _table_html(table: Table) -> str:
    head = "".join(
        f'<th scope="col" role="columnheader"{_css(table, j)}>{_text(text)}</th>' for j, text in enumerate(table.header)
    )
    caption = f"<caption><b>{_text(table.caption)}</b> {_text(table.note)}</caption>"
    rows = "\n".join(_row_html(table, row) for row in table.rows)
    css = "stack long" if table.long else "stack"
    return (
        f'<table class="{css}" role="table">{caption}<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}</tbody></table>'
    )


def _row_html(table: Table, row: tuple[Cell, ...]) -> str:
    if len(row) == 1:
        span = f'<th role="rowheader" scope="rowgroup" colspan="{len(table.header)}">{_cell_html(row[0])}</th>'
        return f'<tr class="g" role="row">{span}</tr>'
    cells = "".join(
        f'<td role="cell"{_css(table, j)} data-l="{escape(table.header[j], quote=True)}">{_cell_html(cell)}</td>'
        for j, cell in enumerate(row)
        if j
    )
    return f'<tr role="row"><th scope="row" role="rowheader">{_cell_html(row[0])}</th>{cells}</tr>'


def _css(table: Table, j: int) -> str:
    """Return the class of a column: of numbers, of sentences, of pictures, or neither."""
    if j in table.numbers:
        return ' class="n"'
    cells = [row[j] for row in table.rows if len(row) > j]
    if any(isinstance(cell, Drawing) for cell in cells):
        return ' class="p"'
    return ' class="w"' if any(len(text_of_cell(cell)) > SENTENCE for cell in cells) else ""


# ---------------------------------------------------------------------- Markdown

MARKDOWN_SIGNS = re.compile(r"([\\`*{}\[\]<>|#]|(?<!\w)_|_(?!\w))")
"""An underscore within a word has no meaning there."""


def escape_markdown(text: str) -> str:
    """Return a text without signs that have a meaning in Markdown."""
    return MARKDOWN_SIGNS.sub(r"\\\1", text).replace("\n", " ")


def section_markdown(section: Section) -> list[str]:
    """Return the lines of a section in Markdown; pictures are left out, since tables have their numbers."""
    lines = [f"## {escape_markdown(section.title)}", ""]
    for block in section.blocks:
        lines += [*_block_markdown(block), ""]
    return lines


def _block_markdown(block: Block) -> list[str]:  # noqa: PLR0911 - one line for each kind of block
    say = escape_markdown
    if isinstance(block, Table):
        return _table_markdown(block)
    if isinstance(block, Figure):
        return []
    if isinstance(block, Cards):
        cards = block.cards
        return [line for each in cards for line in (f"**{say(each.title)}**: {say(each.big)}. {say(each.said)}", "",
                                                   *(f"- {say(item)}" for item in each.items), "")]  # fmt: skip
    if isinstance(block, FlowChart):
        return [f"- **{say(a)}** {say(b)}" for a, b in block.steps]
    if isinstance(block, Paste):
        return [line for a, b in block.paragraphs for line in (f"> **{a}.** {say(b)}", ">")]
    if isinstance(block, Code):
        return ["```", block.text, "```"]
    if isinstance(block, Facts):
        return [f"- {say(a)}: {say(text_of_cell(b))}" for a, b in block.rows]
    if isinstance(block, Bullets):
        return [f"- {f'**{say(a)}** ' if a else ''}{say(b)}" for a, b in block.items]
    return [say(block if isinstance(block, str) else block.text)]


def _table_markdown(table: Table) -> list[str]:
    say, width = escape_markdown, len(table.header)
    lines = [f"{say(table.caption)} {say(table.note)}".rstrip(), "", f"| {' | '.join(map(say, table.header))} |"]
    lines.append(f"|{'|'.join('---:' if j in table.numbers else '---' for j in range(width))}|")
    filled = ((*row, *("",) * (width - len(row))) for row in table.rows)
    return [*lines, *(f"| {' | '.join(say(text_of_cell(cell)) for cell in row)} |" for row in filled)]
