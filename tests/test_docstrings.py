"""Every public name is documented, and all but exceptions have an example that runs (doctests run the examples)."""

from __future__ import annotations

import inspect
from functools import cached_property
from importlib import import_module
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
EXCEPTIONS = {name for name, value in CLASSES.items() if issubclass(value, Exception)}


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


def has_example(value: object) -> bool:
    doc = inspect.getdoc(value) or ""
    return "Examples\n--------" in doc and ">>> " in doc


def test_public_names_are_documented() -> None:
    assert [name for name, value in VALUES.items() if not inspect.getdoc(value)] == []


def test_public_names_have_an_example() -> None:
    assert [name for name, value in VALUES.items() if name not in EXCEPTIONS and not has_example(value)] == []


def test_public_methods_and_properties_are_documented() -> None:
    members = [(name, member) for name in MEMBERS for member in MEMBERS[name]]
    silent = [f"{name}.{member}" for name, member in members if not inspect.getdoc(getattr(CLASSES[name], member))]
    assert silent == []
