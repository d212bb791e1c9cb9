"""Text of a report: its sections as people read them."""

from __future__ import annotations

import html
import re


def sections(page: str) -> dict[str, str]:
    """Texts of the sections of a page by their names in links."""
    parts = re.split(r'<h2 id="(\w+)">', page)
    return {name: plain(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)} | {"head": plain(parts[0])}


def plain(markup: str) -> str:
    """Text of HTML: one space between words."""
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", markup, flags=re.DOTALL)
    return " ".join(html.unescape(text).replace("\u00a0", " ").split())
