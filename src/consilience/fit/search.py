"""Search for starting points: starts of several kinds are climbed to the end on a sample.

If they do not all agree, as many again are climbed, and split-and-merge moves from the best end follow until none
improves it. The best few different ends are then compared on all rows. No start is given up after a few steps: on real
data those that lead to the best maximum are often behind at first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from consilience.fit.checks import on_floor
from consilience.fit.climb import Ascent, Expect, climb, drive
from consilience.fit.criteria import label_count
from consilience.fit.moves import moves
from consilience.fit.specification import Specification
from consilience.fit.start_ends import UNIT, StartEnds
from consilience.fit.starts import KINDS, StartSample, mixture_from, softened, start_sample, subsample
from consilience.fit.stop import StopReason
from consilience.model.expectation import expect
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.rows import Rows
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array

Progress = Callable[[str, float], None]
"""Callback after each pass, with the phase and the log-likelihood per unit of weight."""

START_TOL = 1e-6
START_ITERATIONS = 300
FLOOR_ITERATIONS = 40
"""Number of steps after which a climb is given up if an expert is then at the variance floor."""
MOVES = 6
"""Number of fruitless moves after which the search ends, if as many starts were asked for."""
SURE = 3
"""Number of kinds of starts that must meet, with all of their ends, for no more to be tried."""
SAMPLE = 6000
"""Maximum number of rows of the sample."""
MOVED = "split_and_merge"
CONTENDERS = 3
"""Maximum number of different ends that are compared on all rows."""


@dataclass(frozen=True, eq=False)
class End:
    """Where a climb on the sample ended, and the kind of its start."""

    kind: str
    ascent: Ascent


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
    """

    contenders: tuple[Mixture, ...]
    values: tuple[float, ...]
    ends: StartEnds

    def on_all_rows(self, reached: Mapping[int, float], best: int) -> StartEnds:
        """Return the evidence after climbs on all rows from some contenders, of which ``best`` was returned.

        Ends on the sample that met one of these contenders count with what it reached; others keep their distance from
        the best.
        """
        values = []
        for value in self.ends.values:
            met = [i for i in reached if abs(self.values[i] - value) <= UNIT]
            values.append(reached[met[0]] if met else reached[best] + value - self.values[best])
        order = sorted(range(len(values)), key=lambda i: abs(values[i] - reached[best]))
        return StartEnds(tuple(values[i] for i in order), tuple(self.ends.kinds[i] for i in order))


def responder(rows: Rows, phase: str, progress: Progress | None) -> Callable[[Expect], Statistics]:
    """Return a function that answers the requests of a climb from rows on this machine."""

    def respond(question: Expect) -> Statistics:
        statistics = expect(question.mixture, rows, information=question.information)
        if progress is not None:
            progress(phase, statistics.log_likelihood / max(statistics.weight, 1.0))
        return statistics

    return respond


@dataclass(frozen=True, eq=False)
class Search:
    """A search on a sample of the rows."""

    ground: StartSample
    penalty: Penalty
    rng: np.random.Generator
    progress: Progress | None

    def climbed(self, start: Mixture, steps: int = START_ITERATIONS) -> Ascent:
        """Climb from a start on the sample."""
        respond = responder(self.ground.rows, "starts", self.progress)
        return drive(climb(start, self.penalty, tol=START_TOL, max_iter=steps), respond)

    def ranked(self, ends: Sequence[End]) -> list[End]:
        """Sort ends, best first; those with an expert at the variance floor, likely spurious, come last."""
        return sorted(ends, key=lambda end: (on_floor(end.ascent.mixture, self.penalty), -end.ascent.penalised))

    def finished(self, kind: str, resp: Array) -> End:
        """Climb to the end from responsibilities ``(K, m)``.

        Climbs towards an expert at the variance floor are slow, and their ends, likely spurious, are ranked last: they
        are given up early.
        """
        ascent = self.climbed(mixture_from(resp, self.ground), FLOOR_ITERATIONS)
        if ascent.stop is StopReason.MAX_ITER and not on_floor(ascent.mixture, self.penalty):
            ascent = self.climbed(ascent.mixture)
        return End(kind, ascent)

    def started(self, first: int, count: int) -> list[End]:
        """Climb from ``count`` starts, of all kinds in turn, of which ``first`` were climbed before."""
        K = self.ground.specification.K
        kinds = [KINDS[i % len(KINDS)] for i in range(first, first + count)]
        return [self.finished(kind.__name__, softened(kind(self.ground, self.rng), K)) for kind in kinds]


def search(
    rows: Rows,
    specification: Specification,
    summary: ColumnSummary,
    rng: np.random.Generator,
    *,
    n_init: int,
    progress: Progress | None = None,
) -> Found:
    """Search for the best starting points on a sample of the rows.

    Parameters
    ----------
    rows : Rows
    specification : Specification
    summary : ColumnSummary
    rng : numpy.random.Generator
    n_init : int
        Number of starts; as many again are climbed if the first ones do not all agree.
    progress : callable or None

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.model.summary import column_summary
    >>> data = soft(2000, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None])
    >>> found = search(rows, Specification(K=4), column_summary(rows), np.random.default_rng(0), n_init=4)
    >>> found.ends.agree
    True
    """
    sample = subsample(rows, SAMPLE, rng, events=specification.experts.discrete and not specification.experts.classes)
    at = Search(start_sample(sample, specification, summary), specification.penalty(summary), rng, progress)
    if specification.K == 1:
        only = at.climbed(mixture_from(np.ones((1, at.ground.m)), at.ground))
        return Found((only.mixture,), (only.penalised,), StartEnds())
    scale = label_count(rows) / max(label_count(sample), 1.0)
    ends = at.ranked(at.started(0, n_init))
    if n_init > 1 and not is_sure(evidence(ends, scale)):
        ends = at.ranked([*ends, *at.started(n_init, n_init)])
        ends = improved(at, ends, scale, min(MOVES, n_init))
    chosen = different(ends, scale)
    values = tuple(scale * end.ascent.penalised for end in chosen)
    return Found(tuple(end.ascent.mixture for end in chosen), values, evidence(ends, scale))


def is_sure(ends: StartEnds) -> bool:
    """Whether all starts, of several kinds, ended at one log-likelihood."""
    return ends.meeting == ends.count and ends.kinds_meeting >= min(SURE, ends.count)


def improved(at: Search, ends: list[End], scale: float, patience: int) -> list[End]:
    """Apply split-and-merge moves to the best end until ``patience`` of them in a row do not improve it."""
    fruitless = 0
    while fruitless < patience:
        for resp in islice(moves(ends[0].ascent.mixture, at.ground, at.rng), patience - fruitless):
            candidate = at.finished(MOVED, resp)
            found = at.ranked([candidate, *ends])
            if found[0] is candidate and scale * (candidate.ascent.penalised - ends[0].ascent.penalised) > UNIT:
                ends, fruitless = found, 0
                break
            fruitless += 1
        else:
            break
    return ends


def evidence(ends: Sequence[End], scale: float) -> StartEnds:
    """Return the ends' log-likelihoods, scaled to all rows."""
    return StartEnds(tuple(scale * end.ascent.penalised for end in ends), tuple(end.kind for end in ends))


def different(ends: Sequence[End], scale: float) -> list[End]:
    """Return the best ends whose log-likelihoods, scaled to all rows, differ by more than a unit."""
    chosen = list(ends[:1])
    for end in ends[1:]:
        if all(scale * abs(end.ascent.penalised - other.ascent.penalised) > UNIT for other in chosen):
            chosen.append(end)
    return chosen[:CONTENDERS]
