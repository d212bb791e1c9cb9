"""What many small sites cost the coordinator: one exchange with 1,000, 5,000 and 20,000 sites, and rounds with 100,000.

One exchange: sites of 40 rows, K = 2, d = 2, ``OneShot(refine=1)``. Every site answers in the coordinator's thread, and
its CPU time is taken off: what is left is the coordinator's, who decodes and checks each answer, combines the models
and adds the sums. The sites' own fits start from the true mixture, so that they are short. Each number of sites has a
process of its own, whose memory is measured; it holds the rows of all sites as well. Aims: at most 90 s of CPU for
5,000 sites; CPU per site at most 1.3 times that of 1,000 sites.

Rounds, with ``--rounds``: ``FederatedEM`` to the end with 100,000 sites of 10 rows in one process, K = 2, d = 2. The
unit is the kernel over all rows in one piece, ``expect(mixture, rows)``, without the information.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience import FederatedEM, InProcess, OneShot
from consilience.datasets import Simulation, soft
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification
from consilience.messages import decode
from consilience.methods import Task
from consilience.model import Rows, expect
from consilience.runs import Reply, run
from consilience.site import Site, respond

K, D, AT_ONCE = 2, 2, 64
ONE_SHOT, ROUNDS = "one exchange", "rounds"
PART = "ONE_EXCHANGE_PART"
"""Set in a process that measures one number of sites: what is measured, and how many sites."""


class Taken:
    """An engine without threads that takes the CPU time of the sites."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = {site.name: site for site in sites}
        self.cpu = 0.0

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        asked = decode(question)
        for first in range(0, len(sites), AT_ONCE):
            began = time.process_time()
            names = sites[first : first + AT_ONCE]
            replies = [Reply(number, (name,), respond(asked, self._sites[name]), (b"",), 0.0) for name in names]
            self.cpu += time.process_time() - began
            yield replies


def sites_of(data: Simulation, count: int) -> list[Site]:
    parts = np.array_split(np.arange(len(data.y)), count)
    return [Site(f"{m:06d}", Rows(data.X[part], data.y[part, None])) for m, part in enumerate(parts)]


def task_of(data: Simulation, *, start: bool) -> Task:
    return Task([Specification(K=K)], D, 1, start=data.truth if start else None, seed=0)


def one_exchange(count: int) -> Record:
    """The coordinator's CPU time in one exchange with so many sites."""
    data = soft(40 * count, n_experts=K, n_features=D, random_state=0)
    engine = Taken(sites_of(data, count))
    with stopwatch() as watch:
        done = run(OneShot(refine=1).dialogue(task_of(data, start=True)), engine)
    (fit,) = done.value
    cpu = watch.cpu - engine.cpu
    return {
        "sites": count,
        "coordinator, CPU s": rounded(cpu),
        "aim": "≤ 90" if count == 5000 else None,
        "per site, CPU ms": rounded(1000 * cpu / count),
        "sites, CPU s": rounded(engine.cpu),
        "rounds": len(done.record.rounds),
        "MB received": rounded(done.record.bytes_received / 1e6),
        "peak memory, MB": round(peak_memory()),
        "sites set aside": len(fit.combination.set_aside),
    }


def in_rounds(count: int) -> Record:
    """A whole fit by federated EM over so many sites in one process."""
    data = soft(10 * count, n_experts=K, n_features=D, random_state=0)
    engine, rows = InProcess().over(sites_of(data, count)), Rows(data.X, data.y[:, None])
    with stopwatch() as watch:
        done = run(FederatedEM().dialogue(task_of(data, start=False)), engine)
    (fit,) = done.value
    units = []
    for _ in range(5):
        with stopwatch() as unit:
            expect(fit.ascent.mixture, rows)
        units.append(unit.cpu)
    kinds = [f"{each.request}({each.question})" for each in done.record.rounds]
    return {
        "sites": count,
        "rounds": len(kinds),
        "of which with an answer of each site": sum(kind.startswith("Each") for kind in kinds),
        "CPU s": rounded(watch.cpu),
        "wall s": rounded(watch.wall),
        "CPU s of the kernel over all rows": rounded(np.median(units)),
        "stop": fit.ascent.stop.name,
        "log-likelihood per row": rounded(fit.log_likelihood / len(data.y), 6),
        "of the truth": rounded(expect(data.truth, rows).log_likelihood / len(data.y), 6),
        "peak memory, MB": round(peak_memory()),
    }


def peak_memory() -> float:
    """Largest memory of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1e6


def apart(key: str) -> Record:
    """The figures of ``what/sites``, from a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--quick"]
    done = subprocess.run(command, env=os.environ | {PART: key}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    study = Study(__file__, __doc__, {"rounds": "a whole fit in rounds instead of one exchange"})
    warnings.simplefilter("ignore", ConsilienceWarning)
    if os.environ.get(PART):
        what, count = os.environ[PART].split("/")
        print(json.dumps((one_exchange if what == ONE_SHOT else in_rounds)(int(count))))
        return
    if study.options["rounds"]:
        study.label = f"{study.label}_rounds"
        rounds = measured(study, [f"{ROUNDS}/{500 if study.quick else 100_000}"])
        study.save(table("Federated EM over many sites of 10 rows", rounds))
        return
    exchanges = measured(study, [f"{ONE_SHOT}/{n}" for n in ((120, 240) if study.quick else (1_000, 5_000, 20_000))])
    for each in exchanges:
        ratio = each["per site, CPU ms"] / exchanges[0]["per site, CPU ms"]
        each |= {"per site / that of the first": rounded(ratio), "aim of this": "≤ 1.3"}
    study.save(table("One exchange: CPU time of the coordinator", exchanges))


def measured(study: Study, keys: list[str]) -> list[Record]:
    """The figures of each key, without what the study keeps of a replication."""
    found = study.replicate(keys, apart)
    return [{name: value for name, value in each.items() if name not in ("key", "seconds")} for each in found]


if __name__ == "__main__":
    main()
