"""The speed of the library in one table of ratios, and a check that none of them has grown.

Each ratio compares two pieces of work that are measured in turn, seven times each, in CPU time of one thread (threads:
wall time); the table has the median and the extremes. With ``--check`` the ratios are compared with the stored ones:
one that is above 1.5 times its stored median is measured again, and if it still is, the check fails. Wall times, which
depend on what else the machine does, and all ratios on another processor than that of the stored table, are shown and
not judged. K = 4, d = 20 unless said otherwise.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.lib.study import RESULTS, Record, Study, rounded, stopwatch, table
from benchmarks.speed import many_sites, one_exchange, pass_speed, races
from consilience import InProcess, OneShot
from consilience.data import Columns, Shard
from consilience.datasets import soft
from consilience.fit import Expect
from consilience.model import Rows, expect
from consilience.model.kernels import kernel_for
from consilience.numerics.threads import jobs
from consilience.runs import run
from consilience.site import Site, answer

REPEATS, BOUND = 7, 1.5
Task = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """One piece of work in units of another."""

    name: str
    work: Task
    unit: Task
    wall: bool = False

    def measured(self) -> Record:
        self.work(), self.unit()  # memory is touched, libraries are loaded
        found = [self._seconds(self.work) / self._seconds(self.unit) for _ in range(REPEATS)]
        return {
            "ratio": self.name,
            "median": rounded(float(np.median(found))),
            "smallest": rounded(min(found)),
            "largest": rounded(max(found)),
        }

    def _seconds(self, task: Task) -> float:
        with stopwatch() as watch:
            task()
        return watch.wall if self.wall else watch.cpu


# ---------------------------------------------------------------------- what is compared


def passes(n: int) -> Iterator[Ratio]:
    """Passes over rows in memory, in units of the bare products."""
    kernels = ["numpy", "numba"] if kernel_for(n, 21).name == "numba" else ["numpy"]
    work = pass_speed.tasks(n, kernels)
    for kernel in kernels:
        for family, limit in (("Gaussian", "limit"), ("Poisson", "limit"), ("categorical", "categorical limit")):
            name = f"{family} pass, {kernel}"
            yield Ratio(f"{name} / bare products", work[name], work[f"{limit}, panels"])
        informed, plain = f"Gaussian pass with information, {kernel}", f"Gaussian pass, {kernel}"
        yield Ratio(f"{informed} / without", work[informed], work[plain])
    mixture, rows = pass_speed.problems(n)["Gaussian"]

    def with_threads(number: int) -> None:
        with jobs(number):
            expect(mixture, rows)

    yield Ratio("two threads / one, wall time", partial(with_threads, 2), partial(with_threads, 1), wall=True)


def reading(n: int, folder: Path) -> Ratio:
    """A pass over a Parquet file, in units of one over the same rows in memory."""
    data = soft(n, random_state=0)
    names = tuple(f"x{j}" for j in range(data.X.shape[1]))
    columns = dict(zip((*names, "y"), (*data.X.T, data.y), strict=True))
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    file = Site("file", Shard(str(folder / "rows.parquet"), Columns(names, ("y",))))
    memory, question = file.loaded(), Expect(data.truth)
    return Ratio("pass from Parquet / from memory", partial(answer, question, file), partial(answer, question, memory))


def small_sites(count: int) -> Ratio:
    """A round over sites of 1,000 rows, in units of the kernel over them."""
    data = soft(count * 1000, random_state=0)
    parts = np.array_split(np.arange(len(data.y)), count)
    sites = [Site(f"{m}", Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)]
    engine = InProcess(1).over(sites)

    def one_round() -> None:
        run(many_sites.one_round(data.truth, False), engine)

    def bare() -> None:
        for site in sites:
            expect(data.truth, site.data)

    return Ratio(f"round over {count} sites of 1,000 rows / kernel", one_round, bare)


def exchange(count: int) -> Ratio:
    """One exchange with small sites, K = d = 2, sites and coordinator, in units of a pass over 102,400 rows."""
    data = soft(40 * count, n_experts=2, n_features=2, random_state=0)
    mixture, rows = pass_speed.problems(100 * pass_speed.BLOCK)["Gaussian"]
    engine = InProcess(1).over(one_exchange.sites_of(data, count))

    def whole() -> None:
        run(OneShot(refine=1).dialogue(one_exchange.task_of(data, start=True)), engine)

    name = f"one exchange with {count} sites of 40 rows / pass over 102,400 rows"
    return Ratio(name, whole, partial(expect, mixture, rows))


def gaussian_mixtures(n: int) -> Iterator[Ratio]:
    """Whole fits of Gaussian mixtures, K = 8, from the same start, in units of scikit-learn's.

    With diagonal covariances and this number of rows ours computes standard errors, which scikit-learn's has not.
    """
    for structure, extra in (("full", ""), ("diag", " with standard errors")):
        given = races.race(n, structure)
        name = f"Gaussian mixture, {structure} covariances{extra} / scikit-learn's"
        yield Ratio(name, partial(races.ours, given), partial(races.scikit_learn, given))


def imports() -> Ratio:
    """The first estimator in a fresh process, in units of ``import numpy``."""

    def load(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    return Ratio(
        "first estimator / import numpy, wall time",
        partial(load, "import consilience; consilience.MixtureOfExpertsRegressor()"),
        partial(load, "import numpy"),
        wall=True,
    )


def all_ratios(folder: Path, *, quick: bool) -> Iterator[Ratio]:
    n = 40 * pass_speed.BLOCK if quick else 200 * pass_speed.BLOCK
    yield from passes(n)
    yield reading(n, folder)
    yield small_sites(20 if quick else 100)
    yield exchange(40 if quick else 200)
    yield from gaussian_mixtures(5_000 if quick else 50_000)
    yield imports()


# ---------------------------------------------------------------------- the table and the check


def processor() -> str:
    """Name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} processors" if names else platform.processor()


def machine() -> Record:
    return {
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "BLAS": np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"],
        "numba": version("numba") if find_spec("numba") else "not installed",
    }


def check(ratios: Iterator[Ratio], stored: Record) -> bool:
    """Print each ratio beside the stored one; whether none has grown by more than the bound."""
    described, known = stored["tables"]
    judged = described["rows"][0]["processor"] == processor()
    medians, good = {row["ratio"]: row["median"] for row in known["rows"]}, True
    for each in ratios:
        if each.name not in medians:
            print(f"{each.name}: not stored")
            continue
        found, bound = each.measured()["median"], BOUND * medians[each.name]
        counts = judged and not each.wall
        if counts and found > bound:
            found = min(found, each.measured()["median"])
        said = "" if found <= bound else "  GREW" if counts else "  more than the bound, not judged"
        print(f"{each.name}: {found} (stored {medians[each.name]}){said}", flush=True)
        good &= found <= bound or not counts
    return good


def main() -> None:
    study = Study(__file__, __doc__, {"check": "compare with the stored ratios"})
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        ratios = all_ratios(Path(folder), quick=study.quick)
        if study.options["check"]:
            stored = json.loads((RESULTS / f"{study.name}.json").read_text())
            sys.exit(0 if check(ratios, stored) else 1)
        rows = [each.measured() for each in ratios]
    study.save(table("Machine", [machine()]), table(f"Ratios, medians of {REPEATS} measurements in turn", rows))


if __name__ == "__main__":
    main()
