"""A report as an HTML page, a model card in Markdown with the header that model hubs read, and its tables as CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.json_text import write_text
from consilience.report.findings import Findings
from consilience.report.page import (
    Head,
    Table,
    escape_markdown,
    numbered,
    render_page,
    section_markdown,
    text_of_cell,
)
from consilience.report.sections import make_sections
from consilience.report.sections.found import holds_for
from consilience.report.subject import Result, Subject
from consilience.report.verdict import judge

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that a spreadsheet takes for a formula."""


def html_report(result: Result, *, title: str = "", **known: Any) -> str:
    """Return a report as the text of one HTML page.

    Parameters
    ----------
    result : fitted estimator, FederatedFit or FederatedOrders
    title : str
        Title of the page; by default that of the study, or the kind of model.
    **known
        Fields of :class:`~consilience.report.subject.Subject`, such as ``words``, ``files``, ``X`` and ``y``.

    Examples
    --------
    >>> from consilience.report import html_report
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> page = html_report(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y))
    >>> "This result can be used." in page, "<script" in page
    (True, False)
    """
    subject = Subject.of(result, **known)
    findings = Findings(subject)
    return render_page(_head(findings, title), judge(subject), make_sections(findings), _footer(subject))


def _head(findings: Findings, title: str) -> Head:
    subject = findings.subject
    words, what = subject.words, "combined study" if subject.evidence is not None else "model"
    kicker = " · ".join(filter(None, (f"Report on a {what}", subject.study, subject.made.day)))
    banner = f"Simulated data: no real {words.rows[0]} is behind any number." if words.simulated else ""
    about = "about " if subject.privacy else ""
    names = [site.name for site in subject.sites]
    at = f" at {words.count_sites(len(names))}" if names else ""
    listed = f": {', '.join(names)}" if 0 < len(names) <= 12 else ""
    record = " No record left one." if subject.evidence is not None else ""
    facts = [("Question", words.question)] if words.question else []
    facts.append(("Data", f"{about}{words.count_rows(subject.model.n_labels_)}{at}{listed}.{record}"))
    facts += [("Period", words.period)] if words.period else []
    about_whom = holds_for(findings)
    facts += [("Holds for", about_whom)] if about_whom else []
    sent = f", from {len(subject.files)} files" if subject.files else ""
    facts.append(("Made", f"{subject.made.day} with consilience {subject.made.version}{sent}"))
    return Head(kicker, title or words.title or subject.model.title, banner, tuple(facts))


def _footer(subject: Subject) -> str:
    made = subject.made
    return (
        f"Made by consilience {made.version} on {made.day}. This page has no script, loads nothing, and "
        f"has no record of any {subject.words.rows[0]}."
    )


def model_card(result: Result, *, title: str = "", **known: Any) -> str:
    """Return a model card as Markdown, with a header for Hugging Face.

    Parameters
    ----------
    result, title, **known
        As in :func:`~consilience.report.html_report`.

    Examples
    --------
    >>> from consilience.report import model_card
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> card = model_card(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y))
    >>> "**This result can be used.**" in card
    True
    """
    subject = Subject.of(result, **known)
    found, model = judge(subject), subject.model
    name = title or subject.words.title or model.title
    task = "tabular-classification" if model.mixture_.experts.classes else "tabular-regression"
    header = {
        "library_name": "consilience",
        "pipeline_tag": task,
        "tags": ["mixture-model", "federated-learning", "interpretable"],
        "model_name": name,
    }
    say = escape_markdown
    lines = ["---", *(f"{key}: {_yaml_text(value)}" for key, value in header.items()), "---", "", f"# {say(name)}", ""]
    lines += [f"**{found.use}**", "", say(found.about), ""]
    for part in found.parts:
        lines += [f"{part.title}: {part.tag}.", "", *(f"- {say(each)}" for each in part.sentences), ""]
    lines += [line for each in numbered(make_sections(Findings(subject))) for line in section_markdown(each)]
    return "\n".join(lines).rstrip() + "\n"


def _yaml_text(value: Any) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[a-z-]+", value) else json.dumps(value)


def report_tables(result: Result, **known: Any) -> dict[str, str]:
    """Return the tables of a report as texts of comma-separated values, by the names of their files.

    Parameters
    ----------
    result, **known
        As in :func:`~consilience.report.html_report`.

    Examples
    --------
    >>> from consilience.report import report_tables
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> tables = report_tables(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y))
    >>> sorted(tables)
    ['effects.csv', 'number-of-kinds.csv', 'parameters.csv', 'predictions.csv']
    """
    sections = make_sections(Findings(Subject.of(result, **known)))
    tables = (block for section in sections for block in section.blocks if isinstance(block, Table) and block.key)
    return {f"{table.key}.csv": _csv(table) for table in tables}


def _csv(table: Table) -> str:
    """Return a table as comma-separated values; signs are those of plain text, and no cell is a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    group = ""
    grouped = any(len(row) == 1 for row in table.rows)
    writer.writerow([*(["group"] if grouped else []), *map(_cell, table.header)])
    for row in table.rows:
        texts = [text_of_cell(cell) for cell in row]
        if len(row) == 1:
            group = texts[0]
        else:
            writer.writerow([*([_cell(group)] if grouped else []), *map(_cell, texts)])
    return out.getvalue()


def _cell(text: str) -> str:
    plain = text.replace("−", "-").replace("\u00a0", " ")
    number = re.fullmatch(r"[+-]?[\d,.]+(?:e[+-]?\d+)?(?: %)?(?: \(.*\))?", plain)
    return plain if number or not plain.startswith(FORMULA) else f"'{plain}"


def write_report(result: Result, path: str | Path, *, title: str = "", **known: Any) -> None:
    """Write a report as HTML, or as a model card if the name of the file ends in ``.md``.

    Parameters
    ----------
    result : fitted estimator, FederatedFit or FederatedOrders
    path : str or Path
    title : str
    **known
        As in :func:`html_report`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from consilience.report import write_report
    >>> import tempfile
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
    >>> path = Path(tempfile.mkdtemp()) / "MODEL_CARD.md"
    >>> write_report(model, path)
    >>> path.read_text().splitlines()[1]
    'library_name: consilience'
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".html", ".htm", ".md"):
        raise InvalidInputError(f"{Path(path).name}: expected a name that ends in .html or .md")
    write_text(path, (model_card if suffix == ".md" else html_report)(result, title=title, **known))
