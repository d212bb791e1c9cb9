"""Private scoring of groups with one label against the fit to all groups without noise: errors, coverage, forecasts.

Mixtures of two Gaussian experts with a softmax gate and two covariates, one of which is equal in a group; 1,200 groups
of 1 to 7 rows at four sites. The start is the ordinary fit of 150 other groups. Errors are root mean squares over the
10 gate contrasts, coefficients and log variances, in units of the standard errors of the maximum of the likelihood over
all groups; coverage is that of the 95 % intervals of runs that have settled. Covariates for the steps are those of
1,000 other groups.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import numpy as np

from benchmarks.lib.study import Record, Study, table
from benchmarks.privacy.private_scoring import aligned, free, summed
from consilience import Federation, MixtureOfExpertsRegressor
from consilience.errors import ConsilienceWarning
from consilience.fit.parameters import parameters
from consilience.fit.private_step import PublicStep
from consilience.methods import PrivateScoring
from consilience.model import Mixture, mixture_of_experts
from consilience.model.group_contributions import GroupedCovariates
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))["private_groups"]


def true_mixture(rng: np.random.Generator) -> Mixture:
    B = 0.8 * rng.normal(size=(2, 3))
    B[:, 0] = [-0.5, 0.5]
    alpha = np.vstack([np.zeros(3), 0.6 * rng.normal(size=3)])
    return mixture_of_experts(alpha - alpha.mean(axis=0), B, 1.0)


def covariates(G: int, rng: np.random.Generator) -> GroupedCovariates:
    sizes = rng.integers(1, 8, size=G)
    X = np.column_stack([np.repeat(rng.normal(size=G), sizes), rng.normal(size=int(sizes.sum()))])
    return GroupedCovariates(X, sizes)


def drawn(truth: Mixture, G: int, rng: np.random.Generator) -> dict[str, Array]:
    X = covariates(G, rng)
    return {"X": X.X, "y": X.drawn(truth, rng).Y[:, 0], "groups": X.labels}


def figures(model: MixtureOfExpertsRegressor, truth: Mixture, errors: Array) -> Record:
    """Error in standard errors without noise, and how many intervals are shown and hold the truth."""
    off = (free(aligned(model.mixture_, truth)) - free(truth)) / errors
    low, high = (each.flat() for each in model.inference_.interval(0.95))
    true = parameters(truth.permuted(alignment(truth, model.mixture_))).flat()
    shown = np.isfinite(low) & np.isfinite(high)
    held = int(((low <= true) & (true <= high))[shown].sum())
    return {"error": float(np.sqrt(np.mean(off**2))), "shown": int(shown.sum()), "held": held}


def replication(key: str) -> Record:
    """Return the figures of one draw, ``seed``."""
    rng, each, count = np.random.default_rng(int(key)), PROTOCOL["groups_each"], PROTOCOL["sites"]
    truth = true_mixture(rng)
    sites = {f"site {i}": drawn(truth, each, rng) for i in range(count)}
    public, first = covariates(PROTOCOL["public"], rng), drawn(truth, PROTOCOL["of_start"], rng)
    information = PublicStep.at(truth, covariates(4000, rng)).information
    errors = np.sqrt(np.diagonal(np.linalg.inv(information)) / (count * each))
    start = MixtureOfExpertsRegressor(2, random_state=0).fit(**first)
    pooled = Federation(sites).fit(MixtureOfExpertsRegressor(2, random_state=0, mixture_init=truth)).model
    found: Record = {"without noise": figures(pooled, truth, errors), "start": figures(start, truth, errors)}
    for epsilon in PROTOCOL["epsilon"]:
        method = PrivateScoring(epsilon, unit="group", covariates=public.X, groups=public.labels)
        run = Federation(sites).fit(MixtureOfExpertsRegressor(2, random_state=0), method, start=start)
        settled = {"settled": run.settled, "forecast": run.fit.forecast.ratio}
        found[f"ε = {epsilon}"] = figures(run.model, truth, errors) | settled
    return found


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    first = PROTOCOL["first_seed"]
    seeds = range(first, first + (1 if study.quick else PROTOCOL["draws"]))
    records = study.replicate([str(seed) for seed in seeds], replication)
    cells = [name for name in records[0] if name not in ("key", "seconds")]
    rows = [summed(cell, [record[cell] for record in records]) for cell in cells]
    rows = [{name: row.get(name) for name in rows[-1]} for row in rows]
    study.save(table(f"{PROTOCOL['sites'] * PROTOCOL['groups_each']:,} groups at {PROTOCOL['sites']} sites", rows))


if __name__ == "__main__":
    main()
