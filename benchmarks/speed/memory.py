"""How much memory a default fit adds to the data, through the estimator.

Five million rows, d = 20, float64: X takes 800 MB. The peak of the resident memory during ``fit`` is compared with the
resident memory just before it, when the data are in place and a small fit has loaded everything. Aim: at most 15 % of
the size of X. Linux only: the peak is reset through ``/proc/self/clear_refs``.
"""

from __future__ import annotations

import gc
from pathlib import Path

from benchmarks.lib.study import Study, rounded, stopwatch, table
from consilience import MixtureOfExpertsRegressor
from consilience.datasets import soft

PROCESS = Path("/proc/self")
MEGABYTE = 1e6


def resident(field: str) -> float:
    """``VmRSS``, now, or ``VmHWM``, at its highest, in MB."""
    lines = (PROCESS / "status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith(field + ":"))
    return int(kilobytes) * 1024 / MEGABYTE


def default_fit() -> MixtureOfExpertsRegressor:
    return MixtureOfExpertsRegressor(n_experts=4, random_state=0)


def main() -> None:
    study = Study(__file__, __doc__)
    n = 500_000 if study.quick else 5_000_000
    small = soft(3_000, random_state=0)
    default_fit().fit(small.X, small.y)
    data = soft(n, random_state=0)
    X, y = data.X, data.y
    del data, small
    gc.collect()
    (PROCESS / "clear_refs").write_text("5")
    before = resident("VmRSS")
    with stopwatch() as watch:
        model = default_fit().fit(X, y)
    added = resident("VmHWM") - before
    figures = {
        "N": n,
        "X, MB": rounded(X.nbytes / MEGABYTE),
        "resident before, MB": rounded(before),
        "added by the fit, MB": rounded(added),
        "share of X": f"{added * MEGABYTE / X.nbytes:.1%}",
        "aim": "≤ 15 %",
        "steps": model.n_iter_,
        "converged": bool(model.converged_),
        "CPU s": rounded(watch.cpu),
    }
    study.save(table("Peak memory of a default fit", [figures]))


if __name__ == "__main__":
    main()
