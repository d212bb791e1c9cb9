"""Common labels for the components of many sites, of which some are noise: how often all honest sites agree.

K = 12 components in 10 dimensions, drawn from N(0, 4 I); each site has them moved by N(0, 0.09 I) and in an order of
its own; 30 % of the sites send N(1, 9 I) instead, or all of them the same wrong model. 100 draws at M = 100, 10 at
M = 1,000 (there the reference is the best of 50 sites drawn at random). Searching all orders, as in
arXiv:2310.15330, is not possible: 12! = 479,001,600 for each site.

Aim: all honest sites agree in 100 of 100 draws, in seconds.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.aggregate import consistent_labels

K, D, NOISE = 12, 10, 0.3
DRAWS = {100: 100, 1000: 10}
KINDS = ("noise", "one wrong model")


def replication(key: str) -> Record:
    """``kind/M/seed``."""
    kind, M, seed = key.split("/", maxsplit=1)[0], *map(int, key.split("/")[1:])
    rng = np.random.default_rng([KINDS.index(kind), M, seed])
    centres = 2 * rng.normal(size=(K, D))
    orders = np.array([rng.permutation(K) for _ in range(M)])
    points = centres[orders] + NOISE * rng.normal(size=(M, K, D))
    bad = rng.permutation(M)[: int(0.3 * M)]
    points[bad] = 1 + 3 * rng.normal(size=(len(bad) if kind == "noise" else 1, K, D))
    with stopwatch() as watch:
        found = consistent_labels(points)
    common = np.take_along_axis(orders, found.permutations, axis=1)  # the component that each label stands for
    honest = np.setdiff1d(np.arange(M), bad)
    return {"consistent": bool(np.all(common[honest] == common[honest[0]])), "cpu": watch.cpu}


def main() -> None:
    study = Study(__file__, __doc__)
    draws = {100: 3, 1000: 1} if study.quick else DRAWS
    keys = [f"{kind}/{M}/{seed}" for kind in KINDS for M, n in draws.items() for seed in range(n)]
    records = study.replicate(keys, replication)
    rows = []
    for kind, M in product(KINDS, draws):
        mine = [r for r in records if r["key"].startswith(f"{kind}/{M}/")]
        rows.append(
            {
                "30 % of the sites": kind,
                "sites": M,
                "draws": len(mine),
                "all honest sites agree": f"{sum(r['consistent'] for r in mine)} of {len(mine)}",
                "CPU seconds, median": rounded(float(np.median([r["cpu"] for r in mine]))),
                "CPU seconds, most": rounded(max(r["cpu"] for r in mine)),
            }
        )
    study.save(table("Consistent labels, K = 12", rows))


if __name__ == "__main__":
    main()
