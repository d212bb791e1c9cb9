"""How much memory a default fit adds to the data, through the estimator, with one thread and with two.

Five million rows, d = 20, float64: X takes 800 MB. The peak of the resident memory during ``fit`` is compared with the
resident memory just before it, when the data are in place and a small fit has loaded everything, numba too if it is
installed. Aim: at most 15 % of the size of X. Linux only: the peak is reset through ``/proc/self/clear_refs``.
"""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft
from consilience.model.kernels import kernel_for

PROCESS = Path("/proc/self")
MEGABYTE = 1e6


def resident(field: str) -> float:
    """``VmRSS``, now, or ``VmHWM``, at its highest, in MB."""
    lines = (PROCESS / "status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith(field + ":"))
    return int(kilobytes) * 1024 / MEGABYTE


def default_fit(n_jobs: int) -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(n_experts=4, random_state=0, n_jobs=n_jobs)


def peak_of_fit(X: np.ndarray, y: np.ndarray, n_jobs: int) -> Record:
    gc.collect()
    (PROCESS / "clear_refs").write_text("5")
    before = resident("VmRSS")
    with stopwatch() as watch:
        model = default_fit(n_jobs).fit(X, y)
    added = resident("VmHWM") - before
    return {
        "N": len(X),
        "kernel": kernel_for(*X.shape).name,
        "threads": n_jobs,
        "X, MB": rounded(X.nbytes / MEGABYTE),
        "resident before, MB": rounded(before),
        "added by the fit, MB": rounded(added),
        "share of X": f"{added * MEGABYTE / X.nbytes:.1%}",
        "aim": "≤ 15 %",
        "steps": model.n_iter_,
        "converged": bool(model.converged_),
        "CPU s": rounded(watch.cpu),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    n = 500_000 if study.quick else 5_000_000
    small = soft(40_000, random_state=0)
    default_fit(2).fit(small.X, small.y)
    data = soft(n, random_state=0)
    X, y = data.X, data.y
    del data, small
    study.save(table("Peak memory of a default fit", [peak_of_fit(X, y, n_jobs) for n_jobs in (1, 2)]))


if __name__ == "__main__":
    main()
