"""Refinement by scores with a simulated information, against the observed information and the pooled maximum.

``soft`` with K = 4, d = 20 over four sites, 2,000 and 10,000 rows a site. Distances from the maximum over all rows are
in pooled standard errors, by root mean square over the experts' coefficients and over the gate's; standard errors are
compared with those of the observed information.
"""

from __future__ import annotations

import warnings

import numpy as np

from benchmarks.lib.remembering import Remembering
from benchmarks.lib.study import Record, Study, rounded, table
from consilience import Federation, MixtureOfExpertsRegressor, OneShot
from consilience.datasets import soft
from consilience.errors import ConsilienceWarning
from consilience.fit.inference import Inference

SITES = 4
POOLED = OneShot(refine=10)
METHODS = {
    "OneShot(0)": OneShot(refine=0),
    "OneShot(1)": OneShot(refine=1),
    "OneShot(1), scores": OneShot(refine=1, information="simulated"),
    "OneShot(2), scores": OneShot(refine=2, information="simulated"),
}
CASES = {2_000: 20, 10_000: 10}


def replication(key: str) -> Record:
    """``rows/seed``."""
    rows, seed = map(int, key.split("/"))
    data = soft(SITES * rows, n_experts=4, n_features=20, random_state=seed)
    parts = {f"site {i}": (data.X[i::SITES], data.y[i::SITES]) for i in range(SITES)}
    sites, model = Federation(parts, engine=Remembering()), MixtureOfExpertsRegressor(4, random_state=0)
    warnings.simplefilter("ignore", ConsilienceWarning)
    pooled = sites.fit(model, method=POOLED).fit
    found: Record = {}
    for name, method in METHODS.items():
        fit = sites.fit(model, method=method).fit
        found[name] = {
            **compared(fit.inference, pooled.inference),
            "deficit": pooled.log_likelihood - fit.log_likelihood if method.refine else None,
            "withheld": sorted(fit.inference.withheld),
        }
    return found


def compared(mine: Inference, pooled: Inference) -> Record:
    """Distances and ratios of standard errors; experts in the order that fits best, as shares can be nearly equal."""
    one, other = mine.estimates, pooled.estimates
    gaps = np.linalg.norm(one.experts[:, None] - other.experts[None], axis=(2, 3))
    order = np.argmin(gaps, axis=0)
    errors, theirs = mine.standard_errors(), pooled.standard_errors()
    apart = (one.experts[order] - other.experts) / theirs.experts
    centred = [each - each.mean(axis=0) for each in (one.gate[order], other.gate)]
    gate = (centred[0] - centred[1]) / np.nanmean(theirs.gate, axis=0)
    return {
        "experts": float(np.sqrt(np.mean(apart**2))),
        "gate": float(np.sqrt(np.mean(gate**2))),
        "ratio, experts": float(np.median(errors.experts[order] / theirs.experts)),
        "ratio, gate": float(np.nanmedian(errors.gate / theirs.gate)) if "gate" not in mine.withheld else None,
    }


def summary(name: str, rows: int, records: list[Record]) -> Record:
    mine = [record[name] for record in records]
    ratios = [each["ratio, gate"] for each in mine if each["ratio, gate"] is not None]
    return {
        "method": name,
        "rows a site": rows,
        "draws": len(mine),
        "experts, SE": rounded(float(np.median([each["experts"] for each in mine]))),
        "largest": rounded(max(each["experts"] for each in mine)),
        "gate, SE": rounded(float(np.median([each["gate"] for each in mine]))),
        "largest, gate": rounded(max(each["gate"] for each in mine)),
        "units below": rounded(max(each["deficit"] for each in mine)) if mine[0]["deficit"] is not None else "",
        "SE ratio, experts": rounded(float(np.median([each["ratio, experts"] for each in mine]))),
        "SE ratio, gate": rounded(float(np.median(ratios))) if ratios else "",
        "withheld": sum(bool(each["withheld"]) for each in mine),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    cases = {2_000: 2} if study.quick else CASES
    keys = [f"{rows}/{seed}" for rows, draws in cases.items() for seed in range(draws)]
    records = study.replicate(keys, replication)
    by_rows = {rows: [r for r in records if r["key"].startswith(f"{rows}/")] for rows in cases}
    study.save(table("Distance from the maximum", [summary(m, n, by_rows[n]) for n in cases for m in METHODS]))


if __name__ == "__main__":
    main()
