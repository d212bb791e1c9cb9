"""Sites that lie: the harm to the others' result in pooled standard errors, and whether the liars are named.

Ten sites of 500 rows from three regressions with constant weights (for ClusteredClients, clients of 25 rows); 1, 3 or 4
of them lie. In their answers: all statistics times 1.5; the information halved; responses that grow by 0.02 in every
round; honest until the first pass, then responses + 1; the first statistics again and again. In their data, with
answers that fit together: the sign of the response flipped; another data set; response + 0.05 with a claim of a million
times the rows; response + 0.05; response + 0.2, all liars alike. Local fits use two starts. The harm is the largest
change of a coefficient against the same method on honest sites, in standard errors of the pooled fit. A liar is named
if it is set aside, suspect or left out; runs continue without sites that fail.

Aims: no lie that contradicts itself survives its first round; no silent harm above 3 standard errors but for small lies
told by several sites alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.lib import lying
from benchmarks.lib.lying import Lying
from benchmarks.lib.remembering import Remembering
from benchmarks.lib.study import Record, Study, rounded, table
from consilience import (
    ClusteredClients,
    FederatedEM,
    Federation,
    GradientEM,
    MixtureOfRegressions,
    OneShot,
    SharedCentre,
)
from consilience.errors import ConsilienceError, SetAsideWarning, SuspectDataWarning, UntrustedWarning
from consilience.model.mixture import alignment

B = np.array([[0, 2.0, -1, 0.5], [3, -1, 1, 0], [-3, 0, 1, 2.0]])
SHARES = np.array([0.4, 0.35, 0.25])
SITES, ROWS, CLIENT, NOISE = 10, 500, 25, 0.7
ERRORS = 1.1 * NOISE / np.sqrt(SITES * ROWS * SHARES)[:, None]  # of a coefficient, nearly
ABOUT_SITES = (SetAsideWarning, SuspectDataWarning, UntrustedWarning)

Part = tuple[np.ndarray, np.ndarray]
DATA: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], Part]] = {
    "sign flip": lambda X, y, _: (X, -y),
    "another data set": lambda X, y, rng: (rng.standard_normal(X.shape), 5 + 3 * rng.standard_normal(len(y))),
    "million times the rows": lambda X, y, _: (X, y + 0.05),
    "y + 0.05": lambda X, y, _: (X, y + 0.05),
    "y + 0.2 alike": lambda X, y, _: (X, y + 0.2),
}
TOLD = {
    "statistics x 1.5": lying.scaled_sums,
    "information x 0.5": lying.halved_information,
    "drift": lying.drift,
    "late liar": lying.late,
    "replayed answers": lying.replayed,
    "million times the rows": lying.scaled_everything,
}
LIES = tuple(dict.fromkeys([*TOLD, *DATA]))
INCONSISTENT = ("statistics x 1.5", "drift", "late liar", "replayed answers")
METHODS = {
    "FederatedEM": FederatedEM(),
    "OneShot(0)": OneShot(refine=0),
    "OneShot(1)": OneShot(refine=1),
    "OneShot(3)": OneShot(refine=3),
    "SharedCentre": SharedCentre(),
    "ClusteredClients": ClusteredClients(),
    "GradientEM": GradientEM(),
}
MANY = (1, 3, 4)
ENGINE = Remembering()


def honest_sites(seed: int, by_client: bool) -> dict[str, dict[str, np.ndarray]]:
    parts = {}
    for m in range(SITES):
        rng = np.random.default_rng([seed, m])
        X, groups = rng.standard_normal((ROWS, 3)), np.arange(ROWS) // CLIENT
        label = rng.choice(3, ROWS // CLIENT, p=SHARES)[groups] if by_client else rng.choice(3, ROWS, p=SHARES)
        y = np.sum(np.c_[np.ones(ROWS), X] * B[label], axis=1) + NOISE * rng.standard_normal(ROWS)
        parts[f"site {m}"] = {"X": X, "y": y} | ({"groups": groups} if by_client else {})
    return parts


def fitted(parts: dict, method: str, lies: dict) -> tuple[Any, list[str]]:
    """A fit, or None if it was refused; and what was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fit = Federation(parts, engine=Lying(ENGINE, lies)).fit(
                MixtureOfRegressions(3, random_state=0, n_init=2), method=METHODS[method], on_drop="continue"
            )
        except ConsilienceError as error:
            return None, [str(error)]
    return fit, [str(each.message) for each in caught if issubclass(each.category, ABOUT_SITES)]


@cache
def reference(method: str, seed: int) -> Any:
    return fitted(honest_sites(seed, METHODS[method].by_client), method, {})[0].model.mixture_


def harm(fit: Any, method: str, seed: int) -> float:
    truth, found = reference(method, seed), fit.model.mixture_
    gap = found.permuted(alignment(found, truth)).experts.B[:, 0] - truth.experts.B[:, 0]
    return float(np.abs(gap / ERRORS[alignment_of_truth(truth)]).max())


def alignment_of_truth(mixture: Any) -> np.ndarray:
    """Which of the true regressions each of the honest fit's is."""
    gaps = np.linalg.norm(mixture.experts.B[:, 0, None] - B, axis=2)
    return np.asarray(gaps.argmin(axis=1))


def replication(key: str) -> Record:
    """``method/lie/number of liars/seed``."""
    method, lie, many, seed = key.split("/")
    parts, rng = honest_sites(int(seed), METHODS[method].by_client), np.random.default_rng([int(seed), 99])
    liars = [f"site {m}" for m in range(int(many))]
    for site in liars:
        if lie in DATA:
            parts[site]["X"], parts[site]["y"] = DATA[lie](parts[site]["X"], parts[site]["y"], rng)
    fit, said = fitted(parts, method, dict.fromkeys(liars, TOLD.get(lie, lying.honest)) if lie in TOLD else {})
    if fit is None:
        return {"refused": said[0][:200], "named": len(liars), "honest named": 0, "said": True, "harm": None}
    named = {site.name for site in fit.sites if site.reasons} | set(fit.fit.survey.suspicions) | set(fit.record.dropped)
    return {
        "named": len(named & set(liars)),
        "honest named": len(named - set(liars)),
        "said": bool(said),
        "harm": harm(fit, method, int(seed)),
        "dropped": len(fit.record.dropped),
    }


def rows(records: list[Record], method: str) -> list[Record]:
    shown = []
    for lie in LIES:
        for many in MANY:
            mine = [r for r in records if r["key"].startswith(f"{method}/{lie}/{many}/")]
            if mine:
                shown.append({"lie": lie, "liars of 10": many, **summary_of(mine, many)})
    return shown


def summary_of(mine: list[Record], many: int) -> Record:
    harms = [r["harm"] for r in mine if r["harm"] is not None]
    silent = [r["harm"] for r in mine if r["harm"] is not None and not r["said"]]
    return {
        "draws": len(mine),
        "all named": sum(r["named"] == many for r in mine),
        "honest named": sum(r["honest named"] > 0 for r in mine),
        "refused": sum(r["harm"] is None for r in mine),
        "median harm": rounded(float(np.median(harms))) if harms else None,
        "largest harm": rounded(max(harms)) if harms else None,
        "largest silent harm": rounded(max(silent)) if silent else None,
    }


def totals(records: list[Record]) -> list[Record]:
    shown = []
    for method in METHODS:
        mine = [r for r in records if r["key"].startswith(f"{method}/")]
        silent = [r for r in mine if r["harm"] is not None and not r["said"] and r["harm"] > 3]
        alike = [r for r in silent if "/y + 0.2 alike/" in r["key"] or "/y + 0.05/" in r["key"]]
        inconsistent = [r for r in mine if r["key"].split("/")[1] in INCONSISTENT]
        shown.append(
            {
                "method": method,
                "runs": len(mine),
                "contradictory lies": len(inconsistent),
                "of them not named": sum(r["named"] < int(r["key"].split("/")[2]) for r in inconsistent),
                "silent above 3": len(silent),
                "of them small lies told alike": len(alike),
            }
        )
    return shown


def main() -> None:
    study = Study(__file__, __doc__)
    seeds, methods = (range(1), ("FederatedEM", "OneShot(1)")) if study.quick else (range(10), tuple(METHODS))
    lies, many = (("sign flip", "late liar", "drift"), (1,)) if study.quick else (LIES, MANY)
    keys = [f"{method}/{lie}/{n}/{seed}" for seed in seeds for method in methods for lie in lies for n in many]
    records = study.replicate(keys, replication)
    study.save(table("all", totals(records)), *(table(method, rows(records, method)) for method in methods))


if __name__ == "__main__":
    main()
