"""Private scoring over families, numbers of experts and covariates, rows and budgets: errors, coverage, forecasts.

Mixtures with a softmax gate, over four sites with 3,350 rows or ten with 20,000 or 100,000. The public start is the
truth with every free parameter off by a normal error of standard deviation 0.2; two Gaussian experts are also started
privately, from a range of the response 6 units to each side of its mean, 2 units off. Errors are root mean squares over
the free parameters, in units of the standard errors of the maximum of the likelihood over all rows; coverage is that of
the 95 % intervals of runs that have settled. Covariates for the steps are 1,500 draws of their distribution.
"""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.lib.study import HOLD_OUT, Record, Study, table
from benchmarks.privacy.private_scoring import figures, summed
from consilience import Federation, MixtureOfExpertsRegressor
from consilience.errors import ConsilienceWarning
from consilience.fit.private_step import PublicStep
from consilience.methods import PrivateScoring
from consilience.model import Design, Mixture, SoftmaxGate
from consilience.model.families.base import Experts
from consilience.model.families.gamma import GammaExperts
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.families.negative_binomial import NegativeBinomialExperts
from consilience.model.families.registry import FAMILIES
from consilience.model.information import move_parameters
from consilience.numerics.arrays import Array

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))["utility"]
SPREADS = {"gaussian": (0.8, 0.0), "gamma": (0.4, 0.0), "poisson": (0.3, 1.0), "negative_binomial": (0.3, 1.0)}
"""Standard deviation of the experts' slopes, and the middle of their constants; (0.8, 0) for the others."""
OFF, AWAY, HALF = 0.2, 2.0, 6.0
"""Error of a public start; distance of the middle of a private start's range from the mean, and half of its width."""


def covariates(n: int, d: int, rng: np.random.Generator) -> Array:
    """A rare indicator, a skewed covariate, a sign, and normal ones."""
    X = rng.normal(size=(n, d))
    X[:, 0] = (rng.random(n) < 0.1) / 0.3
    X[:, 1] = np.minimum(np.exp(0.7 * X[:, 1]), 8) / 1.2
    X[:, 2] = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return X


def true_mixture(family: str, K: int, d: int, rng: np.random.Generator) -> Mixture:
    """Slopes shrink with the number of covariates, so that predictors vary as with four."""
    scale, middle = SPREADS.get(family, (0.8, 0.0))
    narrow = np.sqrt(4 / d)
    B = scale * narrow * rng.normal(size=(K, d + 1))
    B[:, 0] = np.linspace(middle - 1.5, middle + 1.5, K)
    alpha = 0.6 * narrow * rng.normal(size=(K, d + 1))
    return Mixture(Design.raw(d), SoftmaxGate(alpha - alpha.mean(axis=0)), true_experts(family, B))


def true_experts(family: str, B: Array) -> Experts:
    K = len(B)
    if family == "gaussian":
        return GaussianExperts(B[:, None], np.full((K, 1, 1), 0.4))
    if family == "gamma":
        return GammaExperts(B, np.full(K, 4.0))
    if family == "negative_binomial":
        return NegativeBinomialExperts(B, np.full(K, 4.0))
    return FAMILIES[family](B)


def replication(key: str) -> Record:
    """``family/experts/covariates/rows/seed``."""
    family, *numbers = key.split("/")
    K, d, n, seed = map(int, numbers)
    rng = np.random.default_rng([seed, n, K, d, sum(map(ord, family))])
    truth, X = true_mixture(family, K, d, rng), covariates(n, d, rng)
    y = truth.sample(X, rng)[0][:, 0]
    parts = split(X, y, PROTOCOL["sites"][str(n)])
    public = covariates(1500, d, rng)
    errors = np.sqrt(np.diagonal(np.linalg.inv(PublicStep.at(truth, covariates(4000, d, rng)).information)) / n)
    start = move_parameters(truth, OFF * rng.normal(size=truth.parameter_count))
    estimator = MixtureOfExpertsRegressor(K, family=family, random_state=0, mixture_init=truth)
    pooled = Federation({"all": (X, y)}).fit(estimator)
    found: Record = {"pooled": figures(pooled.model, truth, errors)}
    for epsilon in PROTOCOL["epsilon"]:
        method = PrivateScoring(epsilon, covariates=public, start=start)
        found[f"public, {epsilon}"] = outcome(parts, estimator, method, truth, errors)
        if family == "gaussian" and K == 2:
            middle = float(y.mean()) + AWAY
            alone = replace(method, start="private", response=(middle - HALF, middle + HALF))
            found[f"private, {epsilon}"] = outcome(parts, estimator, alone, truth, errors)
    return found


def split(X: Array, y: Array, sizes: list[int]) -> dict[str, tuple[Array, Array]]:
    """Consecutive rows for each site."""
    cuts = np.cumsum(sizes)[:-1]
    return {f"site {i}": part for i, part in enumerate(zip(np.split(X, cuts), np.split(y, cuts), strict=True))}


def outcome(parts, estimator, method: PrivateScoring, truth: Mixture, errors: Array) -> Record:
    run = Federation(parts).fit(estimator, method)
    return figures(run.model, truth, errors) | {
        "settled": run.settled,
        "forecast": run.fit.forecast.ratio,
        "first": run.fit.surprises[0],
        "last": run.fit.surprises[-1],
    }


def rows_of(records: list[Record]) -> list[Record]:
    """One row for each family, shape and start and budget."""
    found = []
    for family, (K, d) in product(PROTOCOL["families"], PROTOCOL["shapes"]):
        mine = [record for record in records if record["key"].startswith(f"{family}/{K}/{d}/")]
        cells = [name for name in mine[0] if name not in ("key", "seconds")] if mine else []
        rows = [summed(cell, [each[cell] for each in mine]) for cell in cells]
        heads = list(rows[-1]) if rows else []
        found += [{"family": family, "K": K, "d": d, **{name: row.get(name) for name in heads}} for row in rows]
    return found


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    warnings.simplefilter("ignore", ConsilienceWarning)
    draws = PROTOCOL["hold_out" if study.options["hold-out"] else "development"]
    seeds = range(draws["first_seed"], draws["first_seed"] + (1 if study.quick else draws["draws"]))
    labels = list(PROTOCOL["sites"])[: 1 if study.quick else None]
    shapes = PROTOCOL["shapes"][: 1 if study.quick else None]
    cells = product(seeds, labels, PROTOCOL["families"], shapes)
    keys = [f"{family}/{K}/{d}/{label}/{seed}" for seed, label, family, (K, d) in cells]
    records = study.replicate(keys, replication)
    study.save(
        *(
            table(
                f"{label} rows at {len(PROTOCOL['sites'][label])} sites",
                rows_of([record for record in records if record["key"].split("/")[3] == label]),
            )
            for label in labels
        )
    )


if __name__ == "__main__":
    main()
