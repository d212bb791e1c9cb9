"""EM, gradient EM and gradient descent on symmetric mixtures of two linear experts: the simulation of arXiv:2411.06056.

x ~ N(0, I) in 10 dimensions, P(z = 1 | x) = 1 / (1 + exp(-xᵀw)), y = z xᵀβ + ε with z = ±1 and ε ~ N(0, 1),
‖β‖ = ‖w‖ = 4, 1,000 rows, 50 instances. All methods start at one place, 2 away from β and from w. Gradient EM has a
step for β and one for w, gradient descent has one for both; all come from one grid, and the best ones are those with
the smallest mean gap after 50 iterations. Gaps are of the log-likelihood per row, below the maximum that EM reaches
from there. Passes count how often all linear predictors are evaluated, also inside the M-step.

Then the rate of EM: what the missing information predicts beside the ratio of EM's last steps, for the symmetric
mixture and for the library's own mixture of two experts on the same rows. Aim: within 10 %.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice, product

import numpy as np

from benchmarks.lib import figures
from benchmarks.lib.smoline import D, Instance, Iterates, em, gradient_em, gradients, instance
from benchmarks.lib.smoline_rates import rates
from benchmarks.lib.study import RESULTS, Record, Study, rounded, table

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
PAIRS = tuple(product(STEPS, STEPS))
"""Steps for β and w; gradient descent has those with equal ones."""
HORIZON, LONGEST = 50, 600
"""Iterations after which gaps are compared, and most that are made."""
GAPS = (1e-2, 1e-4, 1e-8)
NORMS = ((4.0, 4.0), (2.0, 4.0), (1.0, 4.0), (1.0, 1.0))
"""‖β‖ and ‖w‖ of the table of rates."""

EM_METHODS: dict[str, Callable[[Instance], Iterates]] = {
    "EM": em,
    "EM, one Newton step for the gate": partial(em, newton_steps=1),
    "EM, update of β as printed": partial(em, printed=True),
}
Trace = dict[str, np.ndarray]
"""After each iteration: the gap, the relative errors of β and w, and the passes until then."""


# ---------------------------------------------------------------------- one instance


def replication(key: str) -> Record:
    """``grid/seed``: gaps after 50 iterations for all pairs of steps; or rates."""
    if key.startswith("rates"):
        return rates(key)
    data = instance(int(key.split("/")[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # a step too long leads anywhere
        beta, w, _ = next(islice(gradient_em(data, PAIRS), HORIZON, None))
        gaps = data.objective(beta, w) - maximum(data)
    return {"gaps": np.nan_to_num(gaps, nan=np.inf).tolist(), "gradients apart": gradients_apart(data)}


def maximum(data: Instance) -> float:
    """The smallest objective that EM reaches."""
    return min(float(data.objective(beta, w)[0]) for beta, w, _ in islice(em(data), 100))


def gradients_apart(data: Instance) -> float:
    """Largest difference of the gradient of Q from finite differences of the likelihood, at the start."""
    h, (beta, w) = 1e-5, data.start
    nudges = h * np.eye(D)
    likelihood = [
        (data.objective(beta - nudges, w) - data.objective(beta + nudges, w)) / (2 * h),
        (data.objective(beta, w - nudges) - data.objective(beta, w + nudges)) / (2 * h),
    ]
    return float(np.abs(np.array(gradients(data, beta, w))[:, :, 0] - likelihood).max())


def traces(data: Instance, methods: dict[str, Callable[[Instance], Iterates]]) -> dict[str, Trace]:
    """All iterations of each method, as many as are looked at."""
    lowest, found = maximum(data), {}
    for name, method in methods.items():
        rows = []
        for beta, w, passes in islice(method(data), 1 + (100 if name in EM_METHODS else LONGEST)):
            errors = (np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in ((beta, data.beta), (w, data.w)))
            rows.append((float(data.objective(beta, w)[0]) - lowest, *errors, passes))
        found[name] = dict(zip(("gap", "β", "w", "passes"), np.array(rows).T, strict=True))
    return found


# ---------------------------------------------------------------------- tables and figure


def with_best_steps(records: list[Record]) -> dict[str, Callable[[Instance], Iterates]]:
    """All methods; the gradient ones with the steps that have the smallest mean gap."""
    gaps = np.mean([r["gaps"] for r in records], axis=0)
    pairs = dict(zip(PAIRS, gaps, strict=True))
    a, b = min(pairs, key=pairs.__getitem__)
    equal, _ = min((pair for pair in PAIRS if pair[0] == pair[1]), key=pairs.__getitem__)
    return EM_METHODS | {
        f"gradient EM, steps {a:g} and {b:g}": partial(gradient_em, pairs=((a, b),)),
        f"gradient descent, step {equal:g}": partial(gradient_em, pairs=((equal, equal),)),
    }


def needed(runs: list[Trace]) -> Record:
    """Median iterations and passes until a gap is reached, and the means after 50 iterations."""
    cells = {}
    for bound in GAPS:
        reached = [np.flatnonzero(one["gap"] <= bound)[:1] for one in runs]
        both = [
            [at[0], one["passes"][at[0]]] if len(at) else [np.inf] * 2 for at, one in zip(reached, runs, strict=True)
        ]
        iterations, passes = np.median(both, axis=0)
        never = "never" if all(len(at) == 0 for at in reached) else f"> {LONGEST}"
        cells[f"to {bound:.0e}"] = f"{iterations:g} ({passes:g})" if np.isfinite(iterations) else never
    ends = {what: rounded(np.mean([one[what][HORIZON] for one in runs]), 2) for what in ("gap", "β", "w")}
    return cells | {"gap after 50": ends["gap"], "error of β": ends["β"], "error of w": ends["w"]}


def grid(records: list[Record]) -> list[Record]:
    gaps = np.mean([r["gaps"] for r in records], axis=0).reshape(len(STEPS), -1)
    usable = [i for i, row in enumerate(gaps) if row.min() < 1]
    rows = [{f"w: {step:g}": f"{gap:.1e}" for step, gap in zip(STEPS, gaps[i], strict=True)} for i in usable]
    too_long = [f"{step:g}" for i, step in enumerate(STEPS) if i not in usable]
    found = [{"step for β": f"{STEPS[i]:g}"} | row for i, row in zip(usable, rows, strict=True)]
    return [*found, {"step for β": ", ".join(too_long)} | dict.fromkeys(rows[0], "diverges")]


def rate_row(records: list[Record], norms: tuple[float, float], model: str) -> Record:
    mine = [r[model] for r in records if r["key"].startswith(f"rates/{norms[0]:g}/{norms[1]:g}/")]
    predicted, last, found = (np.array([m[name] for m in mine]) for name in ("predicted", "last steps", "magnified"))
    return {
        "‖β‖, ‖w‖": f"{norms[0]:g}, {norms[1]:g}",
        "mixture": model,
        "instances": len(mine),
        "predicted rate, median": rounded(np.median(predicted)),
        "EM's own, median": rounded(np.median(found)),
        "farthest apart": f"{100 * np.abs(found / predicted - 1).max():.2f} %",
        "aim": "10 %",
        "last steps alone, farthest apart": f"{100 * np.abs(last / predicted - 1).max():.0f} %",
        "EM steps per digit": rounded(np.median(-1 / np.log10(predicted)), 2),
    }


def figure(found: dict[str, list[Trace]]) -> None:
    """As figures 1 and 2 of the paper, per iteration and per pass: means over instances."""
    canvas, axes = figures.canvas(2, 3, (13.0, 7.0))
    labels = {
        "gap": "log-likelihood per row, below the maximum",
        "β": "relative error of β",
        "w": "relative error of w",
    }
    colours = ("#1f6fb2", "#56b4e9", "#d4a017", "#b5485d")
    at = np.arange(101)
    for column, (what, title) in enumerate(labels.items()):
        for (name, runs), colour in zip(found.items(), colours, strict=True):
            by_pass = [one[what][np.searchsorted(one["passes"], at, side="right") - 1] for one in runs]
            both = np.mean([one[what][:101] for one in runs], axis=0), np.mean(by_pass, axis=0)
            for axis, values, unit in zip(axes[:, column], both, ("iterations", "passes over the rows"), strict=True):
                axis.plot(at, np.maximum(values, 1e-16), color=colour, linewidth=1.6, label=name)
                axis.set_xlabel(unit, fontsize=9)
                axis.set_title(title, fontsize=10)
                axis.set_yscale("log")
                axis.set_xlim(0, HORIZON if unit == "iterations" else 100)
                figures.tidy(axis)
    axes[0, 0].legend(frameon=False, fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylim(1e-14, 5)
    figures.save(canvas, RESULTS / "smoline.png")


def main() -> None:
    study = Study(__file__, __doc__)
    instances, of_rates = (1, 1) if study.quick else (50, 20)
    keys = [f"grid/{seed}" for seed in range(instances)]
    keys += [f"rates/{b:g}/{w:g}/{seed}" for b, w in NORMS for seed in range(of_rates)]
    records = study.replicate(keys, replication)
    of_grid = [r for r in records if r["key"].startswith("grid")]
    methods = with_best_steps(of_grid)
    by_instance = [traces(instance(seed), methods) for seed in range(instances)]
    runs = {name: [one[name] for one in by_instance] for name in methods}
    apart = max(r["gradients apart"] for r in of_grid)
    study.save(
        table(
            f"Iterations (passes) until the log-likelihood per row is within a gap, medians of {instances} instances; "
            f"means after {HORIZON} iterations",
            [{"method": name} | needed(mine) for name, mine in runs.items()],
        ),
        table(
            f"Mean gap after {HORIZON} iterations of gradient EM; with equal steps it is gradient descent "
            f"(the gradients of Q and of the likelihood differ by at most {apart:.0e}, by finite differences)",
            grid(of_grid),
        ),
        table(
            "The rate of EM: from the missing information, and from EM's own steps",
            [rate_row(records, norms, model) for norms in NORMS for model in ("symmetric", "of two experts")],
        ),
    )
    if figures.available() and not study.quick:
        figure({name: mine for name, mine in runs.items() if "printed" not in name})


if __name__ == "__main__":
    main()
