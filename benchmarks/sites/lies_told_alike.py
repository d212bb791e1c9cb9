"""Sites whose data lie alike: the harm in pooled standard errors, and whether the liars are named.

Ten sites of 500 rows from three regressions with constant weights (for ClusteredClients, clients of 25 rows), of which
1, 3 or 4 lie, all alike; or three, of which one lies. Lies: a coefficient of one regression + 0.15, + 0.3, + 0.6, in
their rows; data forged with a coefficient + 1; two regressions with each other's shares; a shifted population; and
jittered copies of their rows, 8 or 30 times as many. The harm is the largest change of a coefficient against the same
method on honest sites, in standard errors of the pooled fit. A liar is named if it is set aside, suspect, left out or
influential, or asked whether its rows were counted twice. A harm is silent if a liar is not named and the result is not
in doubt. Aim: for one liar of ten with up to 8 times its rows, no silent harm above 3. The draws are those of
``protocol.toml``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.lib.remembering import Remembering
from benchmarks.lib.study import HOLD_OUT, Record, Study, protocol, rounded, table
from consilience import ClusteredClients, FederatedEM, Federation, MixtureOfRegressions, OneShot, SharedCentre
from consilience.errors import ConsilienceError
from consilience.model.mixture import alignment

B = np.array([[0, 1.5, -1, 0.5], [2.5, -1, 1, 0], [-2.5, 0, 1, 1.5]])
SHARES = np.array([0.4, 0.35, 0.25])
ROWS, CLIENT, NOISE, JITTER = 500, 25, 0.7, 1e-3
METHODS = {
    "FederatedEM": FederatedEM(),
    "OneShot(0)": OneShot(refine=0),
    "OneShot(1)": OneShot(refine=1),
    "SharedCentre": SharedCentre(),
    "ClusteredClients": ClusteredClients(),
}
WHO = ((1, 10), (3, 10), (4, 10), (1, 3))
LARGE = 3.0
ENGINE = Remembering()  # the sites of a draw fit their own mixture once for all lies of other sites

Rows = tuple[np.ndarray, np.ndarray]
Lie = Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], Rows]


def responses(X: np.ndarray, z: np.ndarray, rng: np.random.Generator, coefficients: np.ndarray = B) -> np.ndarray:
    return np.sum(np.c_[np.ones(len(X)), X] * coefficients[z], axis=1) + NOISE * rng.standard_normal(len(X))


def one_coefficient(by: float) -> Lie:
    return lambda X, y, z, _: (X, y + by * X[:, 0] * (z == 0))


def copied(by: float, times: int) -> Lie:
    def lie(X, y, z, rng):
        y = y + by * X[:, 0] * (z == 0)
        many = np.vstack([X + JITTER * rng.standard_normal(X.shape) for _ in range(times)])
        return many, np.tile(y, times) + JITTER * rng.standard_normal(times * len(y))

    return lie


def forged(X, _, z, rng):
    return X, responses(X, z, rng, B + np.eye(3, 4, 1) * [[1], [0], [0]])


def swapped(X, _, z, rng):
    return X, responses(X, np.array([0, 2, 1])[z], rng)


def shifted(X, _, z, rng):
    X = X + np.array([1.0, 0, 0])
    return X, responses(X, z, rng) + 0.3 * (z == 1)


LIES: dict[str, Lie] = {
    "+0.15": one_coefficient(0.15),
    "+0.3": one_coefficient(0.3),
    "+0.6": one_coefficient(0.6),
    "forged +1": forged,
    "labels swapped": swapped,
    "shifted population": shifted,
    "+0.3 and 8 times the rows": copied(0.3, 8),
    "+0.15 and 30 times the rows": copied(0.15, 30),
}


def sites(seed: int, number: int, liars: int, lie: Lie | None, by_client: bool) -> dict[str, dict[str, np.ndarray]]:
    parts = {}
    for m in range(number):
        rng = np.random.default_rng([seed, m, 7])
        X = rng.standard_normal((ROWS, 3))
        clients = rng.choice(3, ROWS // CLIENT, p=SHARES) if by_client else None
        z = rng.choice(3, ROWS, p=SHARES) if clients is None else clients[np.arange(ROWS) // CLIENT]
        y = responses(X, z, rng)
        if m < liars and lie is not None:
            X, y = lie(X, y, z, rng)
        parts[f"site {m}"] = {"X": X, "y": y} | ({"groups": np.arange(len(y)) // CLIENT} if by_client else {})
    return parts


def fitted(parts: dict, method: str) -> Any:
    """A fit; None if it was refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Federation(parts, engine=ENGINE).fit(
                MixtureOfRegressions(3, random_state=0, n_init=2), method=METHODS[method], on_drop="continue"
            )
        except ConsilienceError:
            return None


@cache
def honest(method: str, number: int, seed: int) -> Any:
    return fitted(sites(seed, number, 0, None, METHODS[method].by_client), method)


def harm(fit: Any, reference: Any, number: int) -> float:
    found, other = fit.model.mixture_, reference.model.mixture_
    gap = found.permuted(alignment(found, other)).experts.B[:, 0] - other.experts.B[:, 0]
    which = np.linalg.norm(other.experts.B[:, 0, None] - B, axis=2).argmin(axis=1)
    return float(np.abs(gap / (1.1 * NOISE / np.sqrt(number * ROWS * SHARES)[which, None])).max())


def named_in(fit: Any) -> set[str]:
    told = {site.name for site in fit.sites if site.reasons} | set(fit.fit.survey.suspicions) | set(fit.record.dropped)
    return told | set(fit.fit.survey.questions) | set(fit.influential)


def replication(key: str) -> Record:
    """``method/lie/liars of sites/seed``."""
    method, lie, who, seed = key.split("/")
    many, number = map(int, who.split(" of "))
    reference = honest(method, number, int(seed))
    fit = fitted(sites(int(seed), number, many, LIES[lie], METHODS[method].by_client), method)
    liars, wronged = {f"site {m}" for m in range(many)}, len(named_in(reference))
    if fit is None:
        return {"named": many, "honest named": 0, "doubt": True, "harm": None, "named if honest": wronged}
    named = named_in(fit)
    return {
        "named": len(named & liars),
        "honest named": len(named - liars),
        "doubt": bool(fit.fit.doubts),
        "harm": harm(fit, reference, number),
        "named if honest": wronged,
    }


def row_of(mine: list[Record], many: int) -> Record:
    harms = [r["harm"] for r in mine if r["harm"] is not None]
    silent = [r["harm"] for r in mine if r["harm"] is not None and not r["named"] and not r["doubt"]]
    return {
        "draws": len(mine),
        "all liars named": sum(r["named"] == many for r in mine),
        "honest named": sum(r["honest named"] > 0 for r in mine),
        "in doubt": sum(r["doubt"] for r in mine),
        "median harm": rounded(float(np.median(harms)), 2) if harms else None,
        "largest harm": rounded(max(harms), 2) if harms else None,
        "largest silent harm": rounded(max(silent), 2) if silent else None,
    }


def rows_of(records: list[Record], who: str) -> list[Record]:
    shown = []
    for lie in LIES:
        for method in METHODS:
            mine = [r for r in records if r["key"].startswith(f"{method}/{lie}/{who}/")]
            if mine:
                shown.append({"lie": lie, "method": method, **row_of(mine, int(who.split(maxsplit=1)[0]))})
    return shown


def totals(records: list[Record]) -> list[Record]:
    shown = []
    for method in METHODS:
        mine = [r for r in records if r["key"].startswith(f"{method}/")]
        one = [r for r in mine if "/1 of 10/" in r["key"] and "30 times" not in r["key"]]
        loud = [r for r in one if r["harm"] is not None and r["harm"] > LARGE]
        draws = {tuple(r["key"].split("/")[2:]): r["named if honest"] for r in mine}
        shown.append(
            {
                "method": method,
                "one liar of ten": len(one),
                "harm above 3": len(loud),
                "of them the liar not named": sum(not r["named"] for r in loud),
                "honest federations": len(draws),
                "of them with a site named": sum(number > 0 for number in draws.values()),
            }
        )
    return shown


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    found, seeds = protocol(study, "liars")
    lies = found["lies"]
    methods, who = (("FederatedEM", "OneShot(0)"), ((1, 3),)) if study.quick else (tuple(METHODS), WHO)
    groups = [f"{many} of {number}" for many, number in who]
    keys = [f"{m}/{lie}/{g}/{seed}" for g in groups for seed in seeds for m in methods for lie in lies]
    records = study.replicate(keys, replication)
    study.save(table("all", totals(records)), *(table(f"{group} sites", rows_of(records, group)) for group in groups))


if __name__ == "__main__":
    main()
