"""Eight real data sets with a regression response: at most 6,000 rows each, the same rows each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from sklearn.datasets import load_diabetes

from benchmarks.lib.datasets import load_table

AT_MOST = 5_000
"""Rows drawn from the three large tables."""


@dataclass(frozen=True, eq=False)
class RealSet:
    """Covariates, response, family of the experts, and exposure of counts where it is known."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    family: str = "gaussian"
    exposure: np.ndarray | None = None


def columns(name: str, *names: str) -> np.ndarray:
    """Read columns of a table as ``(n, len(names))``."""
    table = load_table(name)
    return np.column_stack([table.column(each).to_numpy().astype(float) for each in names])


def drawn(Z: np.ndarray) -> np.ndarray:
    """Draw ``AT_MOST`` complete rows."""
    Z = Z[np.all(np.isfinite(Z), axis=1)]
    return Z[np.random.default_rng(0).choice(len(Z), AT_MOST, replace=False)]


def tone() -> RealSet:
    """Perceived tone given the stretching ratio of the overtones."""
    x, y = columns("tonedata", "stretchratio", "tuned").T
    return RealSet(x[:, None], y)


def patent() -> RealSet:
    """Patents of 70 companies given the logarithm of their spending on research."""
    x, y = columns("patent", "lgRD", "Patents").T
    return RealSet(x[:, None], y, "poisson")


def seizure() -> RealSet:
    """Seizures of one patient a day, before and under treatment; exposure is the hours of observation."""
    table = load_table("seizure")
    day, hours, y = columns("seizure", "Day", "Hours", "Seizures").T
    treated = (table.column("Treatment").to_numpy(zero_copy_only=False) == "Yes").astype(float)
    return RealSet(np.column_stack([treated, np.log(day), treated * np.log(day)]), y, "poisson", hours)


def diabetes() -> RealSet:
    """Progression of diabetes given ten measurements at the baseline."""
    return RealSet(*load_diabetes(return_X_y=True))


def parkinsons() -> RealSet:
    """Severity of Parkinson's disease given age, sex, time and measurements of the voice."""
    voice = ("Jitter(%)", "Shimmer", "NHR", "HNR", "RPDE", "DFA", "PPE")
    Z = columns("parkinsons", "age", "sex", "test_time", *voice, "total_UPDRS")
    return RealSet(Z[:, :-1], Z[:, -1])


def beijing() -> RealSet:
    """Logarithm of fine dust in the air of Beijing given the weather."""
    Z = drawn(columns("beijing_air", "TEMP", "PRES", "DEWP", "WSPM", "PM2.5"))
    return RealSet(Z[:, :-1], np.log1p(Z[:, -1]))


def mmash() -> RealSet:
    """Heart rate given the movement and posture of the last second."""
    posture = ("Inclinometer Standing", "Inclinometer Sitting", "Inclinometer Lying")
    Z = columns("mmash_actigraph", "Axis1", "Axis2", "Axis3", "Steps", *posture, "HR")
    Z = drawn(Z[(Z[:, -1] > 30) & (Z[:, -1] < 220)])
    return RealSet(Z[:, :-1], Z[:, -1])


def power() -> RealSet:
    """Electricity used in a part of Tetouan given the weather and the time of day."""
    seconds = load_table("tetouan_power").column("DateTime").to_numpy().astype("datetime64[s]").astype(float)
    angle = 2 * np.pi * (seconds % 86_400) / 86_400
    Z = columns("tetouan_power", "Temperature", "Humidity", "Wind Speed", "Zone 1 Power Consumption")
    Z = drawn(np.column_stack([Z[:, :-1], np.sin(angle), np.cos(angle), Z[:, -1] / 1000]))
    return RealSet(Z[:, :-1], Z[:, -1])


REAL_SETS: MappingProxyType[str, Callable[[], RealSet]] = MappingProxyType(
    {each.__name__: each for each in (tone, patent, seizure, diabetes, parkinsons, beijing, mmash, power)}
)
