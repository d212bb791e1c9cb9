"""The best end of many random starts on all rows: short climbs from all of them, then full climbs from the best few.

Starts are of five kinds: a random partition, regressions on small random subsets (one per expert), cells around random
rows, slices along a random direction of covariates and response, and random responsibilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.lib.real_sets import RealSet
from benchmarks.lib.study import Record
from consilience.fit import Ascent, Expect, Specification, climb, drive
from consilience.fit.specification import is_degenerate
from consilience.fit.starts import StartSample, mixture_from, soften_labels, start_sample
from consilience.model import Penalty, Rows, expect
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary, column_summary

SHORT = 60
"""Iterations of a first climb."""
LONG = 800
FINISHED = 10
"""Ends of first climbs, different from each other, that are climbed to the top."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One data set, number of experts and gate."""

    data: RealSet
    K: int
    gate: str

    @cached_property
    def rows(self) -> Rows:
        return Rows(np.ascontiguousarray(self.data.X), self.data.y[:, None].copy(), exposure=self.data.exposure)

    @property
    def specification(self) -> Specification:
        return Specification(K=self.K, family=self.data.family, gate=self.gate)

    @cached_property
    def summary(self) -> ColumnSummary:
        return column_summary(self.rows)

    @cached_property
    def penalty(self) -> Penalty:
        return self.specification.penalty(self.summary)

    @cached_property
    def ground(self) -> StartSample:
        return start_sample(self.rows, self.specification, self.summary)

    def respond(self, question: Expect) -> Statistics:
        return expect(question.mixture, self.rows, information=question.information)


def by_partition(t: StartSample, rng: np.random.Generator) -> np.ndarray:
    K = t.specification.K
    return soften_labels(rng.integers(K, size=t.m), K)


def by_subsets(t: StartSample, rng: np.random.Generator) -> np.ndarray:
    """Each row to the best of K regressions, each on a few more random rows than it has coefficients."""
    K, p = t.specification.K, t.X.shape[1]
    size = min(t.m, p + 1 + int(rng.integers(4 * p)))
    errors = []
    for _ in range(K):
        few = rng.choice(t.m, size, replace=False)
        B = np.linalg.lstsq(t.X[few], t.F[few], rcond=1e-6)[0]
        errors.append(np.sum((t.F - t.X @ B) ** 2, axis=1))
    return soften_labels(np.argmin(errors, axis=0), K)


def by_cells(t: StartSample, rng: np.random.Generator) -> np.ndarray:
    """Each row to the nearest of K random rows, the response scaled by a random factor."""
    K = t.specification.K
    Z = np.hstack([t.X, t.F * np.exp(rng.uniform(-1, 3))])
    centres = Z[rng.choice(t.m, K, replace=False)]
    return soften_labels(np.argmin([np.sum((Z - centre) ** 2, axis=1) for centre in centres], axis=0), K)


def by_slices(t: StartSample, rng: np.random.Generator) -> np.ndarray:
    """Slices of random sizes along a random direction."""
    K = t.specification.K
    Z = np.hstack([t.X, t.F])
    rank = np.argsort(np.argsort(Z @ (rng.standard_normal(Z.shape[1]) * rng.exponential(size=Z.shape[1])))) / t.m
    return soften_labels(np.searchsorted(np.sort(rng.random(K - 1)), rank), K)


def by_responsibilities(t: StartSample, rng: np.random.Generator) -> np.ndarray:
    return rng.dirichlet(np.full(t.specification.K, 0.3), size=t.m).T.copy()


KINDS: tuple[Callable[[StartSample, np.random.Generator], np.ndarray], ...] = (
    by_subsets,
    by_partition,
    by_cells,
    by_slices,
    by_responsibilities,
)


def best_of_random_starts(cell: Cell, starts: int, rng: np.random.Generator) -> Record:
    """Climb from ``starts`` random starts; return the best proper end, and how many met it."""

    def climbed(start: object, max_iter: int, tol: float) -> Ascent:
        return drive(climb(start, cell.penalty, tol=tol, max_iter=max_iter), cell.respond)

    ends = []
    for i in range(starts):
        kind = KINDS[i % len(KINDS)]
        try:
            ends.append((kind.__name__, climbed(mixture_from(kind(cell.ground, rng), cell.ground), SHORT, 1e-6)))
        except (np.linalg.LinAlgError, FloatingPointError):  # a start without rows for an expert is no start
            continue
    regular = [(name, end) for name, end in ends if not is_degenerate(end, cell.penalty)]
    regular.sort(key=lambda pair: -pair[1].penalised)
    chosen: list[tuple[str, Ascent]] = []
    for name, end in regular:
        if len(chosen) == FINISHED:
            break
        if not any(abs(end.penalised - other.penalised) < 1e-2 for _, other in chosen):
            chosen.append((name, end))
    tops = [(name, climbed(end.mixture, LONG, 1e-10)) for name, end in chosen]
    tops = [(name, end) for name, end in tops if not is_degenerate(end, cell.penalty)]
    name, best = max(tops, key=lambda pair: pair[1].statistics.log_likelihood)
    shares = best.statistics.experts.plain[: cell.K]
    return {
        "ll": best.statistics.log_likelihood,
        "penalised": best.penalised,
        "kind": name,
        "stop": best.stop.name,
        "rows of the smallest expert": round(float(shares.min()), 1),
        "short climbs within 2": sum(end.penalised > best.penalised - 2 for _, end in regular),
        "degenerate short climbs": len(ends) - len(regular),
    }
