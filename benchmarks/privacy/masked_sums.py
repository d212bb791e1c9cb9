"""Masked sums against noise of each site: what a forecast says for 1 to 100 sites, and a study of many small sites.

The forecast is of the root mean square of the standard errors in units of the pooled ones, for mixtures of two Gaussian
experts with a softmax gate and four covariates (17 parameters) over 1,000 to 20,000 rows. The study has 100 sites with
200 rows each; the start is the truth with every free parameter off by 0.2, and errors are measured as in
:mod:`benchmarks.privacy.private_scoring`.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import numpy as np

from benchmarks.lib.study import HOLD_OUT, Record, Study, rounded, table
from benchmarks.privacy.private_scoring import OFF, covariates, figures, positive, summed, true_mixture
from consilience import Federation, MixtureOfExpertsRegressor
from consilience.errors import ConsilienceWarning
from consilience.fit.private_step import AVERAGED, Forecast, PublicStep, averaged_noise
from consilience.methods import PrivateScoring
from consilience.model.contributions import total_sensitivity
from consilience.numerics.budget import shared_variance

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))["masked_sums"]


def replication(key: str) -> Record:
    """``seed/epsilon/sums``; all cells of a seed have the same rows."""
    seed, epsilon, sums = key.split("/")
    sites, rows = PROTOCOL["sites"], PROTOCOL["rows"]
    rng, n = np.random.default_rng([int(seed), sites]), sites * rows
    truth = true_mixture(rng)
    X = covariates(n, rng)
    y = truth.sample(X, rng)[0][:, 0]
    parts = {f"site {i:03d}": (X[i * rows : (i + 1) * rows], y[i * rows : (i + 1) * rows]) for i in range(sites)}
    public = covariates(1500, rng)
    errors = np.sqrt(np.diagonal(np.linalg.inv(PublicStep.at(truth, covariates(4000, rng)).information)) / n)
    off = truth.with_vector(truth.to_vector() + OFF * rng.normal(size=truth.parameter_count) * positive(truth))
    estimator = MixtureOfExpertsRegressor(2, random_state=0, mixture_init=off)
    method = PrivateScoring(float(epsilon), covariates=public, sums=sums, colluding=PROTOCOL["colluding"])
    run = Federation(parts).fit(estimator, method)
    return figures(run.model, truth, errors) | {
        "settled": run.settled,
        "forecast": run.fit.forecast.ratio,
        "rounds": len(run.privacy.rhos),
    }


def forecasts() -> list[Record]:
    """The forecast for masked sums, and for 4, 10 and 100 sites with noise of their own."""
    rng = np.random.default_rng(0)
    truth, X = true_mixture(rng), covariates(1500, rng)
    step, found = PublicStep.at(truth, X), list[Record]()
    Delta = total_sensitivity(truth.parameter_count)
    for n in (1_000, 3_350, 20_000):
        for epsilon in (1, 3, 8):
            row: Record = {"rows": n, "ε": epsilon}
            for label, sums, sites in (
                ("masked, 100 sites", "masked", 100),
                ("each, 4 sites", "each", 4),
                ("each, 10 sites", "each", 10),
                ("each, 100 sites", "each", 100),
            ):
                method = PrivateScoring(epsilon, covariates=X, sums=sums)
                rho, last = method.budget[0], [share for _, share in method.plan][-AVERAGED:]
                colluding = sites - 1 if sums == "each" else 1
                variance = sites * shared_variance(Delta, rho, sites, colluding) * step.unit**2
                noise = averaged_noise([variance / share for share in last], last)
                row[label] = rounded(Forecast.at(step, n, noise).ratio)
            found.append(row)
    return found


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    warnings.simplefilter("ignore", ConsilienceWarning)
    draws = PROTOCOL["hold_out" if study.options["hold-out"] else "development"]
    seeds = range(draws["first_seed"], draws["first_seed"] + (1 if study.quick else draws["draws"]))
    cells = [f"{epsilon}/{sums}" for epsilon in PROTOCOL["epsilon"] for sums in ("each", "masked")]
    records = study.replicate([f"{seed}/{cell}" for seed in seeds for cell in cells], replication)
    measured = [summed(cell, [each for each in records if each["key"].endswith(f"/{cell}")]) for cell in cells]
    study.save(
        table("Forecast of standard errors in pooled ones", forecasts()),
        table(f"{PROTOCOL['sites']} sites with {PROTOCOL['rows']} rows each", measured),
    )


if __name__ == "__main__":
    main()
