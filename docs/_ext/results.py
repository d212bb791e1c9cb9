"""Stored results on pages: the directive ``.. results:: NAME`` and the role ``:result:`` for one figure.

The directive shows the tables of ``benchmarks/results/NAME.json`` and how they were made. The role shows what an
expression finds there: ``NAME | table | column is value | column | step | :format``. Tables count from 0; ``records``
in place of a number reads the replications. Conditions (``is``, ``>``, ``<``) choose rows; steps are ``sum``,
``min``, ``max``, ``median``, ``count``, ``percent`` and ``#2``, the second number in a text. ``A minus B`` and ``A
over B`` join two expressions; a format stands at the end, once.
"""

import json
import operator
import re
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


CONDITIONS: dict[str, Callable[[Any, str], bool]] = {
    " is ": lambda cell, value: str(cell) == value,
    " > ": lambda cell, value: isinstance(cell, int | float) and cell > float(value),
    " < ": lambda cell, value: isinstance(cell, int | float) and cell < float(value),
}
STEPS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "median": statistics.median,
    "count": len,
    "percent": lambda cells: 100 * only(cells),
}
JOINED = {" minus ": operator.sub, " over ": operator.truediv}


class Results(SphinxDirective):
    """A study that was not run yet is said to be so, without a warning."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        path = RESULTS / f"{self.arguments[0]}.json"
        self.env.note_dependency(str(path))
        if not path.exists():
            return self.parse_text_to_nodes(f"Not run yet: ``just study {path.stem}`` makes these figures.")
        return self.parse_text_to_nodes(rendered(json.loads(path.read_text(encoding="utf-8"))))


def rendered(result: dict[str, Any]) -> str:
    """The text of a result: its tables, and below them how they were made."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    source = f"Made by ``{result['command']}`` in {duration(result['seconds'])}; {versions}."
    return "\n\n".join([*map(table, result["tables"]), f"{source} {origin(result)}"])


def origin(result: dict[str, Any]) -> str:
    """The sentence on commit, date, machine and draws; results that lack them are stamped by ``just provenance``."""
    if "seen" not in result:
        return ""
    made = f"Commit {result['commit']}, {result['date']}; machine: {escaped(result['machine'])}."
    return f"{made} Seeds: {escaped(result['seeds'])}. Draws seen while rules were tuned: {result['seen']}."


def table(shown: dict[str, Any]) -> str:
    lines = [f".. list-table:: {escaped(shown['title'])}", "   :header-rows: 1", "   :class: results", ""]
    for cells in [shown["rows"][0].keys(), *(row.values() for row in shown["rows"])]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell(value)}" for i, value in enumerate(cells)]
    return "\n".join(lines)


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else escaped(str(value))


def escaped(text: str) -> str:
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def shown(expression: str) -> str:
    """The text of an expression over stored results, as the role shows it."""
    value, form = " ".join(expression.split()), ""
    if match := re.search(r" \| (:[^|]*)$", value):
        value, form = value[: match.start()], match[1]
    found = found_in(value)
    if form:
        return f"{{0{form}}}".format(found)
    return f"{found:,}" if isinstance(found, int) else str(found)


def found_in(expression: str) -> Any:
    for word, join in JOINED.items():
        left, _, right = expression.partition(word)
        if right.count(" | ") > 1:  # names of columns may have the word
            return join(found_in(left), found_in(right))
    name, table, *rest = [part.strip() for part in expression.split(" | ")]
    rows = replications(name) if table == "records" else stored(name)["tables"][int(table)]["rows"]
    while word := next((word for word in CONDITIONS if word in rest[0]), ""):
        column, _, value = rest.pop(0).rpartition(word)  # columns may have the word
        rows = [row for row in rows if CONDITIONS[word](row[column], value)]
    cells = [row[rest[0]] for row in rows]
    for step in rest[1:]:
        place = int(step.removeprefix("#")) if step.startswith("#") else 0
        cells = [number(str(cell), place) for cell in cells] if place else [STEPS[step](cells)]
    return only(cells)


def number(text: str, place: int) -> float | int:
    """The number at a place of a text, counted from 1."""
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", text)[place - 1].replace(",", "")
    return int(found) if found.lstrip("-").isdigit() else float(found)


def only(cells: list[Any]) -> Any:
    if len({str(cell) for cell in cells}) != 1:
        raise ValueError(f"expected one value, found {len(cells)}: {cells[:5]}")
    return cells[0]


@cache
def stored(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


@cache
def replications(name: str) -> list[dict[str, Any]]:
    lines = (RESULTS.parent / "records" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, lines))


def result_role(_name: str, _raw: str, text: str, lineno: int, inliner: Any, *_: Any) -> tuple[list[Any], list[Any]]:
    try:
        return [nodes.Text(shown(text))], []
    except (OSError, LookupError, ValueError, TypeError) as error:
        said = inliner.reporter.error(f"no figure at {text!r}: {error}", line=lineno)
        return [inliner.problematic(text, text, said)], [said]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("results", Results)
    app.add_role("result", result_role)
    return {"parallel_read_safe": True}
