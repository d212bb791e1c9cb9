"""Faults at random moments: the same bits in the end, or an error that names what happened, in time.

``python tests/faults.py NUMBER [SEED] [ENGINE]`` runs that many fits over six files with a journal, in this process or
on Dask. In each, one thing happens at a random moment: the coordinator or a worker is killed, or stopped and
continued; a file is changed, truncated, swapped or removed; the disk of the journal is full or read-only. A fit
that was killed is resumed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

DEADLINE, GRACE = 20.0, 5.0
SITES = tuple("abcdef")
CHANGES = ("changed", "truncated", "swapped", "removed")
NAMED = (
    "the data have changed",
    "the data could not be read",
    "the data were not found",
    "has the same rows as another site",
    "could not be written",
    "could not be made",
    "could not be opened",
    "no answer before the deadline",
    "the workers that computed the answer were lost",
    "the cluster",
)
"""What a fit may say instead of a result."""


def write(folder: Path) -> None:
    for i, name in enumerate(SITES):
        rng = np.random.default_rng([1, i])
        x, low = rng.normal(size=(2, 4000)), rng.random(4000) < 0.5
        y = np.where(low, x[0] + 2 * x[1], -x[0]) + 0.5 * rng.normal(size=4000)
        parquet.write_table(pa.table({"x1": x[0], "x2": x[1], "y": y}), folder / f"{name}.parquet")


def harm(folder: Path, kind: str) -> None:
    """Do something to the third file."""
    one, other = folder / "c.parquet", folder / "d.parquet"
    if kind == "changed":
        rows = parquet.read_table(one)
        parquet.write_table(rows.set_column(2, "y", pa.array(rows["y"].to_numpy() + 1e-6)), one)
    elif kind == "truncated":
        one.write_bytes(one.read_bytes()[:-200])
    elif kind == "swapped":
        one.rename(folder / "kept")
        other.rename(one)
        (folder / "kept").rename(other)
    else:
        one.unlink()


def coordinator(folder: str, journal: str, result: str, engine: str, change: str, at: str) -> None:
    """Fit with a journal; do a change before a round. The pids of all processes are written first."""
    from consilience import DaskCluster, Federation, InProcess, MixtureOfRegressions
    from consilience.messages import LogLikelihood, encode

    class Meddling:
        def __init__(self, inner):
            self.inner, self.each = inner, inner.each

        def over(self, sites, **options):
            self.engine = self.inner.over(sites, **options)
            self.sites = self.engine.sites
            return self

        def ask(self, number, *arguments, **options):
            if change and number == int(at):
                harm(Path(folder), change)
            yield from self.engine.ask(number, *arguments, **options)

        def close(self):
            self.engine.close()

    def fit(inner) -> None:
        sites = Federation.from_parquet(f"{folder}/?.parquet", target="y", engine=Meddling(inner))
        fitted = sites.fit(MixtureOfRegressions(2, random_state=0), journal=journal, deadline=DEADLINE)
        Path(result).write_bytes(encode(LogLikelihood(fitted.model.mixture_)))

    if engine == "inprocess":
        Path(result).with_suffix(".pids").write_text(str(os.getpid()))
        fit(InProcess())
        return
    with DaskCluster(n_workers=2) as cluster:
        pids = [os.getpid(), *cluster._client.run(os.getpid).values()]
        Path(result).with_suffix(".pids").write_text(" ".join(map(str, pids)))
        fit(cluster)


# ---------------------------------------------------------------------- a fit, with a fault


@dataclass
class Outcome:
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    longest: float = 0.0


@contextmanager
def disk(kind: str) -> Iterator[Path]:
    """A folder for the journal: on a small or read-only file system where this user may mount one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "disk"
        path.mkdir()
        options = {"full": "size=16k", "read-only": "size=16m,ro"}.get(kind)
        if options is None:
            yield path
            return
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
        try:
            yield path
        finally:
            subprocess.run(["umount", str(path)], check=True)


def started(folder: Path, journal: Path, result: Path, engine: str, change: str = "", at: int = 0) -> subprocess.Popen:
    arguments = [str(folder), str(journal), str(result), engine, change, str(at)]
    return subprocess.Popen(
        [sys.executable, __file__, "coordinator", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def ended(process: subprocess.Popen, limit: float) -> str:
    """Wait for the end of a fit; return what it said last, or that it did not end."""
    try:
        _, said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        return "did not end"
    return (
        ""
        if process.returncode == 0
        else said.strip().splitlines()[-1]
        if said.strip()
        else f"exit {process.returncode}"
    )


def judged(said: str, result: Path, reference: bytes) -> str:
    if not said:
        return "same bits" if result.read_bytes() == reference else "OTHER BITS"
    named = [each for each in NAMED if each in said]
    return f"named: {named[0]}" if named else f"NOT NAMED: {said[:200]}"


def faulty(rng: random.Random, engine: str, reference: bytes, usual: float) -> tuple[str, str]:
    """One fit with one fault; return what was done, and what became of it."""
    with tempfile.TemporaryDirectory() as base:
        folder, result = Path(base) / "data", Path(base) / "result"
        folder.mkdir()
        write(folder)
        kind = rng.choice(("kill", "kill", "stop", "file", "file", "disk"))
        if kind == "file":
            change, at = rng.choice(CHANGES), rng.randrange(2, 9)  # before the first round it would be other data
            said = ended(started(folder, Path(base) / "j", result, engine, change, at), usual * 20 + DEADLINE + GRACE)
            return f"{change} before round {at}", judged(said, result, reference)
        if kind == "disk":
            which = rng.choice(("full", "read-only"))
            with disk(which) as path:
                said = ended(started(folder, path / "j", result, engine), usual * 20 + DEADLINE + GRACE)
            return f"{which} disk", judged(said, result, reference)
        return signalled(rng, kind, folder, result, engine, reference, usual)


def signalled(
    rng: random.Random, kind: str, folder: Path, result: Path, engine: str, reference: bytes, usual: float
) -> tuple[str, str]:
    """Kill or stop one of the processes of a fit at a random moment; resume the fit if it ended."""
    journal = result.with_name("j")
    process = started(folder, journal, result, engine)
    time.sleep(rng.uniform(0.2, 1.0) * usual)
    file = result.with_suffix(".pids")
    pids = [int(pid) for pid in file.read_text().split()] if file.exists() else [process.pid]
    place = rng.randrange(len(pids)) if engine == "dask" else 0
    who = "worker" if place else "coordinator"
    try:
        os.kill(pids[place], signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        if kind == "stop":
            time.sleep(rng.uniform(0.5, 4.0))
            os.kill(pids[place], signal.SIGCONT)
    except ProcessLookupError:
        pass  # it had ended
    said = ended(process, usual * 20 + DEADLINE + GRACE)
    if said:  # killed, or stopped with a named error: resumed
        first = "killed" if place == 0 and kind == "kill" else judged(said, result, reference)
        if first.startswith("NOT"):
            return f"{kind} {who}", first
        said = ended(started(folder, journal, result, engine), usual * 20 + DEADLINE + GRACE)
        return f"{kind} {who}", f"resumed, {judged(said, result, reference)}"
    return f"{kind} {who}", judged(said, result, reference)


def faults(number: int, seed: int = 0, engine: str = "inprocess") -> Outcome:
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as base:
        folder, result = Path(base) / "data", Path(base) / "result"
        folder.mkdir()
        write(folder)
        began = time.monotonic()
        said = ended(started(folder, Path(base) / "j", result, engine), 600.0)
        if said:
            raise RuntimeError(said)
        usual, reference = time.monotonic() - began, result.read_bytes()
        shutil.rmtree(folder)
    for i in range(number):
        began = time.monotonic()
        done, became = faulty(random.Random(f"{seed}/{i}"), engine, reference, usual)
        outcome.longest = max(outcome.longest, time.monotonic() - began)
        outcome.counts[f"{done}: {became}"] += 1
        if became.isupper() or "NOT NAMED" in became or "OTHER BITS" in became:
            outcome.problems.append(f"{seed}/{i} {done}: {became}")
    return outcome


if __name__ == "__main__":
    if sys.argv[1] == "coordinator":
        coordinator(*sys.argv[2:])
        sys.exit()
    found = faults(int(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:4])
    lines = [f"{count:>5}  {name}" for name, count in sorted(found.counts.items())]
    lines.append(f"longest {found.longest:.0f} s, {len(found.problems)} problems")
    sys.stdout.write("\n".join([*lines, *found.problems, ""]))
    sys.exit(bool(found.problems))
