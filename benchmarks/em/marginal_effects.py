"""Coverage of the 95 % intervals of average marginal effects, contrasts and predictions by group.

Simulated tables of two experts with a softmax gate. A row has two numbers, `x` and `z`, and `arm`, which is 0 or 1. The
truth is the average over the same rows at the mixture that generated the responses; intervals are those of the default
inference, by the delta method. Fits start at the truth, so that coverage is about intervals and not about starts. A
draw whose intervals are withheld counts as withheld. Aim: coverage of 0.93 to 0.97.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience import (
    MixtureOfExpertsRegressor,
    average_contrasts,
    average_marginal_effects,
    average_predictions,
)
from consilience.errors import ConsilienceWarning
from consilience.model import Design, GaussianExperts, Mixture, PoissonExperts, SoftmaxGate

DRAWS = 500
B = np.array([[0.0, 1.5, 0.5, 0.0], [2.5, -1.0, 1.0, 0.5]])
LOG_RATES = np.array([[0.0, 0.5, 0.3, 0.0], [1.8, -0.3, 0.2, 0.2]])
ALPHA = np.array([[0.3, 1.0, -0.5, 0.0], [-0.3, -1.0, 0.5, 0.0]])
CELLS = {"gaussian, n = 300": 300, "poisson, n = 500": 500}
ESTIMANDS = ("dy/dx of x", "dy/dx of z", "contrast of arm", "prediction of arm 0", "prediction of arm 1")


def truth(cell: str) -> Mixture:
    """The mixture that generates the responses."""
    experts = PoissonExperts(LOG_RATES) if "poisson" in cell else GaussianExperts(B[:, None], np.full((2, 1, 1), 0.64))
    return Mixture(Design.raw(3), SoftmaxGate(ALPHA), experts)


def averages(model: MixtureOfExpertsRegressor, X: np.ndarray) -> pd.DataFrame:
    """The estimands, a row each."""
    parts = (
        average_marginal_effects(model, X, [0, 2]),
        average_contrasts(model, X, 1),
        average_predictions(model, X, by=X[:, 1]),
    )
    return pd.concat([part[["estimate", "lower", "upper"]] for part in parts], ignore_index=True)


def true_averages(mixture: Mixture, X: np.ndarray) -> np.ndarray:
    """The estimands at a mixture, by differences of its means."""

    def mean(column: int, value: np.ndarray | float) -> float:
        changed = X.copy()
        changed[:, column] = value
        return float(mixture.mean(changed).mean())

    slopes = [(mean(j, X[:, j] + 1e-4) - mean(j, X[:, j] - 1e-4)) / 2e-4 for j in (0, 2)]
    predictions = [float(mixture.mean(X[X[:, 1] == arm]).mean()) for arm in (0, 1)]
    return np.array([*slopes, mean(1, 1.0) - mean(1, 0.0), *predictions])


def replication(key: str) -> Record:
    """``cell/draw``."""
    cell, draw = key.rsplit("/", 1)
    rng, mixture = np.random.default_rng([list(CELLS).index(cell), int(draw)]), truth(cell)
    n = CELLS[cell]
    X = np.column_stack([rng.normal(size=n), rng.integers(2, size=n), rng.normal(size=n)])
    y = mixture.sample(X, rng)[0][:, 0]
    options = {"family": "poisson"} if "poisson" in cell else {}
    with warnings.catch_warnings(), stopwatch() as watch:
        warnings.simplefilter("ignore", ConsilienceWarning)
        model = MixtureOfExpertsRegressor(2, mixture_init=mixture, **options).fit(X, y)
        found = averages(model, X)
    true = true_averages(mixture, X)
    inside = (found["lower"] <= true) & (true <= found["upper"])
    shown = found["lower"].notna()
    return {
        "covered": {
            name: bool(hit) if seen else None for name, hit, seen in zip(ESTIMANDS, inside, shown, strict=True)
        },
        "cpu": round(watch.cpu, 3),
    }


def summary(cell: str, records: list[Record]) -> Record:
    """One row of the table."""
    row: Record = {"table": cell, "draws": len(records)}
    for name in ESTIMANDS:
        hits = [record["covered"][name] for record in records if record["covered"][name] is not None]
        row[name] = rounded(float(np.mean(hits)), 4) if hits else None
    silent = sum(record["covered"][ESTIMANDS[0]] is None for record in records)
    return row | {"withheld": silent, "CPU s": rounded(float(np.median([record["cpu"] for record in records])))}


def main() -> None:
    study = Study(__file__, __doc__)
    draws = 4 if study.quick else DRAWS
    records = study.replicate((f"{cell}/{draw}" for cell in CELLS for draw in range(draws)), replication)
    rows = [summary(cell, [each for each in records if each["key"].rsplit("/", 1)[0] == cell]) for cell in CELLS]
    study.save(table("Coverage of 95 % intervals of averages over rows", rows))


if __name__ == "__main__":
    main()
