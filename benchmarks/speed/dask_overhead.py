"""What the Dask engine adds to the CPU time of an EM iteration, over a bare loop on the same rows.

N = 20,000,000 rows, d = 20, K = 4, in 16 or 1,024 Parquet shards that two workers keep in memory. An iteration is one
sum over all sites of the statistics of the mixture. The unit is the loop ``expect(mixture, rows)`` over the same shards
in one thread of one process. Dask's figure is the CPU time of the whole process tree: workers, scheduler, client, and
what they do between messages. Ratios of measurements that follow each other, medians over repetitions. Aims: at most
1.15 with 16 shards, 1.5 with 1,024.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet

from benchmarks.lib.study import Record, Study, rounded, table
from consilience.data import Columns, Shard
from consilience.datasets import soft
from consilience.engines import DaskCluster
from consilience.fit import Expect
from consilience.messages import Total
from consilience.messages.dialogue import Dialogue
from consilience.model import Mixture, Rows, expect
from consilience.model.summary import column_summary
from consilience.runs import run
from consilience.site import Site

D = 20
AIMS = {16: 1.15, 1024: 1.5}
ITERATIONS = 3


def write_shards(directory: Path, n: int, number: int) -> tuple[list[Site], Mixture]:
    data = soft(n, random_state=0)
    names = tuple(f"x{j}" for j in range(D))
    sites = []
    for i, index in enumerate(np.array_split(np.arange(n), number)):
        columns = dict(zip((*names, "y"), (*data.X[index].T, data.y[index]), strict=True))
        parquet.write_table(pa.table(columns), directory / f"{i}.parquet")
        sites.append(Site(str(i), Shard(str(directory / f"{i}.parquet"), Columns(names, ("y",)))))
    design = column_summary(Rows(data.X, data.y[:, None])).design(intercept=True)
    return sites, data.truth.in_coordinates(design)  # as in a fit


def iterations(mixture: Mixture) -> Dialogue[None]:
    for _ in range(ITERATIONS):
        yield Total(Expect(mixture))


def tree_seconds() -> float:
    """CPU time of this process and of all its workers."""
    here = psutil.Process()
    spent = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(times.user + times.system for times in spent)


def seconds(clock: Callable[[], float], work: Callable[[], object], times: int) -> tuple[float, float]:
    """CPU and wall seconds of one of ``times`` repetitions in ``work``."""
    cpu, wall = clock(), time.perf_counter()
    work()
    return (clock() - cpu) / times, (time.perf_counter() - wall) / times


def measure(n: int, number: int, repeats: int) -> Record:
    with TemporaryDirectory() as directory, DaskCluster(n_workers=2) as cluster:
        sites, mixture = write_shards(Path(directory), n, number)
        shards = [rows for site in sites for rows in site.loaded().chunks()]
        engine = cluster.over(sites, in_memory=True)
        run(iterations(mixture), engine)  # shards are loaded, libraries too
        bare, dask = [], []
        for _ in range(repeats):
            loop = seconds(time.thread_time, lambda: reduce(add, (expect(mixture, rows) for rows in shards)), 1)
            bare.append(loop)
            dask.append(seconds(tree_seconds, lambda: run(iterations(mixture), engine), ITERATIONS))
    cpu = np.array([d[0] / b[0] for d, b in zip(dask, bare, strict=True)])
    wall = np.array([d[1] / b[1] for d, b in zip(dask, bare, strict=True)])
    return {
        "shards": number,
        "CPU ratio, median": rounded(float(np.median(cpu))),
        "smallest": rounded(float(cpu.min())),
        "largest": rounded(float(cpu.max())),
        "aim": f"≤ {AIMS[number]}",
        "wall ratio, median": rounded(float(np.median(wall))),
        "bare CPU s": rounded(float(np.median([b[0] for b in bare]))),
        "Dask CPU s": rounded(float(np.median([d[0] for d in dask]))),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    n, repeats = (400_000, 3) if study.quick else (20_000_000, 5)
    rows = [measure(n, number, repeats) for number in AIMS]
    study.save(table(f"An EM iteration on 2 workers over a bare loop, N = {n:,}, {repeats} repetitions", rows))


if __name__ == "__main__":
    main()
