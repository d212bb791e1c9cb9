"""The parts of a report as HTML: everything that was not written here is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files

from consilience.report.parts import Picture, Section, Table
from consilience.report.verdict import Use, Verdict

FOLDED = 24
"""Number of rows above which a table is folded."""
SENTENCE = 40
"""Number of characters from which the texts of a column are sentences, which need some width."""
CLASSES = {Use.YES: "yes", Use.CARE: "care", Use.NO: "no"}
SIGNS = {Use.YES: "✓", Use.CARE: "!", Use.NO: "✗"}
"""A mark beside the colour of a verdict."""


def page(title: str, judged: Verdict, sections: Sequence[Section], footer: str) -> str:
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
            _strip(judged),
            f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
            *(_section(f"s{i}", each) for i, each in enumerate(sections)),
            f"</main>\n<footer><p>{escape(footer)}</p></footer>\n</body>\n</html>\n",
        ]
    )


def _strip(judged: Verdict) -> str:
    points = "".join(f"<li>{escape(point.text)}</li>" for point in judged.points)
    return (
        f'<section class="verdict {CLASSES[judged.use]}" aria-label="Verdict">\n'
        f'<p class="use"><span aria-hidden="true">{SIGNS[judged.use]}</span> {escape(str(judged.use))}</p>\n'
        f"<p>{escape(judged.about)}</p>\n<p>{escape(judged.left_out)}</p>\n"
        + (f"<p>What is in doubt:</p>\n<ul>{points}</ul>\n" if points else "<p>Nothing was found to be in doubt.</p>\n")
        + "</section>"
    )


def _section(name: str, section: Section) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>\n" for text in section.paragraphs)
    items = "\n".join(_figure(each) if isinstance(each, Picture) else _table(each) for each in section.items)
    return f'<section>\n<h2 id="{name}">{escape(section.title)}</h2>\n{paragraphs}{items}\n</section>'


def _figure(picture: Picture) -> str:
    table = "" if picture.numbers is None else _table(picture.numbers, folded=True)
    if not picture.svg:
        return f"<p>{escape(picture.alt)}.</p>{table}"
    return f"<figure>{picture.svg}<figcaption>{escape(picture.alt)}</figcaption></figure>{table}"


def _class(table: Table, j: int) -> str:
    """Return the class of a column: of numbers, of sentences, or neither."""
    if j in table.numbers:
        return ' class="n"'
    return ' class="t"' if any(len(row[j]) > SENTENCE for row in table.rows) else ""


def _table(table: Table, *, folded: bool = False) -> str:
    of = [_class(table, j) for j in range(len(table.header))]
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
