"""What the transcript of an honest run discloses: rows that are read from differences of answers, without any attack.

``FederatedEM(totals_only=True, n_climbs=1)`` with four experts and 20 covariates, as under contract. With a sharp gate
(``paper``) single rows change their expert from one round to the next, so that the difference of two answers has rank
one, and its eigenvector is a row. ``soft`` has no sharp gate. The rows are of one site whose own answers are seen, or
of all sites together where only totals are seen (a perfect secure sum). A row counts as read if one direction has 99 %
of a difference and all its covariates are found with a root mean square error below 0.05 standard deviations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, table
from consilience import FederatedEM
from consilience.datasets import paper, soft
from consilience.fit import Expect, Specification
from consilience.messages.questions import Several
from consilience.methods.task import Task
from consilience.model import Rows
from consilience.numerics.arrays import unpack
from consilience.site import Site
from consilience.site.answer import answer

EXPERTS, FEATURES = 4, 20
GENERATORS = {"paper": paper, "soft": soft}
PURE, NEAR = 0.99, 0.05
SEEN = {2000: "one site", 8000: "totals of 4 sites with 2,000 rows", 40000: "totals of 20 sites with 2,000 rows"}


def transcript(site: Site) -> list[tuple[Any, Any]]:
    """Mixtures that are asked in an honest run, with the answers."""
    task = Task([Specification(K=EXPERTS)], FEATURES, 1, sandwich=False)
    dialogue = FederatedEM(n_climbs=1, totals_only=True).dialogue(task)
    found, question = [], next(dialogue).question
    while True:
        total = answer(question, site)
        several = isinstance(question, Several)
        asked, got = (question.questions, total.items) if several else ((question,), (total,))
        found += [(part.mixture, value) for part, value in zip(asked, got, strict=True) if isinstance(part, Expect)]
        try:
            question = dialogue.send(total).question
        except StopIteration:
            return found


def rows_read(seen: list[tuple[Any, Any]], X: np.ndarray) -> dict[int, float]:
    """Rows that are the one direction of a difference of two answers, with their errors."""
    design = seen[0][0].design
    Z, found = (X - design.centre) / design.scale, dict[int, float]()
    for i, (_, a) in enumerate(seen):
        for _, b in seen[:i]:
            for S in unpack(a.experts.second - b.experts.second):
                values, V = np.linalg.eigh(S)
                size, v = np.abs(values), V[:, np.abs(values).argmax()]
                if size.max() > 1e-6 and size.max() > PURE * size.sum() and abs(v[0]) > 1e-3:
                    e = np.sqrt(np.mean((Z - v[1:] / v[0]) ** 2, axis=1))
                    if e.min() < NEAR:
                        row = int(e.argmin())
                        found[row] = min(float(e.min()), found.get(row, 1.0))
    return found


def replication(key: str) -> Record:
    """``generator/rows/seed``."""
    name, n, seed = key.split("/")
    data = GENERATORS[name](int(n), n_features=FEATURES, n_experts=EXPERTS, random_state=int(seed))
    seen = transcript(Site("north", Rows(data.X, data.y[:, None])))
    found = rows_read(seen, data.X)
    return {"rows": len(found), "error": min(found.values(), default=1.0), "answers": len(seen)}


def outcome(records: list[Record], name: str, n: int) -> Record:
    mine = [r for r in records if r["key"].startswith(f"{name}/{n}/")]
    return {
        "rows from": name,
        "what is seen": SEEN[n],
        "runs": len(mine),
        "runs with rows read": sum(r["rows"] > 0 for r in mine),
        "rows read in a run, at most": max(r["rows"] for r in mine),
        "smallest error (sd)": rounded(min(r["error"] for r in mine)) if any(r["rows"] for r in mine) else "",
    }


def main() -> None:
    study = Study(__file__, __doc__)
    cases = [(name, n) for name in GENERATORS for n in SEEN if not study.quick or n == 2000]
    draws = range(2 if study.quick else 10)
    records = study.replicate([f"{name}/{n}/{seed}" for name, n in cases for seed in draws], replication)
    study.save(table("transcripts", [outcome(records, name, n) for name, n in cases]))


if __name__ == "__main__":
    main()
