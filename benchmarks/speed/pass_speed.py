"""What a pass over the data costs, in units of the bare matrix products it cannot do without.

K = 4, d = 20, a million rows. The unit, the bare-BLAS limit, is for each block of 1,024 rows one product for all linear
predictors, and for each weighted sum of x x' one plain product X'X (21 × 21): what the statistics of 4 experts and the
curvature of their gate need if nothing else cost anything. For Gaussian and Poisson experts these are 8 predictors and
10 products, for categorical experts with 3 classes 16 and 18. CPU time, one thread, ratios of measurements that follow
each other, medians over repetitions; for threads, wall time. The observed information needs 28 more products, those of
all pairs of four experts and three gate directions; its pass is also compared with all 38. Two threads are compared
with one thread, and beside it two processes that do the work twice: what the machine gives that day. Aims with numba: a
pass at most 1.1 limits, of Poisson and categorical experts 1.5, a pass with the observed information at most 2.5
passes, two threads 1.7 times as fast as one. With numpy alone: 2.2 limits, and 3 passes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.datasets import soft
from consilience.model import CategoricalExperts, Mixture, PoissonExperts, Rows, expect
from consilience.model.kernels import kernel_for
from consilience.model.kernels import panels as choice
from consilience.model.summary import column_summary
from consilience.numerics.threads import jobs

BLOCK = 1024
CLASSES = 3
FEW, MANY, INFORMED = (8, 10), (16, 18), (8, 38)  # predictors and products: Gaussian or Poisson, categorical, informed
PASSES = 4  # of a measurement of threads: a fit has many
Array = np.ndarray
Task = Callable[[], object]


def limit_by_rows(X: Array, predictors: int, products: int) -> None:
    """The bare products on rows ``X (n, p)``."""
    p = X.shape[1]
    theta, other = np.ones((p, predictors)), X[:BLOCK].copy()  # another array, or numpy would take syrk instead of gemm
    eta, product = np.empty((BLOCK, predictors)), np.empty((p, p))
    for start in range(0, len(X) - BLOCK + 1, BLOCK):
        block = X[start : start + BLOCK]
        np.matmul(block, theta, out=eta)
        for _ in range(products):
            np.matmul(block.T, other, out=product)


def limit_by_panels(panels: Array, predictors: int, products: int) -> None:
    """The same with features on axis 0, on panels ``(blocks, p, 1024)``."""
    _, p, _ = panels.shape
    theta, other = np.ones((predictors, p)), panels[0].copy()
    eta, product = np.empty((predictors, BLOCK)), np.empty((p, p))
    for panel in panels:
        np.matmul(theta, panel, out=eta)
        for _ in range(products):
            np.matmul(panel, other.T, out=product)


@contextmanager
def with_kernel(name: str):
    """Let passes over many rows take the kernel of numpy, or the compiled one."""
    usual = choice.COMPILED_FROM
    choice.COMPILED_FROM = usual if name == "numba" else np.inf
    try:
        yield
    finally:
        choice.COMPILED_FROM = usual


def one_pass(kernel: str, mixture: Mixture, rows: Rows, *, information: bool = False) -> None:
    with with_kernel(kernel):
        expect(mixture, rows, information=information)


def problems(n: int) -> dict[str, tuple[Mixture, Rows]]:
    """A mixture of each family, and rows that it describes."""
    data, rng = soft(n, random_state=0), np.random.default_rng(0)
    design = column_summary(Rows(data.X, data.y[:, None])).design(intercept=True)  # as in a fit
    truth = data.truth.in_coordinates(design)
    B = truth.experts.B[:, 0] / 20
    classes = np.stack([B, -B, np.roll(B, 1, axis=0)], axis=1)
    return {
        "Gaussian": (truth, Rows(data.X, data.y[:, None])),
        "Poisson": (replace(truth, experts=PoissonExperts(B)), Rows(data.X, rng.poisson(2.0, (n, 1)).astype(float))),
        "categorical": (
            replace(truth, experts=CategoricalExperts(classes - classes.mean(axis=1, keepdims=True))),
            Rows(data.X, rng.integers(0, CLASSES, (n, 1)).astype(float)),
        ),
    }


def tasks(n: int, kernels: list[str]) -> dict[str, Task]:
    found = problems(n)
    X = np.hstack([np.ones((n, 1)), found["Gaussian"][1].X])
    panels = np.ascontiguousarray(X.reshape(-1, BLOCK, X.shape[1]).transpose(0, 2, 1))
    work: dict[str, Task] = {}
    for name, sizes in (("limit", FEW), ("categorical limit", MANY), ("informed limit", INFORMED)):
        work[f"{name}, rows"] = partial(limit_by_rows, X, *sizes)
        work[f"{name}, panels"] = partial(limit_by_panels, panels, *sizes)
    for kernel in kernels:
        for family, (mixture, rows) in found.items():
            work[f"{family} pass, {kernel}"] = partial(one_pass, kernel, mixture, rows)
        work[f"Gaussian pass with information, {kernel}"] = partial(
            one_pass, kernel, *found["Gaussian"], information=True
        )
    return work


def ratio(numerator: list[float], denominator: list[float]) -> Record:
    ratios = np.array(numerator) / np.array(denominator)
    return {
        "median": rounded(float(np.median(ratios))),
        "smallest": rounded(float(ratios.min())),
        "largest": rounded(float(ratios.max())),
    }


def passes(kernel: str, mixture: Mixture, rows: Rows) -> None:
    for _ in range(PASSES):
        one_pass(kernel, mixture, rows)


def in_two_processes(*work: object) -> None:
    """Do the same passes in each of two processes at once."""
    processes = [get_context("fork").Process(target=passes, args=work) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def speed_of_threads(n: int, repeats: int, kernel: str) -> list[Record]:
    """The wall time of Gaussian passes with one thread over that with two, and over half that of two processes."""
    work = (kernel, *problems(n)["Gaussian"])
    one: list[float] = []
    threads: list[float] = []
    processes: list[float] = []
    for _ in range(repeats):
        for number, seconds in ((1, one), (2, threads)):
            with jobs(number), stopwatch() as watch:
                passes(*work)
            seconds.append(watch.wall)
        with stopwatch() as watch:
            in_two_processes(*work)
        processes.append(watch.wall / 2)
    aim = "≥ 1.7" if kernel == "numba" else ""
    return [
        {"ratio": f"one thread / two threads, {kernel}, wall time", **ratio(one, threads), "aim": aim},
        {"ratio": f"one process / two processes, {kernel}, wall time", **ratio(one, processes), "aim": ""},
    ]


def main() -> None:
    study = Study(__file__, __doc__)
    n, repeats = (100 * BLOCK, 5) if study.quick else (976 * BLOCK, 11)  # 999,424 rows: whole blocks
    kernels = ["numpy", "numba"] if kernel_for(n, 21).name == "numba" else ["numpy"]
    work = tasks(n, kernels)
    for task in work.values():
        task()  # memory is touched, libraries are loaded
    spent: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, task in work.items():
            with stopwatch() as watch:
                task()
            spent[name].append(watch.cpu)

    def faster(name: str) -> str:
        return min((f"{name}, rows", f"{name}, panels"), key=lambda each: float(np.median(spent[each])))

    ratios = []
    for kernel in kernels:
        fast = kernel == "numba"
        for family, unit, aim in (
            ("Gaussian", "limit", 1.1),
            ("Poisson", "limit", 1.5),
            ("categorical", "categorical limit", 1.5),
        ):
            name, limit = f"{family} pass, {kernel}", faster(unit)
            bound = f"≤ {aim}" if fast else "≤ 2.2" if family == "Gaussian" else ""
            ratios.append({"ratio": f"{name} / {limit}", **ratio(spent[name], spent[limit]), "aim": bound})
        informed, plain = f"Gaussian pass with information, {kernel}", f"Gaussian pass, {kernel}"
        bound = "≤ 2.5" if fast else "≤ 3"
        ratios.append({"ratio": f"{informed} / {plain}", **ratio(spent[informed], spent[plain]), "aim": bound})
        limit = faster("informed limit")
        ratios.append({"ratio": f"{informed} / {limit}", **ratio(spent[informed], spent[limit]), "aim": ""})
    ratios += [row for kernel in kernels for row in speed_of_threads(n, repeats, kernel)]
    seconds = [
        {"work": name, "CPU s, median": rounded(float(np.median(values))), "smallest": rounded(min(values))}
        for name, values in spent.items()
    ]
    study.save(
        table(f"Ratios over {repeats} repetitions, N = {n:,}, against the faster of two layouts", ratios),
        table("Seconds on the machine of this run", seconds),
    )


if __name__ == "__main__":
    main()
