"""One exchange against the fit to all rows: the simulations of the paper, its six metrics, and how much is lost.

Repeats Figures 1 to 3 and 5 of Chamroukhi and Pham, "Optimal Transport Aggregation for Distributed Mixture-of-Experts",
arXiv:2312.09877v2, with K = 4 experts, d = 20 covariates, M sites of equal size and N = 10⁵ or 10⁶ rows; their Figure 4
is the same at 5·10⁵. Every replication has a truth of its own. Local fits are real ones, with default starts, and are
shared with other studies (``lib/sites.py``). Estimators:

* G, the fit to all rows; R, the reduction with one plan per expert, from what sites send and nothing else; R+r, after r
  rounds of refinement. In a round sites send sums that add, so that they are taken here over all rows at once.
* R rows, as R with the paper's support: N / M rows of the data, known to all. R-row, the paper's plan, made for every
  row of this support anew. R-row y, the same with the gate of the authors' public code, which uses their responses too.
* Mid, the local model nearest to the others; W, the average of parameters after alignment; W sorted, with experts in
  the order of their intercepts; Fisher, the average weighted by information; All, the M K experts as they are.

Metrics are taken on test rows: log-likelihoods on a million, others on the first 100,000, exact transport on the first
100. The deficit ratio is what a method loses to the truth per row over what G loses. Learning time is CPU: the slowest
site, what the coordinator does, and for a round of refinement a site's part of the pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.lib import baselines, figures
from benchmarks.lib.metrics import (
    cluster_labels,
    deficit_ratio,
    exact_cost,
    mean_log_likelihood,
    parameter_errors,
    relative_prediction_error,
    relaxed_transport,
)
from benchmarks.lib.sites import GENERATORS, LocalFits, global_fit, local_fits, simulated, split
from benchmarks.lib.study import RESULTS, SCRATCH, Record, Study, rounded, stopwatch, table
from consilience import OneShot
from consilience.aggregate import (
    Combination,
    MomentComponents,
    SupportComponents,
    SupportPart,
    combine_models,
    reduce_components,
)
from consilience.aggregate.combine.site_model import SiteModel
from consilience.datasets.generators import Simulation
from consilience.errors import ConsilienceWarning
from consilience.fit import Specification
from consilience.messages.dialogue import Each, Request
from consilience.messages.questions import Several
from consilience.methods import Task
from consilience.model import CategoricalExperts, Design, Mixture, Penalty, Rows, multinomial
from consilience.numerics.arrays import log_sum_exp, unpack
from consilience.site import Site, answer

K = 4
ROUNDS = 4
FIRST, FEW = 100_000, 100
"""Test rows of the metrics other than the log-likelihood, and of exact transport."""
MIDDLE_ROWS = 200
"""Rows on which local models are compared with each other."""
REDUCED = ("R", "R+1", "R+2", "R+4", "R rows", "R-row", "R-row y")
METHODS = (*REDUCED, "Mid", "W", "W sorted", "Fisher", "All")
EXACT = ("G", "R", "R+1", "R-row", "R-row y", "Mid", "W")


@dataclass(frozen=True)
class Plan:
    """What a study runs."""

    sizes: Mapping[int, int]  # replications of each N
    sites: Sequence[int]
    test_rows: int
    prefix: str = ""  # of the names of stored local fits
    logistic_runs: int = 5

    def cells(self) -> list[str]:
        """Generator, rows and sites."""
        return [f"{name}/{n}/{M}" for name in GENERATORS for n in self.sizes for M in self.sites]

    def keys(self) -> list[str]:
        """The sites of most interest first; then the trace of the reduction, and the update of logistic experts."""
        order = sorted(self.sites, key=lambda M: M not in (16, 128))
        runs = [
            f"{name}/{n}/{M}/{seed}"
            for M in order
            for name in ("paper", "soft")
            for n, count in self.sizes.items()
            for seed in range(count)
        ]
        n, M = min(self.sizes), self.sites[1]
        traces = [f"trace/{name}/{n}/{M}/0" for name in GENERATORS]
        return [*runs, *traces, *(f"logistic/{M}/{seed}" for M in (4, 16, 64) for seed in range(self.logistic_runs))]


FULL = Plan({100_000: 20, 1_000_000: 5}, (4, 16, 64, 128), 1_000_000)
QUICK = Plan({20_000: 2}, (4, 16), 100_000, "quick-", 2)

# ---------------------------------------------------------------- a data set and its sites


@dataclass(frozen=True)
class Case:
    """A data set over M sites, with the answers of the sites."""

    data: Simulation
    rows: Rows
    parts: dict[str, Rows]
    answers: LocalFits
    design: Design
    penalty: Penalty
    seed: int

    @property
    def models(self) -> dict[str, SiteModel]:
        """What sites have sent, by name."""
        return {name: fit.model for name, fit in self.answers.named().items()}

    @property
    def slowest(self) -> float:
        """CPU seconds of the local fit that took longest."""
        return float(self.answers.seconds.max())

    def support(self) -> np.ndarray:
        """The paper's support: as many rows as a site has, drawn from all; their places."""
        n, M = self.rows.n, len(self.parts)
        return np.random.default_rng([self.seed, 5]).choice(n, n // M, replace=False)


def case(key: str, prefix: str) -> Case:
    name, n, M, seed = key.split("/")
    data = simulated(name, int(n), int(seed))
    parts = split(data, int(M))
    fits = local_fits(f"{prefix}{name}-{n}-{M}-{seed}", parts, K=K, seed=int(seed))
    rows = Rows(data.X, data.y[:, None])
    named = dict(zip(fits.named(), parts, strict=True))
    return Case(data, rows, named, fits, fits.summary.design(True), Specification(K=K).penalty(fits.summary), int(seed))


# ---------------------------------------------------------------- estimators

Estimates = dict[str, tuple[Any, float]]
"""Name, what it predicts with, and its learning time."""


def estimates(here: Case, whole: tuple[Mixture, float]) -> tuple[Estimates, Record]:
    found: Estimates = {"G": whole}
    combination, steps = one_exchange(here)
    for r, name in ((0, "R"), (1, "R+1"), (2, "R+2"), (4, "R+4")):
        found[name] = steps[min(r, len(steps) - 1)]
    by_row, iterations = with_support(here)
    found |= by_row | simple(here)
    evidence = {
        "set_aside": len(combination.set_aside),
        "rounds": len(steps) - 1,
        "iterations": [len(combination.trace) - 1, iterations],
        "slowest": here.slowest,
        "all sites": float(here.answers.seconds.sum()),
    }
    return found, evidence


def one_exchange(here: Case) -> tuple[Combination, list[tuple[Mixture, float]]]:
    """The dialogue of ``OneShot``, with the sites' stored answers: the mixture after each round, and its time."""
    dialogue = OneShot(refine=ROUNDS).dialogue(Task([Specification(K=K)], here.rows.X.shape[1], 1, seed=here.seed))
    next(dialogue)
    given: Any = here.answers.named()
    seconds, steps = here.slowest, []
    while True:
        with stopwatch() as watch:
            request, end = advanced(dialogue, given)
        seconds += watch.cpu
        if end is not None:
            return end[0].combination, [*steps, (end[0].mixture, seconds)]
        steps.append((asked(request), seconds))
        with stopwatch() as watch:
            given = answered(request, here)
        seconds += watch.cpu / len(here.parts)


def advanced(dialogue: Any, given: Any) -> tuple[Any, Any]:
    """The next request, or None and what the dialogue returns."""
    try:
        return dialogue.send(given), None
    except StopIteration as end:
        return None, end.value


def asked(request: Request) -> Mixture:
    """The mixture that a round is about."""
    question: Any = request.question
    return question.questions[0].mixture if isinstance(question, Several) else question.mixture


def answered(request: Request, here: Case) -> Any:
    """What sites answer; the sum over all of them is taken over all rows at once."""
    if request.sites is None and not isinstance(request, Each):
        return answer(request.question, Site("all", here.rows))
    each = {
        name: answer(request.question, Site(name, rows))
        for name, rows in here.parts.items()
        if request.sites is None or name in request.sites
    }
    return each if isinstance(request, Each) else reduce(add, each.values())


def with_support(here: Case) -> tuple[Estimates, int]:
    """Estimators that need rows of the data; and the iterations of the plan per row."""
    at = here.support()
    X, ridge = here.data.X[at], here.penalty.gate_ridge
    settings: dict[str, Any] = {"design": here.design, "penalty": here.penalty, "support": X, "seed": here.seed}
    with stopwatch() as first:
        by_expert = combine_models(here.models, K, **settings)
    with stopwatch() as second:
        by_row = combine_models(here.models, K, plan="row", **settings)
    with stopwatch() as third:
        models = baselines.common(list(here.models.values()), here.design)
        with_y = baselines.gate_by_responses(models, by_row.mixture, X, here.data.y[at], ridge)
    found: Estimates = {
        "R rows": (by_expert.mixture, here.slowest + first.cpu),
        "R-row": (by_row.mixture, here.slowest + second.cpu),
        "R-row y": (with_y, here.slowest + second.cpu + third.cpu),
    }
    return found, len(by_row.trace) - 1


def simple(here: Case) -> Estimates:
    """Baselines, each timed with the alignment that it needs."""
    X, ridge = here.data.X[here.support()], here.penalty.gate_ridge
    with stopwatch() as watch:
        models = baselines.common(list(here.models.values()), here.design)
    ways: dict[str, Callable[[], Any]] = {
        "Mid": lambda: baselines.middle(models, X[:MIDDLE_ROWS]),
        "W": lambda: baselines.average(models),
        "W sorted": lambda: baselines.average(baselines.by_intercept(models)),
        "Fisher": lambda: baselines.fisher(models, X, ridge),
        "All": lambda: baselines.Everyone(models),
    }
    found: Estimates = {}
    for name, way in ways.items():
        with stopwatch() as own:
            value = way()
        found[name] = value, here.slowest + watch.cpu + own.cpu
    return found


# ---------------------------------------------------------------- metrics


@lru_cache(maxsize=1)
def tested(name: str, seed: int, n: int) -> Simulation:
    """Test rows of a truth."""
    return GENERATORS[name](n, random_state=10_000 + seed, truth_state=seed)


def measured(estimate: Any, test: Simulation, *, exact: bool) -> Record:
    """The metrics of one estimate, all but its time."""
    X, y = test.X[:FIRST], test.y[:FIRST]
    first = Rows(X, y[:, None])
    if isinstance(estimate, baselines.Everyone):
        gap = np.sum((y - estimate.mean(X)[:, 0]) ** 2)
        below = mean_log_likelihood(test.truth, first) - estimate.log_likelihood(first)
        return {"below": below, "RPE": float(gap / np.sum(y**2))}
    errors = parameter_errors(estimate, test.truth)
    gate_labels = estimate.gate_weights(X).argmax(axis=1)
    return {
        "below": truth_log_likelihood(test) - mean_log_likelihood(estimate, Rows(test.X, test.y[:, None])),
        "relaxed": relaxed_transport(estimate, test.truth, X),
        "exact": exact_divergence(estimate, test.truth, X[:FEW]) if exact else None,
        "MSE": errors.all,
        "MSE experts": errors.experts,
        "MSE gate": errors.gate,
        "MSE log variances": errors.log_shapes,
        "RPE": relative_prediction_error(estimate, X, y),
        "ARI": adjusted_rand_score(test.labels[:FIRST], cluster_labels(estimate, first)),
        "ARI gate": adjusted_rand_score(test.labels[:FIRST], gate_labels),
    }


def exact_divergence(mixture: Mixture, truth: Mixture, X: np.ndarray) -> float:
    """Both gates as margins, without shares below 10⁻⁶, near the tolerance of a linear program."""
    cost = mixture.experts.divergence(truth.in_coordinates(mixture.design).experts, mixture.design.panel(X))
    margins = [np.where(pi > 1e-6, pi, 0.0) for pi in (mixture.gate_weights(X), truth.gate_weights(X))]
    pairs = (margin / margin.sum(axis=1, keepdims=True) for margin in margins)
    each = zip(*pairs, cost.transpose(2, 0, 1), strict=True)
    return float(np.mean([exact_cost(a, b, c) for a, b, c in each]))


@lru_cache(maxsize=1)
def truth_log_likelihood(test: Simulation) -> float:
    return mean_log_likelihood(test.truth, Rows(test.X, test.y[:, None]))


def replication(key: str, plan: Plan) -> Record:
    here = case(key, plan.prefix)
    name, n, _, seed = key.split("/")
    whole = global_fit(f"{plan.prefix}{name}-{n}-global-{seed}", here.rows, K=K, seed=int(seed))
    found, evidence = estimates(here, whole)
    test = tested(name, int(seed), plan.test_rows)
    record: Record = {"evidence": evidence, "fits": {}}
    for label, (estimate, seconds) in found.items():
        values = measured(estimate, test, exact=label in EXACT) | {"seconds": seconds}
        record["fits"][label] = {metric: rounded(value, 7) for metric, value in values.items()}
    truth = measured(test.truth, test, exact=False)
    record["truth"] = {metric: rounded(truth[metric], 7) for metric in ("RPE", "ARI", "ARI gate")}
    record["truth"]["log-likelihood"] = rounded(truth_log_likelihood(test), 7)
    return record


# ---------------------------------------------------------------- the reduction on its way

STARTS = 5


def trace(key: str, plan: Plan) -> Record:
    """The objective per row over iterations with both plans, from K local experts drawn at random."""
    here = case(key, plan.prefix)
    models = baselines.common(list(here.models.values()), here.design)
    each = [MomentComponents(m.mixture.experts, m.mass, unpack(m.second)) for m in models]
    by_expert = MomentComponents.joined(each)
    part = baselines.shared_part(models, here.data.X[here.support()])
    rng = np.random.default_rng(here.seed)
    record: Record = {"expert": [], "row": []}
    for _ in range(STARTS):
        start = by_expert.experts.permuted(rng.choice(by_expert.experts.K, K, replace=False))
        for name, components in (("expert", by_expert), ("row", SupportComponents((part,), per_row=True))):
            found = reduce_components(components, start).trace
            record[name].append([value / here.rows.n for value in found])
    return record


def logistic(key: str) -> Record:
    """Rises of the objective with (S14) and with Newton, from the same start."""
    _, M, seed = key.split("/")
    part, start = logistic_part(int(M), np.random.default_rng([int(M), int(seed)]))
    record: Record = {}
    for name, update in (("S14", baselines.logit_update), ("Newton", baselines.newton_update)):
        values = np.array(baselines.descent(part, start, update))
        rises = int(np.sum(np.diff(values) > 1e-9 * values[:-1]))
        first = baselines.descent(part, start, update, iterations=1)[-1]
        mass = part.mass.sum()
        record[name] = {"rises": rises, "iterations": len(values) - 1}
        record[name] |= {"first": first / mass, "last": values[-1] / mass, "least": values.min() / mass}
    return record


def logistic_part(M: int, rng: np.random.Generator) -> tuple[SupportPart, CategoricalExperts]:
    """Three logistic experts in five covariates, fitted by M sites to 400 rows of known labels; support of 400 points.

    The start: the experts of one site.
    """
    k, p, n = 3, 6, 400
    truth, alpha = rng.normal(0, 1.5, (k, p)), rng.normal(0, 1, (k, p))

    def points() -> np.ndarray:
        return np.vstack([np.ones(n), rng.normal(size=(p - 1, n))])

    def gate(panel: np.ndarray) -> np.ndarray:
        return log_sum_exp(alpha @ panel)[1]

    def site() -> np.ndarray:
        panel = points()
        labels = (np.cumsum(gate(panel), axis=0) < rng.random(n)).sum(axis=0)
        odds = np.einsum("np,pn->n", truth[labels], panel)
        y = rng.random(n) < 1 / (1 + np.exp(-odds))
        classes = np.array([~y, y]).astype(float)
        slopes = np.diag(np.r_[0.0, np.ones(p - 1)])
        fits = [
            multinomial.fit_softmax(np.zeros((2, p)), panel, classes * (labels == j), ridge=slopes) for j in range(k)
        ]
        return np.array(fits)

    support, B = points(), np.concatenate([site() for _ in range(M)])
    mass = np.tile(gate(support), (M, 1)) / M
    return SupportPart(CategoricalExperts(B), support, mass), CategoricalExperts(B[:k])


# ---------------------------------------------------------------- tables


def by_cell(records: Iterable[Record]) -> dict[str, list[Record]]:
    cells: dict[str, list[Record]] = {}
    for record in records:
        if "fits" in record:
            cells.setdefault(record["key"].rpartition("/")[0], []).append(record)
    return cells


def column(records: Sequence[Record], name: str, metric: str) -> list[float]:
    values = (record["fits"][name].get(metric) for record in records)
    return [value for value in values if value is not None]


def deficits(records: Sequence[Record], name: str) -> list[float]:
    """Deficit ratios: how many times what G loses a method loses."""
    pairs = ((r["fits"][name]["below"], r["fits"]["G"]["below"]) for r in records)
    values = [deficit_ratio(-mine, -pooled, 0.0) for mine, pooled in pairs]
    return [value for value in values if np.isfinite(value)]


def ratios(records: Sequence[Record], name: str, metric: str) -> list[float]:
    """Of a metric to G's."""
    return [r["fits"][name][metric] / r["fits"]["G"][metric] for r in records]


def median(values: Sequence[float]) -> str | None:
    return f"{np.median(values):.3g}" if values else None


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap 90 % interval of the median."""
    drawn = np.random.default_rng(0).choice(values, (4000, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.05, 0.95])
    return float(low), float(high)


def with_interval(values: Sequence[float]) -> str | None:
    if not values:
        return None
    low, high = interval(values)
    return f"{np.median(values):.3g} ({low:.3g} to {high:.3g})"


def named(cell: str, records: Sequence[Record]) -> Record:
    data, n, M = cell.split("/")
    return {"data": data, "N": int(n), "M": int(M), "fits": len(records)}


AIMS = (
    ("paper/1000000/128", "deficit ratio, one exchange", "R", None, 1.6),
    ("paper/1000000/128", "deficit ratio, 1 round of refinement", "R+1", None, 1.05),
    ("paper/100000/16", "deficit ratio, one exchange", "R", None, 1.2),
    ("paper/100000/16", "deficit ratio, 1 round of refinement", "R+1", None, 1.03),
    ("paper/100000/128", "deficit ratio, 4 rounds of refinement", "R+4", None, 1.1),
    ("paper/1000000/128", "MSE of expert coefficients, ratio to G's, one exchange", "R", "MSE experts", 1.1),
    ("paper/100000/16", "MSE of expert coefficients, ratio to G's, one exchange", "R", "MSE experts", 1.1),
    ("paper/100000/128", "MSE of expert coefficients, ratio to G's, one exchange", "R", "MSE experts", 1.2),
    ("soft/1000000/128", "MSE of expert coefficients, ratio to G's, one exchange", "R", "MSE experts", 1.1),
    ("soft/100000/16", "MSE of expert coefficients, ratio to G's, one exchange", "R", "MSE experts", 1.1),
    ("soft/100000/128", "MSE of expert coefficients, ratio to G's, one exchange", "R", "MSE experts", 1.2),
)


def accuracy(cells: Mapping[str, list[Record]]) -> list[Record]:
    rows = []
    for cell, what, name, metric, aim in AIMS:
        if cell in cells:
            records = cells[cell]
            values = deficits(records, name) if metric is None else ratios(records, name, metric)
            _, n, M = cell.split("/")
            rows.append(
                named(cell, records)
                | {"rows of a site": int(n) // int(M), "what": what, "median (90 % interval)": with_interval(values)}
                | {"aim": f"≤ {aim}", "met": bool(np.median(values) <= aim)}
            )
    return rows


def wide(cells: Mapping[str, list[Record]], value: Callable[[list[Record], str], Any], names: Sequence[str]) -> list:
    return [named(cell, records) | {name: value(records, name) for name in names} for cell, records in cells.items()]


def metric_rows(cells: Mapping[str, list[Record]], metrics: Mapping[str, str], names: Sequence[str]) -> list[Record]:
    """Medians of several metrics, one row for each cell and metric."""
    return [
        named(cell, records)
        | {"metric": label}
        | {name: median(column(records, name, metric)) for name in names}
        | (
            {"truth": median([r["truth"][metric] for r in records])}
            if metric in records[0]["truth"]
            else {"truth": None}
        )
        for cell, records in cells.items()
        for metric, label in metrics.items()
    ]


def error_rows(cells: Mapping[str, list[Record]]) -> list[Record]:
    parts = {"MSE experts": "experts", "MSE gate": "gate", "MSE log variances": "log variances"}
    names = METHODS[:-1]
    return [
        named(cell, records)
        | {"part": label, "G": median(column(records, "G", metric))}
        | {name: median(ratios(records, name, metric)) for name in names}
        for cell, records in cells.items()
        for metric, label in parts.items()
    ]


def cost_rows(cells: Mapping[str, list[Record]]) -> list[Record]:
    names = ("G", "R", "R+1", "R+4", "R-row", "Mid", "W", "Fisher")
    return [
        named(cell, records)
        | {name: median(column(records, name, "seconds")) for name in names}
        | {"slowest site": median([r["evidence"]["slowest"] for r in records])}
        | {"all sites": median([r["evidence"]["all sites"] for r in records])}
        for cell, records in cells.items()
    ]


def evidence_rows(cells: Mapping[str, list[Record]]) -> list[Record]:
    rows = []
    for cell, records in cells.items():
        seen = [record["evidence"] for record in records]
        by_expert, by_row = zip(*(each["iterations"] for each in seen), strict=True)
        rows.append(
            named(cell, records)
            | {"sites set aside, mean": rounded(float(np.mean([each["set_aside"] for each in seen])))}
            | {"iterations, plan per expert, at most": max(by_expert), "plan per row, at most": max(by_row)}
            | {"rounds of refinement until converged, median": median([each["rounds"] for each in seen])}
        )
    return rows


def logistic_rows(records: Iterable[Record]) -> list[Record]:
    cells: dict[str, list[Record]] = {}
    for record in records:
        if record["key"].startswith("logistic/"):
            cells.setdefault(record["key"].split("/")[1], []).append(record)
    rows = []
    for M, found in cells.items():
        for name in ("S14", "Newton"):
            each = [record[name] for record in found]
            rows.append(
                {"M": int(M), "runs": len(each), "update": name}
                | {what: sum(e[what] for e in each) for what in ("iterations", "rises")}
                | {f"objective, {what}": median([e[part] for e in each]) for what, part in OBJECTIVES.items()}
            )
    return rows


OBJECTIVES = {"after one update": "first", "at the end": "last", "least on the way": "least"}
TWO_SITES = ("16", "128")


def tables(records: list[Record]) -> list[Record]:
    cells = by_cell(records)
    some = {cell: found for cell, found in cells.items() if cell.split("/")[2] in TWO_SITES}
    main = ("G", "R", "R+1", "R-row", "R-row y", "Mid", "W", "Fisher")
    transport = {"relaxed": "transport, relaxed", "exact": "transport, exact (100 rows)"}
    other = {"RPE": "RPE", "ARI": "ARI, posterior labels", "ARI gate": "ARI, gate's labels"}
    found = [
        table("Accuracy of one exchange, and after rounds of refinement", accuracy(cells)),
        table("Deficit ratio, median", wide(cells, ratio_median, METHODS)),
        table("Log-likelihood per row below the truth's, median", wide(cells, loss_median, main)),
        table("Mean squared errors after alignment: G's, and ratios to it, medians", error_rows(some)),
        table("Transport divergence from the truth, median", metric_rows(some, transport, main)),
        table("Prediction and clusters, median", metric_rows(some, other, main)),
        table("Learning time, CPU seconds, median", cost_rows(cells)),
        table("Sites that were set aside, iterations, rounds", evidence_rows(cells)),
        table("Logistic experts, plan per row: (S14) and the minimiser", logistic_rows(records)),
    ]
    return [each for each in found if each["rows"]]


def ratio_median(records: list[Record], name: str) -> str | None:
    return median(deficits(records, name))


def loss_median(records: list[Record], name: str) -> str | None:
    return median(column(records, name, "below"))


def draw(records: list[Record], folder: Path, label: str) -> None:
    """All figures, where matplotlib is there."""
    if not figures.available():
        print("no figures: matplotlib is not installed")
        return
    cells = by_cell(records)
    most = max(int(cell.split("/")[2]) for cell in cells)
    for name in GENERATORS:
        own = {tuple(map(int, cell.split("/")[1:])): r for cell, r in cells.items() if cell.startswith(f"{name}/")}
        sizes = sorted({n for n, _ in own})
        for n in sizes:
            groups = {f"M = {M}": found for (size, M), found in own.items() if size == n}
            figures.boxes(folder / f"{label}_{name}_{n}.png", groups, f"{name}, N = {n:,}")
        groups = {f"N = {n:,}": found for (n, M), found in own.items() if most == M}
        if len(groups) > 1:
            figures.boxes(folder / f"{label}_{name}_sizes.png", groups, f"{name}, M = {most}")
    traces = {r["key"].partition("/")[2]: r for r in records if r["key"].startswith("trace/")}
    if traces:
        figures.traces(folder / f"{label}_trace.png", traces)


def run(key: str, plan: Plan) -> Record:
    kind, _, rest = key.partition("/")
    if kind == "logistic":
        return logistic(key)
    return trace(rest, plan) if kind == "trace" else replication(key, plan)


def main() -> None:
    study = Study(__file__, __doc__)
    plan = QUICK if study.quick else FULL
    warnings.simplefilter("ignore", ConsilienceWarning)
    records = study.replicate(plan.keys(), lambda key: run(key, plan))
    cells = plan.cells()
    records.sort(key=lambda record: place(record["key"], cells))
    study.save(*tables(records))
    draw(records, SCRATCH if study.quick else RESULTS, study.label)


def place(key: str, cells: list[str]) -> int:
    cell = key.rpartition("/")[0]
    return cells.index(cell) if cell in cells else len(cells)


if __name__ == "__main__":
    main()
