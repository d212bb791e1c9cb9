"""Finds the sentences that make a claim, and shows on ``docs/evidence/claims.rst`` what holds each of them.

The rule is short, so that a writer can keep it in mind. A sentence of a page makes a claim if it has a figure that
looks measured (``FIGURE``: decimals, shares, ranges, numbers with a unit) or an absolute word (``ABSOLUTE``). Code,
formulas, headings and sentences that begin with *Aim* are not read. ``docs/evidence/claims.toml`` names what holds
each claim by its text, unless all its figures come from the role ``:result:``.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from results import escaped, shown
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "docs" / "evidence" / "claims.toml"
KINDS = {
    "snippet": "has figures that the code of its page prints, which is run",
    "definition": "says what a word or a setting means here",
    "setting": "says how a study or a default is set up",
    "citation": "reports what somebody else found, and says who",
    "example": "describes the example of its page",
    "arithmetic": "follows from what stands beside it",
    "limit": "says what is not promised, not known or not done",
    "advice": "says what people should do",
    "record": "says on a page of a decision what was found or decided then",
}
"""What a sentence with a figure or an absolute word can be that is no claim."""
FIRST = {"sentences found by the rule": 725, "with a typed figure": 375, "held": 0, "deleted or weakened": 20}
"""Counts of the first reading of the pages, and what came of it."""
ABSOLUTE = re.compile(
    r"\b(never|always|nothing|nobody|exactly|guarantee[sd]?|impossible|cannot|whatever|identical(ly)?)\b"
    r"|\b(bit for bit|to the bit|as if|as (accurate|good|fast) as|in every case|in all (draws|runs))\b"
    r"|\b(close to the pooled|the (fit|model) of (all rows|one table))\b"
    r"|\b(no|without|instead of) (a |an |any )?(row|rows|data|code|socket|values?|network|person|hidden)\b",
    re.IGNORECASE,
)
NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNIT = r"(?:µs|ms|s|seconds?|minutes?|hours?|[kMG]i?B|bytes|times|%|percent|points?|units?|standard errors?)(?![\w-])"
WORDS = "(?:two|three|four|five|six|seven|eight|nine|ten|a|one|half a)"
FIGURE = re.compile(
    rf"(?<![\w.\-/`(]){NUMBER}(?: to {NUMBER})? {UNIT}|(?<![\w.\-/`]){NUMBER} (?:of|to) {NUMBER}\b"
    rf"|(?<![\w.\-/:`])\d+\.\d+(?![\w.])|[≥≤] ?{NUMBER}|\b{WORDS} (?:seconds?|minutes?|hours?|times)\b"
)
SKIPPED = re.compile(  # directives whose content is no prose
    r"\.\. (?:code-block|test\w+|doctest|math|image|figure|results|toctree|plot|raw|literalinclude|\w*module|auto\w+"
    r"|highlight|csv-table|parsed-literal|[\w-]+-(?:graph|tree|catalogue)|claims|claim-kinds)::|\.\. (?![\w-]+::)|\.\.$"
)
ITEM = re.compile(r"(?:\* - |[*-] |#\. |\.\. )")


def prose(text: str) -> Iterator[str]:
    """Yields paragraphs, items and cells of a page in reStructuredText."""
    block: list[str] = []
    skipped: int | None = None  # indentation of what is skipped
    for line in [*text.splitlines(), ""]:
        bare, indent = line.strip(), len(line) - len(line.lstrip())
        if bare and skipped is not None and indent > skipped:
            continue
        skipped = None if bare else skipped
        if re.fullmatch(r"([=\-~^])\1{2,}", bare):  # what stands above is a heading
            block = []
            continue
        if not bare or ITEM.match(bare):
            yield "" if block and block[0].startswith(">>>") else " ".join(block)
            block = []
        if SKIPPED.match(bare):
            skipped = indent
        elif bare and not re.match(r"\.\. |:[\w-]+:(?: |$)", bare):
            item = ITEM.match(bare)
            block.append(bare[item.end() :] if item else bare)
            if bare.endswith("::"):
                skipped = indent
    yield " ".join(block)


def markdown(text: str) -> Iterator[str]:
    """Yields paragraphs, items and cells of a page in Markdown."""
    text = re.sub(r"^```.*?^```$|^#.*?$|!\[[^\]]*\]\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    yield from (re.sub(r"^\s*[-*] ", "", block) for block in re.split(r"\n\s*\n|\n(?=[-*] )|(?<!\\)\|", text))


def sentences(path: str, text: str) -> Iterator[str]:
    """Yields the sentences of a file, with one space between words and ``#`` for what the role shows."""
    if path.endswith(".py"):
        blocks = (block for doc in documented(text) for block in prose(doc))
    else:
        blocks = markdown(text) if path.endswith(".md") else prose(text)
    for block in blocks:
        plain = re.sub(r":result:`[^`]+`", "#", block)
        plain = re.sub(r":[a-z:]+:`~?([^`<]*?)(?: ?<[^`>]*>)?`|\*\*|`", r"\1", plain)
        yield from (" ".join(one.split()) for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z*\"(])", plain) if one.strip())


def documented(text: str) -> Iterator[str]:
    """Yields the texts of a script of the gallery: its docstring and its ``# %%`` cells."""
    yield ast.get_docstring(ast.parse(text)) or ""
    for cell in re.findall(r"^# %%.*\n((?:^#.*\n)+)", text, flags=re.MULTILINE):
        yield re.sub(r"^# ?", "", cell, flags=re.MULTILINE)


def makes_a_claim(sentence: str) -> bool:
    """Whether a sentence has an absolute word or a figure, and does not state an aim."""
    return not re.match(r"Aims?\b", sentence) and bool(ABSOLUTE.search(sentence) or FIGURE.search(sentence))


def claims_of(path: str, text: str) -> list[str]:
    """Return the sentences of a file that make a claim; what the role shows is no figure of theirs."""
    return [sentence for sentence in sentences(path, text) if makes_a_claim(sentence)]


def listed() -> dict[str, dict[str, Any]]:
    """Return the table of claims by page: what holds each sentence."""
    table: dict[str, dict[str, Any]] = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))
    return table


def holders(held: Any) -> list[str]:
    """Return what holds a sentence: one or several tests or results, or what the sentence is."""
    return held if isinstance(held, list) else [held]


def counts() -> dict[str, int]:
    """Return how many sentences tests, results and the role hold, and how many are no claims, over all pages."""
    held = [holders(each) for rows in listed().values() for each in rows.values()]
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.rst"))]
    return {
        "sentences found by the rule": len(held),
        "with a typed figure": sum(bool(FIGURE.search(one)) for rows in listed().values() for one in rows),
        "held by a test": sum("::" in each[0] for each in held),
        "compared with a stored result": sum(each[0].startswith("result: ") for each in held),
        "that are no claims": sum(each[0] in KINDS and each != ["snippet"] for each in held),
        "held by code that prints their figures": sum(each == ["snippet"] for each in held),
        "figures that the role shows": sum(len(re.findall(r":result:`[^`]", page)) for page in pages),
    }


def items(title: str, found: dict[str, int]) -> list[str]:
    return [f"{title}:", "", *(f"- {name}: {count:,}" for name, count in found.items()), ""]


class Claims(SphinxDirective):
    """Lists the claims of each page with what holds them."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(CLAIMS))
        lines = [line for title, found in (("At first", FIRST), ("Today", counts())) for line in items(title, found)]
        for page, rows in listed().items():
            lines += [
                f".. list-table:: {escaped(page)}",
                "   :header-rows: 1",
                "   :widths: 60 40",
                "   :class: claims",
                "",
            ]
            lines += ["   * - Sentence", "     - Held by"]
            for sentence, held in rows.items():
                lines += [f"   * - {escaped(sentence)}", f"     - {'; '.join(map(self.said, holders(held)))}"]
            lines.append("")
        return self.parse_text_to_nodes("\n".join(lines))

    @staticmethod
    def said(holder: str) -> str:
        """Return the words for a holder: a test, a stored result with its figure, or what the sentence is."""
        if holder.startswith("result: "):
            expression = holder.removeprefix("result: ")
            return f"``{expression}``: {escaped(shown(expression))}"
        return f"``{holder}``" if "::" in holder else f"*{holder}*"


class Kinds(SphinxDirective):
    """Lists what a sentence can be that is no claim."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(f"- *{kind}*: {meaning}" for kind, meaning in KINDS.items()))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("claims", Claims)
    app.add_directive("claim-kinds", Kinds)
    return {"parallel_read_safe": True}
