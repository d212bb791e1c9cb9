"""Passes over all rows of FederatedEM, and where they go.

Sixteen sites, 200,000 rows, K = 4, d = 20. Each round asks some of the sites for sums or likelihoods at one or several
mixtures; the cost of a question is its CPU time on the rows of one site in units of that of a plain pass (sums without
the information), times the share of the rows that were asked. The proposals of starts, from at most 3,000 rows of ten
sites, do not grow with the rows and are left out. Before several starts were climbed over some of the sites, the
sums were 41.0 (soft) and 49.7 (paper); aim: at most half of them, at the same log-likelihood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor
from consilience.datasets import paper, soft
from consilience.fit import Expect
from consilience.messages import LogLikelihood, ScoreSums
from consilience.model import Rows
from consilience.site import Site, answer

SITES = 16


def unit_costs(mixture, rows: Rows) -> dict[str, float]:
    """CPU time of each question in units of a plain pass, least of nine."""

    def seconds(question) -> float:
        found = []
        for _ in range(9):
            with stopwatch() as watch:
                answer(question, Site("one", rows))
            found.append(watch.cpu)
        return min(found)

    plain = seconds(Expect(mixture))
    informed, likelihood, scores = map(
        seconds, (Expect(mixture, information=True), LogLikelihood(mixture), ScoreSums(mixture))
    )
    return {"sums": 1.0, "sums and information": informed / plain, "likelihood": likelihood / plain,
            "scores": scores / plain}  # fmt: skip


def kind_of(discloses: str) -> str:
    """The kind of question, by what its answer discloses."""
    if "information" in discloses:
        return "sums and information"
    if "xxᵀ" in discloses:
        return "sums"
    return "scores" if "residuals" in discloses else "likelihood"


def passes(make: Callable, n: int) -> Record:
    data = make(n, random_state=0)
    parts = np.array_split(np.arange(n), SITES)
    sites = Federation({f"site {i}": (data.X[part], data.y[part]) for i, part in enumerate(parts)})
    result = sites.fit(MixtureOfExpertsRegressor(4, random_state=0), method=FederatedEM())
    unit = unit_costs(result.fit.ascent.mixture, Rows(data.X[parts[0]], data.y[parts[0], None]))
    spent: Counter[str] = Counter()
    for each in result.record.rounds:
        if each.question not in ("Summarise", "ProposeStart"):
            several = re.match(r"(\d+) times", each.discloses)
            kind = kind_of(each.discloses)
            spent[kind] += (int(several[1]) if several else 1) * len(each.exchanges) / SITES * unit[kind]
    return {
        "data": make.__name__,
        "rounds": len(result.record.rounds),
        **{kind: rounded(spent[kind]) for kind in unit},
        "passes": rounded(sum(spent.values())),
        "log-likelihood": round(result.model.log_likelihood_, 3),
    }


def main() -> None:
    study = Study(__file__, __doc__)
    n = 60_000 if study.quick else 200_000
    study.save(table("Passes over all rows", [passes(make, n) for make in (soft, paper)]))


if __name__ == "__main__":
    main()
