"""Which engines the contracts are about, and which of them run for every change."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine", help="an engine to test instead of those of the library, as package.module:EngineClass"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # a mailbox carries the messages of all families alike
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("opened") == "mailbox" and params.get("family", "gaussian") != "gaussian":
            item.add_marker(pytest.mark.long)
