"""Coverage of prediction intervals at 0.90 on held-out rows, as the model states them and calibrated over sites.

Five real tables with sites. A model of one and of two experts is fitted to 2,000 rows over all sites; of the other rows
up to 25,000 calibrate and up to 25,000 are held out, drawn at random. Sites send counts for the calibration, in one
round. Aim: calibrated intervals hold 0.89 to 0.91 of the held-out rows where the model's own do not. The worst site is
the one whose coverage is furthest from 0.90, among those with 200 held-out rows; "site by itself" calibrates each site
on its own rows. Needs the data directory named by ``CONSILIENCE_DATA``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.lib.datasets import load_table
from benchmarks.lib.study import Record, Study, rounded, table
from consilience import Federation, MixtureOfExpertsRegressor

FITTED, AT_MOST, FEWEST = 2_000, 25_000, 200
LEVEL = 0.9


def read(name: str, site: str, *names: str) -> tuple[np.ndarray, np.ndarray]:
    """Read columns as ``(n, len(names))``, and the site of each row; rows with missing values are left out."""
    found = load_table(name)
    Z = np.column_stack([found.column(each).to_numpy(zero_copy_only=False).astype(float) for each in names])
    kept = np.all(np.isfinite(Z), axis=1)
    return Z[kept], found.column(site).to_numpy(zero_copy_only=False)[kept].astype(str)


def beijing() -> tuple[np.ndarray, np.ndarray]:
    """Fine dust in the air given the weather; sites are stations."""
    return read("beijing_air", "station", "TEMP", "PRES", "DEWP", "WSPM", "PM2.5")


def flights() -> tuple[np.ndarray, np.ndarray]:
    """Arrival delay given distance, time in the air, hour and month; sites are airports."""
    return read("flights", "origin", "distance", "air_time", "hour", "month", "arr_delay")


def mmash() -> tuple[np.ndarray, np.ndarray]:
    """Heart rate given movement; sites are people."""
    Z, site = read("mmash_actigraph", "user", "Axis1", "Axis2", "Axis3", "Steps", "HR")
    kept = (Z[:, -1] > 30) & (Z[:, -1] < 220)
    return Z[kept], site[kept]


def power() -> tuple[np.ndarray, np.ndarray]:
    """Electricity given the weather and the time of day; sites are months."""
    moment = load_table("tetouan_power").column("DateTime").to_numpy().astype("datetime64[s]")
    angle = 2 * np.pi * (moment.astype(float) % 86_400) / 86_400
    names = ("Temperature", "Humidity", "Wind Speed", "Zone 1 Power Consumption")
    Z, _ = read("tetouan_power", "DateTime", *names)
    return np.column_stack([np.sin(angle), np.cos(angle), Z]), moment.astype("datetime64[M]").astype(str)


def claims() -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the amount of a motor claim given the policy; sites are regions."""
    policies, amounts = load_table("fremtpl2_frequency").to_pandas(), load_table("fremtpl2_severity").to_pandas()
    joined = amounts.merge(policies, on="IDpol")
    Z = joined[["VehPower", "VehAge", "DrivAge", "BonusMalus", "ClaimAmount"]].to_numpy(dtype=float)
    Z[:, -1] = np.log(Z[:, -1])
    return Z, joined["Region"].to_numpy().astype(str)


SETS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    each.__name__: each for each in (beijing, flights, mmash, power, claims)
}


def by_site(Z: np.ndarray, site: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return covariates and responses of each site."""
    return {name: (Z[site == name, :-1], Z[site == name, -1]) for name in np.unique(site)}


def inside(intervals: np.ndarray, y: np.ndarray) -> float:
    """Return the share of responses within their intervals."""
    return float(np.mean((intervals[:, 0] <= y) & (y <= intervals[:, 1])))


def furthest(shares: dict[str, float]) -> tuple[str, float]:
    """Return the site whose share is furthest from the level."""
    return max(shares.items(), key=lambda each: abs(each[1] - LEVEL))


def replication(key: str) -> Record:
    """The set and the number of experts."""
    name, K = key.split("-")
    Z, site = SETS[name]()
    order = np.random.default_rng(0).permutation(len(Z))
    size = min(AT_MOST, (len(Z) - FITTED) // 2)
    fitted, rest = order[:FITTED], order[FITTED:]
    first, second = rest[:size], rest[size : 2 * size]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MixtureOfExpertsRegressor(int(K), random_state=0).fit(Z[fitted, :-1], Z[fitted, -1])
        intervals = Federation(by_site(Z[first], site[first])).calibrate(model)
    calibrated, X, y = intervals.predict(Z[second, :-1], LEVEL), Z[second, :-1], Z[second, -1]
    own = model.predict_quantiles(X, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    there = {each: site[second] == each for each in intervals.counts if np.sum(site[second] == each) >= FEWEST}
    of_sites = {each: inside(calibrated[rows], y[rows]) for each, rows in there.items()}
    alone = {each: inside(intervals.predict(X[rows], LEVEL, site=each), y[rows]) for each, rows in there.items()}
    return {
        "sites": len(there),
        "own": inside(own, y),
        "calibrated": inside(calibrated, y),
        "worst own": furthest({each: inside(own[rows], y[rows]) for each, rows in there.items()}),
        "worst": furthest(of_sites),
        "worst alone": furthest(alone),
        "width": float(np.mean(np.diff(calibrated)) / np.mean(np.diff(own))),
    }


def said(worst: Any) -> str:
    return f"{worst[1]:.3f} ({worst[0]})"


def main() -> None:
    study = Study(__file__, __doc__)
    names = list(SETS)[:1] if study.quick else SETS
    keys = [f"{name}-{K}" for name in names for K in (1, 2)]
    rows = [
        {
            "data": key,
            "sites": each["sites"],
            "model's own": rounded(each["own"]),
            "calibrated": rounded(each["calibrated"]),
            "worst site: own": said(each["worst own"]),
            "calibrated over sites": said(each["worst"]),
            "site by itself": said(each["worst alone"]),
            "width over own": rounded(each["width"]),
        }
        for key, each in zip(keys, study.replicate(keys, replication), strict=True)
    ]
    study.save(table("Share of held-out rows within intervals at 0.90", rows))


if __name__ == "__main__":
    main()
