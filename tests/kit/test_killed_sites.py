"""Programs of sites that are killed at random file operations and started again: same bits, nothing answered twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from consilience.couriers.letter_stores import FolderStore
from consilience.kit.folder import SiteFolder
from consilience.kit.mandate import draft_mandate, keep_draft, sign_mandate
from consilience.kit.serving import Serving, serve
from mail_office import TABLES, Office, study_with

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that were forked")
FEW = {name: TABLES[name].slice(0, 300) for name in ("ash", "elm", "oak")}
PLAN = study_with('name = "FederatedEM", n_climbs = 1')
WATCHED = ("open", "os.rename", "os.remove", "os.mkdir")
LONGEST = 240.0


def begin(path: Path) -> Office:
    """A run whose letters need not be carried: what sites read and write is the folder of the coordinator."""
    office = Office(path, PLAN, tables=FEW)
    assert office.identity is not None
    for name, folder in office.folders.items():
        pq.write_table(office.tables[name], path / f"{name}.parquet")
        keep_draft(folder, mandate := draft_mandate(office.study, office.identity.public_key, mode="mandate"))
        sign_mandate(folder, mandate, "a data steward")
    assert office.advance() is None
    for way in ("to", "from"):
        (path / "store" / way).mkdir(parents=True)
        for name in office.names:
            (path / "store" / way / name).symlink_to(office.mail, target_is_directory=True)
    return office


def run_site(office: Office, name: str, operations: int) -> int:
    """Begin the program of a site, which is killed before so many operations on files of the run; 0 for never."""
    pid = os.fork()
    if pid:
        return pid
    left = operations

    def count(event: str, details: Any) -> None:
        nonlocal left
        if event in WATCHED and str(office.path) in str(details[0]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        if operations:
            sys.addaudithook(count)
        folder = SiteFolder.open(office.folders[name].path)
        serve(Serving(folder, FolderStore(office.path / "store"), office.path / f"{name}.parquet"), poll=0.05, most=0.2)
    finally:
        os._exit(1)


def supervise(office: Office, kills: int, chance: random.Random) -> tuple[Any, int]:
    """Start each program again when it has ended, until the run is over; its result, and how many were killed."""

    def some() -> int:
        return chance.randint(2, 60) if killed < kills else 0

    killed, began = 0, time.monotonic()
    running = {run_site(office, name, some()): name for name in office.names}
    try:
        while (done := office.advance()) is None:
            assert time.monotonic() - began < LONGEST, "the run does not end"
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                killed += os.WIFSIGNALED(status)
                name = running.pop(pid)
                running[run_site(office, name, some())] = name
            time.sleep(0.02)
        return done, killed
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "seed"), [(6, 1), *(pytest.param(40, seed, marks=pytest.mark.long) for seed in (2, 3, 4))]
)
def test_killed_programs_end_with_the_same_bits(kills: int, seed: int, tmp_path: Path) -> None:
    office = begin(tmp_path / "live")
    done, killed = supervise(office, kills, random.Random(seed))
    assert killed >= min(kills, 5)
    plain = Office(tmp_path / "plain", PLAN, tables=FEW).to_the_end()
    assert done.model.mixture_.to_vector().tolist() == plain.model.mixture_.to_vector().tolist()
    for folder in office.folders.values():
        answers = [each for each in SiteFolder.open(folder.path).entries if each.kind == "answer"]
        assert len(answers) == len(done.record.rounds)
