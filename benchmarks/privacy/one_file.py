"""One file with noise against the fit to all rows without noise: errors, coverage and verdicts, by start.

Mixtures of two gamma experts with a softmax gate and seven covariates (a rare indicator, a skewed one, a sign, normal
ones), 26 free parameters, at four sites of 350, 600, 1,000 and 1,400 rows, ε = 3 at each. Starts: the ordinary fit of
the largest site, and the truth with every free parameter off by a normal error of standard deviation 0.2 or 0.3. Errors
are root mean squares over the free parameters, in units of the standard errors of the maximum of the likelihood over
all rows; coverage is that of the 95 % intervals of runs that have settled. Covariates for the steps are 1,500 draws of
their distribution.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import numpy as np

from benchmarks.lib.study import HOLD_OUT, Record, Study, rounded, table
from consilience import Federation, MixtureOfExpertsRegressor
from consilience.errors import ConsilienceWarning
from consilience.fit.parameters import parameters
from consilience.fit.private_step import PublicStep
from consilience.methods import PrivateScoring
from consilience.model import Design, Mixture
from consilience.model.families.gamma import GammaExperts
from consilience.model.gates import SoftmaxGate
from consilience.model.information import move_parameters
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))["one_file"]


def covariates(n: int, rng: np.random.Generator) -> Array:
    X = rng.normal(size=(n, PROTOCOL["covariates"]))
    X[:, 0] = (rng.random(n) < 0.1) / 0.3
    X[:, 1] = np.minimum(np.exp(0.7 * X[:, 1]), 8) / 1.2
    X[:, 2] = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return X


def true_mixture(rng: np.random.Generator) -> Mixture:
    K, p = PROTOCOL["experts"], PROTOCOL["covariates"] + 1
    B = 0.4 * rng.normal(size=(K, p))
    B[:, 0] = np.linspace(-1.5, 1.5, K)
    alpha = np.vstack([np.zeros(p), 0.6 * rng.normal(size=(K - 1, p))])
    return Mixture(Design.raw(p - 1), SoftmaxGate(alpha - alpha.mean(axis=0)), GammaExperts(B, np.full(K, 4.0)))


def free(mixture: Mixture) -> Array:
    """Gate contrasts, coefficients and log shapes on raw covariates."""
    raw = mixture.raw()
    return np.concatenate([raw.gate.contrasts().ravel(), raw.experts.B.ravel(), raw.experts.log_shapes().ravel()])


def figures(model: MixtureOfExpertsRegressor, truth: Mixture, errors: Array) -> Record:
    """Error in pooled standard errors, and how many intervals are shown and hold the truth."""
    found = model.mixture_.raw()
    found = found.permuted(alignment(found, truth))
    record: Record = {"error": float(np.sqrt(np.mean(((free(found) - free(truth)) / errors) ** 2)))}
    low, high = model.inference_.interval(0.95)
    true = parameters(truth.permuted(alignment(truth, model.mixture_))).flat()
    shown = np.isfinite(low.flat()) & np.isfinite(high.flat())
    held = (low.flat() <= true) & (true <= high.flat())
    return record | {"shown": int(shown.sum()), "held": int(held[shown].sum())}


def replication(key: str) -> Record:
    """``seed``."""
    sizes, rng = PROTOCOL["sites"], np.random.default_rng([int(key), 26])
    truth, n = true_mixture(rng), sum(sizes)
    X = covariates(n, rng)
    y = truth.sample(X, rng)[0][:, 0]
    ends = np.cumsum(sizes)
    places = zip(sizes, ends, strict=True)
    parts = {f"site {i}": (X[end - size : end], y[end - size : end]) for i, (size, end) in enumerate(places)}
    public = covariates(1500, rng)
    errors = np.sqrt(np.diagonal(np.linalg.inv(PublicStep.at(truth, covariates(4000, rng)).information)) / n)
    estimator = MixtureOfExpertsRegressor(PROTOCOL["experts"], family="gamma", random_state=0, mixture_init=truth)
    found: Record = {"pooled": figures(Federation({"all": (X, y)}).fit(estimator).model, truth, errors)}
    largest = parts[f"site {int(np.argmax(sizes))}"]
    for name, off in PROTOCOL["starts"].items():
        start = move_parameters(truth, off * rng.normal(size=truth.parameter_count))
        if not off:
            start = (
                MixtureOfExpertsRegressor(PROTOCOL["experts"], family="gamma", random_state=0).fit(*largest).mixture_
            )
        method = PrivateScoring(PROTOCOL["epsilon"], covariates=public, exchange="file")
        run = Federation(parts).fit(estimator.set_params(mixture_init=start), method)
        found[name] = figures(run.model, truth, errors) | {
            "settled": run.settled,
            "forecast": run.fit.forecast.ratio,
            "misfit": run.fit.surprises[0],
        }
    return found


def summed(label: str, records: list[Record]) -> Record:
    error = np.array([record["error"] for record in records])
    row: Record = {"start": label, "draws": len(records)}
    row |= {"error, median": rounded(float(np.median(error))), "error, mean": rounded(float(np.mean(error)))}
    row["error, largest"] = rounded(float(error.max()))
    settled = [record for record in records if record.get("settled", True)]
    shown = sum(record["shown"] for record in settled)
    row["coverage of settled"] = rounded(sum(record["held"] for record in settled) / shown) if shown else None
    if "settled" in records[0]:
        row["settled"] = rounded(len(settled) / len(records))
        row["forecast, median"] = rounded(float(np.median([record["forecast"] for record in records])))
        row["misfit, largest"] = rounded(max(record["misfit"] for record in records))
        astray = [record for record in records if record["error"] > PROTOCOL["far"]]
        row["off by more than 3"] = len(astray)
        row["of which settled"] = sum(record["settled"] for record in astray)
    return row


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    warnings.simplefilter("ignore", ConsilienceWarning)
    draws = PROTOCOL["hold_out" if study.options["hold-out"] else "development"]
    seeds = range(draws["first_seed"], draws["first_seed"] + (1 if study.quick else draws["draws"]))
    records = study.replicate([str(seed) for seed in seeds], replication)
    cells = [name for name in records[0] if name not in ("key", "seconds")]
    title = f"one file of each of {len(PROTOCOL['sites'])} sites, ε = {PROTOCOL['epsilon']}"
    study.save(table(title, [summed(cell, [each[cell] for each in records]) for cell in cells]))


if __name__ == "__main__":
    main()
