"""Whether a bootstrap covers where intervals are withheld: a study of development, on simulated tables.

Tables of two experts whose intervals the rule withholds in most draws: ``separated``, 300 rows whose gate is nearly a
step; ``step``, nearer still; ``small expert``, 70 rows with an expert of some 13 rows for four coefficients;
``binary``, 500 responses of 0 or 1. Of each draw whose intervals of the part in question are withheld, the default fit
is refitted to tables simulated from it, and to rows drawn with replacement, with experts matched to it by their
responsibilities. An interval is that between the 2.5 % and 97.5 % quantiles of the refits, or 1.96 of their standard
deviations around the estimate. Coverage is that of the true slopes of the gate, of the smaller expert, or of both
experts. To fill withheld intervals, a bootstrap would have to cover in at least 0.90.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import expit

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.errors import ConsilienceError
from consilience.fit import Specification, fit_mixture, infer
from consilience.fit.inference import simulate
from consilience.fit.parameters import Parameters, parameters
from consilience.model import Mixture, Rows
from consilience.model.mixture import matching

DRAWS, REFITS = 40, 60
CELLS = ("separated", "small expert", "binary", "step")
GATES = ("separated", "step")


def drawn(cell: str, rng: np.random.Generator) -> tuple[Rows, Specification, np.ndarray, np.ndarray]:
    """Rows, model, true gate contrast of the second expert ``(p,)``, and true coefficients ``(2, p)``."""
    n, d = {"separated": (300, 1), "small expert": (70, 3), "binary": (500, 2), "step": (300, 1)}[cell]
    X = rng.standard_normal((n, d))
    design = np.c_[np.ones(n), X]
    cell = "separated" if (step := cell == "step") else cell
    gate = {"separated": [0.0, 40.0], "small expert": [-1.5, 0.5, 0.0, 0.0], "binary": [0.0, 1.0, -1.0]}[cell]
    B = {
        "separated": [[0, 1], [2, -1]],
        "small expert": [[0, 1, 0, 0], [3, -1, 1, 0]],
        "binary": [[-1, 2, 0], [1, 0, 2]],
    }
    alpha, beta = np.array(gate) * (150 / 40 if step else 1), np.array(B[cell], dtype=float)
    second = rng.random(n) < expit(design @ alpha)
    mean = np.sum(design * beta[second.astype(int)], axis=1)
    if cell == "binary":
        y, family = (rng.random(n) < expit(mean)).astype(float), "binomial"
    else:
        y, family = mean + 0.7 * rng.standard_normal(n), "gaussian"
    return Rows(X, y[:, None]), Specification(2, family=family), alpha, beta


def slopes(estimates: Parameters, cell: str) -> np.ndarray:
    """The slopes that the cell is about."""
    if cell in GATES:
        return estimates.gate[1, 1:] - estimates.gate[0, 1:]
    return estimates.experts[1 if cell == "small expert" else slice(None), 0, 1:].ravel()


def refits(
    mixture: Mixture, rows: Rows, specification: Specification, rng: np.random.Generator, cell: str, *, cases: bool
) -> np.ndarray:
    """The slopes ``(REFITS, s)`` of refits that start at the mixture, matched to it by responsibilities."""
    reference, found = mixture.responsibilities(rows), []
    for _ in range(REFITS):
        other = rows.take(np.sort(rng.integers(rows.n, size=rows.n))) if cases else simulate(mixture, rows, rng)
        try:
            again = fit_mixture(other, specification, rng=rng, start=mixture).mixture
        except ConsilienceError:  # a resample without one of the two outcomes, or of too few distinct rows
            continue
        found.append(slopes(parameters(again.permuted(matching(again, reference, rows).permutation)), cell))
    return np.array(found)


def replication(key: str) -> Record:
    """``cell/draw``."""
    cell, draw = key.split("/")
    rng = np.random.default_rng([CELLS.index(cell), int(draw)])
    rows, specification, alpha, beta = drawn(cell, rng)
    truth = Parameters(np.array([0 * alpha, alpha]), beta[:, None, :], np.zeros((2, 0)))
    with warnings.catch_warnings(), stopwatch() as watch:
        warnings.simplefilter("ignore")
        fit = fit_mixture(rows, specification, rng=rng)
        orders = [np.array([0, 1]), np.array([1, 0])]
        order = min(orders, key=lambda order: np.sum((parameters(fit.mixture).experts[order] - truth.experts) ** 2))
        inference = infer(fit, rows)
        if ("gate" in inference.withheld) if cell in GATES else not inference.shows_expert(int(order[1])):
            mixture = fit.mixture.permuted(order)
            estimate, true = slopes(parameters(mixture), cell), slopes(truth, cell)
            found: Record = {"withheld": True}
            for name, cases in (("parametric", False), ("cases", True)):
                values = refits(mixture, rows, specification, rng, cell, cases=cases)
                low, high = np.quantile(values, [0.025, 0.975], axis=0)
                found[f"{name}, quantiles"] = float(np.mean((low <= true) & (true <= high)))
                found[f"{name}, deviations"] = float(
                    np.mean(np.abs(estimate - true) <= 1.96 * values.std(axis=0, ddof=1))
                )
        else:
            found = {"withheld": False}
    return found | {"cpu": watch.cpu}


WAYS = tuple(f"{name}, {interval}" for name in ("parametric", "cases") for interval in ("quantiles", "deviations"))


def main() -> None:
    study = Study(__file__, __doc__)
    draws = 2 if study.quick else DRAWS
    records = study.replicate([f"{cell}/{draw}" for draw in range(draws) for cell in CELLS], replication)
    rows = []
    for cell in CELLS:
        of_cell = [record for record in records if record["key"].startswith(f"{cell}/")]
        silent = [record for record in of_cell if record["withheld"]]
        covered = {
            way: rounded(float(np.mean([record[way] for record in silent])), 2) if silent else None for way in WAYS
        }
        rows.append({"tables": cell, "draws": len(of_cell), "withheld": len(silent), **covered})
    study.save(table("Coverage of a bootstrap where intervals are withheld", rows))


if __name__ == "__main__":
    main()
