"""A report as an HTML page, or a model card in Markdown with the header that model hubs read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from consilience._version import __version__
from consilience.errors import InvalidInputError
from consilience.files.json_text import write_text
from consilience.report.page import Picture, Section, Table, draw_svg, render_page
from consilience.report.sections import SECTIONS
from consilience.report.subject import Result, Subject
from consilience.report.verdict import judge

FOOTER = f"Made by consilience {__version__}. This page has no script, loads nothing, and has no row of any site."


def html_report(result: Result, *, title: str = "", **known: Any) -> str:
    """Return a report as the text of one HTML page.

    Parameters
    ----------
    result : fitted estimator, FederatedFit or FederatedOrders
    title : str
        Title of the page; by default the kind of model.
    **known
        Fields of :class:`~consilience.report.subject.Subject`: ``orders``, ``X``, ``y``, ``origin``, ``policies``.

    Examples
    --------
    >>> from consilience import MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> page = html_report(MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y))
    >>> "This result can be used." in page, "<script" in page
    (True, False)
    """
    subject = Subject.of(result, **known)
    return render_page(title or subject.model.title, judge(subject), report_sections(subject), FOOTER)


MARKDOWN_SIGNS = re.compile(r"([\\`*_{}\[\]<>|#])")


def model_card(result: Result, *, title: str = "", **known: Any) -> str:
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
    found, model = judge(subject), subject.model
    name = title or model.title
    task = "tabular-classification" if model.mixture_.experts.classes else "tabular-regression"
    header = {
        "library_name": "consilience",
        "pipeline_tag": task,
        "tags": ["mixture-model", "federated-learning", "interpretable"],
        "model_name": name,
    }
    lines = ["---", *(f"{key}: {_yaml_text(value)}" for key, value in header.items()), "---", ""]
    lines += [f"# {_escape_markdown(name)}", ""]
    lines += [f"**{found.use}**", "", _escape_markdown(found.about), "", _escape_markdown(found.left_out), ""]
    lines += [*(f"- {_escape_markdown(point.text)}" for point in found.points), ""]
    lines += [line for each in report_sections(subject, pictures=False) for line in _section_lines(each)]
    return "\n".join(lines).rstrip() + "\n"


def _yaml_text(value: Any) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[a-z-]+", value) else json.dumps(value)


def _section_lines(section: Section) -> Iterator[str]:
    yield from (f"## {_escape_markdown(section.title)}", "")
    for text in section.paragraphs:
        yield from (_escape_markdown(text), "")
    for item in section.items:
        table = item.numbers if isinstance(item, Picture) else item
        if table is not None:
            yield from _table_lines(table)


def _table_lines(table: Table) -> Iterator[str]:
    yield from (f"{_escape_markdown(table.caption)}:", "")
    yield f"| {' | '.join(map(_escape_markdown, table.header))} |"
    yield f"|{'|'.join('---:' if j in table.numbers else '---' for j in range(len(table.header)))}|"
    yield from (f"| {' | '.join(map(_escape_markdown, row))} |" for row in table.rows)
    yield ""


def _escape_markdown(text: str) -> str:
    """Return a text without signs that have a meaning in Markdown."""
    return MARKDOWN_SIGNS.sub(r"\\\1", text).replace("\n", " ")


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


Draw = Callable[[str, Callable[[], Any], Table | None], list[Picture]]
"""Makes a picture of a text that says what it shows, a function that draws, and the numbers; or nothing."""


def report_sections(subject: Subject, *, pictures: bool = True) -> list[Section]:
    """Return the sections of a report; without ``pictures`` only words and tables."""
    draw = _draw_pictures() if pictures else _leave_numbers
    found = (make(subject, draw) for make in SECTIONS)
    return [section for section in found if section is not None]


def _draw_pictures() -> Draw:
    """Return a function that draws, and gives each picture identifiers of its own."""
    numbers = count()

    def draw(alt: str, make: Callable[[], Any], table: Table | None = None) -> list[Picture]:
        return [Picture(draw_svg(make, f"p{next(numbers)}", alt), alt, table)]

    return draw


def _leave_numbers(alt: str, _make: Callable[[], Any], table: Table | None = None) -> list[Picture]:
    """Return the numbers of a picture, which is not drawn."""
    return [] if table is None else [Picture("", alt, table)]
