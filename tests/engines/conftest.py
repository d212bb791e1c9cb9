"""Schedulers and workers of a Dask cluster as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

StartCluster = Callable[..., str]


@pytest.fixture(scope="module")
def start_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartCluster]:
    """Starts a scheduler on the loopback address and one worker for each PYTHONPATH given; returns its address."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(paths: tuple[str, ...] = ("",), arguments: tuple[str, ...] = (), protocol: str = "tcp") -> str:
        directory = tmp_path_factory.mktemp("cluster")
        file, log = directory / "scheduler.json", directory / "log"

        def launch(module: str, path: str, *rest: str) -> None:
            command = [sys.executable, "-m", f"distributed.cli.{module}", *rest, *arguments]
            environment = {**os.environ, "PYTHONPATH": path}
            with log.open("ab") as out:
                processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=directory))

        here = ("--host", "127.0.0.1", "--protocol", protocol)
        launch("dask_scheduler", "", *here, "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        wait_until(file.exists, processes[-1], log)
        for path in paths:
            launch(
                "dask_worker", path, *here, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                "--scheduler-file", str(file), "--local-directory", str(directory),
            )  # fmt: skip
        address: str = json.loads(file.read_text())["address"]
        return address

    yield start
    for process in processes:
        process.kill()
        process.wait()


def wait_until(there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while not there():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
