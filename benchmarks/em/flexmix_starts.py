"""What flexmix finds on the real data sets of ``real_starts``, beside the best of 200 random starts and our fits.

``initFlexmix`` runs with its own defaults, the best of three random starts, once for each of three seeds; the constant
gate is its default, the softmax gate its multinomial concomitant model. Needs R with flexmix, and the data directory
named by ``CONSILIENCE_DATA``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.em.real_starts import GATES, NEAR, ORDERS, REAL_SETS, data_of, stored
from benchmarks.lib.study import RESULTS, Record, Study, rounded, table

SCRIPT = Path(__file__).with_suffix(".R")
SEEDS = 3
LONGEST = 600
"""Seconds after which a fit of flexmix is ended."""


def replication(key: str) -> Record:
    """``data set/K/gate/seed``."""
    name, K, gate, seed = key.split("/")
    rscript = shutil.which("Rscript")
    if rscript is None:
        sys.exit("Rscript was not found: install R with flexmix (Debian: apt install r-cran-flexmix)")
    data = data_of(name)
    n, d = data.X.shape
    exposure = np.ones(n) if data.exposure is None else data.exposure
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.bin"
        np.concatenate([data.X.T.ravel(), data.y, exposure]).astype("<f8").tofile(file)
        command = [rscript, str(SCRIPT), str(file), str(n), str(d), K, data.family, gate, seed]
        one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command, env=os.environ | one_thread, capture_output=True, text=True, check=True, timeout=LONGEST
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return {"ll": None, "cpu": None}
    found = json.loads(done.stdout)
    return {"ll": found["loglik"], "cpu": found["cpu_seconds"], "rows": found["rows"], "sigma": found["sigma"]}


def summary(cell: str, records: list[Record], best: float, ours: Record | None) -> Record:
    found = [record["ll"] for record in records if record["ll"] is not None]
    return {
        "cell": cell,
        "fits": len(records),
        "ended": len(found),
        "within 2": sum(ll >= best - NEAR for ll in found),
        "largest gap": rounded(best - min(found)) if found else None,
        "above the best": sum(ll > best + NEAR for ll in found),
        "ours within 2": None if ours is None else f"{ours['within 2']} of {ours['fits']}",
        "CPU s, median": rounded(float(np.median([r["cpu"] for r in records if r["cpu"]]))) if found else None,
        "ours, CPU s": None if ours is None else ours["CPU s, median"],
    }


def main() -> None:
    study = Study(__file__, __doc__)
    names = ("tone", "seizure") if study.quick else tuple(REAL_SETS)
    cells = [f"{name}/{K}/{gate}" for name in names for K in ORDERS for gate in GATES]
    records = study.replicate([f"{cell}/{seed}" for cell in cells for seed in range(SEEDS)], replication)
    best, path = stored(), RESULTS / "real_starts.json"
    ours = {row["cell"]: row for row in json.loads(path.read_text())["tables"][1]["rows"]} if path.exists() else {}
    rows = [
        summary(cell, [r for r in records if r["key"].startswith(f"{cell}/")], best[cell]["ll"], ours.get(cell))
        for cell in cells
    ]
    fits, within, ended = (sum(row[name] for row in rows) for name in ("fits", "within 2", "ended"))
    total = {"fits": fits, "ended": ended, "within 2": rounded(within / fits)}
    study.save(table("flexmix on real data", [total]), table("Each cell", rows))


if __name__ == "__main__":
    main()
