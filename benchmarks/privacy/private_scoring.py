"""Private scoring against the fit to all rows without noise: errors, coverage, verdicts and forecasts.

Mixtures of two Gaussian experts with a softmax gate and four covariates (a rare indicator, a skewed one, a sign, a
normal one), over four sites with 3,350 rows or ten with 20,000. Two starts: the ordinary fit of the largest site, and
the truth with every free parameter off by a normal error of standard deviation 0.2. Errors are root mean squares over
the 17 free parameters, in units of the standard errors of the maximum of the likelihood over all rows; coverage is that
of the 95 % intervals of runs that have settled. Covariates for the steps are 1,500 draws of their distribution.
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
from consilience.model import Mixture, mixture_of_experts
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))["private_scoring"]
OFF = 0.2
NEAR = 0.15
"""Relative error of a forecast that counts as near."""


def covariates(n: int, rng: np.random.Generator) -> Array:
    X = rng.normal(size=(n, PROTOCOL["covariates"]))
    X[:, 0] = (rng.random(n) < 0.1) / 0.3
    X[:, 1] = np.minimum(np.exp(0.7 * X[:, 1]), 8) / 1.2
    X[:, 2] = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return X


def true_mixture(rng: np.random.Generator) -> Mixture:
    K, p = PROTOCOL["experts"], PROTOCOL["covariates"] + 1
    B = 0.8 * rng.normal(size=(K, p))
    B[:, 0] = np.linspace(-1.5, 1.5, K)
    alpha = np.vstack([np.zeros(p), 0.6 * rng.normal(size=(K - 1, p))])
    return mixture_of_experts(alpha - alpha.mean(axis=0), B, 0.4)


def free(mixture: Mixture) -> Array:
    """Gate contrasts, coefficients and log variances on raw covariates."""
    raw = mixture.raw()
    return np.concatenate([raw.gate.contrasts().ravel(), raw.experts.B.ravel(), raw.experts.log_shapes().ravel()])


def aligned(mixture: Mixture, truth: Mixture) -> Mixture:
    raw = mixture.raw()
    return raw.permuted(alignment(raw, truth))


def figures(model: MixtureOfExpertsRegressor, truth: Mixture, errors: Array) -> Record:
    """Error in pooled standard errors, and how many intervals are shown and hold the truth."""
    found: Record = {
        "error": float(np.sqrt(np.mean(((free(aligned(model.mixture_, truth)) - free(truth)) / errors) ** 2)))
    }
    low, high = model.inference_.interval(0.95)
    true = parameters(truth.permuted(alignment(truth, model.mixture_))).flat()
    shown = np.isfinite(low.flat()) & np.isfinite(high.flat())
    held = (low.flat() <= true) & (true <= high.flat())
    return found | {"shown": int(shown.sum()), "held": int(held[shown].sum())}


def replication(key: str, protocol: Record = PROTOCOL) -> Record:
    """``rows/seed``."""
    label, seed = key.split("/")
    sizes, rng = protocol["sites"][label], np.random.default_rng([int(seed), int(label)])
    truth, n = true_mixture(rng), sum(sizes)
    X = covariates(n, rng)
    y = truth.sample(X, rng)[0][:, 0]
    ends = np.cumsum(sizes)
    parts = {
        f"site {i}": (X[end - size : end], y[end - size : end])
        for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
    }
    public = covariates(1500, rng)
    errors = np.sqrt(np.diagonal(np.linalg.inv(PublicStep.at(truth, covariates(4000, rng)).information)) / n)
    estimator = MixtureOfExpertsRegressor(PROTOCOL["experts"], random_state=0, mixture_init=truth)
    found: Record = {"pooled": figures(Federation({"all": (X, y)}).fit(estimator).model, truth, errors)}
    largest = parts[f"site {int(np.argmax(sizes))}"]
    moved = truth.to_vector() + OFF * rng.normal(size=truth.parameter_count) * positive(truth)
    starts = {"off by 0.2": truth.with_vector(moved)}
    if "largest site" in protocol["starts"]:
        starts["largest site"] = MixtureOfExpertsRegressor(PROTOCOL["experts"], random_state=0).fit(*largest).mixture_
    for name in protocol["starts"]:
        for epsilon in protocol["epsilon"]:
            method = PrivateScoring(epsilon, covariates=public)
            run = Federation(parts).fit(estimator.set_params(mixture_init=starts[name]), method)
            found[f"{name}, {epsilon}"] = figures(run.model, truth, errors) | {
                "settled": run.settled,
                "forecast": run.fit.forecast.ratio,
                "rounds": len(run.privacy.rhos),
                "first": run.fit.surprises[0],
                "last": run.fit.surprises[-1],
            }
    return found


def positive(truth: Mixture) -> Array:
    """1 for each number of a mixture that may be off by any amount; the variance for variances, which stay positive."""
    shapes = truth.experts.shape_parameters
    return np.concatenate([np.ones(truth.parameter_count - shapes), np.full(shapes, 0.4)])


def summed(label: str, records: list[Record]) -> Record:
    error = np.array([record["error"] for record in records])
    row: Record = {"cell": label, "draws": len(records)}
    row |= {"error, median": rounded(float(np.median(error))), "error, mean": rounded(float(np.mean(error)))}
    settled = [record for record in records if record.get("settled", True)]
    shown = sum(record["shown"] for record in settled)
    row["coverage of settled"] = rounded(sum(record["held"] for record in settled) / shown) if shown else None
    if "settled" in records[0]:
        row["settled"] = rounded(len(settled) / len(records))
        forecast = float(np.median([record["forecast"] for record in records]))
        measured = float(np.sqrt(np.mean([record["error"] ** 2 for record in settled]))) if settled else float("nan")
        row["forecast, median"] = rounded(forecast)
        row["error of settled, root mean square"] = rounded(measured)
        row["forecast over it"] = rounded(forecast / measured)
        row["over the median"] = rounded(forecast / float(np.median(error)))
        astray = [record for record in records if record["error"] > 3]
        row["off by more than 3"] = len(astray)
        row["of which settled"] = sum(record["settled"] for record in astray)
    return row


def accuracy(label: str, rows: list[Record]) -> Record:
    """How many cells of a table have a forecast that is near what was measured."""
    found: Record = {"rows": int(label)}
    for name, said in (("over the median", "median of all runs"), ("forecast over it", "root mean square of settled")):
        off = np.array([row[name] for row in rows if row[name] is not None], dtype=float)
        found["cells"] = len(off)
        found[f"within 15 % of the {said}"] = int(np.sum(np.abs(off - 1) <= NEAR))
        found[f"forecast over it ({said})"] = f"{off.min():.2f} to {off.max():.2f}"
    return found


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    warnings.simplefilter("ignore", ConsilienceWarning)
    draws = PROTOCOL["hold_out" if study.options["hold-out"] else "development"]
    seeds = range(draws["first_seed"], draws["first_seed"] + (1 if study.quick else draws["draws"]))
    labels = list(PROTOCOL["sites"])[: 1 if study.quick else None]
    tables, near = [], list[Record]()
    records = study.replicate([f"{label}/{seed}" for seed in seeds for label in labels], replication)
    for label in labels:
        mine = [record for record in records if record["key"].startswith(f"{label}/")]
        cells = [name for name in mine[0] if name not in ("key", "seconds")]
        rows = [summed(cell, [each[cell] for each in mine]) for cell in cells]
        rows = [{name: row.get(name) for name in rows[-1]} for row in rows]  # the pooled fit has no forecast
        tables.append(table(f"{label} rows at {len(PROTOCOL['sites'][label])} sites", rows))
        near.append(accuracy(label, rows))
    study.save(*tables, table("Cells whose forecast is near the error", near))


if __name__ == "__main__":
    main()
