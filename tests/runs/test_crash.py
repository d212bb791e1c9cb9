"""A coordinator killed at any moment resumes to the same bits, asking only for what had not reached the journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import coordinator
from consilience.runs import Journal

SCRIPT = Path(coordinator.__file__)


def start(folder: Path) -> subprocess.Popen[bytes]:
    paths = [str(folder / name) for name in ("journal", "log", "result")]
    return subprocess.Popen([sys.executable, str(SCRIPT), *paths], stderr=subprocess.DEVNULL)


def calls(folder: Path) -> list[tuple[str, str]]:
    """Questions and sites of every call of ``answer`` so far."""
    log = folder / "log"
    return [tuple(line.split()) for line in log.read_text().splitlines()] if log.exists() else []


def journaled(folder: Path) -> tuple[int, set[str]]:
    """How many rounds are closed, and who has answered in the one under way."""
    if not (folder / "journal").exists():
        return 0, set()
    journal = Journal(folder / "journal", "a fit")
    with journal.opened(coordinator.SITES):
        return len(journal.rounds), {site for reply in journal.open_replies for site in reply.sites}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    folder = tmp_path_factory.mktemp("undisturbed")
    began = time.monotonic()
    assert start(folder).wait(120) == 0
    return folder, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("trial", [0, *(pytest.param(trial, marks=pytest.mark.long) for trial in range(1, 10))])
def test_a_killed_coordinator_resumes_to_the_same_bits(
    undisturbed: tuple[Path, float], tmp_path: Path, trial: int
) -> None:
    reference, seconds = undisturbed
    expected = calls(reference)
    per_round = [set() for _ in range(len({question for question, _ in expected}))]
    order = list(dict.fromkeys(question for question, _ in expected))
    for question, site in expected:
        per_round[order.index(question)].add((question, site))

    process = start(tmp_path)
    time.sleep(np.random.default_rng(trial).uniform(0.4, 0.98) * seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = len(calls(tmp_path))
    closed, answered = journaled(tmp_path)

    assert start(tmp_path).wait(120) == 0
    assert (tmp_path / "result").read_bytes() == (reference / "result").read_bytes()
    kept = {call for calls_ in per_round[:closed] for call in calls_}
    kept |= {call for call in (per_round[closed] if closed < len(per_round) else ()) if call[1] in answered}
    asked_again = calls(tmp_path)[done:]
    assert sorted(asked_again) == sorted(set(expected) - kept)
