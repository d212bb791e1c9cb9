"""The directive ``.. results:: NAME``: the tables of ``benchmarks/results/NAME.json`` and how they were made."""

import json
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


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
    return "\n\n".join([*map(table, result["tables"]), source])


def table(shown: dict[str, Any]) -> str:
    lines = [f".. list-table:: {escaped(shown['title'])}", "   :header-rows: 1", ""]
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


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
