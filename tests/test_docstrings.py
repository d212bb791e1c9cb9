"""Every public name is documented, and all but exceptions have an example that runs (doctests run the examples)."""

from __future__ import annotations

import inspect
from functools import cached_property
from importlib import import_module
from typing import get_origin

import pytest

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


@pytest.mark.parametrize("name", sorted(VALUES))
def test_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(VALUES[name])


@pytest.mark.parametrize("name", sorted(VALUES.keys() - EXCEPTIONS))
def test_public_name_has_an_example(name: str) -> None:
    doc = inspect.getdoc(VALUES[name]) or ""
    assert "Examples\n--------" in doc
    assert ">>> " in doc


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_public_methods_and_properties_are_documented(name: str) -> None:
    value = CLASSES[name]
    assert [member for member in MEMBERS[name] if not inspect.getdoc(getattr(value, member))] == []
