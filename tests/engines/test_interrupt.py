"""Ctrl-C in the middle of a fit over shards, and of their scores: a sentence, and the same bits when resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import consilience
from consilience.datasets import soft

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

FILES, ROWS = 8, 500
STUDY = Path(__file__).parents[1] / "shard_study.py"
SOURCE = str(Path(consilience.__file__).parents[1])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    drawn = soft(FILES * ROWS, n_experts=2, n_features=3, random_state=0)
    for i in range(FILES):
        part = slice(i * ROWS, (i + 1) * ROWS)
        columns = {"id": np.arange(FILES * ROWS)[part], "y": drawn.y[part]}
        columns |= {f"x{j}": drawn.X[part, j] for j in range(3)}
        parquet.write_table(pa.table(columns), folder / f"part-{i:02d}.parquet")
    return folder


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = study(data, tmp_path_factory.mktemp("undisturbed"))
    finished = completed("inprocess", folder)
    assert "FederatedFit" in finished.stdout
    assert f"{FILES * ROWS:,}" in finished.stdout
    return folder


def study(data: Path, folder: Path) -> Path:
    (folder / "data").symlink_to(data)
    return folder


def command(engine: str, folder: Path) -> list[str]:
    return [sys.executable, str(STUDY), engine, str(folder)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE}


def completed(engine: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(engine, folder), capture_output=True, text=True, env=environment(), check=True)


def interrupted(engine: str, folder: Path, when: Callable[[str], bool]) -> str:
    """Run the study, press Ctrl-C (a signal to all of its processes) when its log says so; its whole log."""
    process = subprocess.Popen(
        command(engine, folder), stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if when(line):
            os.killpg(process.pid, signal.SIGINT)
            break
    began = time.monotonic()
    said += process.stderr
    process.stderr.close()
    assert process.wait(60) == -signal.SIGINT, "".join(said)
    assert time.monotonic() - began < 60, "".join(said)
    return "".join(said)


@pytest.mark.parametrize("engine", ["inprocess", pytest.param("dask", marks=pytest.mark.long)])
def test_ctrl_c_in_a_fit_and_resumed_gives_the_same_bits(
    engine: str, data: Path, undisturbed: Path, tmp_path: Path
) -> None:
    folder = study(data, tmp_path)
    said = interrupted(engine, folder, lambda line: line.startswith("round 4,"))
    assert said.count("Traceback") == 1  # the coordinator's own; workers are not interrupted
    last = said.strip().splitlines()[-1]
    assert last.startswith("KeyboardInterrupt: interrupted in round "), said
    assert f"run the same call again, with journal='{folder / 'fit.journal'}', to resume" in last
    assert not (folder / "scores").exists()

    finished = completed(engine, folder)
    assert "round 3, " in finished.stderr
    assert "from the journal" in finished.stderr
    assert (folder / "coef.npy").read_bytes() == (undisturbed / "coef.npy").read_bytes()
    for path in sorted((undisturbed / "scores").iterdir()):
        assert parquet.read_table(folder / "scores" / path.name).equals(parquet.read_table(path))
    assert len(list((folder / "scores").iterdir())) == FILES
