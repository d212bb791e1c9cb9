"""Every public name is documented, and names of the reference have an example that runs (doctests run them)."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import re
from functools import cached_property, reduce
from importlib import import_module
from pathlib import Path
from typing import get_origin

PACKAGES = (
    "aggregate",
    "datasets",
    "engines",
    "errors",
    "federation",
    "files",
    "fit",
    "messages",
    "methods",
    "model",
    "plot",
    "published",
    "runs",
    "site",
)
MODULES = ["consilience", *(f"consilience.{package}" for package in PACKAGES)]
PUBLIC = [(module, name) for module in MODULES for name in import_module(module).__all__ if name != "__version__"]
NAMED = {f"{module}.{name}": getattr(import_module(module), name) for module, name in PUBLIC}
VALUES = {  # aliases of types and tables carry no text of their own
    name: value for name, value in NAMED.items() if get_origin(value) is None and not isinstance(value, dict)
}
CLASSES = {name: value for name, value in VALUES.items() if inspect.isclass(value)}
REFERENCE = Path(__file__).parents[1] / "docs" / "reference.rst"


def public_members(value: type) -> dict[str, object]:
    """Methods and properties that the library defines, of the class or of its bases."""
    defined = {name: member for base in reversed(value.__mro__) for name, member in ours(base).items()}
    kinds = (property, cached_property, classmethod, staticmethod)
    return {
        name: member
        for name, member in defined.items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, kinds))
    }


def ours(base: type) -> dict[str, object]:
    return dict(vars(base)) if base.__module__.startswith("consilience") else {}


MEMBERS = {name: members for name, value in CLASSES.items() if (members := public_members(value))}


def reference() -> dict[str, object]:
    """Return what docs/reference.rst lists: names below the module that is current where they stand."""
    found, module = {}, ""
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        if current := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
            module = current[1]
        elif entry := re.fullmatch(r"   ([A-Za-z_]\S*)", line):
            found[f"{module}.{entry[1]}"] = reduce(attribute, entry[1].split("."), import_module(module))
    return found


def attribute(value: object, name: str) -> object:
    """Return an attribute, or a submodule that is not yet imported."""
    return getattr(value, name) if hasattr(value, name) else import_module(f"{value.__name__}.{name}")


def needs_example(value: object) -> bool:
    """Whether an entry is a class, other than an exception, or a function; tables and aliases carry no text."""
    return inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception))


def has_example(value: object) -> bool:
    doc = inspect.getdoc(value) or ""
    return "Examples\n--------" in doc and ">>> " in doc


def test_public_names_are_documented() -> None:
    assert [name for name, value in VALUES.items() if not inspect.getdoc(value)] == []


def test_names_of_the_reference_have_an_example() -> None:
    entries = reference()
    assert len(entries) > 100
    assert [name for name, value in entries.items() if needs_example(value) and not has_example(value)] == []


def not_imported(value: object) -> set[str]:
    """Names that an example reads, and neither imports nor makes: who copies it would have to guess them."""
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
    nodes = list(ast.walk(ast.parse("".join(example.source for example in examples))))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)}
    imports = [each for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for each in node.names]
    return read - made - {(each.asname or each.name).split(".")[0] for each in imports} - set(dir(builtins))


def test_examples_of_the_reference_import_what_they_use() -> None:
    entries = {name: value for name, value in reference().items() if needs_example(value)}
    members = {
        f"{name}.{key}": getattr(CLASSES[name], key) for name in entries.keys() & MEMBERS for key in MEMBERS[name]
    }
    assert {name: found for name, value in (entries | members).items() if (found := not_imported(value))} == {}


def test_public_methods_and_properties_are_documented() -> None:
    members = [(name, member) for name in MEMBERS for member in MEMBERS[name]]
    silent = [f"{name}.{member}" for name, member in members if not inspect.getdoc(getattr(CLASSES[name], member))]
    assert silent == []
