"""Inline SVG of a Matplotlib figure, without styles and identifiers that could clash in one page.

The page forbids styles that are not its own, so that declarations of style become attributes. Texts stay texts, for
readers, search and translation.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any

import numpy as np

from consilience.plot.library import pyplot

SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "consilience", "font.size": 9.5}
FONT = re.compile(r"(?:\w+\s+)*?(?:(?P<weight>bold|\d00)\s+)?(?P<size>[\d.]+)px\s+(?P<family>.+)")


def inline(draw: Any, name: str, alt: str) -> str:
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
    return cleaned(buffer.getvalue(), name, alt)


def cleaned(text: str, name: str, alt: str) -> str:
    """Return the SVG element of a file of Matplotlib, with attributes in place of styles.

    Examples
    --------
    >>> file = '<?xml version="1.0"?><svg width="9pt" viewBox="0 0 9 9"><defs><style>*{}</style></defs>'
    >>> cleaned(file + '<path id="a" style="fill: none; stroke: #000000"/></svg>', "p1", "a line")
    '<svg viewBox="0 0 9 9" role="img" aria-label="a line"><path id="p1-a" fill="none" stroke="#000000"/></svg>'
    """
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
