"""Which of the contracts run for every change: a mailbox carries the messages of all families alike."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("over") == "mailbox" and params.get("family", "gaussian") != "gaussian":
            item.add_marker(pytest.mark.long)
