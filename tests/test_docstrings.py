"""Every public name is documented, with an example that runs (doctests run the examples)."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

PACKAGES = (
    "aggregate",
    "datasets",
    "engines",
    "errors",
    "federation",
    "fit",
    "messages",
    "methods",
    "model",
    "runs",
    "site",
)
MODULES = ["consilience", *(f"consilience.{package}" for package in PACKAGES)]
PUBLIC = [(module, name) for module in MODULES for name in import_module(module).__all__ if name != "__version__"]


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=lambda part: part)
def test_public_name_has_a_docstring_with_an_example(module: str, name: str) -> None:
    doc = inspect.getdoc(getattr(import_module(module), name)) or ""
    assert "Examples\n--------" in doc
    assert ">>> " in doc


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=lambda part: part)
def test_public_methods_are_documented(module: str, name: str) -> None:
    value = getattr(import_module(module), name)
    if inspect.isclass(value):
        for method, function in inspect.getmembers(value, inspect.isfunction):
            ours = (function.__module__ or "").startswith("consilience")
            assert method.startswith("_") or not ours or inspect.getdoc(function), method
