"""Coverage of the 95 % intervals that are shown, where rows are few, variances differ, or sites are unlike each other.

Single fits: K = 2, default starts and default standard errors, with 20, 50 and 80 covariates on 300 rows, with 60 and
150 rows, and with a variance that depends on the covariates (the truth is then the mixture fitted to 400,000 rows).
One-shot fits: K = 3, d = 4, without refinement and with one round, on sites that are alike, of 20 to 20,000 rows,
each without one of the experts, each in a region of the covariates, or with three overfitted sites of 32 rows; sites
use two starts each, at most 100 iterations.

A fit counts with the parameters whose intervals it shows. Aim: coverage of at least 0.90 in every cell.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import softmax

from benchmarks.em.coverage import mean_and_error
from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience import Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot
from consilience.errors import ConsilienceWarning
from consilience.fit.inference import Inference
from consilience.fit.parameters import parameters
from consilience.methods.one_shot.one_shot import unrefined_fit
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, SoftmaxGate
from consilience.model.mixture import alignment

PARTS = {"experts": "experts", "log variances": "log_shapes", "gate": "gate"}

# ---------------------------------------------------------------------- single fits

FEW = np.array([[0, 1.5, -1, 0.5], [2.5, -1.0, 1, 0]])
FEW_GATE = np.array([[0, 0.7, 0, -0.3], [0, -0.7, 0, 0.3]])
FEW_WEIGHTS = np.array([0.6, 0.4])
PSEUDO_TRUE_ROWS = 400_000
pseudo_true: dict[str, Mixture] = {}


def many_covariates(d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Mixture]:
    """300 rows of two regressions, in which 5 of d slopes are not zero."""
    B = np.zeros((2, d + 1))
    B[:, 1:6], B[1, 0] = [[2.0], [-2.0]], 3.0
    X = rng.standard_normal((300, d))
    label = (rng.random(300) < 0.5).astype(int)
    y = np.sum(np.c_[np.ones(300), X] * B[label], axis=1) + rng.standard_normal(300)
    return X, y, mixture(ConstantGate(np.array([0.5, 0.5])), B, 1.0)


def few_rows(n: int, gate: str, noise: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two regressions on three covariates."""
    X = rng.standard_normal((n, 3))
    F = np.c_[np.ones(n), X]
    pi = softmax(F @ FEW_GATE.T, axis=1) if gate == "softmax" else np.tile(FEW_WEIGHTS, (n, 1))
    label = (rng.random(n) > pi[:, 0]).astype(int)
    scale = np.exp(0.5 * X[:, 0] - 0.25) if noise == "heteroscedastic" else 1.0
    return X, np.sum(F * FEW[label], axis=1) + 0.8 * scale * rng.standard_normal(n)


def truth_of_few(gate: str, noise: str) -> Mixture:
    """The mixture that generated the rows, or the one closest to their distribution."""
    true = mixture(SoftmaxGate(FEW_GATE) if gate == "softmax" else ConstantGate(FEW_WEIGHTS), FEW, 0.64)
    if noise == "normal":
        return true
    if gate not in pseudo_true:
        X, y = few_rows(PSEUDO_TRUE_ROWS, gate, noise, np.random.default_rng(12345))
        pseudo_true[gate] = ESTIMATORS[gate](2, mixture_init=true).fit(X, y).mixture_
    return pseudo_true[gate]


def mixture(gate: SoftmaxGate | ConstantGate, B: np.ndarray, variance: float) -> Mixture:
    return Mixture(Design.raw(B.shape[1] - 1), gate, GaussianExperts(B[:, None, :], np.full((len(B), 1, 1), variance)))


ESTIMATORS = {"constant": MixtureOfRegressions, "softmax": MixtureOfExpertsRegressor}
SINGLE = (
    *(f"constant, d = {d}, n = 300" for d in (20, 50, 80)),
    *(f"{gate}, n = {n}, {noise}" for n in (60, 150) for gate in ESTIMATORS for noise in ("normal", "heteroscedastic")),
)


def single(cell: str, seed: int) -> tuple[Inference, Mixture]:
    gate, *rest = cell.split(", ")
    rng = np.random.default_rng([seed, 7])
    if rest[0].startswith("d = "):
        X, y, truth = many_covariates(int(rest[0][4:]), rng)
    else:
        X, y = few_rows(int(rest[0][4:]), gate, rest[1], rng)
        truth = truth_of_few(gate, rest[1])
    model = ESTIMATORS[gate](2, random_state=seed).fit(X, y)
    return model.inference_, truth.permuted(alignment(truth, model.mixture_))


# ---------------------------------------------------------------------- sites

B = np.array([[0, 2, 1, 0, 0], [4, -1, 1, 1, 0], [-4, 0, -2, 0, 2.0]])
GATE = np.array([[0, -1.5, 0.5, 0, 0], [0.5, 0, 0, 0, 0], [0, 1.5, -0.5, 0, 0]])
STEEP = np.array([[-4, -3.0, 0, 0, 0], [0, 0, 0, 0, 0], [-4, 3.0, 0, 0, 0]])
CENTRES = (-4, -4, -2, 0, 0, 2, 4, 4)
SIZES = {
    "alike": (1000,) * 8,
    "20 to 20,000 rows": (20, 50, 100, 300, 1000, 3000, 8000, 20000),
    "overfitted": (32, 32, 32, 1000, 1000, 1000, 2000, 2000),
    "lacking an expert": (1500,) * 6,
    "in regions": (1500,) * 8,
}


def site(kind: str, i: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one site of a federation."""
    n, gate = SIZES[kind][i], STEEP if kind == "in regions" else GATE
    X = rng.standard_normal((4 * n, 4))
    if kind == "in regions":
        X = X * [0.5, 1, 1, 1] + [CENTRES[i], 0, 0, 0]
    F = np.c_[np.ones(len(X)), X]
    label = np.sum(softmax(F @ gate.T, axis=1).cumsum(axis=1) < rng.random((len(X), 1)), axis=1)
    kept = np.flatnonzero(label != i % 3 if kind == "lacking an expert" else label >= 0)[:n]
    return X[kept], np.sum(F * B[label], axis=1)[kept] + rng.standard_normal(len(kept))


def federated(kind: str, seed: int) -> dict[int, tuple[Inference, Mixture]]:
    """Inference after 0 and 1 rounds of refinement from the same local fits, with the truth in the order of each."""
    rng = np.random.default_rng([seed, 8])
    sites = Federation({f"site {i}": site(kind, i, rng) for i in range(len(SIZES[kind]))})
    refined = sites.fit(
        MixtureOfExpertsRegressor(3, random_state=seed, n_init=2, max_iter=100), method=OneShot(refine=1)
    ).fit
    gate = STEEP if kind == "in regions" else GATE
    truth = mixture(SoftmaxGate(gate - gate.mean(axis=0)), B, 1.0)
    fits = {0: unrefined_fit(refined.combination, refined.penalty), 1: refined}
    return {r: (fit.inference, truth.permuted(alignment(truth, fit.mixture))) for r, fit in fits.items()}


# ---------------------------------------------------------------------- what is counted


def replication(key: str) -> Record:
    cell, seed = key.rsplit("/", 1)
    with stopwatch() as watch:
        found = {"": single(cell, int(seed))} if cell in SINGLE else federated(cell, int(seed))
    return {"cpu": round(watch.cpu, 2), "found": {str(r): counted(*each) for r, each in found.items()}}


def counted(inference: Inference, truth: Mixture) -> Record:
    """Share of the true parameters inside the intervals that are shown; None if none of a part is shown."""
    lower, upper = inference.interval(0.95)
    record: Record = {"withheld": dict(inference.withheld)}
    for part, name in PARTS.items():
        true, low, high = (getattr(each, name) for each in (parameters(truth), lower, upper))
        shown = np.isfinite(low)
        record[part] = float(np.mean((low <= true) & (true <= high), where=shown)) if shown.any() else None
    return record


def summaries(cell: str, records: list[Record]) -> list[Record]:
    """One row of the table for each number of rounds."""
    return [summary(cell, records, r) for r in records[0]["found"]]


def summary(cell: str, records: list[Record], r: str) -> Record:
    row: Record = {"data": f"{cell}, OneShot({r})" if r else cell, "fits": len(records)}
    for part in PARTS:
        shown = [record["found"][r][part] for record in records if record["found"][r][part] is not None]
        row[part] = mean_and_error(shown)
        row[f"{part} withheld"] = f"{1 - len(shown) / len(records):.0%}"
    return row | {"CPU s": rounded(float(np.median([record["cpu"] for record in records])))}


def main() -> None:
    study = Study(__file__, __doc__)
    cells = [*SINGLE, *SIZES]
    warnings.simplefilter("ignore", ConsilienceWarning)
    repeats = 2 if study.quick else 200
    records = study.replicate((f"{cell}/{seed}" for seed in range(repeats) for cell in cells), replication)
    rows = [row for cell in cells for row in summaries(cell, [r for r in records if r["key"].startswith(cell + "/")])]
    study.save(table("Coverage of shown 95 % intervals, mean over fits ± Monte Carlo standard error", rows))


if __name__ == "__main__":
    main()
