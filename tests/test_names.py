"""One name for one thing, and no import that the contracts do not see."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "consilience"
TREES = {
    str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))
}
TWICE = {  # name: why two modules define it
    "centre": "numpy's and numba's version of one kernel",
    "distances": "numpy's and numba's version of one kernel",
    "log_sum_exp": "numpy's and numba's version of one kernel",
    "moments": "numpy's and numba's version of one kernel",
    "scatter": "numpy's and numba's version of one kernel",
    "shrinkage": "numpy's and numba's version of one kernel",
    "standardise": "numpy's and numba's version of one kernel",
}
FOLDERS = {"federation", "one_shot", "policy", "site"}
"""Folders whose main module has their name."""


def public_definitions(tree: ast.Module) -> list[str]:
    """Return the functions and classes of a module whose names do not begin with an underscore."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def imported_by_name(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of the library that are imported by a name in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.search(r"(import_module|__import__)$", ast.unparse(node.func)):
            names = [part.value for part in node.args if isinstance(part, ast.Constant)]
            yield from (name for name in names if str(name).startswith("consilience."))


def floors() -> dict[str, int]:
    """Return the floor of each package, from the contract in pyproject.toml; 0 is the highest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(each["layers"] for each in settings["contracts"] if each["id"] == "layers")
    return {name: floor for floor, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}


def is_upward(module: str, imported: str, floor: dict[str, int]) -> bool:
    here, there = module.removesuffix(".py").split("/")[0], imported.split(".")[1]
    return here in floor and there in floor and floor[there] < floor[here]


def test_no_public_name_is_defined_in_two_modules() -> None:
    places = defaultdict(list)
    for module, tree in TREES.items():
        for name in public_definitions(tree):
            places[name].append(module)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert {name: modules for name, modules in twice.items() if name not in TWICE} == {}
    assert set(TWICE) - set(twice) == set()  # what has become one is taken off the list


def test_no_module_name_stands_twice() -> None:
    names = Counter(Path(module).stem for module in TREES if not module.endswith("__init__.py"))
    names.update(Path(module).parent.name for module in TREES if module.endswith("/__init__.py"))
    assert {name for name, count in names.items() if count > 1} == FOLDERS


def test_no_import_by_name_goes_up() -> None:
    floor = floors()
    found = {(module, name) for module, tree in TREES.items() for name in imported_by_name(tree)}
    assert {each for each in found if is_upward(*each, floor)} == set()


def test_the_reader_of_modules_sees_what_it_must_not_see() -> None:
    tree = ast.parse(
        'import_module("consilience.report")\nimportlib.import_module("numpy")\n__import__("consilience.cli")'
    )
    assert list(imported_by_name(tree)) == ["consilience.report", "consilience.cli"]
    assert is_upward("fit/climb.py", "consilience.report", floors())
    assert not is_upward("report/verdict.py", "consilience.fit.climb", floors())
    assert public_definitions(ast.parse("def a(): pass\ndef _b(): pass\nclass C: pass")) == ["a", "C"]


def test_errors_lists_all_its_classes() -> None:
    tree = TREES["errors.py"]
    listed = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    assert ast.literal_eval(listed) == sorted(node.name for node in tree.body if isinstance(node, ast.ClassDef))
