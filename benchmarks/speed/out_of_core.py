"""What it costs to fit rows that do not fit in memory: Parquet shards, read again at every pass.

A hundred million rows, d = 20, K = 4: 16.8 GB as float64, in 100 shards of a million rows, made by a seeded generator
and deleted afterwards. A default fit reads them piece by piece; its peak resident memory is taken in a process of its
own. Then the cost of a pass, CPU per row: from files on 10^6, 10^7 and 10^8 rows; and from memory, interleaved, on 10^6
and 10^7. Aims: at most 1 GB resident; a pass from files costs at most 0.3 µs per row more than one from memory; the
costs per row at the three sizes are within a factor of 1.25. Linux only (``/proc``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.lib.study import SCRATCH, Record, Study, rounded, stopwatch, table
from consilience import Federation, InProcess, MixtureOfExpertsRegressor
from consilience.data import Columns, Shard
from consilience.datasets import soft
from consilience.fit import Expect
from consilience.model import Mixture
from consilience.model.summary import column_summary
from consilience.site import Site, answer

D = 20
NAMES = tuple(f"x{j}" for j in range(D))
COLUMNS = Columns(NAMES, ("y",))
MEGABYTE = 1e6
IN_MEMORY = 10**7
"""Number of rows up to which they are also held in memory."""


def write_shards(folder: Path, shards: int, rows: int) -> list[Path]:
    """Shards of one simulated table, written where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{i:03d}.parquet" for i in range(shards)]
    for i, path in enumerate(paths):
        if not path.exists():
            data = soft(rows, n_features=D, random_state=i, truth_state=0)
            columns = {name: data.X[:, j] for j, name in enumerate(NAMES)}
            pq.write_table(pa.table({**columns, "y": data.y}), path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)
    return paths


def peak_memory() -> float:
    """Peak resident memory of this process, MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) * 1024 / MEGABYTE


def fit_in_this_process(pattern: str) -> None:
    """A default fit; prints its figures as JSON."""
    table_ = Federation.from_parquet(pattern, target="y", engine=InProcess(1))
    with stopwatch() as watch:
        result = table_.fit(MixtureOfExpertsRegressor(4, random_state=0))
    ascent = result.fit.ascent
    figures = {
        "rows": result.model.n_labels_,
        "resident, MB": rounded(peak_memory()),
        "passes": ascent.passes,
        "with information": ascent.informed_passes,
        "converged": bool(result.model.converged_),
        "CPU s": rounded(watch.cpu),
        "wall s": rounded(watch.wall),
    }
    print(json.dumps(figures))


def fit_elsewhere(folder: Path) -> Record:
    command = [sys.executable, "-m", __spec__.name, "--fit", str(folder / "*.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def pass_costs(paths: list[Path], n: int, repeats: int, mixture: Mixture) -> Record:
    """CPU per row of a pass over the first ``n`` rows, from memory and from files, taken in turn."""
    per_shard = pq.read_metadata(paths[0]).num_rows
    used = paths[: max(n // per_shard, 1)]
    folder = paths[0].parent / f"first-{n}"
    if n < per_shard:
        folder.mkdir(exist_ok=True)
        used = [folder / "part.parquet"]
        pq.write_table(pq.read_table(paths[0]).slice(0, n), used[0])
    files = [Site(path.name, Shard(str(path), COLUMNS)) for path in used]
    kinds = {"files": files} | ({"memory": [site.loaded() for site in files]} if n <= IN_MEMORY else {})
    spent: dict[str, list[float]] = {name: [] for name in kinds}
    for repeat in range(repeats + 1):
        for name, sites in kinds.items():
            with stopwatch() as watch:
                for site in sites:
                    answer(Expect(mixture), site)
            if repeat:  # the first round warms up
                spent[name].append(1e6 * watch.cpu / n)
    reading = np.array(spent["files"]) - np.array(spent.get("memory", [np.nan] * repeats))
    return {
        "rows": n,
        "from memory, µs per row": rounded(float(np.median(spent.get("memory", [np.nan])))),
        "from files, µs per row": rounded(float(np.median(spent["files"]))),
        "rows per second and core": round(1e6 / float(np.median(spent["files"]))),
        "reading, median": rounded(float(np.median(reading))),
        "smallest": rounded(float(reading.min())),
        "largest": rounded(float(reading.max())),
        "aim": "≤ 0.3",
    }


def main() -> None:
    study = Study(__file__, __doc__)
    shards, rows = (2, 100_000) if study.quick else (100, 1_000_000)
    folder = SCRATCH / f"{study.label}-shards"
    paths = write_shards(folder, shards, rows)
    first = Site("first", Shard(str(paths[0]), COLUMNS)).loaded()
    mixture = soft(10, n_features=D, random_state=0, truth_state=0).truth
    mixture = mixture.in_coordinates(column_summary(next(first.chunks())).design(intercept=True))
    sizes = (10_000, 100_000, 200_000) if study.quick else (1_000_000, 10_000_000, 100_000_000)
    costs = [pass_costs(paths, n, {10**7: 3, 10**8: 1}.get(n, 7), mixture) for n in sizes]
    each = [row["from files, µs per row"] for row in costs]
    spread = {"largest cost per row / smallest": rounded(max(each) / min(each)), "aim": "≤ 1.25"}
    fitted = fit_elsewhere(folder)
    size = rounded(shards * rows * (D + 1) * 8 / MEGABYTE)
    study.save(
        table("A default fit from files, one process", [{"data as float64, MB": size, **fitted, "aim": "≤ 1,000 MB"}]),
        table("CPU of a pass", costs),
        table("Costs per row at the three sizes", [spread]),
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        fit_in_this_process(sys.argv[2])
    else:
        main()
