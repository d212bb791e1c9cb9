"""How many passes Newton on the observed information saves where experts overlap and EM is slow.

Soft gate, K = 4, d = 20, 50,000 rows, expert coefficients times 0.1 or 0.05 with unit variance. Both ways start at the
same place near the truth. Passes are counted until the penalised log-likelihood is within 1e-6 of its maximum, with
the stopping rules out of the way, so that both are charged for the same result; a pass with the information is also
counted as two or three plain ones. A second table shows the fits at their own tolerances. Aim: at least 3 times fewer
passes than EM alone.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.datasets import soft
from consilience.fit import Specification
from consilience.fit.climb import Expect, climb, drive
from consilience.model import GaussianExperts, Mixture, Rows, SoftmaxGate, Statistics, expect
from consilience.model.summary import column_summary

GAP = 1e-6
TOL = 1e-9  # the library's
RELATIVE = 1e-12  # for EM alone, of the log-likelihood
FINEST = 1e-15  # to go on beyond both
WAYS = ("EM", "Newton")


def overlapping(factor: float, n: int, seed: int) -> tuple[Rows, Mixture]:
    """Rows of a mixture whose experts differ by ``factor`` times what they did, and a start near the truth."""
    rng = np.random.default_rng([seed, 1])
    data = soft(n, random_state=seed, truth_state=seed)
    unit = np.ones((4, 1, 1))
    B = factor * data.truth.experts.B
    truth = Mixture(data.truth.design, data.truth.gate, GaussianExperts(B, unit))
    Y, _ = truth.sample(data.X, rng)
    near = GaussianExperts(B + 0.5 * factor * rng.standard_normal(B.shape), 2 * unit)
    return Rows(data.X, Y), Mixture(truth.design, SoftmaxGate(np.zeros((4, 21))), near)


def ascent(rows: Rows, start: Mixture, *, newton: bool, tol: float) -> list[Record]:
    """One record per pass: the penalised log-likelihood it found, whether it took the information, CPU so far."""
    summary = column_summary(rows)
    penalty = Specification(K=4).penalty(summary)
    passes: list[Record] = []
    spent = 0.0

    def respond(question: Expect) -> Statistics:
        nonlocal spent
        with stopwatch() as watch:
            statistics = expect(question.mixture, rows, information=question.information)
        spent += watch.cpu
        value = question.mixture.penalised(statistics, penalty)
        passes.append({"value": value, "informed": question.information, "cpu": spent})
        return statistics

    start = start.in_coordinates(summary.design(intercept=True))
    drive(climb(start, penalty, tol=tol, max_iter=2000, newton=newton), respond)
    return passes


def to_the_top(rows: Rows, start: Mixture, *, newton: bool) -> list[Record]:
    """An ascent that goes on beyond what a fit would do."""
    climbing = import_module("consilience.fit.climb")
    usual = climbing.NEWTON_DECREMENT
    climbing.NEWTON_DECREMENT = FINEST
    try:
        return ascent(rows, start, newton=newton, tol=FINEST)
    finally:
        climbing.NEWTON_DECREMENT = usual


def counted(passes: list[Record], best: float | None = None) -> Record:
    """Passes (to within the gap of ``best``), how many took the information, CPU."""
    if best is not None:
        reached = [i for i, one in enumerate(passes) if one["value"] >= best - GAP]
        passes = passes[: reached[0] + 1]
    informed = sum(one["informed"] for one in passes)
    return {"passes": len(passes), "informed": informed, "cpu": passes[-1]["cpu"], "value": passes[-1]["value"]}


def replication(key: str) -> Record:
    factor, n, seed = key.split("/")
    rows, start = overlapping(float(factor), int(n), int(seed))
    fine = {way: to_the_top(rows, start, newton=way == "Newton") for way in WAYS}
    tops = {way: max(one["value"] for one in passes) for way, passes in fine.items()}
    best = max(tops.values())
    relative = RELATIVE * abs(best) / rows.n
    return {
        "apart": abs(tops["EM"] - tops["Newton"]),
        "to_gap": {way: counted(passes, tops[way]) for way, passes in fine.items()},
        "own": {
            "EM, gain ≤ 1e-12 relative": counted(ascent(rows, start, newton=False, tol=relative)),
            "EM, default tol": counted(ascent(rows, start, newton=False, tol=TOL)),
            "Newton, default tol": counted(ascent(rows, start, newton=True, tol=TOL)),
        },
        "best": best,
    }


def median(values: list[float]) -> float | None:
    return rounded(float(np.median(values)))


def savings(factor: str, records: list[Record]) -> Record:
    def ratio(cost: object) -> float | None:
        return median([cost(r["to_gap"]["EM"]) / cost(r["to_gap"]["Newton"]) for r in records])

    return {
        "coefficients": f"× {factor}",
        "data sets": len(records),
        "passes, EM": median([r["to_gap"]["EM"]["passes"] for r in records]),
        "passes, Newton": median([r["to_gap"]["Newton"]["passes"] for r in records]),
        "of them informed": median([r["to_gap"]["Newton"]["informed"] for r in records]),
        "ratio of passes": ratio(lambda c: c["passes"]),
        "aim": "≥ 3",
        "informed = 2": ratio(lambda c: c["passes"] + c["informed"]),
        "informed = 3": ratio(lambda c: c["passes"] + 2 * c["informed"]),
        "ratio of CPU": ratio(lambda c: c["cpu"]),
        "largest difference of the two maxima": f"{max(r['apart'] for r in records):.1e}",
    }


def fits(factor: str, records: list[Record]) -> list[Record]:
    return [
        {
            "coefficients": f"× {factor}",
            "fit": way,
            "passes": median([r["own"][way]["passes"] for r in records]),
            "of them informed": median([r["own"][way]["informed"] for r in records]),
            "CPU s": median([r["own"][way]["cpu"] for r in records]),
            "below the best": f"{np.median([r['best'] - r['own'][way]['value'] for r in records]):.1e}",
        }
        for way in records[0]["own"]
    ]


def main() -> None:
    study = Study(__file__, __doc__)
    n, repeats = (10_000, 1) if study.quick else (50_000, 5)
    factors = ("0.1", "0.05")
    records = study.replicate((f"{f}/{n}/{seed}" for seed in range(repeats) for f in factors), replication)
    of = {f: [r for r in records if r["key"].startswith(f + "/")] for f in factors}
    study.save(
        table(f"Passes to within 1e-6 of the maximum (N = {n:,}, medians)", [savings(f, of[f]) for f in factors]),
        table("Fits at their own tolerances (medians)", [row for f in factors for row in fits(f, of[f])]),
    )


if __name__ == "__main__":
    main()
