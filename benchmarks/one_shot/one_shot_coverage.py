"""Coverage of nominal 95 % intervals after one exchange and refinement.

Each replication draws a new truth (K = 4, d = 20) and a data set from it, splits it over sites, combines their fits and
refines at most four times; the pooled fit of the same rows stands beside it. Local and pooled fits start at the truth,
and in the first replications also as a user's would. Aims: experts 0.93 to 0.97; the gate 0.93 to 0.97 on ``soft``;
on ``paper``, where its gate intervals are not withheld, not more than 0.01 below the pooled fit's.

Sums of statistics over sites are taken as statistics of all rows, which they are to rounding (tests of federated EM).
"""

from __future__ import annotations

import warnings

import numpy as np

from benchmarks.em.coverage import PARTS, covered, mean_and_error
from benchmarks.lib.sites import GENERATORS, answered, simulated, split
from benchmarks.lib.study import Record, Study, stopwatch, table
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification, fit_mixture, infer
from consilience.fit.parameters import parameters
from consilience.messages import FitSite
from consilience.methods import OneShot, Task
from consilience.model import Mixture, Rows
from consilience.model.mixture import alignment
from consilience.site import Site, answer

CELLS = {"20000/16": (20_000, 16), "50000/64": (50_000, 64)}
ROUNDS = 4


def replication(key: str) -> Record:
    name, n, M, start, seed = key.split("/")
    data = simulated(name, int(n), int(seed))
    rows, given = Rows(data.X, data.y[:, None]), data.truth if start == "truth" else None

    specification, sites = Specification(K=4), split(data, int(M))
    question = FitSite(specification, (4,), int(seed), start=given)
    with stopwatch() as watch:
        local = {str(m): answer(question, Site(str(m), part)) for m, part in enumerate(sites)}
        dialogue = OneShot(refine=ROUNDS).dialogue(Task([specification], 20, 1, seed=int(seed)))
        (fit,), rounds = answered(dialogue, local, sites, rows)
    pooled = fit_mixture(rows, specification, rng=np.random.default_rng(int(seed)), start=given)
    return {
        "one shot": figures(fit.inference, fit.mixture, data.truth),
        "pooled": figures(infer(pooled, rows), pooled.mixture, data.truth),
        "rounds": rounds,
        "named": len(fit.combination.set_aside),
        "cpu": round(watch.cpu, 2),
    }


def figures(inference, mixture: Mixture, truth: Mixture) -> Record:
    aligned = parameters(truth.permuted(alignment(truth, mixture)))
    return {"covered": covered(inference, aligned), "withheld": sorted(inference.withheld)}


def summary(cell: str, records: list[Record]) -> Record:
    name, n, M, start = cell.split("/")

    def mean(method: str, part: str, chosen: list[Record]) -> str:
        values = [r[method]["covered"][part] for r in chosen if r[method]["covered"][part] is not None]
        return mean_and_error(values)

    shown = [r for r in records if "gate" not in r["one shot"]["withheld"]]
    row = {"data": name, "N": int(n), "M": int(M), "local start": start, "fits": len(records)}
    for part in PARTS:
        row[part] = mean("one shot", part, records)
        row[f"{part}, pooled"] = mean("pooled", part, records)
    return row | {
        "gate withheld": f"{1 - len(shown) / len(records):.0%}",
        "gate where shown": mean("one shot", "gate", shown),
        "gate where shown, pooled": mean("pooled", "gate", shown),
        "rounds": f"{np.mean([r['rounds'] for r in records]):.1f}",
    }


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    repeats = {"truth": 2, "default": 1} if study.quick else {"truth": 200, "default": 20}
    sizes = {"20000/16": (20_000, 16)} if study.quick else CELLS
    cells = [f"{name}/{size}/{start}" for start in repeats for size in sizes for name in GENERATORS]
    keys = [
        f"{cell}/{seed}"
        for seed in range(max(repeats.values()))
        for cell in cells
        if seed < repeats[cell.split("/")[-1]]
    ]
    records = study.replicate(keys, replication)
    found = [summary(cell, [r for r in records if r["key"].startswith(cell + "/")]) for cell in cells]
    study.save(
        table("Coverage of nominal 95 % intervals after refinement, mean over fits ± Monte Carlo standard error", found)
    )


if __name__ == "__main__":
    main()
