"""Processes of a live run on this machine: Debian's nginx, programs of our command line, and what they cost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consilience.kit.enrolment import nginx_configuration

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
COMMAND = (sys.executable, "-c", "from consilience.cli.app import main; main()")
TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def nginx(own: Path, store: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with the configuration that ``consilience live nginx`` prints."""
    store.mkdir(exist_ok=True)
    text = nginx_configuration(own, store, f"127.0.0.1:{port}", "root" if os.geteuid() == 0 else "")
    (store / "nginx.conf").write_text(text)
    with running(str(NGINX), "-c", str(store / "nginx.conf"), "-g", "daemon off;") as process:
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield process


@contextmanager
def running(*command: str, where: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program for as long as the block lasts."""
    process = subprocess.Popen(command, cwd=where, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def family(pid: int) -> list[int]:
    """A process and its children."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *map(int, text.split())]


def cpu_of(pid: int) -> float:
    """CPU seconds that a process and its children have taken."""
    spent = 0
    for each in family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    return spent / TICKS


def memory_of(pid: int) -> float:
    """Megabytes of memory that a process and its children hold now."""
    lines = [line for each in family(pid) for line in Path(f"/proc/{each}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
