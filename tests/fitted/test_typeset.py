"""A summary is text, HTML, LaTeX and Markdown with the same numbers, escaped."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251 - people copy and send summaries to other processes
import re
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft
from consilience.fitted.typeset import Summary, TextTable
from simulated import simulated

NAMES = ["a<b>&_x|y", "50%_{$}~^\\#*"]


@cache
def summary(K: int = 2) -> Summary:
    data = simulated(n=300) if K == 2 else soft(900, random_state=0)
    X = pd.DataFrame(data.X, columns=NAMES) if K == 2 else data.X
    return MixtureOfExpertsRegressor(K, mixture_init=data.truth).fit(X, data.y).summary()


def numbers(text: str) -> list[str]:
    return re.findall(r"-?\d+\.\d+", text)


def of_tables(found: Summary) -> list[str]:
    return [number for table in found.tables for row in table.rows for number in numbers(" ".join(row))]


@pytest.mark.parametrize("K", [2, 4])
def test_all_forms_have_the_numbers_of_the_text(K: int) -> None:
    found = summary(K)
    assert len(of_tables(found)) > 30
    for text in (found, found.to_html(), found.to_markdown(), found.to_latex()):
        shown = set(numbers(re.sub(r"<[^>]*>", " ", text)))
        assert set(of_tables(found)) <= shown
        assert {number for row in found.facts for number in numbers(" ".join(row))} <= shown
    for note in found.notes:
        assert " ".join(note.split()) in " ".join(found.split())


class Tags(HTMLParser):
    """Collects the tags, and the text of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_html_is_escaped_and_has_no_script() -> None:
    reader = Tags()
    reader.feed(summary().to_html())
    assert reader.tags <= {"div", "strong", "table", "caption", "tr", "th", "td", "ul", "li", "p"}
    assert set(NAMES) <= set(reader.words)
    assert summary()._repr_html_() == summary().to_html()


def test_latex_has_no_character_with_a_meaning_and_even_rows() -> None:
    text = summary().to_latex()
    for name in (r"a\textless{}b\textgreater{}\&\_x\textbar{}y", r"50\%\_\{\$\}\textasciitilde{}\textasciicircum{}"):
        assert name in text
    assert text.isascii()
    tables = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL)
    assert len(tables) == len(summary().tables) + 1
    for columns, body in tables:
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert rows
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(columns) - 1}


def test_markdown_tables_have_even_rows() -> None:
    text = summary().to_markdown()
    assert "a&lt;b>&\\_x\\|y" in text
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == len(summary().tables) + 1
    for lines in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
        assert re.fullmatch(r"\|:--(\|--:)+\|", lines[1])


def test_a_summary_is_a_text_that_shows_itself_and_can_be_copied() -> None:
    found = summary()
    assert isinstance(found, str)
    assert repr(found) == str(found)
    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert again == found
        assert again.to_latex() == found.to_latex()


def test_what_is_cut_is_said_in_every_form() -> None:
    table = TextTable("Wide", ["", "1"], [["x", "1.5"]], more="… 30 terms in all")
    found = Summary(table.text(), "A fit", tables=[table])
    for text in (found, found.to_html(), found.to_markdown()):
        assert "… 30 terms in all" in text
    assert r"\dots{} 30 terms in all" in found.to_latex()
    assert np.all([len(line) for line in found.splitlines()])
