"""Small fits against R's flexmix, on the examples of its own package and of mixtools: 70 to 200 rows.

``initFlexmix`` with its defaults, the best of three random starts, against our default fit, constant gate and a gate on
the covariates, K = 2 and 3. CPU time of the fit alone in one thread, medians of three seeds; libraries are loaded
before. The log-likelihood is the best of the three seeds for each. An end of flexmix is proper if variances differ by
at most 1 : 100 and each component has 2.5 rows per coefficient, as ours must; where none of the three is, its best
proper end is that of seventeen more seeds. Aims: at least 2 times faster, and no lower than its best proper end. Needs
R with flexmix (Debian: r-cran-flexmix) and the data directory named by ``CONSILIENCE_DATA``.
"""

from __future__ import annotations

import warnings

import numpy as np

from benchmarks.em import flexmix_starts
from benchmarks.em.real_starts import data_of
from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.fit import Specification, fit_mixture
from consilience.fit.specification import ROWS_PER_COEFFICIENT
from consilience.model import Rows

SHAPE_RATIO = Specification(2).shape_ratio
EXAMPLES = ("tone", "patent", "seizure")
SEEDS = range(3)
MORE_SEEDS = range(3, 20)


def ours(name: str, K: int, gate: str, seed: int) -> Record:
    data = data_of(name)
    rows = Rows(np.ascontiguousarray(data.X), data.y[:, None].copy(), exposure=data.exposure)
    with warnings.catch_warnings(), stopwatch() as watch:
        warnings.simplefilter("ignore")
        fit = fit_mixture(rows, Specification(K, family=data.family, gate=gate), rng=np.random.default_rng(seed))
    return {"ll": fit.log_likelihood, "cpu": watch.cpu}


def is_proper(end: Record, columns: int) -> bool:
    """Whether the end of a fit by flexmix is within the bounds of our default."""
    ratio = (max(end["sigma"]) / min(end["sigma"])) ** 2 if end["sigma"] else 1.0
    return ratio <= SHAPE_RATIO and min(end["rows"]) >= ROWS_PER_COEFFICIENT * (columns + 1)


def proper_ends(cell: str, found: list[Record], columns: int) -> list[Record]:
    """The proper ends of the seeds, or of more seeds if there are none."""
    proper = [end for end in found if is_proper(end, columns)]
    if proper:
        return proper
    more = [flexmix_starts.replication(f"{cell}/{seed}") for seed in MORE_SEEDS]
    return [end for end in more if end["ll"] is not None and is_proper(end, columns)]


def compared(name: str, K: int, gate: str) -> Record:
    mine = [ours(name, K, gate, seed) for seed in SEEDS]
    theirs = [flexmix_starts.replication(f"{name}/{K}/{gate}/{seed}") for seed in SEEDS]
    found = [each for each in theirs if each["ll"] is not None]
    cpu = [float(np.median([each["cpu"] for each in some])) for some in (mine, found)] if found else [np.nan] * 2
    proper = proper_ends(f"{name}/{K}/{gate}", found, data_of(name).X.shape[1])
    best, highest, highest_proper = (
        max((each["ll"] for each in some), default=np.nan) for some in (mine, found, proper)
    )
    return {
        "data": name,
        "rows": len(data_of(name).y),
        "K": K,
        "gate": gate,
        "flexmix, CPU s": rounded(cpu[1], 2),
        "ours, CPU s": rounded(cpu[0], 2),
        "times faster": rounded(cpu[1] / cpu[0], 2),
        "flexmix's proper ends": f"{sum(is_proper(end, data_of(name).X.shape[1]) for end in found)} of {len(found)}",
        "our log-likelihood less flexmix's best": round(best - highest, 2),
        "less its best proper": round(best - highest_proper, 2) if proper else None,
    }


def main() -> None:
    study = Study(__file__, __doc__)
    names, orders = (EXAMPLES[:1], (2,)) if study.quick else (EXAMPLES, (2, 3))
    ours("tone", 2, "constant", 0)  # libraries are loaded
    rows = [compared(name, K, gate) for name in names for K in orders for gate in ("constant", "softmax")]
    study.save(table("flexmix's own examples", rows))


if __name__ == "__main__":
    main()
