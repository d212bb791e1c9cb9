"""Settings and fixtures of all tests, and the lane and the process in which each runs.

Hypothesis: the same examples every time in CI, new ones on a developer's machine; no deadline on a shared one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads only slow down tiny products

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from answering import Calls

TESTS = Path(__file__).parent
PUBLISHED = (
    "published",
    "aggregate/robust/test_anchors.py",
    "fit/test_spectral.py",
    "methods/clients/test_moment_descent.py",
    "methods/per_site/test_fedgrem.py",
    "methods/test_gradient_em.py",
    "methods/test_minimax.py",
    "model/clients/test_anchors.py",
    "model/clients/test_local_steps.py",
    "model/test_critic.py",
)
"""Folders and files about methods of the literature that the library offers and does not recommend."""
POINTS = "consilience.aggregate.combine.points.NUMBERS"

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@cache
def group_of(path: Path) -> str | None:
    """Return the name of the tests that share what a process computes once: memoised values, fixtures of a file."""
    folder, text = path.with_name("conftest.py"), path.read_text(encoding="utf-8")
    if folder.exists() and 'scope="session"' in folder.read_text(encoding="utf-8") and path.parent != TESTS:
        return str(path.parent.relative_to(TESTS))
    return str(path.relative_to(TESTS)) if "@cache" in text or 'scope="module"' in text else None


@cache  # thousands of tests are in hundreds of files
def is_published(path: Path) -> bool:
    return any(path.is_relative_to(TESTS / name) for name in PUBLISHED)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_published(item.path):
            item.add_marker("published")


@pytest.hookimpl(optionalhook=True)  # there may be no pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send tests of one group to one process, by their paths: pytest-xdist 3.8 loses marks of groups in pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class LoadGroups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = config.rootpath / nodeid.partition("::")[0]
            return (path.is_relative_to(TESTS) and group_of(path)) or nodeid

    return LoadGroups(config, log)


@pytest.hookimpl(tryfirst=True)  # before fixtures of modules, some of which run private scoring
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw the noise of sites from a seed of the test, unless it is about the noise of the operating system.

    A fit with noise has not settled in a few runs of a hundred: tests would fail as often.
    """
    from consilience.numerics.discrete_gaussian import discrete_gaussian  # as in `calls`
    from consilience.site import respond

    system = item.get_closest_marker("system_noise") is not None
    drawn = discrete_gaussian if system else partial(noise_from, Random(item.nodeid).randrange)
    vars(sys.modules[respond.__module__])["discrete_gaussian"] = drawn


def noise_from(source: Callable[[int], int], variance: int, size: int, other: Any = None) -> list[int]:
    """Draw noise from a source, or from another one that the library names: planted defects do."""
    from consilience.numerics.discrete_gaussian import discrete_gaussian

    return discrete_gaussian(variance, size, other or source)


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
