"""A site with wrong data: whether it is named, and what it costs the others.

Three, four, five or eight sites of 1,000 rows from one mixture of three experts with four covariates. The last site has
shuffled responses, noise instead of responses, a covariate or the response in other units (10 times), the response
halved, or two covariates swapped; or it is honest. FederatedEM, OneShot(refine=1) and SharedCentre, 10 draws each. The
deficit is the log-likelihood per row of 5,000 new rows like the honest sites' under the same method without that site,
less that with it (for SharedCentre the worst of the honest sites' own models, each on those rows). Aims: where the
deficit exceeds 0.05, the site is named or the fit says that sites disagree and it cannot decide; warnings in at most
5 % of honest draws.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
from scipy.special import softmax

from benchmarks.lib.remembering import Remembering
from benchmarks.lib.study import Record, Study, rounded, table
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, OneShot, SharedCentre
from consilience.errors import SetAsideWarning, SuspectDataWarning, UntrustedWarning
from consilience.federation import FederatedFit

ROWS, TEST, MATTERS = 1000, 5000, 0.05
EXPERTS = np.array([[0, 2, 1, 0, 0], [4, -1, 1, 1, 0], [-4, 0, -2, 0, 2.0]])
GATE = np.array([[0, -1.5, 0.5, 0, 0], [0.5, 0, 0, 0, 0], [0, 1.5, -0.5, 0, 0]])
BAD = "bad"
ERRORS = {
    "shuffled": lambda X, y, rng: (X, rng.permutation(y)),
    "noise": lambda X, y, rng: (X, 5 * rng.standard_normal(len(y))),
    "units of x": lambda X, y, _: (X * [1, 10, 1, 1], y),
    "units of y": lambda X, y, _: (X, 10 * y),
    "halved": lambda X, y, _: (X, y / 2),
    "swapped columns": lambda X, y, _: (X[:, [1, 0, 2, 3]], y),
    "honest": lambda X, y, _: (X, y),
}
METHODS = {"FederatedEM": FederatedEM(), "OneShot(1)": OneShot(refine=1), "SharedCentre": SharedCentre()}
SITES = (3, 4, 5, 8)
ENGINE = Remembering()


def drawn(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the mixture."""
    X = rng.standard_normal((n, 4))
    design = np.c_[np.ones(n), X]
    z = (softmax(design @ GATE.T, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return X, np.sum(design * EXPERTS[z], axis=1) + rng.standard_normal(n)


def fitted(sites: dict, method: str) -> tuple[FederatedFit, list[type]]:
    """A fit, and the kinds of its warnings about sites."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = Federation(sites, engine=ENGINE).fit(
            MixtureOfExpertsRegressor(3, random_state=0, max_iter=100), method=METHODS[method]
        )
    about = (SetAsideWarning, SuspectDataWarning, UntrustedWarning)
    return fit, [warning.category for warning in caught if issubclass(warning.category, about)]


def reached(fit: FederatedFit, honest: list[str], test: tuple[np.ndarray, np.ndarray]) -> float:
    """Log-likelihood per row of new rows: of the joint model, or of the worst of the honest sites' own."""
    models = [fit.models[site] for site in honest if site in fit.models] or [fit.model]
    return min(float(model.log_density(*test).mean()) for model in models)


@cache
def without(M: int, seed: int, method: str) -> float:
    """What a method reaches without the last site."""
    honest, test, _ = parts(M, seed)
    return reached(fitted(honest, method)[0], list(honest), test)


def parts(M: int, seed: int) -> tuple[dict, tuple, np.random.Generator]:
    """The honest sites, new rows, and the generator of the last site."""
    rng = np.random.default_rng([seed, M])
    return {f"site {m + 1}": drawn(ROWS, rng) for m in range(M - 1)}, drawn(TEST, rng), rng


def replication(key: str) -> Record:
    """``method/sites/error/seed``."""
    method, M, error, seed = key.split("/")
    honest, test, rng = parts(int(M), int(seed))
    fit, said = fitted(honest | {BAD: ERRORS[error](*drawn(ROWS, rng), rng)}, method)
    named = {site.name for site in fit.sites if site.reasons} | set(fit.fit.survey.suspicions)
    return {
        "named": BAD in named,
        "others named": len(named - {BAD}),
        "undecided": bool(fit.fit.doubts),
        "warned": bool(said),
        "deficit": without(int(M), int(seed), method) - reached(fit, list(honest), test),
    }


def rows(records: list[Record], method: str) -> list[Record]:
    shown = []
    for M in SITES:
        for error in ERRORS:
            mine = [r for r in records if r["key"].startswith(f"{method}/{M}/{error}/")]
            if not mine:
                continue
            deficits = [r["deficit"] for r in mine]
            silent = [r for r in mine if not r["warned"]]
            shown.append(
                {
                    "sites": M,
                    "last site": error,
                    "draws": len(mine),
                    "named": sum(r["named"] for r in mine),
                    "undecided": sum(r["undecided"] and not r["named"] for r in mine),
                    "silent": len(silent),
                    "others named": sum(r["others named"] > 0 for r in mine),
                    "median deficit": rounded(float(np.median(deficits))),
                    "largest": rounded(max(deficits)),
                    "silent above 0.05": sum(r["deficit"] > MATTERS for r in silent),
                }
            )
    return shown


def totals(records: list[Record]) -> list[Record]:
    shown = []
    for method in METHODS:
        mine = [r for r in records if r["key"].startswith(f"{method}/")]
        wrong, honest = ([r for r in mine if ("/honest/" in r["key"]) is kind] for kind in (False, True))
        shown.append(
            {
                "method": method,
                "wrong sites": len(wrong),
                "named": sum(r["named"] for r in wrong),
                "silent above 0.05": sum(not r["warned"] and r["deficit"] > MATTERS for r in wrong),
                "honest draws": len(honest),
                "false alarms": sum(r["warned"] for r in honest),
            }
        )
    return shown


def main() -> None:
    study = Study(__file__, __doc__)
    sites, seeds = ((3,), range(1)) if study.quick else (SITES, range(10))
    keys = [f"{method}/{M}/{error}/{seed}" for seed in seeds for M in sites for method in METHODS for error in ERRORS]
    records = study.replicate(keys, replication)
    study.save(table("all", totals(records)), *(table(method, rows(records, method)) for method in METHODS))


if __name__ == "__main__":
    main()
