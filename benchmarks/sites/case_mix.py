"""Honest sites with the same experts in other shares: who is left out or accused, and coverage of the shares.

Each draw has 3 to 20 sites of 200 to 2,000 rows, two or three regressions on two covariates with normal errors, and a
share of the first regression at each site between 0.05 and 0.95; the gate is constant or a softmax with common slopes.
FederatedEM() must leave out nobody and accuse at most 2 % of the sites. With ``per_site="shares"`` 95 % intervals of
the shares at the sites are to cover 0.93 to 0.97. The draws are those of ``protocol.toml``.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

from benchmarks.lib.study import HOLD_OUT, Record, Study, protocol, rounded, table
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions

EXPERTS = np.array([[0.0, 1.5, -0.5], [3.0, -1.0, 0.5], [-3.0, 0.5, 1.0]])
SLOPES = np.array([[0.8, 0.0], [0.0, -0.8], [0.0, 0.0]])
NOISE = 0.7


def draw(seed: int, regime: Record) -> tuple[Record, dict, dict]:
    """What is drawn, the rows of the sites, and the mean true gate over the rows of each site."""
    rng = np.random.default_rng(seed)
    chosen = {name: regime[name][rng.integers(len(regime[name]))] for name in ("sites", "rows", "experts", "gates")}
    K, slopes = chosen["experts"], SLOPES * (chosen["gates"] == "softmax")
    data, shares = {}, {}
    for m in range(chosen["sites"]):
        first = float(rng.choice(regime["shares"]))
        X = rng.standard_normal((chosen["rows"], 2))
        pi = softmax(np.log([first, *[(1 - first) / (K - 1)] * (K - 1)]) + X @ slopes[:K].T, axis=1)
        z = (pi.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
        y = np.sum(np.c_[np.ones(len(X)), X] * EXPERTS[z], axis=1) + NOISE * rng.standard_normal(len(X))
        data[f"site {m + 1}"], shares[f"site {m + 1}"] = (X, y), pi.mean(axis=0)
    return chosen, data, shares


def fitted(data: dict, chosen: Record, per_site: str | None):
    kind = MixtureOfRegressions if chosen["gates"] == "constant" else MixtureOfExpertsRegressor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Federation(data).fit(kind(chosen["experts"], random_state=0), method=FederatedEM(per_site=per_site))


def covered(result, shares: dict) -> tuple[int, int, int]:
    """Numbers of intervals that cover, that are shown, and of all."""
    found = result.model.mixture_.experts.B[:, 0]
    K = len(found)
    order = linear_sum_assignment(((found[:, None] - EXPERTS[:K]) ** 2).sum(axis=2))[1]
    columns = result.fit.shares()
    inside = shown = 0
    for site, k, _, lower, upper in zip(*columns.values(), strict=True):
        shown += bool(np.isfinite(lower))
        inside += bool(lower <= shares[site][order[k]] <= upper)
    return inside, shown, len(columns["site"])


def replication(key: str, regime: Record) -> Record:
    chosen, data, shares = draw(int(key), regime)
    result, own = fitted(data, chosen, None), fitted(data, chosen, "shares")
    inside, shown, number = covered(own, shares)
    return chosen | {
        "left out": sum(bool(site.reasons) for site in result.sites),
        "accused": len(result.fit.survey.suspicions),
        "in doubt": bool(result.fit.doubts),
        "own left out": sum(bool(site.reasons) for site in own.sites),
        "covered": inside, "shown": shown, "intervals": number, "P": own.fit.test.p_value,
        "rounds": len(own.record.rounds),
    }  # fmt: skip


def row(label: str, records: list[Record]) -> Record:
    sites = sum(r["sites"] for r in records)
    return {
        "draws": label,
        "number": len(records),
        "sites": sites,
        "left out": sum(r["left out"] + r["own left out"] for r in records),
        "accused, % of sites": rounded(100 * sum(r["accused"] for r in records) / max(sites, 1)),
        "fits in doubt": sum(r["in doubt"] for r in records),
        "intervals shown, %": rounded(100 * sum(r["shown"] for r in records) / sum(r["intervals"] for r in records)),
        "coverage": rounded(sum(r["covered"] for r in records) / max(sum(r["shown"] for r in records), 1)),
    }


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    regime, seeds = protocol(study, "case_mix")
    records = study.replicate(map(str, seeds), lambda key: replication(key, regime))
    parts = [("all", records)]
    for name in ("rows", "experts", "gates"):
        parts += [(f"{name}: {value}", [r for r in records if r[name] == value]) for value in regime[name]]
    study.save(table("Honest sites in other shares", [row(label, mine) for label, mine in parts if mine]))


if __name__ == "__main__":
    main()
