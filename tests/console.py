"""Commands of the pages of the documentation, and the passages that are shown of what they print.

Between passages stands ``...``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
RELATIVE, ABSOLUTE = 1e-3, 0.02
"""Tolerance of the numbers on a page: other versions of numerical libraries round differently."""


def console_steps(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each command of a page with what is shown of its output."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^\.\. code-block:: console\n\n((?:(?:   .*)?\n)+)", text, flags=re.MULTILINE):
        for step in re.split(r"^   \$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.replace("\\\n", " ").partition("\n")
            yield command, shown


def is_same(word: str, other: str) -> bool:
    """Whether two words are the same, numbers in them nearly."""
    if NUMBER.sub("#", word) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(word), NUMBER.findall(other), strict=True)
    values = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for a, b in values)


def check_shown(shown: str, text: str, command: str) -> None:
    """Find the passages in a text, one after the other."""
    words, at = text.split(), 0
    for passage in filter(None, (part.split() for part in re.split(r"(?:^|\s)\.\.\.(?=\s|$)", shown))):
        for start in range(at, len(words) - len(passage) + 1):
            if all(map(is_same, passage, words[start : start + len(passage)])):
                at = start + len(passage)
                break
        else:
            raise AssertionError(f"{command} does not print {' '.join(passage)!r}:\n{text}")
