"""Tests that share what a process computes once run in one process, also where others run in several."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest


@cache  # tests of a file with this word are a group: tests/conftest.py
def first_process(place: Path, process: str) -> str:
    """Return the process that ran a test of this file first, whichever asks."""
    try:
        with place.open("x") as file:
            file.write(process)
    except FileExistsError:
        pass
    return place.read_text()


@pytest.mark.parametrize("number", range(6))  # without groups, each process gets some of them
def test_one_process_runs_a_group(
    number: int, testrun_uid: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = tmp_path_factory.getbasetemp().parent
    assert first_process(shared / f"process-{testrun_uid}", worker_id) == worker_id
