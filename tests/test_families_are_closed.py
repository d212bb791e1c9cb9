"""Outside their own folder nobody names a family or a gate: what differs between them is asked, not tested for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import consilience
from consilience.model import FAMILIES, GATES

SOURCE = Path(consilience.__file__).parent
HOMES = {"model/families", "model/gates.py", "model/__init__.py"}  # and the package's list of public names
CLASSES = {kind.__name__ for kind in (*FAMILIES.values(), *GATES.values())}
KNOWN = set(FAMILIES)
NAMES = {*KNOWN, *GATES}
MODULES = sorted(
    str(path.relative_to(SOURCE))
    for path in SOURCE.rglob("*.py")
    if not any(str(path.relative_to(SOURCE)).startswith(home) for home in HOMES)
)


def named_classes(tree: ast.AST) -> set[str]:
    """Concrete classes that code names: imported, called, tested for."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return (names | attributes | imported) & CLASSES


def words_tested_for(tree: ast.AST) -> set[str]:
    """Names of families or gates that something is compared with, looked up by, or listed under."""
    kinds = ast.Compare | ast.match_case | ast.Subscript | ast.Dict | ast.Tuple | ast.List | ast.Set
    found, open_nodes = set(), [(tree, False)]
    while open_nodes:  # each node once, with whether it is inside of one of these
        node, inside = open_nodes.pop()
        inside = inside or isinstance(node, kinds)
        if inside and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        open_nodes += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found & NAMES


def names_listed(tree: ast.AST) -> set[str]:
    """Names of families in text that has several of them; docstrings apart."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    found = [set(re.findall(r"\w+", text)) & KNOWN for text in texts]
    return set().union(*(names for names in found if len(names) > 1))


@pytest.mark.slow
def test_no_module_names_a_concrete_family_or_gate_or_tests_for_one() -> None:
    trees = {module: ast.parse((SOURCE / module).read_text(encoding="utf-8")) for module in MODULES}
    seen = {module: named_classes(tree) | words_tested_for(tree) | names_listed(tree) for module, tree in trees.items()}
    assert {module: names for module, names in seen.items() if names} == {}


def test_the_requirement_check_is_the_one_place_that_may() -> None:
    tree = ast.parse((SOURCE / "model/families/registry.py").read_text(encoding="utf-8"))
    checks = [node for node in tree.body if getattr(node, "name", "") in ("Requirement", "gaussian")]
    assert [named_classes(node) for node in checks] == 2 * [{"GaussianExperts"}]


def test_the_reader_of_modules_sees_what_it_must_not_see() -> None:
    tree = ast.parse(
        'from a import PoissonExperts\nif x.family == "poisson" and isinstance(g, gates.SoftmaxGate): pass'
    )
    assert named_classes(tree) == {"PoissonExperts", "SoftmaxGate"}
    assert words_tested_for(tree) == {"poisson"}
    tree = ast.parse('ADVICE = {"poisson": ("overdispersion", "gamma")}\nTEXT = "# gaussian or student"')
    assert words_tested_for(tree) == {"poisson", "gamma"}
    assert names_listed(tree) == {"gaussian", "student"}
