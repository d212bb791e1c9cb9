"""Directives that draw the package from its code: ``.. package-tree::`` and ``.. import-graph::``."""

import ast
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SOURCE = Path(__file__).parents[2] / "src" / "consilience"
MODULES = ("display", "errors")
"""Modules beside the packages."""
BOX, GAP, ROW = 118, 14, 74
"""Width of a box, gap between boxes and height of a row, in pixels."""


def packages() -> list[str]:
    """Return the names of the top packages and modules."""
    folders = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    return sorted([*folders, *MODULES])


def imports_of(package: str) -> set[str]:
    """Return the other top packages whose names the code of a package imports."""
    files = [SOURCE / f"{package}.py"] if package in MODULES else sorted((SOURCE / package).rglob("*.py"))
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("consilience."):
                found.add(node.module.split(".")[1])
            if isinstance(node, ast.ImportFrom) and node.module == "consilience":
                found |= {alias.name for alias in node.names}
    return (found & set(packages())) - {package}


def levels(graph: dict[str, set[str]]) -> dict[str, int]:
    """Return the longest way down from each package; an error where imports go round in a circle."""
    level: dict[str, int] = {}
    while len(level) < len(graph):
        ready = [name for name in graph if name not in level and graph[name] <= set(level)]
        if not ready:
            raise ValueError(f"imports go round in a circle among {sorted(set(graph) - set(level))}")
        level |= {name: 1 + max((level[each] for each in graph[name]), default=-1) for name in ready}
    return level


def needed(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the arrows that no longer way implies (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for name in sorted(graph, key=levels(graph).__getitem__):
        below[name] = graph[name].union(*(below[each] for each in graph[name]))
    return {(a, b) for a in graph for b in graph[a] if not any(b in below[other] for other in graph[a] - {b})}


def drawing(graph: dict[str, set[str]]) -> str:
    """Return the import graph as SVG: packages by level, arrows down to what they import."""
    level = levels(graph)
    rows = [sorted(name for name in graph if level[name] == row) for row in range(max(level.values()), -1, -1)]
    width = max(len(row) for row in rows) * (BOX + GAP) + GAP
    place = {
        name: ((width - len(row) * (BOX + GAP) + GAP) / 2 + i * (BOX + GAP), 10 + y * ROW)
        for y, row in enumerate(rows)
        for i, name in enumerate(row)
    }
    arrows = [_arrow(place[a], place[b]) for a, b in sorted(needed(graph))]
    boxes = [
        f'<rect x="{x:.0f}" y="{y}" width="{BOX}" height="34" rx="6" fill="#eef3f8" stroke="#1f6fb2"/>'
        f'<text x="{x + BOX / 2:.0f}" y="{y + 22}" text-anchor="middle" font-size="14" fill="#16324f">{name}</text>'
        for name, (x, y) in place.items()
    ]
    head = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    tip = f'<defs>{head}<path d="M0 0 L8 4 L0 8 z" fill="#6b7f94"/></marker></defs>'
    size = f'viewBox="0 0 {width} {len(rows) * ROW}" style="max-width:{width}px" role="img"'
    label = 'aria-label="Which package imports which; arrows point down only"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>{tip}{"".join(arrows)}{"".join(boxes)}</svg>'


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (a, b), (x, y) = (start[0] + BOX / 2, start[1] + 34), (end[0] + BOX / 2, end[1] - 2)
    bend = (b + y) / 2
    path = f"M{a:.0f} {b} C{a:.0f} {bend:.0f} {x:.0f} {bend:.0f} {x:.0f} {y}"
    return f'<path d="{path}" fill="none" stroke="#6b7f94" marker-end="url(#tip)"/>'


class ImportGraph(SphinxDirective):
    """Draws which package imports which."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", drawing({name: imports_of(name) for name in packages()}), format="html")]


class PackageTree(SphinxDirective):
    """Lists packages and their folders with the first line of their docstrings."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(_lines(SOURCE, 0)))


def _lines(folder: Path, depth: int) -> list[str]:
    lines = []
    for init in sorted(folder.glob("*/__init__.py")):
        said = (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "").splitlines()[0]
        modules = sorted(path.stem for path in init.parent.glob("*.py") if path.stem != "__init__")
        listed = f" ({', '.join(f'``{name}``' for name in modules)})" if modules else ""
        lines += [f"{'  ' * depth}- ``{init.parent.name}/`` {said}{listed}", "", *_lines(init.parent, depth + 1)]
    return lines


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("import-graph", ImportGraph)
    app.add_directive("package-tree", PackageTree)
    return {"parallel_read_safe": True}
