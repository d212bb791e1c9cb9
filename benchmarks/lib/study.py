"""What the studies share: their command line, replications that resume, CPU time, results as JSON.

A full study writes ``results/NAME.json``; ``--quick`` is a smaller one that writes ``scratch/NAME-quick.json``, so
that it never takes the place of the full figures. Replications are appended to ``records/NAME.jsonl`` one by one, and a
study that was interrupted goes on where it stopped, on another machine too if its records are committed meanwhile. All
BLAS libraries get one thread: CPU time then means something.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.linalg  # loads scipy's own BLAS, so that it is limited too
from threadpoolctl import threadpool_limits

import consilience
from benchmarks.lib.provenance import provenance

HERE = Path(__file__).parents[1]
PROTOCOL = HERE / "sites" / "protocol.toml"
HOLD_OUT = {"hold-out": "the draws on which rules are judged, once, instead of those on which they are tuned"}
"""Option of studies whose draws the protocol fixes."""
RESULTS, RECORDS, SCRATCH = HERE / "results", HERE / "records", HERE / "scratch"
Record = dict[str, Any]

threadpool_limits(1)


@dataclass
class Stopwatch:
    """Seconds of a block of code."""

    cpu: float = 0.0
    wall: float = 0.0


@contextmanager
def stopwatch() -> Iterable[Stopwatch]:
    watch = Stopwatch()
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        yield watch
    finally:
        watch.cpu, watch.wall = time.process_time() - cpu, time.perf_counter() - wall


class Study:
    """One study: its arguments, its records and its results."""

    def __init__(self, script: str, description: str, options: Mapping[str, str] = MappingProxyType({})) -> None:
        self.name, self.subject = Path(script).stem, Path(script).parent.name
        parser = argparse.ArgumentParser(description=description.splitlines()[0])
        parser.add_argument("--quick", action="store_true", help="a smaller study, in less than two minutes")
        parser.add_argument("--fresh", action="store_true", help="forget earlier replications")
        for name, meaning in options.items():
            parser.add_argument(f"--{name}", action="store_true", help=meaning)
        arguments = parser.parse_args()
        self.options: dict[str, bool] = {name: getattr(arguments, name.replace("-", "_")) for name in options}
        self.quick: bool = arguments.quick
        self.label = self.name + "_hold-out" * self.options.get("hold-out", False) + "-quick" * self.quick
        self.fresh: bool = arguments.fresh or self.quick
        self.started = time.perf_counter()
        self.earlier = 0.0  # seconds of the replications of earlier runs

    def draws(self, section: str) -> range:
        """Seeds of a section of the protocol: of development, or with ``--hold-out`` those that judge the rules."""
        kind = "hold_out" if self.options.get("hold-out") else "development"
        found = tomllib.loads(PROTOCOL.read_text(encoding="utf-8"))[section][kind]
        return range(found["first_seed"], found["first_seed"] + (1 if self.quick else found["draws"]))

    def replicate(self, keys: Iterable[str], run: Callable[[str], Record]) -> list[Record]:
        """``run(key)`` for each key that has no record yet; all records, in the order of the keys."""
        log = (SCRATCH if self.quick else RECORDS) / f"{self.label}.jsonl"
        log.parent.mkdir(exist_ok=True)
        if self.fresh:
            log.unlink(missing_ok=True)
        lines = log.read_text().splitlines() if log.exists() else []
        done = {record["key"]: record for record in map(json.loads, lines)}
        self.earlier = sum(record["seconds"] for record in done.values())
        keys = list(keys)
        with log.open("a") as file:
            for key in keys:
                if key not in done:
                    with stopwatch() as watch:
                        figures = run(key)
                    done[key] = {"key": key, "seconds": round(watch.wall, 2), **figures}
                    file.write(json.dumps(done[key]) + "\n")
                    file.flush()
                    show_progress(f"{self.label}: {sum(key in done for key in keys)} of {len(keys)}")
        return [done[key] for key in keys]

    def save(self, *tables: Record) -> None:
        """Print the tables and write them with what made them."""
        flags = [name for name, given in {**self.options, "quick": self.quick}.items() if given]
        command = " ".join([f"python -m benchmarks.{self.subject}.{self.name}", *(f"--{name}" for name in flags)])
        result = {
            "command": command,
            **provenance(self.label.removesuffix("-quick")),
            "seconds": round(self.earlier + time.perf_counter() - self.started),
            "versions": versions(),
            "tables": tables,
        }
        path = (SCRATCH if self.quick else RESULTS) / f"{self.label}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        for each in tables:
            print_table(each)


def protocol(study: Study, section: str) -> tuple[Record, range]:
    """A section of the protocol of the rules about sites, and the seeds of its draws; two in a quick study."""
    found = tomllib.loads((HERE / "sites" / "protocol.toml").read_text(encoding="utf-8"))[section]
    seeds = study.draws(section)
    return found, seeds[:2] if study.quick else seeds


def versions() -> dict[str, str]:
    """Versions of what makes the figures."""
    return {
        "consilience": consilience.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def table(title: str, rows: list[Record]) -> Record:
    """A table of a result: the headings are the keys of all rows, and what a row lacks is None."""
    headings = list(dict.fromkeys(key for row in rows for key in row))
    return {"title": title, "rows": [{key: row.get(key) for key in headings} for row in rows]}


def print_table(shown: Record) -> None:
    print(f"\n{shown['title']}")
    for row in shown["rows"]:
        print("  " + ", ".join(f"{name}: {value}" for name, value in row.items()))


def show_progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, end="\r", file=sys.stderr, flush=True)


def rounded(value: float | None, digits: int = 3) -> float | None:
    """For reading: so many significant digits; None where there is no figure."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.{digits}g}")
