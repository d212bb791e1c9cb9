"""Every sentence with a figure or an absolute word has a test or a stored result that holds it."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))

from claims import FIGURE, KINDS, NUMBER, claims_of, counts, holders, listed  # noqa: E402
from results import shown  # noqa: E402

LISTS = ("docs/evidence/claims.rst",)
"""Pages that are made from the table."""
MADE = ("generated", "_build")
"""Folders of pages that a build of the documentation writes."""


def pages() -> list[str]:
    """The pages whose sentences are read."""
    docs = ROOT / "docs"
    found = [*sorted(docs.rglob("*.rst")), *sorted((docs / "gallery").glob("*.py"))]
    named = (path.relative_to(ROOT).as_posix() for path in found if not set(MADE) & set(path.parts))
    return ["README.md", "SECURITY.md", *(name for name in named if name not in LISTS)]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def names_of_tests(path: str) -> set[str]:
    """The names of the tests of a file that pytest collects."""
    file = ROOT / path
    if not (file.exists() and file.name.startswith("test_") and path.startswith("tests/")):
        return set()
    functions = (node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def printed_by(text: str) -> str:
    """What the code of a page prints: it is run by ``just docs`` or by a test."""
    outputs = re.findall(r"^\.\. testoutput::.*\n((?:\s+.*\n|\n)+)", text, re.MULTILINE)
    return " ".join([*outputs, *re.findall(r"^ *>>>.*\n((?: *(?!>>>)\S.*\n)+)", text, re.MULTILINE)])


def figures_in(sentence: str) -> set[str]:
    return {number for figure in FIGURE.finditer(sentence) for number in re.findall(NUMBER, figure[0])}


def faults_of_holders(page: str, text: str, sentence: str, held: list[str]) -> list[str]:
    found = []
    for one in held:
        path, _, name = one.partition("::")
        if name and name not in names_of_tests(path):
            found.append(f"{page}: no test {one}")
        if not name and one not in KINDS and not one.startswith("result: "):
            found.append(f"{page}: {one!r} is neither a test nor a result nor one of {', '.join(KINDS)}")
    stored = [shown(one.removeprefix("result: ")) for one in held if one.startswith("result: ")]
    stated = {number for one in stored for number in re.findall(NUMBER, one)}
    if stored and page.endswith(".rst"):
        found += [f"{page}: {one} is typed, use :result:: {sentence}" for one in figures_in(sentence) & stated]
    elif stored:
        found += [f"{page}: {one} is not the stored figure: {sentence}" for one in figures_in(sentence) - stated]
    if held == ["snippet"]:
        found += [
            f"{page}: no code prints {one}: {sentence}" for one in figures_in(sentence) if one not in printed_by(text)
        ]
    return found


def faults(page: str, text: str, table: dict[str, Any]) -> list[str]:
    """What is wrong with the claims of a page."""
    sentences = dict.fromkeys(claims_of(page, text))
    found = [f'["{page}"] lacks\n"{one}" = "tests/..."' for one in sentences if one not in table]
    found += [f'["{page}"] has a sentence that is not on the page: {one}' for one in table if one not in sentences]
    for sentence in sentences:
        if sentence in table:
            found += faults_of_holders(page, text, sentence, holders(table[sentence]))
    for expression in re.findall(r":result:`([^`]+)`", text):
        try:
            shown(expression)
        except (OSError, LookupError, ValueError, TypeError) as error:
            found.append(f"{page}: {expression!r} is not stored: {error}")
    return found


def test_every_claim_is_held() -> None:
    table = listed()
    found = [fault for page in pages() for fault in faults(page, text_of(page), table.get(page, {}))]
    assert not found, "\n".join(found)
    assert set(table) <= set(pages()), "pages of the table that are not read"
    assert counts()["sentences found by the rule"] == sum(map(len, table.values()))


UNHELD = (
    "The library never fails.",
    "It is 375 times faster than R.",
    "Intervals cover 0.95 of the truths.",
    "No row leaves a site.",
    "A fit takes 0.2 s.",
    "Wrong sites are named in 720 of 720 draws.",
    "The result is exactly that of pooled rows.",
    "Estimates are as if the rows had been pooled.",
    "It needs at most 12 MB.",
    "Nothing else leaves.",
)


@pytest.mark.parametrize("planted", UNHELD)
def test_a_claim_that_nothing_holds_is_found(planted: str) -> None:
    for page in ("README.md", "SECURITY.md"):
        assert faults(page, f"{text_of(page)}\n\n{planted}\n", listed()[page])
