"""Refinement on real sites: how far below the maximum each step of one-shot aggregation is.

The sites are the 12 stations of the Beijing air data (logarithm of fine dust given the weather, 12,000 rows) and the 22
participants of MMASH (heart rate given movement and posture, 11,000 rows), with two experts and a softmax gate. The
maximum is where FederatedEM, started at the refined fit, ends. Shown are units of log-likelihood below it after each
step, the number of rounds, and the distance of a FederatedEM fit with its own starts. Aim: at the top (within 0.1
unit) within 10 rounds.
"""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow.compute as pc

from benchmarks.lib.datasets import load_table
from benchmarks.lib.study import Record, Study, rounded, table
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, OneShot

STEPS = 10
AT_TOP = 0.1
SETS = {
    "Beijing stations": ("beijing_air", ("TEMP", "PRES", "DEWP", "WSPM"), "PM2.5", "station", 12_000),
    "MMASH participants": (
        "mmash_actigraph",
        ("Axis1", "Axis2", "Axis3", "Steps", "Inclinometer Standing", "Inclinometer Sitting", "Inclinometer Lying"),
        "HR",
        "user",
        11_000,
    ),
}


def sites_of(name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Some rows of a table, by site."""
    source, covariates, response, site, size = SETS[name]
    rows = load_table(source).select([*covariates, response, site]).drop_null()
    if source == "mmash_actigraph":
        rows = rows.filter(pc.and_(pc.greater(rows["HR"], 30), pc.less(rows["HR"], 220)))
    rows = rows.take(np.sort(np.random.default_rng(1).choice(rows.num_rows, size, replace=False)))
    X = np.column_stack([rows[column].to_numpy() for column in covariates]).astype(float)
    y, owner = rows[response].to_numpy().astype(float), np.asarray(rows[site].to_pylist()).astype(str)
    y = np.log1p(y) if source == "beijing_air" else y
    return {str(each): (X[owner == each], y[owner == each]) for each in np.unique(owner)}


def replication(key: str) -> Record:
    """``set/seed``."""
    name, seed = key.split("/")
    sites = Federation(sites_of(name))
    estimator = MixtureOfExpertsRegressor(2, random_state=int(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refined = sites.fit(estimator, method=OneShot(refine=STEPS))
        own = sites.fit(estimator, method=FederatedEM())
        start = estimator.set_params(mixture_init=refined.model.mixture_)
        top = sites.fit(start, method=FederatedEM()).fit.ascent.penalised
    return {
        "below": [top - value for value in refined.fit.ascent.trace],
        "rounds": refined.fit.ascent.passes,
        "federated rounds": len(own.record.rounds),
        "federated below": top - own.fit.ascent.penalised,
    }


def rows(records: list[Record], name: str) -> list[Record]:
    shown = []
    for record in records:
        if record["key"].startswith(f"{name}/"):
            steps = [*record["below"], *[None] * STEPS][: STEPS + 1]
            at_top = next((i for i, value in enumerate(record["below"]) if value < AT_TOP), None)
            below = {f"after {i}": None if value is None else rounded(round(value, 3)) for i, value in enumerate(steps)}
            rest = {"FederatedEM rounds": record["federated rounds"], "below": rounded(record["federated below"], 2)}
            seed = record["key"].split("/")[1]
            shown.append({"seed": seed, "rounds": record["rounds"], "steps to the top": at_top, **below, **rest})
    return shown


def main() -> None:
    study = Study(__file__, __doc__)
    seeds = range(1) if study.quick else range(3)
    records = study.replicate([f"{name}/{seed}" for name in SETS for seed in seeds], replication)
    study.save(*(table(name, rows(records, name)) for name in SETS))


if __name__ == "__main__":
    main()
