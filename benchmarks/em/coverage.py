"""Coverage of nominal 95 % intervals, and whether the rule that withholds gate intervals does so where it must.

Each replication draws a new truth (K = 4, d = 20) and a data set from it, fits it as a user would (default starts) and
counts the true parameters inside their intervals, after alignment of the experts. Gate intervals are counted whether
or not they are withheld. Aims: on soft data, N = 20,000, coverage of 0.93 to 0.97 (log variances from 0.92); gate
intervals withheld in at least 90 % of fits where their coverage is below 0.93, and in at most 5 % on soft data.

The records keep what the rule looks at, not what it said: with other constants, a second run only counts again.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import ndtri

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from consilience.datasets import paper, soft
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification, fit_mixture, infer
from consilience.fit.fitting import Fit
from consilience.fit.inference import (
    EXPERT_DECREMENT,
    GATE_DECREMENT,
    RIDGE_SHARE,
    SPREAD_PER_COEFFICIENT,
    Inference,
    gate_spread,
    inverse_information,
    ridge_share,
)
from consilience.fit.parameters import Parameters, parameters
from consilience.model import Rows, expect
from consilience.model.mixture import alignment

GENERATORS = {"soft": soft, "paper": paper}
PARTS = {"gate": "gate", "experts": "experts", "log variances": "log_shapes"}
REACH = float(ndtri(0.975))


def replication(key: str) -> Record:
    name, n, seed = key.split("/")
    data = GENERATORS[name](int(n), random_state=int(seed), truth_state=int(seed))
    rows = Rows(data.X, data.y[:, None])
    with stopwatch() as watch:
        fit = fit_mixture(rows, Specification(K=4), rng=np.random.default_rng(int(seed)))
        inference = infer(fit, rows)
    truth = parameters(data.truth.permuted(alignment(data.truth, fit.mixture)))
    record = {
        "cpu": round(watch.cpu, 3),
        "covered": covered(inference, truth),
        **indicators(fit, rows, inference),
        "above_truth": fit.log_likelihood - expect(data.truth, rows).log_likelihood,  # negative: a wrong maximum
        "stop": fit.ascent.stop.name,
    }
    assert withheld(record) == ("gate" in inference.withheld)
    return record


CALIBRATED_ON = 100
"""Seeds below this were seen when the constants of the rule were chosen; later ones test it."""


def covered(inference: Inference, truth: Parameters) -> Record:
    """Share of the true parameters inside their intervals, withheld or not; None without information."""
    if np.isnan(inference.covariance).any():
        return dict.fromkeys(PARTS)
    se = inference.estimates.like(np.sqrt(np.diagonal(inference.covariance)))
    shares = {}
    for part, name in PARTS.items():
        distance = np.abs(getattr(inference.estimates, name) - getattr(truth, name))
        shares[part] = float(np.mean(distance <= REACH * getattr(se, name)))
    return shares


def indicators(fit: Fit, rows: Rows, inference: Inference) -> Record:
    """What the withholding rule looks at."""
    mixture, statistics = fit.ascent.mixture, fit.ascent.statistics
    if statistics.information is None:
        statistics = expect(mixture, rows, information=True)
    inverse = inverse_information(mixture, statistics, fit.penalty)
    return {
        "ridge_share": None if inverse is None else ridge_share(mixture, fit.penalty, inverse),
        "spread": gate_spread(mixture, statistics) / mixture.design.p,  # per coefficient
        "decrement": None if np.isnan(inference.decrement) else inference.decrement,
    }


def loosest(record: Record) -> float:
    """Largest standard error over directions of the gate's slopes, per standard deviation of the covariates."""
    return float(np.sqrt(record["ridge_share"] / Specification(K=1).gate_ridge))


def withheld(record: Record) -> bool:
    """Whether the rule, with its constants of today, withholds the gate's intervals."""
    return record["ridge_share"] is None or (
        record["decrement"] >= GATE_DECREMENT
        or record["ridge_share"] > RIDGE_SHARE
        or record["spread"] < SPREAD_PER_COEFFICIENT
    )


def experts_withheld(record: Record) -> bool:
    return record["decrement"] is None or record["decrement"] >= EXPERT_DECREMENT


def mean_and_error(values: list[float]) -> str:
    """Mean over replications with its Monte Carlo standard error."""
    if not values:
        return "none"
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def summary(cell: str, records: list[Record]) -> tuple[Record, Record]:
    data, n = cell.split("/")
    informed = [r for r in records if r["covered"]["gate"] is not None]
    coverage = {part: mean_and_error([r["covered"][part] for r in informed]) for part in PARTS}
    low = np.mean([r["covered"]["gate"] for r in informed]) < 0.93
    name = {"data": data, "N": int(n), "fits": len(records)}
    later = [r for r in records if int(r["key"].split("/")[-1]) >= CALIBRATED_ON]
    other = {
        "below the truth": sum(r["above_truth"] < 0 for r in records),
        "CPU s": rounded(float(np.median([r["cpu"] for r in records]))),
    }
    rule = {
        "gate withheld": f"{np.mean([withheld(r) for r in records]):.1%}",
        "in later fits": f"{np.mean([withheld(r) for r in later]):.1%} of {len(later)}" if later else "none",
        "aim": "≤ 5 %" if data == "soft" else "≥ 90 %" if low else "none",
        "experts withheld": f"{np.mean([experts_withheld(r) for r in records]):.1%}",
        "gate coverage where shown": mean_and_error([r["covered"]["gate"] for r in informed if not withheld(r)]),
        "Σ π(1-π) / p, 5 % to 95 %": quantiles([r["spread"] for r in records]),
        "loosest direction, 5 % to 95 %": quantiles([loosest(r) for r in informed]),
    }
    return name | coverage | other, name | rule


def quantiles(values: list[float]) -> str:
    return " to ".join(f"{value:.2g}" for value in np.quantile(values, [0.05, 0.95])) if values else "none"


def main() -> None:
    study = Study(__file__, __doc__)
    sizes, repeats = ((5_000, 20_000), 4) if study.quick else ((5_000, 20_000, 100_000), 200)
    cells = [f"{data}/{n}" for data in GENERATORS for n in sizes]
    warnings.simplefilter("ignore", ConsilienceWarning)
    records = study.replicate((f"{cell}/{seed}" for seed in range(repeats) for cell in cells), replication)
    pairs = [summary(cell, [r for r in records if r["key"].startswith(cell + "/")]) for cell in cells]
    study.save(
        table("Coverage of nominal 95 % intervals, mean over fits ± Monte Carlo standard error", [a for a, _ in pairs]),
        table("When gate intervals are withheld", [b for _, b in pairs]),
    )


if __name__ == "__main__":
    main()
