"""Whether the default fit finds the maximum that a start at the truth finds.

Data sets with K = 4, d = 20, n = 3,000, each with its own truth, a sharp gate (``paper``) and a soft one (``soft``).
Aims: the default fit within 0.005 n of the penalised log-likelihood reached from the truth in at least 19 of 20 data
sets of each kind, and at most 3 s of CPU (median).
"""

from __future__ import annotations

import warnings

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.datasets import paper, soft
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification, fit_mixture
from consilience.model import Rows

GENERATORS = {"soft": soft, "paper": paper}
ROWS = 3_000
NEAR = 0.005


def replication(key: str) -> Record:
    name, seed = key.split("/")
    data = GENERATORS[name](ROWS, random_state=int(seed), truth_state=int(seed))
    rows, specification = Rows(data.X, data.y[:, None]), Specification(K=4)
    with stopwatch() as watch:
        fit = fit_mixture(rows, specification, rng=np.random.default_rng(int(seed)))
    from_truth = fit_mixture(rows, specification, rng=np.random.default_rng(0), start=data.truth)
    return {"deficit": (from_truth.ascent.penalised - fit.ascent.penalised) / ROWS, "cpu": watch.cpu}


def summary(name: str, records: list[Record]) -> Record:
    deficits, cpu = (np.array([r[field] for r in records]) for field in ("deficit", "cpu"))
    return {
        "data": name,
        "data sets": len(records),
        "within 0.005 n": int(np.sum(deficits <= NEAR)),
        "largest deficit per row": f"{deficits.max():.1e}",
        "better than from the truth": int(np.sum(deficits < -1e-6)),
        "CPU s, median": rounded(float(np.median(cpu))),
        "CPU s, largest": rounded(float(cpu.max())),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    keys = [f"{name}/{seed}" for seed in range(5 if study.quick else 20) for name in GENERATORS]
    records = study.replicate(keys, replication)
    found = [summary(name, [r for r in records if r["key"].startswith(name)]) for name in GENERATORS]
    study.save(table("Default starts against a start at the truth (n = 3,000)", found))


if __name__ == "__main__":
    main()
