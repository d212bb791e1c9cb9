"""Every sentence with a figure or an absolute word has a test or a stored result that holds it."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from test_docstrings import public_members, reference

pytest.importorskip("sphinx", reason="the rule on claims is an extension of the documentation")
ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))

from claims import FIGURE, FIRST, KINDS, NUMBER, claims_of, counts, holders, listed  # noqa: E402
from results import shown  # noqa: E402

LISTS = ("docs/evidence/claims.rst",)
"""Pages that are made from the table."""
DOCSTRINGS = "docstrings"
"""The page that stands for the docstrings of the reference."""
MADE = ("generated", "_build")
"""Folders of pages that a build of the documentation writes."""


def pages() -> list[str]:
    """The pages whose sentences are read."""
    docs = ROOT / "docs"
    found = [*sorted(docs.rglob("*.rst")), *sorted((docs / "gallery").glob("*.py"))]
    named = (path.relative_to(ROOT).as_posix() for path in found if not set(MADE) & set(path.parts))
    return ["README.md", "SECURITY.md", DOCSTRINGS, *(name for name in named if name not in LISTS)]


def text_of(page: str) -> str:
    return docstrings() if page == DOCSTRINGS else (ROOT / page).read_text(encoding="utf-8")


@cache
def docstrings() -> str:
    """The docstrings of the names of the reference and of their public methods, one after the other."""
    values = [value for value in reference().values() if not isinstance(value, dict)]
    named = [each for value in values for each in (value, *members_of(value))]
    return "\n\n".join(inspect.getdoc(each) or "" for each in named)


def members_of(value: object) -> list[object]:
    return list(public_members(value).values()) if inspect.isclass(value) else []


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


def stored(expression: str) -> str | None:
    """What the role shows; None where there is nothing."""
    try:
        return shown(expression)
    except (OSError, LookupError, ValueError, TypeError):
        return None


def is_printed(figure: str, text: str) -> bool:
    """Whether a number that the code of a page prints is the figure, if rounded as it is."""
    digits = len(figure.partition(".")[2])
    printed = (float(number.replace(",", "")) for number in re.findall(NUMBER, printed_by(text)))
    return figure.replace(",", "") in {f"{number:.{digits}f}" for number in printed}


def figures_in(sentence: str) -> set[str]:
    return {number for figure in FIGURE.finditer(sentence) for number in re.findall(NUMBER, figure[0])}


def value_of(figure: str) -> float:
    return float(figure.replace(",", ""))


def faults_of_holders(page: str, text: str, sentence: str, held: list[str]) -> list[str]:
    found, stated = [], set[str]()
    for one in held:
        path, _, name = one.partition("::")
        if one.startswith("result: "):
            value = stored(one.removeprefix("result: "))
            found += [f"{page}: {one!r} is not stored"] * (value is None)
            stated |= set(re.findall(NUMBER, value or ""))
        elif name and name not in names_of_tests(path):
            found.append(f"{page}: no test {one}")
        elif not name and one not in KINDS:
            found.append(f"{page}: {one!r} is neither a test nor a result nor one of {', '.join(KINDS)}")
    figures = figures_in(sentence)
    if page.endswith(".rst"):
        found += [f"{page}: {one} is typed, use :result:: {sentence}" for one in figures & stated]
    elif stated:
        values = set(map(value_of, stated))
        typed = [one for one in figures if value_of(one) not in values]
        found += [f"{page}: {one} is not the stored figure: {sentence}" for one in typed]
    if held == ["snippet"]:
        found += [f"{page}: no code prints {one}: {sentence}" for one in figures if not is_printed(one, text)]
    return found


def faults(page: str, text: str, table: dict[str, Any]) -> list[str]:
    """What is wrong with the claims of a page."""
    sentences = dict.fromkeys(claims_of(page, text))
    found = [f'["{page}"] lacks\n"{one}" = "tests/..."' for one in sentences if one not in table]
    found += [f'["{page}"] has a sentence that is not on the page: {one}' for one in table if one not in sentences]
    for sentence in sentences:
        if sentence in table:
            found += faults_of_holders(page, text, sentence, holders(table[sentence]))
    expressions = re.findall(r":result:`([^`]+)`", text)
    return found + [f"{page}: {expression!r} is not stored" for expression in expressions if stored(expression) is None]


def test_every_claim_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    table = listed()
    found = [fault for page in pages() for fault in faults(page, text_of(page), table.get(page, {}))]
    assert not found, "\n".join(found)
    assert set(table) <= set(pages()), "pages of the table that are not read"
    today = counts()
    assert today.pop("sentences found by the rule") == sum(map(len, table.values()))
    with capsys.disabled():
        sys.stdout.write(
            f"\nclaims, first reading: {FIRST}\nclaims, today: {sum(map(len, table.values()))} found, {today}\n"
        )


EXPRESSIONS = {
    "made up | 0 | site is south | rows": "1,200",
    "made up | 0 | share | max | :.2f": "0.50",
    "made up | 0 | site is north | share | percent | :.0f": "25",
    "made up | 0 | share > 0.3 | rows | sum": "1,200",
    "made up | 0 | share < 0.3 | named | #2": "40",
    "made up | 0 | rows | count": "2",
    "made up | 0 | rows minus none | min": "1",
    "made up | 0 | site is south | rows minus made up | 0 | site is north | rows": "1,100",
    "made up | 0 | site is south | rows over made up | 0 | site is north | rows | :.0f": "12",
}


def test_an_expression_finds_its_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"site": "north", "rows": 100, "share": 0.25, "named": "3 of 40", "rows minus none": 1},
        {"site": "south", "rows": 1200, "share": 0.5, "named": "4 of 50", "rows minus none": 2},
    ]
    (tmp_path / "made up.json").write_text(json.dumps({"tables": [{"title": "", "rows": rows}]}))
    monkeypatch.setattr("results.RESULTS", tmp_path)
    assert {expression: shown(expression) for expression in EXPRESSIONS} == EXPRESSIONS
    for wrong in (
        "made up | 0 | rows",
        "made up | 0 | site is west | rows",
        "made up | 1 | rows | sum",
        "not there | 0 | a",
    ):
        assert stored(wrong) is None


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
    for page in ("README.md", "docs/evidence/minimax.rst"):
        assert len(faults(page, f"{text_of(page)}\n\n{planted}\n", listed()[page])) == 1


WRONG = (  # page, what stands there, what is planted, and whether the table is changed too
    ("docs/understand/threat-model.rst", "It is 0.55 for", "It is 0.5 for", False),
    ("docs/understand/private-scoring.rst", "0.0244,", "0.0254,", False),
    ("docs/gallery/plot_patents.py", "a slope of 0.9", "a slope of 0.8", False),
    ("docs/start-here.rst", "by 0.27 and", "by 0.28 and", True),
    ("docs/how-to/read-heterogeneity.rst", "is above 0.7,", "is above 0.6,", True),
    ("docs/evidence/heterogeneous-sites.rst", ":result:`case_mix_hold-out | 0 | draws is all | sites`", "99.9", False),
    ("docs/how-to/administrators.rst", ":result:`installation | 0 | MB | :.0f` MB", "640 MB", False),
    ("docs/how-to/which-method.rst", ":result:`real_refinement | 0 |", ":result:`real_refinement | 7 |", False),
    ("docs/evidence/clustered-clients.rst", ":result:`fleet | 0 |", ":result:`fleet | 9 |", False),
)


@pytest.mark.parametrize(("page", "right", "wrong", "changed"), WRONG)
def test_a_wrong_number_is_found(page: str, right: str, wrong: str, changed: bool) -> None:
    text, table = text_of(page), listed()[page]
    assert text.count(right) == 1
    if changed:
        table = {sentence.replace(right, wrong): held for sentence, held in table.items()}
    assert faults(page, text.replace(right, wrong), table)


def test_a_figure_of_the_readme_is_compared_with_the_stored_one() -> None:
    held = "result: real_starts | 0 | within 2 | percent | :.1f"
    for figure, found in (("90.0 %", 0), ("91.0 %", 1)):
        sentence = f"The best end is found in {figure} of the fits."
        assert len(faults("README.md", sentence, {sentence: held})) == found
    sentence = "The best end is found in 90.0 % of the fits."
    assert faults("docs/index.rst", sentence, {sentence: held}), "a page shows a stored figure by the role"
