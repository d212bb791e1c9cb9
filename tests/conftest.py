"""Settings and fixtures of all tests.

Hypothesis: the same examples every time in CI, new ones on a developer's machine; no deadline on a shared one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads only slow down tiny products

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from answering import Calls

POINTS = "consilience.aggregate.combine.points.NUMBERS"

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the regression of a combined gate small: a fraction of the points that the library draws."""
    monkeypatch.setattr(POINTS, 10_000)


@pytest.fixture
def more_points(few_points: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be larger, where sampling error must not hide what a test compares."""
    monkeypatch.setattr(POINTS, 100_000)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Answers of sites in this process, counted; some sites can be made to misbehave."""
    from answering import Calls  # coverage starts after this file is read, and must see the library imported

    return Calls(monkeypatch)
