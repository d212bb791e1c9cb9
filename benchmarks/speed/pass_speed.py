"""What a pass over the data costs, in units of the bare matrix products it cannot do without.

K = 4, d = 20, a million rows. The unit, the bare-BLAS limit, is for each block of 1,024 rows one product for the 8
linear predictors and ten plain products X'X (21 × 21), without weights: what the statistics of 4 experts and the
curvature of their gate need if nothing else cost anything. CPU time, one thread, ratios of measurements that follow
each other, medians over repetitions. Aims: a pass at most 2.2 limits, a pass with the observed information at most 3
passes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.datasets import soft
from consilience.model import Rows, expect
from consilience.model.summary import column_summary

BLOCK = 1024
PREDICTORS, PRODUCTS = 8, 10  # K experts and K gates; K weights and K (K - 1) / 2 gate pairs
Array = np.ndarray


def limit_by_rows(X: Array) -> None:
    """The bare products on rows ``X (n, p)``."""
    p = X.shape[1]
    theta, other = np.ones((p, PREDICTORS)), X[:BLOCK].copy()  # another array, or numpy would take syrk instead of gemm
    predictors, product = np.empty((BLOCK, PREDICTORS)), np.empty((p, p))
    for start in range(0, len(X) - BLOCK + 1, BLOCK):
        block = X[start : start + BLOCK]
        np.matmul(block, theta, out=predictors)
        for _ in range(PRODUCTS):
            np.matmul(block.T, other, out=product)


def limit_by_panels(panels: Array) -> None:
    """The same with features on axis 0, on panels ``(blocks, p, 1024)``."""
    _, p, _ = panels.shape
    theta, other = np.ones((PREDICTORS, p)), panels[0].copy()
    predictors, product = np.empty((PREDICTORS, BLOCK)), np.empty((p, p))
    for panel in panels:
        np.matmul(theta, panel, out=predictors)
        for _ in range(PRODUCTS):
            np.matmul(panel, other.T, out=product)


def cpu_seconds(work: Callable[[], object]) -> float:
    with stopwatch() as watch:
        work()
    return watch.cpu


def tasks(n: int) -> dict[str, Callable[[], object]]:
    data = soft(n, random_state=0)
    rows = Rows(data.X, data.y[:, None])
    mixture = data.truth.in_coordinates(column_summary(rows).design(intercept=True))  # as in a fit
    X = np.hstack([np.ones((n, 1)), data.X])
    panels = np.ascontiguousarray(X.reshape(-1, BLOCK, X.shape[1]).transpose(0, 2, 1))
    return {
        "limit, rows": lambda: limit_by_rows(X),
        "limit, panels": lambda: limit_by_panels(panels),
        "pass": lambda: expect(mixture, rows),
        "pass with information": lambda: expect(mixture, rows, information=True),
    }


def ratio(numerator: list[float], denominator: list[float]) -> Record:
    ratios = np.array(numerator) / np.array(denominator)
    return {
        "median": rounded(float(np.median(ratios))),
        "smallest": rounded(float(ratios.min())),
        "largest": rounded(float(ratios.max())),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    n, repeats = (100 * BLOCK, 5) if study.quick else (976 * BLOCK, 11)  # 999,424 rows: whole blocks
    work = tasks(n)
    for task in work.values():
        task()  # memory is touched, libraries are loaded
    spent: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, task in work.items():
            spent[name].append(cpu_seconds(task))
    limit = min(("limit, rows", "limit, panels"), key=lambda name: float(np.median(spent[name])))
    seconds = [
        {"work": name, "CPU s, median": rounded(float(np.median(values))), "smallest": rounded(min(values))}
        for name, values in spent.items()
    ]
    ratios = [
        {"ratio": f"pass / {limit}", **ratio(spent["pass"], spent[limit]), "aim": "≤ 2.2"},
        {"ratio": "pass with information / pass", **ratio(spent["pass with information"], spent["pass"]), "aim": "≤ 3"},
    ]
    study.save(
        table(f"Ratios over {repeats} repetitions, N = {n:,}, against the faster of two layouts", ratios),
        table("Seconds on the machine of this run", seconds),
    )


if __name__ == "__main__":
    main()
