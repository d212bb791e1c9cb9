"""Which engines the contracts are about."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine", help="an engine to test instead of those of the library, as package.module:EngineClass"
    )
