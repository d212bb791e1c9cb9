"""A model card: verdict, words and tables of a report in Markdown, with the header that model hubs read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from consilience.report.contents import sections
from consilience.report.parts import Picture, Section, Table
from consilience.report.subject import Subject
from consilience.report.verdict import judged

SIGNS = re.compile(r"([\\`*_{}\[\]<>|#])")


def model_card(result: Any, *, title: str = "", **known: Any) -> str:
    """Return a model card as Markdown, with a header for Hugging Face.

    Parameters
    ----------
    result, title, **known
        As in :func:`~consilience.report.html_report`.

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> card = model_card(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y))
    >>> "**This result can be used.**" in card
    True
    """
    subject = Subject.of(result, **known)
    found, model = judged(subject), subject.model
    name = title or model.title
    task = "tabular-classification" if model.reads_classes else "tabular-regression"
    header = {
        "library_name": "consilience",
        "pipeline_tag": task,
        "tags": ["mixture-model", "federated-learning", "interpretable"],
        "model_name": name,
    }
    lines = ["---", *(f"{key}: {_yaml(value)}" for key, value in header.items()), "---", "", f"# {_plain(name)}", ""]
    lines += [f"**{found.use}**", "", _plain(found.about), "", _plain(found.left_out), ""]
    lines += [*(f"- {_plain(point.text)}" for point in found.points), ""]
    lines += [line for each in sections(subject, pictures=False) for line in _section(each)]
    return "\n".join(lines).rstrip() + "\n"


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[a-z-]+", value) else json.dumps(value)


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {_plain(section.title)}", "")
    for text in section.paragraphs:
        yield from (_plain(text), "")
    for item in section.items:
        table = item.numbers if isinstance(item, Picture) else item
        if table is not None:
            yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield from (f"{_plain(table.caption)}:", "")
    yield f"| {' | '.join(map(_plain, table.header))} |"
    yield f"|{'|'.join('---:' if j in table.numbers else '---' for j in range(len(table.header)))}|"
    yield from (f"| {' | '.join(map(_plain, row))} |" for row in table.rows)
    yield ""


def _plain(text: str) -> str:
    """Return a text without signs that have a meaning in Markdown."""
    return SIGNS.sub(r"\\\1", text).replace("\n", " ")
