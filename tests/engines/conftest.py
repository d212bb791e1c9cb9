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

import consilience

SOURCE = str(Path(consilience.__file__).parent.parent)


class Clusters:
    """Schedulers on the loopback address, and workers that join them; all end with the tests."""

    def __init__(self, make_directory: Callable[[str], Path]) -> None:
        self._make_directory = make_directory
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *, workers: int = 1, options: tuple[str, ...] = (), protocol: str = "tcp", path: str = "") -> str:
        """Start a scheduler, and workers that import from ``path`` first; the address of the scheduler."""
        directory = self._make_directory("cluster")
        file, log = directory / "scheduler.json", directory / "log"
        here = ("--host", "127.0.0.1", "--protocol", protocol)
        self._launch("dask_scheduler", log, "", *here, "--port", "0", "--scheduler-file", str(file), *options)
        wait_until(lambda: address_in(file) != "", self._processes[-1], log)
        address = address_in(file)
        for _ in range(workers):
            self.join(address, options=options, path=path)
        return address

    def join(self, address: str, *, options: tuple[str, ...] = (), path: str = "") -> None:
        """Start one more worker."""
        directory = self._make_directory("worker")
        here = (address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--local-directory", str(directory))
        self._launch("dask_worker", directory / "log", path, *here, *options)

    def _launch(self, module: str, log: Path, path: str, *options: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, SOURCE)))}
        with log.open("ab") as out:
            self._processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=log.parent))

    def end(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    started = Clusters(tmp_path_factory.mktemp)
    yield started
    started.end()


def address_in(file: Path) -> str:
    """Return the address in a scheduler's file; empty while the scheduler has not written all of it."""
    try:
        return str(json.loads(file.read_text())["address"])
    except (FileNotFoundError, json.JSONDecodeError):
        return ""


def wait_until(there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
