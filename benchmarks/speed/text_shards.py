"""Fit, score and summarise Parquet shards with columns of text by the commands of the documentation, with Ctrl-C.

200 files of 10,000 rows with a key, 20 covariates, two of them text with five and three levels, and a response. The
program ``fit.py`` is taken from ``docs/how-to/running-on-a-cluster.rst`` as it stands there and runs in processes of
its own: once undisturbed, once with Ctrl-C (a signal to all of its processes) in the middle of the fit, and once more
to resume. Checked: the sentence that says how to resume, the bits of the resumed model, of its scores and of its
summary, and one complete file of scores for each shard. Linux only (``/proc``).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet

import consilience
from benchmarks.lib.study import HERE, Record, Study, rounded, table
from consilience.datasets import soft

PAGE = HERE.parent / "docs" / "how-to" / "running-on-a-cluster.rst"
SOURCE = str(Path(consilience.__file__).parents[1])
NUMBERS = 18
"""Covariates that are numbers: x0 to x17; x18 and x19 are text."""
REGIONS = {"east": 0.0, "north": 1.0, "south": -1.0, "west": 0.5, "centre": 2.0}
PRODUCTS = {"basic": 0.0, "plus": -0.5, "family": 1.5}
"""Levels of the two text columns, with what each adds to the response."""
ROUND = re.compile(r"round (\d+), ")
SENTENCE = re.compile(
    r"KeyboardInterrupt: interrupted in round (\d+): run the same call again, with journal='fit\.journal', to resume"
)
MEGABYTE = 1e6


def write_shards(folder: Path, shards: int, rows: int) -> None:
    folder.mkdir()
    for i in range(shards):
        data = soft(rows, n_features=NUMBERS, random_state=i, truth_state=0)
        rng = np.random.default_rng(i)
        region, product = rng.choice(list(REGIONS), rows), rng.choice(list(PRODUCTS), rows)
        y = data.y + np.array([REGIONS[r] + PRODUCTS[p] for r, p in zip(region, product, strict=True)])
        columns = {"id": np.arange(rows) + i * rows, **{f"x{j}": data.X[:, j] for j in range(NUMBERS)}}
        path = folder / f"part-{i:03d}.parquet"
        parquet.write_table(pa.table({**columns, "x18": region, "x19": product, "y": y}), path)


def program() -> str:
    """``fit.py`` of the page, as it stands there."""
    block = re.search(r"\.\. code-block:: python\n\n((?:   .*\n|\n)*?   # fit\.py\n(?:   .*\n|\n)*)", PAGE.read_text())
    assert block, f"{PAGE} has no fit.py"
    return textwrap.dedent(block[1])


@dataclass
class Memory:
    """Peak resident memory, in MB, of a process and of the largest of those that it started."""

    own: float = 0.0
    child: float = 0.0

    def watch(self, process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            self.own = max(self.own, peak(process.pid))
            self.child = max([self.child, *(peak(child) for child in children(process.pid))])
            time.sleep(0.5)


def peak(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) * 1024 / MEGABYTE for line in lines if line.startswith("VmHWM:")), 0.0)


def children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@dataclass
class Transcript:
    """What a run of the program said and when, in seconds since its start."""

    status: int = 0
    out: str = ""
    log: list[tuple[float, str]] = field(default_factory=list)
    seconds: float = 0.0
    signalled: float = 0.0
    memory: Memory = field(default_factory=Memory)

    def rounds(self) -> dict[int, float]:
        """When each round ended."""
        return {int(found[1]): when for when, line in self.log if (found := ROUND.match(line))}

    def text(self) -> str:
        return "".join(line for _, line in self.log)


def execute(folder: Path, pause: Callable[[str], float | None] = lambda _: None) -> Transcript:
    """Run the program in its folder; press Ctrl-C so many seconds after the first line for which ``pause`` has some."""
    done, began = Transcript(), time.perf_counter()
    with (
        (folder / "out.txt").open("w") as out,
        subprocess.Popen(
            [sys.executable, "fit.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": SOURCE},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that the signal reaches its processes and no other
        ) as process,
    ):
        watcher = threading.Thread(target=done.memory.watch, args=(process,))
        watcher.start()
        for line in lines(process):
            done.log.append((time.perf_counter() - began, line))
            wait = None if done.signalled else pause(line)
            if wait is not None:
                time.sleep(wait)
                done.signalled = time.perf_counter() - began
                os.killpg(process.pid, signal.SIGINT)
        done.status = process.wait()
        watcher.join()
    done.seconds, done.out = time.perf_counter() - began, (folder / "out.txt").read_text()
    return done


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stderr
    return iter(process.stderr)


def prepared(folder: Path, name: str, *, quick: bool) -> Path:
    """A folder with ``fit.py`` and ``data``, as a reader of the page has it; fewer workers start sooner."""
    place = folder / name
    place.mkdir()
    (place / "data").symlink_to(folder / "data")
    (place / "fit.py").write_text(program().replace("n_workers=4", "n_workers=2") if quick else program())
    return place


def undisturbed(place: Path, shards: int, rows: int) -> tuple[Transcript, list[Record]]:
    done = execute(place)
    assert done.status == 0, done.text()
    files = sorted((place / "scores").iterdir())
    scored = sum(parquet.read_metadata(path).num_rows for path in files)
    assert (len(files), scored) == (shards, shards * rows), (len(files), scored)
    fitted, last = model(place), max(done.rounds().values())
    data = {
        "files": shards,
        "rows": shards * rows,
        "covariates": NUMBERS + 2,
        "of which text": 2,
        "terms with the intercept": len(fitted["terms"]),
    }
    figures = {
        "rounds": len(done.rounds()),
        "fit, s": rounded(last),
        "scores and summary, s": rounded(done.seconds - last),
        "files of scores": len(files),
        "coordinator, MB": rounded(done.memory.own),
        "largest worker, MB": rounded(done.memory.child),
    }
    return done, [table("Data", [data]), table("Undisturbed", [figures])]


def interrupted(place: Path, whole: Transcript) -> tuple[Record, Record]:
    """Ctrl-C in the middle of the middle round, then the same command again."""
    ends = whole.rounds()
    last = len(ends) // 2
    half = (ends[last + 1] - ends[last]) / 2
    stopped = execute(place, lambda line: half if line.startswith(f"round {last},") else None)
    sentence = SENTENCE.match(stopped.log[-1][1])
    assert sentence, stopped.text()
    assert stopped.status == -signal.SIGINT, stopped.status
    assert stopped.text().count("Traceback") == 1, stopped.text()  # the coordinator's own: workers are not interrupted
    assert not (place / "scores").exists()
    figures = {
        "in round": int(sentence[1]),
        "of": len(ends),
        "seconds until all processes had ended": rounded(stopped.seconds - stopped.signalled, 2),
        "said how to resume": True,
    }
    resumed = execute(place)
    assert resumed.status == 0, resumed.text()
    replayed = resumed.text().count("from the journal")
    return figures, {
        "rounds from the journal": replayed,
        "rounds asked": len(resumed.rounds()) - replayed,
        "seconds": rounded(resumed.seconds),
        "coordinator, MB": rounded(resumed.memory.own),
    }


def model(place: Path) -> Record:
    """The saved model without the time of its writing."""
    document = json.loads((place / "model.json").read_text())
    del document["provenance"]
    return document


def same_bits(one: Path, other: Path) -> Record:
    """Whether models, scores and printed summaries are the same."""
    files = sorted(path.name for path in (one / "scores").iterdir())
    assert files == sorted(path.name for path in (other / "scores").iterdir())
    scores = all(
        parquet.read_table(one / "scores" / name).equals(parquet.read_table(other / "scores" / name)) for name in files
    )
    summaries = [re.sub(r"(?s).*Mixture of experts", "", (place / "out.txt").read_text()) for place in (one, other)]
    checked = {
        "same model": model(one) == model(other),
        "same scores": scores,
        "same summary": summaries[0] == summaries[1],
    }
    assert all(checked.values()), checked
    return checked


def main() -> None:
    study = Study(__file__, __doc__)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children of a background job would ignore it
    shards, rows = (4, 800) if study.quick else (200, 10_000)
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        write_shards(folder / "data", shards, rows)
        whole, stopped = (prepared(folder, name, quick=study.quick) for name in ("undisturbed", "interrupted"))
        transcript, tables = undisturbed(whole, shards, rows)
        interrupt, resumed = interrupted(stopped, transcript)
        resumed |= same_bits(whole, stopped)
    print(transcript.text(), transcript.out, sep="\n")
    study.save(*tables, table("Ctrl-C", [interrupt]), table("Resumed", [resumed]))


if __name__ == "__main__":
    main()
