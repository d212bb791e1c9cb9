"""Private scoring from a start that is found privately: how often it settles, and how far from the fit without noise.

Mixtures of two Gaussian experts as in :mod:`benchmarks.privacy.private_scoring`, 20,000 rows at ten sites; nothing is
known but the range of the response, given as the mean of the response 2 units off, and 6 units to each side of it.
A run is right if the root mean square distance of its parameters to the maximum of the likelihood over all rows is at
most three standard errors of that maximum.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import numpy as np

from benchmarks.lib.study import HOLD_OUT, Record, Study, rounded, table
from benchmarks.privacy.private_scoring import aligned, covariates, figures, free, summed, true_mixture
from consilience import Federation, MixtureOfExpertsRegressor
from consilience.errors import ConsilienceWarning
from consilience.fit.private_step import PublicStep
from consilience.methods import PrivateScoring

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))["private_start"]
OFF, HALF = 2.0, 6.0


def replication(key: str) -> Record:
    """``seed``."""
    n, M = PROTOCOL["rows"], PROTOCOL["sites"]
    rng = np.random.default_rng([int(key), n])
    truth = true_mixture(rng)
    X = covariates(n, rng)
    y = truth.sample(X, rng)[0][:, 0]
    parts = {f"site {i}": (X[i::M], y[i::M]) for i in range(M)}
    public = covariates(1500, rng)
    errors = np.sqrt(np.diagonal(np.linalg.inv(PublicStep.at(truth, covariates(4000, rng)).information)) / n)
    informed = MixtureOfExpertsRegressor(2, random_state=0, mixture_init=truth)
    pooled = free(aligned(Federation({"all": (X, y)}).fit(informed).model.mixture_, truth))
    middle, found = float(y.mean()) + OFF, Record()
    for epsilon in PROTOCOL["epsilon"]:
        method = PrivateScoring(epsilon, covariates=public, start="private", response=(middle - HALF, middle + HALF))
        run = Federation(parts).fit(MixtureOfExpertsRegressor(2, random_state=0), method)
        gap = (free(aligned(run.model.mixture_, truth)) - pooled) / errors
        found[f"ε = {epsilon}"] = figures(run.model, truth, errors) | {
            "settled": run.settled,
            "forecast": run.fit.forecast.ratio,
            "rounds": len(run.fit.surprises),
            "distance": float(np.sqrt(np.mean(gap**2))),
            "last": run.fit.surprises[-1],
        }
    return found


def judged(label: str, records: list[Record]) -> Record:
    """The figures of a cell, with how many runs are right."""
    right = [record["distance"] <= PROTOCOL["within"] for record in records]
    settled = [record["settled"] for record in records]
    return summed(label, records) | {
        "right": rounded(float(np.mean(right))),
        "settled and right": rounded(float(np.mean(np.logical_and(right, settled)))),
        "distance, median": rounded(float(np.median([record["distance"] for record in records]))),
    }


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    warnings.simplefilter("ignore", ConsilienceWarning)
    draws = PROTOCOL["hold_out" if study.options["hold-out"] else "development"]
    seeds = range(draws["first_seed"], draws["first_seed"] + (1 if study.quick else draws["draws"]))
    records = study.replicate([str(seed) for seed in seeds], replication)
    cells = [name for name in records[0] if name not in ("key", "seconds")]
    measured = [judged(cell, [each[cell] for each in records]) for cell in cells]
    study.save(table(f"{PROTOCOL['rows']} rows at {PROTOCOL['sites']} sites, start found privately", measured))


if __name__ == "__main__":
    main()
