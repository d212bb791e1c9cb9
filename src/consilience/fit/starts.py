"""The search for starting values: several kinds of starts, split-and-merge moves, and what their ends agree on.

Starting values are of several kinds: no single kind is reliable, and of several nearly always one is good. A start is a
set of responsibilities ``(K, m)`` over labels (rows, or groups); one M-step turns it into a mixture.

Starts are climbed to the end on a sample. If the first ones agree, that is all: four of them for clusters, three if the
clusters are clear, six with covariates, where maxima hide. Otherwise up to twelve are climbed, and split-and-merge
moves from the best end follow until none improves it. If one start alone has reached the best end, more are climbed.
The best few different ends are then compared on all rows. No start is given up after a few steps for being behind: on
real data those that lead to the best maximum often are. A climb ends early where its quadratic approximation, or far
below the best end its last gains, say that the best end is out of reach.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from consilience.fit.climb import Ascent, Expect, StopReason, climb, drive
from consilience.fit.criteria import label_count
from consilience.fit.specification import Specification, is_degenerate
from consilience.model import ColumnSummary, Mixture, Penalty, Rows, Statistics, expect
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.kmeans import draw, kmeans, squared_distances
from consilience.numerics.linalg import solve_symmetric

_log = logging.getLogger("consilience")

UNIT = 1.0
"""Difference in log-likelihood up to which two ends count as the same."""
AGREEING = 4
"""Number of kinds of starts that must meet for the starts to agree; half of them if there are fewer than eight."""
SURE = 4
"""Number of kinds of starts that must meet for no more to be tried; of up to seven starts all, later all but one."""

CLEAR, CLEARLY = 3, 0.98
"""Number of kinds that must meet at clear clusters: the mean of the largest responsibility of each row is that high."""


@dataclass(frozen=True)
class StartEnds:
    """Penalised log-likelihood of the ends of independent climbs, the returned one first.

    Values are of all rows; ends of climbs on a sample are scaled to them.

    Parameters
    ----------
    values : tuple of float
    kinds : tuple of str
        How each start was made, or by which site.
    """

    values: tuple[float, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of ends."""
        return len(self.values)

    @property
    def meeting(self) -> int:
        """Number of ends within one unit of log-likelihood of the returned one, itself included."""
        return len(self._met())

    @property
    def kinds_meeting(self) -> int:
        """Number of different kinds of starts whose ends meet the returned one."""
        return len(set(self._met()))

    @property
    def agree(self) -> bool:
        """Whether starts of half of all kinds, two to four, ended within one unit; True for a single end."""
        return self.count < 2 or bool(self.kinds_meeting >= np.clip(len(set(self.kinds)) // 2, 2, AGREEING))

    def around(self, returned: float) -> StartEnds:
        """Return the ends by their distance from that which is returned."""
        order = sorted(range(self.count), key=lambda i: abs(self.values[i] - returned))
        return StartEnds(tuple(self.values[i] for i in order), tuple(self.kinds[i] for i in order))

    def with_moves(self, moved: Sequence[float], returned: float) -> StartEnds:
        """Return these ends and those of split-and-merge moves, one of all of which is returned."""
        return StartEnds((*self.values, *moved), (*self.kinds, *[MOVED] * len(moved))).around(returned)

    def _met(self) -> list[str]:
        near = zip(self.kinds, self.values, strict=True)
        return [kind for kind, value in near if abs(value - self.values[0]) <= UNIT]

    def __str__(self) -> str:
        if self.count < 2:
            return "one start"
        kinds = "one kind" if self.kinds_meeting == 1 else f"{self.kinds_meeting} kinds"
        return f"{self.meeting} of {self.count} starts, of {kinds}, ended at this log-likelihood"


# ---------------------------------------------------------------- starts

SUBSAMPLE = 3000
"""Maximum number of rows of a site that its starts are fitted to."""
CONCENTRATIONS = 20
"""Number of attempts at a closely fitted set of rows."""
SOFTNESS = 0.1
"""Total responsibility that a start gives to the experts other than the assigned one."""


@dataclass(frozen=True, eq=False)
class StartSample:
    """A sample of the data for the starts: one point per label."""

    rows: Rows
    specification: Specification
    summary: ColumnSummary
    X: Array  # (m, p)      design rows (means over groups)
    F: Array  # (m, f)      response features (means over groups)
    weight: Array  # (m,)

    @property
    def m(self) -> int:
        """Number of labels."""
        return len(self.weight)

    @property
    def places(self) -> Array:
        """Points by which labels are near one another: covariates, or responses if there are no covariates."""
        return self.X if self.rows.X.shape[1] else self.F


def start_sample(rows: Rows, specification: Specification, summary: ColumnSummary) -> StartSample:
    """Build the points for the starts from ``rows``."""
    X = summary.design(specification.intercept).panel(rows.X).T
    F = specification.blank(summary).experts.response_features(rows)
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    if rows.groups is not None:
        order, starts = rows.groups.order, rows.groups.bounds[:-1]
        mass = np.maximum(np.add.reduceat(weight[order], starts), np.finfo(float).tiny)
        X, F = (np.add.reduceat((A * weight[:, None])[order], starts, axis=0) / mass[:, None] for A in (X, F))
        weight = mass
    return StartSample(rows, specification, summary, X, F, weight)


Start = Callable[[StartSample, np.random.Generator], IntArray]


def by_covariates(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by k-means on the covariates (on the responses if there are none)."""
    return kmeans(t.places, t.specification.K, t.weight, rng)


def by_covariates_and_responses(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by k-means on covariates and responses; responses have the same total scale as the covariates."""
    weighted = t.F * np.sqrt(max(t.X.shape[1], 1) / t.F.shape[1])
    return kmeans(np.hstack([t.X, weighted]), t.specification.K, t.weight, rng)


def by_grouped_cells(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by grouping 3K k-means cells at random."""
    K = t.specification.K
    Z = np.hstack([t.X, t.F])
    cells = kmeans(Z, min(3 * K, t.m), t.weight, rng, max_iter=10)
    return rng.permutation(np.arange(3 * K) % K)[cells]


def by_residuals(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by the best of K regressions, each fitted around a seed drawn where the others fit badly."""
    p = t.X.shape[1]
    size = min(t.m, max(4 * p, 20))
    error: Array = np.full(t.m, np.inf)
    labels: IntArray = np.zeros(t.m, dtype=np.intp)
    for k in range(t.specification.K):
        seed = draw(t.weight * (error if k else 1.0), rng)
        near = np.argpartition(squared_distances(t.places, t.places[seed : seed + 1])[:, 0], size - 1)[:size]
        B = ridge_regression(t.X[near], t.F[near], t.weight[near])
        residual: Array = np.sum((t.F - t.X @ B) ** 2, axis=1)
        labels[residual < error] = k
        error = np.minimum(error, residual)
    return labels


def ridge_regression(X: Array, F: Array, weight: Array, penalty: float = 1e-3) -> Array:
    """Compute the coefficients ``(p, f)`` of a lightly penalised least squares fit."""
    A = (X * weight[:, None]).T @ X
    ridge = penalty * max(float(np.trace(A)) / max(len(A), 1), np.finfo(float).tiny)
    return solve_symmetric(A + ridge * np.eye(len(A)), (X * weight[:, None]).T @ F)[0]


def by_random_rows(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by the best of K regressions, each fitted to a few rows drawn at random."""
    size = min(t.m, t.X.shape[1] + 3)
    residuals = []
    for _ in range(t.specification.K):
        few = rng.choice(t.m, size, replace=False)
        B = ridge_regression(t.X[few], t.F[few], t.weight[few])
        residuals.append(np.sum((t.F - t.X @ B) ** 2, axis=1))
    return np.asarray(np.argmin(residuals, axis=0))


def by_concentration(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels one after another to the rows that one regression fits best, a tenth to four tenths of all rows.

    A regression on a few random rows is fitted again to the rows nearest to it, several times (:func:`concentrate`).
    This finds experts with a small variance, which other starts leave inside wide ones.
    """
    p = t.X.shape[1]
    labels: IntArray = np.zeros(t.m, dtype=np.intp)
    for k in range(1, t.specification.K):
        left = np.flatnonzero(labels == 0)
        size = min(max(2 * p, int(rng.uniform(0.1, 0.4) * t.m)), len(left) // 2)
        if size:
            labels[left[concentrate(t, left, size, rng)]] = k
    return labels


def concentrate(t: StartSample, inside: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Return ``size`` positions in ``inside`` whose labels one regression fits closely.

    As in the fast algorithm for least trimmed squares: two steps from each of many sets of as few rows as possible,
    and more from the best of them.
    """
    X, F, weight = t.X[inside], t.F[inside], t.weight[inside]
    least = min(len(inside), X.shape[1] + 1)

    def stepped(chosen: IntArray, steps: int) -> tuple[float, IntArray]:
        for _ in range(steps):
            B = ridge_regression(X[chosen], F[chosen], weight[chosen], 1e-6)
            residual: Array = np.sum((F - X @ B) ** 2, axis=1)
            chosen = np.argpartition(residual, size - 1)[:size]
        return float(residual[chosen].sum()), chosen

    first = [stepped(rng.choice(len(inside), least, replace=False), 2) for _ in range(CONCENTRATIONS)]
    first.sort(key=lambda attempt: attempt[0])
    return min((stepped(chosen, 8) for _, chosen in first[:2]), key=lambda attempt: attempt[0])[1]


def by_residual_clusters(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by k-means on the residuals of one regression."""
    return kmeans(t.F - t.X @ ridge_regression(t.X, t.F, t.weight), t.specification.K, t.weight, rng)


def by_quantiles(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by quantiles of a random direction of the responses and of the residuals of one regression."""
    residual = t.F - t.X @ ridge_regression(t.X, t.F, t.weight)
    Z = np.hstack([t.F, residual])
    direction = rng.standard_normal(Z.shape[1])
    ranks = np.argsort(np.argsort(Z @ direction, kind="stable"), kind="stable")
    return ranks * t.specification.K // t.m


def at_random(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels at random."""
    return rng.permutation(np.arange(t.m) % t.specification.K)


KINDS: tuple[Start, ...] = (
    by_covariates,
    by_concentration,
    by_residuals,
    by_covariates_and_responses,
    by_random_rows,
    by_grouped_cells,
    by_quantiles,
    by_concentration,
    by_concentration,
    by_residual_clusters,
    by_concentration,
    at_random,
)
"""Kinds of starts in the order in which they are drawn; concentration, whose ends differ most, several times."""
KINDS_WITHOUT_COVARIATES: tuple[Start, ...] = (
    by_concentration,
    by_covariates,
    by_quantiles,
    by_grouped_cells,
    by_residuals,
    by_random_rows,
    by_concentration,
    at_random,
)
"""Kinds of starts of clusters: those that do not come to the same where there is nothing but responses."""


def soften_labels(labels: IntArray, K: int) -> Array:
    """Return responsibilities ``(K, m)`` that favour the labels ``(m,)``."""
    return np.asarray(SOFTNESS / K + (1 - SOFTNESS) * (np.arange(K)[:, None] == labels))


def mixture_from(resp: Array, t: StartSample) -> Mixture:
    """Compute the mixture for responsibilities ``(K, m)`` by an M-step (two where one does not lead to its end)."""
    mixture = t.specification.with_order(len(resp)).blank(t.summary)
    if mixture.design.intercept:
        mixture = replace(mixture, experts=mixture.experts.at_level(t.rows))
    penalty = replace(t.specification.penalty(t.summary), shape_ratio=np.inf)
    for _ in range(2 if mixture.experts.newton_type or penalty.shared else 1):
        mixture = mixture.maximise(expect(mixture, t.rows, given=resp), penalty)
    return mixture


def merge_duplicates(rows: Rows) -> Rows:
    """Merge duplicate rows, sorted, with summed weights, so that starts depend on neither order nor repetition."""
    exposure = np.ones(rows.n) if rows.exposure is None else rows.exposure
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    table = np.column_stack([rows.X, rows.Y, exposure])
    distinct, codes = np.unique(table, axis=0, return_inverse=True)
    d, q = rows.X.shape[1], rows.Y.shape[1]
    X, Y = np.ascontiguousarray(distinct[:, :d]), np.ascontiguousarray(distinct[:, d : d + q])
    mass: Array = np.bincount(codes.ravel(), weight).astype(np.float64)
    return Rows(X, Y, mass, None if rows.exposure is None else distinct[:, -1])


def subsample(rows: Rows, size: int, rng: np.random.Generator, *, events: bool = False) -> Rows:
    """Draw at most about ``size`` rows with positive weight; groups stay whole.

    With ``events``, rows with a positive response are at least half of the draw where they are fewer in the data; the
    other rows have weights that make up for it.
    """
    present = np.ones(rows.n, dtype=bool) if rows.weight is None else rows.weight > 0
    if rows.groups is None:
        index = np.flatnonzero(present)
        if len(index) > size and events:
            return merge_duplicates(_with_events(rows, index, size, rng))
        if len(index) > size:
            index = np.sort(rng.choice(index, size, replace=False))
        return merge_duplicates(rows.take(index))
    sizes = np.diff(rows.groups.bounds)
    if rows.n <= size and present.all():
        return rows
    order = rng.permutation(len(sizes))
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), size, side="right")))]] = True
    return rows.take(np.flatnonzero(chosen[rows.groups.codes] & present))


def _with_events(rows: Rows, index: IntArray, size: int, rng: np.random.Generator) -> Rows:
    """Draw rows with and without events separately, half of each where events are rarer, with weights."""
    happened = rows.Y[index].max(axis=1) > 0
    parts = [index[happened], index[~happened]]
    half = [min(len(part), size // 2) for part in parts]
    sizes = [min(len(parts[0]), size - half[1]), min(len(parts[1]), size - half[0])]
    drawn = [np.sort(rng.choice(part, k, replace=False)) for part, k in zip(parts, sizes, strict=True)]
    each = [len(part) / max(k, 1) for part, k in zip(parts, sizes, strict=True)]
    least = min(share for share, k in zip(each, sizes, strict=True) if k)
    chosen = rows.take(np.concatenate(drawn))
    own = np.ones(chosen.n) if chosen.weight is None else chosen.weight
    return replace(chosen, weight=own * np.repeat(np.array(each) / least, sizes))


# ---------------------------------------------------------------- moves


def merge_order(resp: Array) -> list[tuple[int, int]]:
    """Return pairs of experts, sorted by decreasing overlap of their responsibilities ``(K, m)``."""
    unit = resp / np.maximum(np.linalg.norm(resp, axis=1, keepdims=True), np.finfo(float).tiny)
    overlap = unit @ unit.T
    k, l = np.triu_indices(len(resp), 1)
    return [(int(k[i]), int(l[i])) for i in np.argsort(-overlap[k, l], kind="stable")]


def halves(t: StartSample, inside: IntArray, rng: np.random.Generator) -> IntArray:
    """Split the labels at ``inside`` in two (0 or 1).

    By covariates and responses, by a random direction, or into those that one regression fits closely and the others.
    """
    way = rng.integers(3)
    if way == 0:
        close = concentrate(t, inside, max(1, int(rng.uniform(0.1, 0.5) * len(inside))), rng)
        side: IntArray = np.zeros(len(inside), dtype=np.intp)
        side[close] = 1
        return side
    if way == 1:
        Z = np.hstack([t.X[inside], t.F[inside] * np.sqrt(t.X.shape[1] + 1.0)])
        return kmeans(Z, 2, t.weight[inside], rng)
    Z = np.hstack([t.X[inside], t.F[inside]])
    along = Z @ rng.standard_normal(Z.shape[1])
    return (along > np.median(along)).astype(np.intp)


def propose_moves(mixture: Mixture, t: StartSample, rng: np.random.Generator) -> Iterator[Array]:
    """Yield responsibilities ``(K, m)`` after merging one pair of experts and splitting another expert in two."""
    resp = mixture.responsibilities(t.rows).T.copy()
    labels = resp.argmax(axis=0)
    K = len(resp)
    pairs = merge_order(resp)
    for attempt in range(3 * K * len(pairs)):
        k, l = pairs[attempt % len(pairs)]
        others = [e for e in range(K) if e not in (k, l)]
        split = others[int(rng.integers(len(others)))] if others else k
        moved = resp.copy()
        moved[k] += moved[l]
        inside = np.flatnonzero((labels == split) | ((labels == l) & (split == k)))
        if len(inside) < 4:
            continue
        side = halves(t, inside, rng)
        moved[l] = 0.0
        moved[l, inside] = moved[split, inside] * (side == 1)
        moved[split, inside] *= side == 0
        yield 0.9 * moved + 0.1 / K


# ---------------------------------------------------------------- search

Progress = Callable[[str, float], None]
"""Callback after each pass, with the phase and the log-likelihood per unit of weight."""

START_TOL = 1e-6
START_ITERATIONS = 300
DEGENERATE_AFTER = (20, 20)
"""Numbers of steps after which a climb is given up if an expert is then none."""
FURTHER = 2
"""Maximum number of further times that as many starts are climbed, while one start alone has reached the best end."""
MOVES = 6
"""Number of fruitless moves after which the search ends, if as many starts were asked for."""
LONG_SEARCH = 60.0
"""Seconds above which the expected duration of a search is logged."""
SAMPLE = 6000
"""Maximum number of rows of the sample."""
MOVED = "split_and_merge"
CONTENDERS = 3
"""Maximum number of different ends that are compared on all rows."""


@dataclass(frozen=True, eq=False)
class End:
    """Where a climb on the sample ended, the kind of its start, and whether an expert is none."""

    kind: str
    ascent: Ascent
    degenerate: bool = False


@dataclass(frozen=True, eq=False)
class Found:
    """Result of a search: different ends, best first, and the evidence of all of them.

    Parameters
    ----------
    contenders : tuple of Mixture
        At most ``CONTENDERS`` mixtures whose log-likelihoods differ by more than a unit, the best first.
    values : tuple of float
        Penalised log-likelihood of the contenders, scaled to all rows.
    ends : StartEnds
    decided : bool
        Whether the first contender is the best for certain: the sample is all rows.
    """

    contenders: tuple[Mixture, ...]
    values: tuple[float, ...]
    ends: StartEnds
    decided: bool = False

    def on_all_rows(self, reached: Mapping[int, float], best: int) -> StartEnds:
        """Return the evidence after climbs on all rows from some contenders, of which ``best`` was returned.

        Ends on the sample that met one of these contenders count with what it reached; others keep their distance from
        the best.
        """
        values = []
        for value in self.ends.values:
            met = [i for i in reached if abs(self.values[i] - value) <= UNIT]
            values.append(reached[met[0]] if met else reached[best] + value - self.values[best])
        return StartEnds(tuple(values), self.ends.kinds).around(reached[best])


def responder(rows: Rows, phase: str, progress: Progress | None) -> Callable[[Expect], Statistics]:
    """Return a function that answers the requests of a climb from rows on this machine."""

    def respond(question: Expect) -> Statistics:
        statistics = expect(question.mixture, rows, information=question.information)
        if progress is not None:
            progress(phase, statistics.log_likelihood / max(statistics.weight, 1.0))
        return statistics

    return respond


StartTask = tuple[str, Array, float]
"""Kind of a start, its responsibilities ``(K, m)``, and the highest value of a proper end that is known."""
Each = Callable[[Callable[[StartTask], End], Iterable[StartTask]], Iterable[End]]
"""Computes a function of each item, in their order and as late as possible: ``map``, or a pool of processes."""


@dataclass(frozen=True, eq=False)
class Search:
    """A search on a sample of the rows.

    Parameters
    ----------
    ground : StartSample
    penalty : Penalty
    seed : int
        Of the random numbers of each start and move, so that none depends on how many others are made meanwhile.
    scale : float
        Number of labels per label of the sample.
    progress : callable or None
    each : callable
    """

    ground: StartSample
    penalty: Penalty
    seed: int = 0
    scale: float = 1.0
    progress: Progress | None = None
    each: Each = map

    def climbed(self, start: Mixture, steps: int = START_ITERATIONS, bar: float = -np.inf) -> Ascent:
        """Climb from a start on the sample, without a bound on the ratio of shapes: maxima within it are the same."""
        respond = responder(self.ground.rows, "starts", self.progress)
        free = replace(self.penalty, shape_ratio=np.inf)
        return drive(climb(start, free, tol=START_TOL, max_iter=steps, bar=bar, rough=True), respond)

    def finished(self, task: StartTask) -> End:
        """Climb to the end, or until the highest end that is known is out of reach.

        Climbs towards a degenerate end are slow, and their ends are ranked last: they are given up early.
        """
        kind, resp, bar = task
        mixture = mixture_from(resp, self.ground)
        for steps in (*DEGENERATE_AFTER, START_ITERATIONS):
            ascent = self.climbed(mixture, steps, bar)
            degenerate = is_degenerate(ascent, self.penalty)
            if ascent.stop is not StopReason.MAX_ITER or degenerate:
                break
            mixture = ascent.mixture
        return End(kind, ascent, degenerate)

    def climb_each(self, starts: Iterable[tuple[str, Array]], ends: Sequence[End]) -> Iterable[End]:
        """Climb from each start to its end, given up if the best of ``ends``, which may grow, is out of reach."""
        at_work = self if self.each is map else replace(self, progress=None, each=map)
        return self.each(at_work.finished, ((kind, resp, best_proper(ends)) for kind, resp in starts))

    def drawn(self, numbers: range) -> Iterator[tuple[str, Array]]:
        """Draw starts, of all kinds in turn."""
        kinds = KINDS if self.has_covariates else KINDS_WITHOUT_COVARIATES
        for i in numbers:
            kind = kinds[i % len(kinds)]
            labels = kind(self.ground, np.random.default_rng([self.seed, i]))
            yield kind.__name__, soften_labels(labels, self.ground.specification.K)

    def started(self, numbers: range, ends: Sequence[End] = (), *, enough: int | None = None) -> list[End]:
        """Climb from the starts of these numbers, after others that led to ``ends``, best first.

        No more are climbed once ``enough`` of them are sure (:meth:`is_sure`).
        """
        found, began = list(ends), time.perf_counter()
        for end in self.climb_each(self.drawn(numbers), found):
            found.append(end)
            if len(found) == 1:
                announce((len(numbers) - 1) * (time.perf_counter() - began))
            if enough is not None and self.is_sure(found, enough):
                break
        return rank_ends(found)

    def is_sure(self, ends: Sequence[End], enough: int) -> bool:
        """Whether so many starts agree on a proper end, by :func:`is_sure`."""
        best = rank_ends(ends)
        values = scale_ends(best, self.scale)
        if best[0].degenerate:
            return False
        if len(ends) >= enough and is_sure(values, enough):
            return True
        return not self.has_covariates and values.kinds_meeting >= min(CLEAR, enough) and self.is_clear(best[0])

    def is_clear(self, end: End) -> bool:
        """Whether hardly a row is between two clusters: other ends then are clearly others, and raise no doubt."""
        return bool(end.ascent.mixture.responsibilities(self.ground.rows).max(axis=1).mean() >= CLEARLY)

    @property
    def has_covariates(self) -> bool:
        """Whether there are covariates: without, experts are clusters."""
        return bool(self.ground.rows.X.shape[1])

    def improved(self, ends: list[End], patience: int) -> list[End]:
        """Apply split-and-merge moves to the best end until ``patience`` of them in a row do not improve it."""
        fruitless = turn = 0
        while fruitless < patience:
            turn, rng = turn + 1, np.random.default_rng([self.seed, MOVES, turn])
            moves = islice(propose_moves(ends[0].ascent.mixture, self.ground, rng), patience - fruitless)
            for candidate in self.climb_each(((MOVED, resp) for resp in moves), ends):
                found = rank_ends([candidate, *ends])
                gain = self.scale * (candidate.ascent.penalised - ends[0].ascent.penalised)
                if found[0] is candidate and gain > UNIT:
                    ends, fruitless = found, 0
                    break
                fruitless += 1
            else:
                break
        return ends


def search_on_sample(
    rows: Rows,
    specification: Specification,
    summary: ColumnSummary,
    rng: np.random.Generator,
    *,
    size: int,
    progress: Progress | None = None,
    each: Each = map,
) -> Search:
    """Draw a sample of at most about ``size`` rows, and the seed of a search on it."""
    events = specification.experts.discrete and not specification.experts.classes
    sample = subsample(rows, size, rng, events=events)
    scale = label_count(rows) / max(label_count(sample), 1.0)
    ground, seed = start_sample(sample, specification, summary), int(rng.integers(2**63))
    return Search(ground, specification.penalty(summary), seed, scale, progress, each)


def search(
    rows: Rows,
    specification: Specification,
    summary: ColumnSummary,
    rng: np.random.Generator,
    *,
    n_init: int,
    progress: Progress | None = None,
    each: Each = map,
) -> Found:
    """Search for the best starting points on a sample of the rows.

    Parameters
    ----------
    rows : Rows
    specification : Specification
    summary : ColumnSummary
    rng : numpy.random.Generator
    n_init : int
        Number of starts; as many again are climbed if they do not agree, and fewer if the first ones do.
    progress : callable or None
    each : callable
        ``map``, or a function like it that climbs several starts at once. The result does not depend on it.
    """
    at = search_on_sample(rows, specification, summary, rng, size=SAMPLE, progress=progress, each=each)
    scale = at.scale
    if specification.K == 1:
        only = at.climbed(mixture_from(np.ones((1, at.ground.m)), at.ground))
        return Found((only.mixture,), (only.penalised,), StartEnds())
    enough = n_init if at.has_covariates else min(SURE, n_init)
    ends = at.started(range(n_init if n_init == 1 else 2 * n_init), enough=enough)
    if n_init > 1 and not at.is_sure(ends, enough):
        ends = at.improved(ends, min(MOVES, n_init))
        for batch in range(2, 2 + FURTHER):
            if scale_ends(ends, scale).kinds_meeting > 1:
                break
            ends = at.started(range(batch * n_init, (batch + 1) * n_init), ends)  # one start has won alone
    chosen = best_distinct_ends(ends, scale)
    values = tuple(scale * end.ascent.penalised for end in chosen)
    decided = scale <= 1 and not ends[0].degenerate
    return Found(tuple(end.ascent.mixture for end in chosen), values, scale_ends(ends, scale), decided)


def announce(seconds: float) -> None:
    """Log how long the other starts take at most, judged by the first, if it is long."""
    if seconds > LONG_SEARCH:
        _log.warning(
            "the search for starting values takes up to %.0f minutes; verbose=True shows its progress, and n_jobs=-1 "
            "uses all processors",
            seconds / 60,
        )


def rank_ends(ends: Iterable[End]) -> list[End]:
    """Sort ends, best first; degenerate ones, likely spurious, come last."""
    return sorted(ends, key=lambda end: (end.degenerate, -end.ascent.penalised))


def best_proper(ends: Sequence[End]) -> float:
    """Return the highest value of the ends that are not degenerate."""
    return max((end.ascent.penalised for end in ends if not end.degenerate), default=-np.inf)


def is_sure(ends: StartEnds, starts: int = SURE) -> bool:
    """Whether ends of several kinds of starts are at one log-likelihood, and at most one of eight elsewhere."""
    return ends.kinds_meeting >= min(SURE, starts) and ends.count - ends.meeting <= ends.count // 8


def scale_ends(ends: Sequence[End], scale: float) -> StartEnds:
    """Return the ends' log-likelihoods, scaled to all rows."""
    return StartEnds(tuple(scale * end.ascent.penalised for end in ends), tuple(end.kind for end in ends))


def best_distinct_ends(ends: Sequence[End], scale: float) -> list[End]:
    """Return the best ends whose log-likelihoods, scaled to all rows, differ by more than a unit.

    Only proper ends that were not given up count, if there are any.
    """
    proper = [end for end in ends if not end.degenerate and end.ascent.stop is not StopReason.OUTDONE] or ends
    chosen = list(proper[:1])
    for end in proper[1:]:
        if all(scale * abs(end.ascent.penalised - other.ascent.penalised) > UNIT for other in chosen):
            chosen.append(end)
    return chosen[:CONTENDERS]
