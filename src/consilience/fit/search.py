"""Search for starting points: many starts of several kinds race on a sample, and the best are climbed to the end.

A race is a few EM steps from every start, after which the worst are given up. Split-and-merge moves from the best
end follow until none improves it. The best few different ends are then compared on all rows.
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
RACERS_PER_START = 3
"""Number of starts that race for each one that is climbed to the end."""
HEATS = (4, 8)
"""Number of EM steps of the two heats of a race."""
KEPT = 2 / 3
"""Fraction of the starts that take part in the second heat."""
MOVES_AT_ONCE = 4
MOVES = 4
"""Number of fruitless batches of moves after which the search ends, if as many starts were asked for."""
SURE = 3
"""Number of kinds of starts that must meet, with all of their ends, for no moves to be tried."""
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

    def climbed(self, start: Mixture, steps: int = START_ITERATIONS, *, newton: bool = True) -> Ascent:
        """Climb from a start on the sample."""
        respond = responder(self.ground.rows, "starts", self.progress)
        return drive(climb(start, self.penalty, tol=START_TOL, max_iter=steps, newton=newton), respond)

    def ranked(self, ends: Sequence[End]) -> list[End]:
        """Sort ends, best first; those with an expert at the variance floor, likely spurious, come last."""
        return sorted(ends, key=lambda end: (on_floor(end.ascent.mixture, self.penalty), -end.ascent.penalised))

    def raced(self, starts: Sequence[tuple[str, Array]]) -> list[End]:
        """Race starts, given as kinds and responsibilities ``(K, m)``; return those left, best first."""
        first, second = HEATS
        made = [(kind, mixture_from(resp, self.ground)) for kind, resp in starts]
        field = self.ranked([End(kind, self.climbed(start, first, newton=False)) for kind, start in made])
        left = field[: max(1, round(KEPT * len(field)))]
        return self.ranked([End(each.kind, self.climbed(each.ascent.mixture, second, newton=False)) for each in left])

    def finished(self, racers: Sequence[End]) -> list[End]:
        """Climb from where racers stopped to the end.

        Climbs towards an expert at the variance floor are slow, and their ends, likely spurious, are ranked last: they
        are given up early.
        """
        ends = []
        for each in racers:
            ascent = self.climbed(each.ascent.mixture, FLOOR_ITERATIONS)
            if ascent.stop is StopReason.MAX_ITER and not on_floor(ascent.mixture, self.penalty):
                ascent = self.climbed(ascent.mixture)
            ends.append(End(each.kind, ascent))
        return ends

    def drawn(self, count: int) -> list[tuple[str, Array]]:
        """Draw ``count`` starts, of all kinds in turn."""
        K = self.ground.specification.K
        kinds = [KINDS[i % len(KINDS)] for i in range(count)]
        return [(kind.__name__, softened(kind(self.ground, self.rng), K)) for kind in kinds]

    def moved(self, best: End) -> End:
        """Return the best of a few split-and-merge moves from an end, climbed to the end."""
        resps = list(islice(moves(best.ascent.mixture, self.ground, self.rng), MOVES_AT_ONCE))
        if not resps:
            return best
        (first, *_) = self.raced([(MOVED, resp) for resp in resps])
        return self.finished([first])[0]


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
        Number of starts that are climbed to the end; three times as many race for it, and as many again are climbed
        if the first ones do not agree.
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
    racers = at.raced(at.drawn(RACERS_PER_START * n_init))
    final = finalists(racers, n_init)
    ends = at.ranked(at.finished(final))
    if not evidence(ends, scale).agree:
        reserve = [each for each in racers if each not in final][:n_init]
        ends = at.ranked([*ends, *at.finished(reserve)])
    said = evidence(ends, scale)
    if len(ends) > 1 and (said.meeting < said.count or said.kinds_meeting < SURE):
        ends = improved(at, ends, scale, min(MOVES, n_init))
    chosen = different(ends, scale)
    values = tuple(scale * end.ascent.penalised for end in chosen)
    return Found(tuple(end.ascent.mixture for end in chosen), values, evidence(ends, scale))


def finalists(racers: Sequence[End], count: int) -> list[End]:
    """Select the first ``count`` racers, at most half of them of one kind as far as others are left."""
    chosen: list[End] = []
    for each in racers:
        if sum(other.kind == each.kind for other in chosen) < (count + 1) // 2:
            chosen.append(each)
    rest = [each for each in racers if each not in chosen]
    return (chosen + rest)[:count]


def improved(at: Search, ends: list[End], scale: float, patience: int) -> list[End]:
    """Apply split-and-merge moves to the best end until ``patience`` batches in a row do not improve it."""
    fruitless = 0
    while fruitless < patience:
        candidate = at.moved(ends[0])
        found = at.ranked([candidate, *ends])
        better = found[0] is candidate and scale * (candidate.ascent.penalised - ends[0].ascent.penalised) > UNIT
        ends, fruitless = (found, 0) if better else (ends, fruitless + 1)
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
