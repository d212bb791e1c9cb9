"""Questions of a principal investigator: the page about reports lists them, and the named section answers each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from report_text import sections

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "reports.rst"
ROW = re.compile(r"^   \* - (.+)\n     - (\w+)\n     - (.+)$", re.MULTILINE)
"""A row of the table of the page: the question, the name of the section, and words of the answer."""
_, *QUESTIONS = ROW.findall(re.sub(r"\n {7}", " ", PAGE.read_text(encoding="utf-8")))


def test_there_are_twenty_questions_and_more_about_every_section(page: str) -> None:
    assert len(QUESTIONS) >= 20
    assert len({question for question, _, _ in QUESTIONS}) == len(QUESTIONS)
    supplements = {"supplement", "computation", "checklists"}
    assert {where for _, where, _ in QUESTIONS} == sections(page).keys() - supplements


@pytest.mark.parametrize(("question", "where", "answer"), QUESTIONS)
def test_the_page_answers(question: str, where: str, answer: str, page: str) -> None:
    assert answer in sections(page)[where], question
