"""One site whose data are wrong, or honest sites that differ: who is named, who is left out, and what it costs.

Four or eight sites of 300 or 1,000 rows from one mixture of three experts on two covariates. The last site has one of
twelve errors, seven of an independent trial and five that were chosen before any of them was tried; or all sites are
honest and differ in covariates, gate, shares or noise. The deficit is the log-likelihood per row of 4,000 new rows like
the honest sites' under the same method without the wrong site, less that with it. Aims: named or in doubt in 95 % of
the draws where the deficit exceeds 0.02; honest sites named in at most 3 % of the draws. A site is also named if the
result depends on it by more than two standard errors and more than chance. The draws are those of ``protocol.toml``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import softmax

from benchmarks.lib.remembering import Remembering
from benchmarks.lib.study import HOLD_OUT, Record, Study, protocol, rounded, table
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, OneShot

EXPERTS = np.array([[0, 1.5, -0.5], [2, -1, 1.0], [-3, 0.5, 1.0]])
GATE = np.array([[0.3, 1, 0], [0, -1, 0.5], [-0.3, 0, -0.5]])
NEW, MATTERS, BAD = 4000, 0.02, "bad"
METHODS = {"FederatedEM": FederatedEM(), "OneShot(1)": OneShot(refine=1)}
Rows = tuple[np.ndarray, np.ndarray]


def drawn(n: int, rng: np.random.Generator, *, centre=0.0, gate=0.0, noise=0.8) -> Rows:
    """Rows of the mixture, with other covariates, another gate or other noise."""
    X = rng.standard_normal((n, 2)) + centre
    design = np.c_[np.ones(n), X]
    z = (softmax(design @ GATE.T + gate, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return X, np.sum(design * EXPERTS[z], axis=1) + noise * rng.standard_normal(n)


def replaced(values: np.ndarray, share: float, by: float, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(len(values)) < share, by, values)


def later(y: np.ndarray) -> np.ndarray:
    return y + 3 * (np.arange(len(y)) >= 2 * len(y) / 3)


Error = Callable[[np.ndarray, np.ndarray, np.random.Generator], Rows]
ERRORS: dict[str, Error] = {
    "y + 1": lambda X, y, _: (X, y + 1),
    "x1 sign flipped": lambda X, y, _: (X * [-1, 1], y),
    "x1 in inches": lambda X, y, _: (X / [2.54, 1], y),
    "-999 in 3 % of x1": lambda X, y, r: (np.c_[replaced(X[:, 0], 0.03, -999, r), X[:, 1]], y),
    "99 in 2 % of y": lambda X, y, r: (X, replaced(y, 0.02, 99, r)),
    "half the rows shuffled": lambda X, y, r: (X, np.r_[y[: len(y) // 2], r.permutation(y[len(y) // 2 :])]),
    "x1 dichotomised": lambda X, y, _: (np.c_[(X[:, 0] > 0) * 1.0, X[:, 1]], y),
    "y of another scale: log(1 + |y|) with its sign": lambda X, y, _: (X, np.sign(y) * np.log1p(np.abs(y))),
    "x1 and y shifted by one row against each other": lambda X, y, _: (np.c_[np.roll(X[:, 0], 1), X[:, 1]], y),
    "10 % of y replaced by the mean of the site": lambda X, y, r: (X, replaced(y, 0.1, y.mean(), r)),
    "x1 doubled where x2 is positive": lambda X, y, _: (X * np.c_[1 + (X[:, 1] > 0), np.ones(len(X))], y),
    "y + 3 in the last third of the rows": lambda X, y, _: (X, later(y)),
}
SHIFTS = {
    "covariates": lambda rng: {"centre": np.array([2 * rng.standard_normal(), 0.0])},
    "gate": lambda rng: {"gate": 1.5 * rng.standard_normal(3)},
    "shares": lambda rng: {"gate": np.log(rng.dirichlet([0.7] * 3) + 0.01)},
    "noise": lambda rng: {"noise": float(rng.choice([0.5, 0.8, 1.2]))},
}


def fitted(data: dict[str, Rows], method: str, engine: Remembering):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = MixtureOfExpertsRegressor(3, random_state=0)
        return Federation(data, engine=engine).fit(estimator, method=METHODS[method], on_drop="continue")


def names_of(result) -> set[str]:
    """Sites that are left out or accused."""
    return {site.name for site in result.sites if site.reasons} | set(result.fit.survey.suspicions)


def honest_data(M: int, n: int, seed: int) -> tuple[dict[str, Rows], np.random.Generator]:
    rng = np.random.default_rng([seed, M, n])
    return {f"site {m + 1}": drawn(n, rng) for m in range(M - 1)}, rng


@lru_cache(maxsize=1)
def honest_fits(M: int, n: int, seed: int):
    """The fits without a wrong site, which all kinds of errors share, and the engine that remembers the local ones."""
    engine, (data, _) = Remembering(), honest_data(M, n, seed)
    return engine, {method: fitted(data, method, engine) for method in METHODS}


def wrong_site(key: str) -> Record:
    """``kind/sites/rows/seed`` with one wrong site."""
    kind, *sizes = key.rsplit("/", 3)
    place = tuple(map(int, sizes))
    honest, rng = honest_data(*place)
    engine, without = honest_fits(*place)
    new, bad = drawn(NEW, rng), ERRORS[kind](*drawn(place[1], rng), rng)
    figures: Record = {}
    for method, alone in without.items():
        both = fitted(honest | {BAD: bad}, method, engine)
        named = names_of(both)
        figures[method] = {
            "deficit": float(alone.model.log_density(*new).mean() - both.model.log_density(*new).mean()),
            "named": BAD in named, "others": len(named - {BAD}), "doubt": bool(both.fit.doubts),
            "influential": sorted(both.influential),
            "left out": [site.name for site in both.sites if site.reasons],
        }  # fmt: skip
    return figures


def honest_sites(key: str) -> Record:
    """``kind/sites/rows/seed`` with honest sites that differ."""
    kind, M, n, seed = key.rsplit("/", 3)
    rng, engine = np.random.default_rng([int(seed), int(M), int(n), 1]), Remembering()
    data = {f"site {m + 1}": drawn(int(n), rng, **SHIFTS[kind](rng)) for m in range(int(M))}
    figures: Record = {}
    for method in METHODS:
        result = fitted(data, method, engine)
        left = [site.name for site in result.sites if site.reasons]
        figures[method] = {"others": len(names_of(result)), "left out": left, "doubt": bool(result.fit.doubts)}
        figures[method]["influential"] = sorted(result.influential)
    return figures


def keys_of(regime: Record, kinds: list[str], seeds: range) -> list[str]:
    """One of the sizes for each kind and seed, in turn."""
    sizes = [(M, n) for M in regime["sites"] for n in regime["rows"]]
    return ["/".join(map(str, (kind, *sizes[seed % len(sizes)], seed))) for seed in seeds for kind in kinds]


def wrong_row(kind: str, method: str, records: list[Record]) -> Record:
    mine = [r[method] for r in records]
    costly = [r for r in mine if r["deficit"] > MATTERS]
    return {
        "error": kind,
        "method": method,
        "draws": len(mine),
        "others lose more than 0.02": len(costly),
        "of these named or in doubt": sum(r["named"] or r["doubt"] or BAD in r["influential"] for r in costly),
        "named": sum(r["named"] for r in mine),
        "named by its influence": sum(BAD in r["influential"] for r in mine),
        "left out": sum(BAD in r["left out"] for r in mine),
        "honest sites left out": sum(bool(set(r["left out"]) - {BAD}) for r in mine),
        "median deficit": rounded(float(np.median([r["deficit"] for r in mine]))),
        "largest deficit": rounded(max(r["deficit"] for r in mine)),
    }


def honest_row(kind: str, method: str, records: list[Record]) -> Record:
    mine = [r[method] for r in records]
    return {
        "sites differ in": kind,
        "method": method,
        "draws": len(mine),
        "a site accused": sum(r["others"] > 0 for r in mine),
        "a site left out": sum(bool(r["left out"]) for r in mine),
        "a site called influential": sum(bool(r["influential"]) for r in mine),
        "in doubt": sum(r["doubt"] for r in mine),
    }


def rows_of(records: list[Record], kinds: list[str], row: Callable[[str, str, list[Record]], Record]) -> list[Record]:
    by_kind = {kind: [r for r in records if r["key"].rsplit("/", 3)[0] == kind] for kind in kinds}
    return [row(kind, method, mine) for method in METHODS for kind, mine in by_kind.items() if mine]


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    wrong, seeds = protocol(study, "wrong_sites")
    shift, honest_seeds = protocol(study, "honest_shift")
    kinds = [*wrong["published_kinds"], *wrong["own_kinds"]]
    keys = keys_of(wrong, kinds, seeds)
    honest = keys_of(shift, shift["kinds"], honest_seeds)
    records = study.replicate([*keys, *honest], lambda key: wrong_site(key) if key in keys else honest_sites(key))
    study.save(
        table("One wrong site", rows_of(records, kinds, wrong_row)),
        table("Honest sites that differ", rows_of(records, shift["kinds"], honest_row)),
    )


if __name__ == "__main__":
    main()
