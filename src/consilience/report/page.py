"""A report as a page: its parts as values, as HTML, and pictures as inline SVG.

Everything that was not written here is escaped. The page forbids styles that are not its own, so that declarations of
style in a picture become attributes. Texts stay texts, for readers, search and translation.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from consilience.plot.drawing import pyplot
from consilience.report.verdict import ReportVerdict, Use


@dataclass(frozen=True)
class Table:
    """A table with a caption; the first column names the rows.

    Parameters
    ----------
    caption : str
    header : tuple of str
    rows : tuple of tuple of str
    numbers : tuple of int
        Columns of numbers, which are aligned to the right.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A picture as inline SVG, with a text for those who do not see it, and its numbers.

    Parameters
    ----------
    svg : str
    alt : str
        What the picture shows.
    numbers : Table or None
        The same numbers; None if a table of the section has them.
    """

    svg: str
    alt: str
    numbers: Table | None = None


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Parameters
    ----------
    title : str
    paragraphs : tuple of str
    items : tuple of Table or Picture
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    items: tuple[Table | Picture, ...] = ()


def format_value(value: float | None, digits: int = 4) -> str:
    """Format a number with some significant digits; a dash if it is not known."""
    if value is None or not np.isfinite(value):
        return "—"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.{digits}g}"


def format_percent(value: float | None) -> str:
    """Format a fraction as a percentage; a dash if it is not known."""
    return "—" if value is None or not np.isfinite(value) else f"{100 * value:.0f} %"


BANDS = (10, 50, 100, 500, 1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000)


def row_band(rows: float) -> str:
    """Return the band of a number of rows, so that a report does not state the exact number of a site."""
    if not np.isfinite(rows):
        return "—"
    at = int(np.searchsorted(BANDS, rows, side="right"))
    if at == 0:
        return f"fewer than {BANDS[0]}"
    return f"{BANDS[-1]:,} or more" if at == len(BANDS) else f"{BANDS[at - 1]:,} to {BANDS[at] - 1:,}"


# ---------------------------------------------------------------------- HTML


FOLDED = 24
"""Number of rows above which a table is folded."""
SENTENCE = 40
"""Number of characters from which the texts of a column are sentences, which need some width."""
CLASSES = {Use.YES: "yes", Use.CARE: "care", Use.NO: "no"}
SIGNS = {Use.YES: "✓", Use.CARE: "!", Use.NO: "✗"}
"""A mark beside the colour of a verdict."""


def render_page(title: str, judged: ReportVerdict, sections: Sequence[Section], footer: str) -> str:
    """Return a whole page: verdict, contents and sections; it has no script, and loads nothing."""
    style = files("consilience.report").joinpath("style.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'"
    links = "".join(f'<li><a href="#s{i}">{escape(each.title)}</a></li>' for i, each in enumerate(sections))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>",
            f"<header>\n<h1>{escape(title)}</h1>\n</header>\n<main>",
            _verdict_html(judged),
            f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
            *(_section_html(f"s{i}", each) for i, each in enumerate(sections)),
            f"</main>\n<footer><p>{escape(footer)}</p></footer>\n</body>\n</html>\n",
        ]
    )


def _verdict_html(judged: ReportVerdict) -> str:
    points = "".join(f"<li>{escape(point.text)}</li>" for point in judged.points)
    return (
        f'<section class="verdict {CLASSES[judged.use]}" aria-label="Verdict">\n'
        f'<p class="use"><span aria-hidden="true">{SIGNS[judged.use]}</span> {escape(str(judged.use))}</p>\n'
        f"<p>{escape(judged.about)}</p>\n<p>{escape(judged.left_out)}</p>\n"
        + (f"<p>What is in doubt:</p>\n<ul>{points}</ul>\n" if points else "<p>Nothing was found to be in doubt.</p>\n")
        + "</section>"
    )


def _section_html(name: str, section: Section) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>\n" for text in section.paragraphs)
    items = "\n".join(_figure_html(each) if isinstance(each, Picture) else _table_html(each) for each in section.items)
    return f'<section>\n<h2 id="{name}">{escape(section.title)}</h2>\n{paragraphs}{items}\n</section>'


def _figure_html(picture: Picture) -> str:
    table = "" if picture.numbers is None else _table_html(picture.numbers, folded=True)
    if not picture.svg:
        return f"<p>{escape(picture.alt)}.</p>{table}"
    return f"<figure>{picture.svg}<figcaption>{escape(picture.alt)}</figcaption></figure>{table}"


def _column_class(table: Table, j: int) -> str:
    """Return the class of a column: of numbers, of sentences, or neither."""
    if j in table.numbers:
        return ' class="n"'
    return ' class="t"' if any(len(row[j]) > SENTENCE for row in table.rows) else ""


def _table_html(table: Table, *, folded: bool = False) -> str:
    of = [_column_class(table, j) for j in range(len(table.header))]
    head = "".join(f'<th scope="col"{css}>{escape(text)}</th>' for css, text in zip(of, table.header, strict=True))
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td{css}>{escape(text)}</td>" for css, text in zip(of[1:], row[1:], strict=True))
        + "</tr>\n"
        for row in table.rows
    )
    label = escape(table.caption, quote=True)
    body = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table>'
        f"<caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>"
    )
    if not folded and len(table.rows) <= FOLDED:
        return body
    return f"<details><summary>{escape(table.caption)}: {len(table.rows)} rows</summary>{body}</details>"


# ---------------------------------------------------------------------- pictures


SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "consilience", "font.size": 9.5}
FONT = re.compile(r"(?:\w+\s+)*?(?:(?P<weight>bold|\d00)\s+)?(?P<size>[\d.]+)px\s+(?P<family>.+)")


def draw_svg(draw: Any, name: str, alt: str) -> str:
    """Return a picture as an SVG element.

    Parameters
    ----------
    draw : callable
        Draws, and returns the Axes, or an array of them.
    name : str
        Prefix of identifiers, unique in the page.
    alt : str
        What the picture shows.
    """
    try:
        plt = pyplot()
    except ImportError as error:
        raise ImportError("a report needs Matplotlib: pip install 'consilience[report]'") from error
    with plt.rc_context(SETTINGS):
        figure = np.ravel(draw())[0].figure
        try:
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight", transparent=True)
        finally:
            plt.close(figure)
    return clean_svg(buffer.getvalue(), name, alt)


def clean_svg(text: str, name: str, alt: str) -> str:
    """Return the SVG element of a file of Matplotlib, with attributes in place of styles."""
    body = text[text.index("<svg") :].strip()
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', body)
    head = f'<svg {box.group(0) if box else ""} role="img" aria-label="{escape(alt)}">'
    body = head + body[body.index(">") + 1 :]
    body = re.sub(r'\sstyle="([^"]*)"', lambda found: _attributes(found.group(1)), body)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'((?:xlink:)?href="#)', rf"\g<1>{name}-", body).replace("xlink:href", "href")
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    return re.sub(r"\n\s*", "\n", body)


def _attributes(style: str) -> str:
    """Return declarations of style as attributes; the short form of fonts is taken apart."""
    found = []
    for part in filter(None, (each.strip() for each in style.replace("&quot;", "'").split(";"))):
        key, _, value = (each.strip() for each in part.partition(":"))
        font = FONT.fullmatch(value) if key == "font" else None
        if font is not None:
            found.append(f'font-size="{font["size"]}"')
            found += [f'font-weight="{font["weight"]}"'] if font["weight"] else []
        elif key not in ("font", "font-family"):
            found.append(f'{key}="{value}"')
    return "".join(f" {each}" for each in found)
