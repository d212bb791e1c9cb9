"""Forecasts of private scoring where they are put to use: in studies that are too small, and without a public start.

The mixtures, covariates and errors are those of ``private_scoring``. First, over 170 to 1,500 rows at four sites, from
a start that is off by 0.2: how often runs settle, and how far from the truth they end, by what was forecast. Second,
the forecast from a guess of the start (`consilience.kit.forecast.guess_start`), which has read the dictionary of a
study alone, beside that from the true mixture and its covariates, over 3,350 rows at four sites.
"""

from __future__ import annotations

import tomllib
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, table
from benchmarks.privacy.private_scoring import covariates, replication
from consilience.errors import ConsilienceWarning
from consilience.fit.private_step import PublicStep
from consilience.kit.forecast import StudyForecast, forecast_study, guess_start
from consilience.kit.study import Study as StudyFile
from consilience.model import Design, Mixture, SoftmaxGate
from consilience.model.families.gamma import GammaExperts
from consilience.model.families.poisson import PoissonExperts
from consilience.model.families.registry import linear_experts

PROTOCOL = tomllib.loads(Path(__file__).with_name("protocol.toml").read_text(encoding="utf-8"))["private_forecast"]
BANDS = (1.25, 1.5, 2.0, 3.0, 5.0, np.inf)
CASES = {"gaussian": (2, 3), "gamma": (2, 3), "poisson": (2,)}
"""Numbers of experts by family."""
D, ROWS, SITES = 4, 3350, 4


# ---------------------------------------------------------------- small studies


def by_forecast(records: list[Record]) -> list[Record]:
    """One row for each band of the forecast."""
    runs = [
        {**run, "rows": int(record["key"].split("/")[0])}
        for record in records
        for name, run in record.items()
        if name not in ("key", "seconds", "pooled")
    ]
    found, low = [], 0.0
    for high in BANDS:
        mine = [run for run in runs if low <= run["forecast"] < high]
        if mine:
            found.append(band_row(f"{low:g} to {high:g}" if np.isfinite(high) else f"{low:g} or more", mine))
        low = high
    return found


def band_row(label: str, runs: list[Record]) -> Record:
    error, forecast = (np.array([run[name] for run in runs]) for name in ("error", "forecast"))
    settled = np.array([run["settled"] for run in runs])
    shown = sum(run["shown"] for run in runs if run["settled"])
    off = error > 2 * forecast
    return {
        "forecast": label,
        "runs": len(runs),
        "settled": rounded(float(settled.mean())),
        "error over forecast, median": rounded(float(np.median(error / forecast))),
        "of settled": rounded(float(np.median((error / forecast)[settled]))) if settled.any() else None,
        "error above twice the forecast": int(off.sum()),
        "of which settled": int(settled[off].sum()),
        "coverage of settled": rounded(sum(run["held"] for run in runs if run["settled"]) / shown) if shown else None,
    }


def by_rows(records: list[Record]) -> list[Record]:
    """One row for each number of rows and ε."""
    found = []
    for label in PROTOCOL["sites"]:
        mine = [record for record in records if record["key"].startswith(f"{label}/")]
        pooled = np.median([record["pooled"]["error"] for record in mine])
        for name in (name for name in mine[0] if name not in ("key", "seconds", "pooled")):
            runs = [record[name] for record in mine]
            found.append(
                {
                    "rows": int(label),
                    "start, ε": name,
                    "draws": len(runs),
                    "forecast, median": rounded(float(np.median([run["forecast"] for run in runs]))),
                    "error, median": rounded(float(np.median([run["error"] for run in runs]))),
                    "error without noise, median": rounded(float(pooled)),
                    "settled": rounded(float(np.mean([run["settled"] for run in runs]))),
                }
            )
    return found


# ---------------------------------------------------------------- guesses of the start


def drawn_mixture(family: str, K: int, rng: np.random.Generator) -> Mixture:
    p = D + 1
    alpha = np.vstack([np.zeros(p), 0.6 * rng.normal(size=(K - 1, p))])
    if family == "gaussian":
        B = 0.8 * rng.normal(size=(K, p))
        B[:, 0] = np.linspace(-1.5, 1.5, K)
        experts = linear_experts(B, 0.4)
    else:
        B = 0.3 * rng.normal(size=(K, p))
        B[:, 0] = np.linspace(0.5, 2.5, K)
        experts = GammaExperts(B, rng.uniform(2, 6, K)) if family == "gamma" else PoissonExperts(B)
    return Mixture(Design.raw(D), SoftmaxGate(alpha - alpha.mean(axis=0)), experts)


def study_file(family: str, K: int, y: np.ndarray) -> StudyFile:
    """A study whose dictionary knows covariates up to their mean and spread, and the response by a generous range."""
    low, high = (float(f"{end:.2g}") for end in (y.min(), y.max() * (1.5 if family != "gaussian" else 1.0)))
    low = {"gaussian": low, "gamma": 0.001, "poisson": 0.0}[family]
    lines = [
        'format = "consilience-study"\nversion = 1\nname = "guess"\nseed = 1\ntrust = "noise"',
        'method = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0}',
        f'[model]\nresponse = "y"\nfamily = "{family}"\ngate = "softmax"\nexperts = [{K}]',
        f'[[columns]]\nname = "y"\nkind = "number"\nlow = {low}\nhigh = {high}',
        *(f'[[columns]]\nname = "x{j}"\nkind = "number"\ncentre = 10\nscale = 2' for j in range(D)),
    ]
    return StudyFile.from_text("\n".join(lines))


def guess_row(family: str, K: int) -> Record:
    draws, ratios = PROTOCOL["truths"], []
    for seed in range(draws["first_seed"], draws["first_seed"] + draws["draws"]):
        rng = np.random.default_rng([seed, K])
        truth, X = drawn_mixture(family, K, rng), covariates(2000, rng)
        file = study_file(family, K, truth.sample(X, rng)[0])
        guessed = forecast_study(file, guess_start(file))
        known = StudyForecast(guessed.terms, (), PublicStep.at(truth, X), np.zeros((0, 0)), False)
        pair = (guessed, known)
        ratios.append([[each.ratio(ROWS, SITES, epsilon) for epsilon in PROTOCOL["epsilon"]] for each in pair])
    guess, truth_ratio = np.moveaxis(np.array(ratios), 1, 0)  # (draws, ε)
    found: Record = {"model": f"{family}, {K} experts", "draws": len(ratios)}
    for i, epsilon in enumerate(PROTOCOL["epsilon"]):
        off = guess[:, i] / truth_ratio[:, i]
        found[f"ε = {epsilon}: true, median"] = rounded(float(np.median(truth_ratio[:, i])))
        found[f"guess over true, least to most (ε = {epsilon})"] = f"{off.min():.2f} to {off.max():.2f}"
    return found


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    draws = PROTOCOL["development"]
    seeds = range(draws["first_seed"], draws["first_seed"] + (1 if study.quick else draws["draws"]))
    keys = [f"{label}/{seed}" for seed in seeds for label in PROTOCOL["sites"]]
    records = study.replicate(keys, partial(replication, protocol={**PROTOCOL, "experts": 2, "covariates": D}))
    cases = [("gaussian", 2)] if study.quick else [(family, K) for family, orders in CASES.items() for K in orders]
    guesses = [guess_row(*case) for case in cases]
    study.save(
        table("Runs by what was forecast for them, 170 to 1,500 rows at four sites", by_forecast(records)),
        table("By the number of rows", by_rows(records)),
        table("Forecast from a guess of the start, 3,350 rows at four sites", guesses),
    )


if __name__ == "__main__":
    main()
