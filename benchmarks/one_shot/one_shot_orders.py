"""Sites with different numbers of experts: whether the combined mixture is as good, and its own number found.

N = 100,000 rows over M = 16 sites, d = 20, four experts in truth; every site fits a number of experts drawn from 2 to
6. The combined mixture of four experts stands beside that of sites which all fit four, before and after one round of
refinement; the number of experts of the result is chosen from 2 to 6 by BIC: with the log-likelihood that a round
measures, or estimated from the sites' answers alone. Aims: deficit to the truth at most 1.3 times that of equal
numbers; the right number in at least 18 of 20 draws.

Two sites in five fit fewer experts than there are. Theirs are blends of the true ones and can be of little use, so that
one exchange has about three fifths of the rows to learn from.
"""

from __future__ import annotations

import warnings

import numpy as np

from benchmarks.lib.metrics import mean_log_likelihood
from benchmarks.lib.sites import GENERATORS, LocalFits, answered, local_fits, simulated, split
from benchmarks.lib.study import Record, Study, rounded, table
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification, bic
from consilience.methods import OneShot, Task
from consilience.model import Mixture, Rows

M, ORDERS = 16, (2, 3, 4, 5, 6)
TEST_ROWS = 1_000_000


def one_shot(fits: LocalFits, sites: list[Rows], pooled: Rows, refine: int) -> tuple[Mixture, int]:
    """The mixture of four experts, and the number of experts with the least BIC."""
    dialogue = OneShot(refine=refine).dialogue(Task([Specification(K=K) for K in ORDERS], 20, 1))
    found, _ = answered(dialogue, fits.named(), sites, pooled)
    values = [
        np.inf if fit is None else bic(fit.log_likelihood, fit.mixture.parameter_count, fit.ascent.statistics.weight)
        for fit in found
    ]
    return found[ORDERS.index(4)].mixture, ORDERS[int(np.argmin(values))]


def replication(key: str) -> Record:
    name, n, seed = key.split("/")
    data = simulated(name, int(n), int(seed))
    sites, pooled = split(data, M), Rows(data.X, data.y[:, None])
    orders = np.random.default_rng([int(seed), 6]).integers(2, 7, M)
    different = local_fits(f"orders-{name}-{n}-{seed}", sites, K=[int(k) for k in orders], seed=int(seed))
    equal = local_fits(f"{name}-{n}-{M}-{seed}", sites, seed=int(seed))
    test = GENERATORS[name](TEST_ROWS, random_state=10_000 + int(seed), truth_state=int(seed))
    rows = Rows(test.X, test.y[:, None])
    best = mean_log_likelihood(data.truth, rows)
    record: Record = {"deficits": {}, "chosen": {}}
    for kind, fits in (("equal", equal), ("different", different)):
        for refine in (0, 1, 2):
            mixture, chosen = one_shot(fits, sites, pooled, refine)
            label = f"{kind}, refine {refine}"
            record["deficits"][label], record["chosen"][label] = best - mean_log_likelihood(mixture, rows), chosen
    return record


def ratio(records: list[Record], refine: int) -> list[float]:
    return [r["deficits"][f"different, refine {refine}"] / r["deficits"][f"equal, refine {refine}"] for r in records]


def summary(name: str, records: list[Record]) -> Record:
    return {
        "data": name,
        "draws": len(records),
        "deficit / equal, one exchange": rounded(float(np.median(ratio(records, 0)))),
        "after one round": rounded(float(np.median(ratio(records, 1)))),
        "largest": rounded(float(np.max(ratio(records, 1)))),
        "after two": rounded(float(np.median(ratio(records, 2)))),
        "largest after two": rounded(float(np.max(ratio(records, 2)))),
    } | {
        f"four experts chosen, {label}": f"{sum(r['chosen'][label] == 4 for r in records)} of {len(records)}"
        for label in ("different, refine 0", "different, refine 1", "different, refine 2", "equal, refine 0")
    }


def main() -> None:
    study = Study(__file__, __doc__)
    warnings.simplefilter("ignore", ConsilienceWarning)
    n, repeats = (20_000, 1) if study.quick else (100_000, 10)
    names = ["soft"] if study.quick else list(GENERATORS)
    records = study.replicate((f"{name}/{n}/{seed}" for seed in range(repeats) for name in names), replication)
    rows = [summary(name, [r for r in records if r["key"].startswith(name)]) for name in names]
    study.save(table("Sites with 2 to 6 experts each, four in truth", rows))


if __name__ == "__main__":
    main()
