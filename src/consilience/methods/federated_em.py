"""Federated EM: exact maximisation of the likelihood of all rows of all sites, one sum over sites per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from operator import add

import numpy as np

from consilience.aggregate.disagreement import CrossLikelihood
from consilience.errors import InvalidInputError
from consilience.fit.checks import on_floor
from consilience.fit.climb import SAME_WEIGHT, Ascent, Climb, Expect, is_over_same_data
from consilience.fit.fitting import Fit
from consilience.fit.problem import Problem
from consilience.fit.starts import SUBSAMPLE
from consilience.fit.survey import Survey
from consilience.messages.dialogue import Dialogue, Each, Total, together
from consilience.messages.questions import (
    Answers,
    LogLikelihood,
    ProposeStart,
    ScoreSums,
    Several,
    StartCandidates,
    Summarise,
)
from consilience.methods.site_reports import cross_likelihood, surveyed, witnessed_by
from consilience.methods.task import Method, Task
from consilience.model.information import is_informable
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.summary import ColumnSummary

CANDIDATES = 10
"""Maximum number of sites that are asked for a start."""
GUESSES = 5
"""Number of starts drawn from the summary alone, if no site has enough rows to propose one."""


@dataclass(frozen=True)
class FederatedEM(Method):
    """Exact EM over sites, then Newton steps and standard errors; equal to the pooled fit up to rounding.

    Rounds: one for means and scales; without a given start, one in which large sites (at most 10) fit a sample of their
    rows and one in which all sites compute the likelihood of those mixtures; then one per step. The climbs from several
    starts share these rounds; the result says how many of them ended at its log-likelihood.

    Parameters
    ----------
    n_climbs : int
        Number of starts from which the likelihood is maximised, in the same messages; the best result is returned.
    newton : bool
        Whether to switch to Newton steps near the maximum.

    Examples
    --------
    >>> from consilience import Federation, FederatedEM, MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, random_state=0)
    >>> sites = Federation({"north": (data.X[:900], data.y[:900]), "south": (data.X[900:], data.y[900:])})
    >>> fit = sites.fit(MixtureOfExpertsRegressor(4, random_state=0), method=FederatedEM())
    >>> fit.model.converged_
    True
    """

    n_climbs: int = 4
    newton: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.n_climbs <= CANDIDATES:
            raise InvalidInputError(f"n_climbs={self.n_climbs!r}: expected a whole number from 1 to {CANDIDATES}")

    def dialogue(self, task: Task) -> Dialogue[tuple[Fit, ...]]:
        """Return one fit for each specification; all are computed in the same messages."""
        summary, starters, survey = yield from summarised(task)
        problems = [task.problem(each, summary, newton=self.newton) for each in task.specifications]
        starts = yield from together([starting_points(p, task, starters, self.n_climbs) for p in problems])
        ranked = yield from ranked_ends(problems, [each.mixtures for each in starts])
        best = yield from together([informed(p, found[0]) for p, found in zip(problems, ranked, strict=True)])
        best = yield from levelled(problems, best, information=True)
        best, surveys = yield from witnessed(problems, best, [each.cross for each in starts], survey)
        fits = [p.fit(end, found) for p, end, found in zip(problems, best, ranked, strict=True)]
        return tuple(replace(fit, survey=each) for fit, each in zip(fits, surveys, strict=True))


def summarised(task: Task) -> Dialogue[tuple[ColumnSummary, tuple[str, ...], Survey]]:
    """Ask each site for its summary; return the sum, the sites to ask for a start, and the survey of the sites."""
    summaries: Mapping[str, ColumnSummary] = yield Each(Summarise(task.d, task.q))
    with np.errstate(over="ignore", invalid="ignore"):  # check_fittable names the columns that overflow
        summary = reduce(add, summaries.values())
    return summary, large_sites({site: part.weight for site, part in summaries.items()}), surveyed(task, summaries)


@dataclass(frozen=True, eq=False)
class Starts:
    """Starting points, best first, and the likelihoods of the sites' models on each other's rows if sites sent them."""

    mixtures: list[Mixture]
    cross: CrossLikelihood | None = None


def starting_points(problem: Problem, task: Task, sites: tuple[str, ...], wanted: int) -> Dialogue[Starts]:
    """Return the given start, or the ``wanted`` best of those that ``sites`` propose."""
    problem.check()
    if task.start is not None:
        return Starts([problem.from_start(task.start)])
    question = ProposeStart(problem.specification, problem.summary, task.seed, task.n_init)
    return (yield from best_candidates(question, problem.penalty, sites, wanted))


def ranked_ends(problems: Sequence[Problem], starts: Sequence[Sequence[Mixture]]) -> Dialogue[list[list[Ascent]]]:
    """Run the climbs from all starts in the same messages; return the ascents of each problem, best first."""
    owners = [problem for problem, found in zip(problems, starts, strict=True) for _ in found]
    climbs = [problem.climb(at) for problem, at in zip(owners, chain(*starts), strict=True)]
    ends = yield from together([ask_total(steps) for steps in climbs])
    ends = yield from levelled(owners, ends)
    return [p.ranked([end for owner, end in zip(owners, ends, strict=True) if owner is p]) for p in problems]


def levelled(
    problems: Sequence[Problem], ends: Sequence[Ascent], *, information: bool = False
) -> Dialogue[tuple[Ascent, ...]]:
    """Return ascents over the same data: those that ended before a site left are continued without it."""
    ends = tuple(ends)
    while True:
        last = min(ends, key=lambda end: end.statistics.weight).statistics
        behind = [i for i, end in enumerate(ends) if not is_over_same_data(end.statistics, last)]
        if not behind:
            return ends
        again = yield from together([resumed(problems[i], ends[i], information=information) for i in behind])
        renewed = dict(zip(behind, again, strict=True))
        ends = tuple(renewed.get(i, end) for i, end in enumerate(ends))


def resumed(problem: Problem, ascent: Ascent, *, information: bool = False) -> Dialogue[Ascent]:
    """Continue an ascent over other data, as a new segment of its trace."""
    more = yield from ask_total(problem.climb(ascent.mixture))
    joined = replace(
        more,
        trace=ascent.trace + more.trace,
        passes=ascent.passes + more.passes,
        informed_passes=ascent.informed_passes + more.informed_passes,
        halvings=ascent.halvings + more.halvings,
        segments=ascent.segments + tuple(len(ascent.trace) + first for first in more.segments),
    )
    return (yield from informed(problem, joined)) if information else joined


def informed(problem: Problem, ascent: Ascent) -> Dialogue[Ascent]:
    """Return the ascent with the observed information in its statistics, if it can be computed."""
    if ascent.statistics.information is not None or not is_informable(ascent.mixture):
        return ascent
    statistics = yield Total(Expect(ascent.mixture, information=True))
    if is_over_same_data(statistics, ascent.statistics):
        return replace(ascent, statistics=statistics)
    return (yield from resumed(problem, ascent, information=True))


def witnessed(
    problems: Sequence[Problem], ends: Sequence[Ascent], crosses: Sequence[CrossLikelihood | None], survey: Survey
) -> Dialogue[tuple[tuple[Ascent, ...], list[Survey]]]:
    """Ask each site how well the final mixtures explain its rows; return the ascents and a survey for each.

    A site that leaves in this round is left out of the fits, as in any other round.
    """
    if len(survey.sites) < 2:
        return tuple(ends), [survey] * len(ends)
    each: Mapping[str, Answers] = yield Each(Several(tuple(ScoreSums(end.mixture) for end in ends)))
    surveys = []
    for i, (end, cross) in enumerate(zip(ends, crosses, strict=True)):
        joint = {site: answers.items[i] for site, answers in each.items()}
        surveys.append(witnessed_by(survey, cross, joint, end.mixture.K))
    weight = sum(answers.items[0].weight for answers in each.values())
    ascents = tuple(ends)
    if abs(weight - ends[0].statistics.weight) > SAME_WEIGHT * weight:
        again = [resumed(p, end, information=True) for p, end in zip(problems, ends, strict=True)]
        ascents = yield from levelled(problems, (yield from together(again)), information=True)
    return ascents, surveys


def large_sites(weights: Mapping[str, float]) -> tuple[str, ...]:
    """Select at most ten sites to ask for a start, evenly spaced among those with enough rows or the largest.

    Examples
    --------
    >>> large_sites({"a": 5.0, "b": 9000.0, "c": 4000.0})
    ('a', 'b', 'c')
    >>> large_sites({str(i): 4000.0 for i in range(20)})[:3]
    ('0', '2', '4')
    """
    least = min(sorted(weights.values(), reverse=True)[:CANDIDATES][-1], SUBSAMPLE)
    large = [site for site, weight in weights.items() if weight >= least]
    places = np.linspace(0, len(large), min(CANDIDATES, len(large)), endpoint=False)
    return tuple(large[int(place)] for place in places)


def ask_total(steps: Climb) -> Dialogue[Ascent]:
    """Run a climb, with each of its questions asked of all sites.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit import climb
    >>> from consilience.model import Penalty
    >>> next(ask_total(climb(soft(10, random_state=0).truth, Penalty()))).question.information
    False
    """
    try:
        question = next(steps)
        while True:
            question = steps.send((yield Total(question)))
    except StopIteration as reached:
        ascent: Ascent = reached.value
        return ascent


def best_candidates(question: ProposeStart, penalty: Penalty, sites: tuple[str, ...], wanted: int) -> Dialogue[Starts]:
    """Ask ``sites`` for starts; return the ``wanted`` ones with the highest likelihood over all sites."""
    found: Mapping[str, StartCandidates] = yield Each(question, sites)
    owners = [name for name, site in found.items() for _ in site.mixtures]
    candidates = [mixture for site in found.values() for mixture in site.mixtures]
    if not candidates:
        candidates = list(guesses(question))
    if len(candidates) == 1:
        return Starts(candidates)
    each: Mapping[str, Answers] = yield Each(Several(tuple(LogLikelihood(mixture) for mixture in candidates)))
    total = reduce(add, each.values())
    values = [at.log_likelihood - m.ridge(penalty) for at, m in zip(total.items, candidates, strict=True)]
    order = sorted(range(len(values)), key=lambda i: (on_floor(candidates[i], penalty), -values[i]))
    heard = {site: answers.items for site, answers in each.items()}
    cross = cross_likelihood(owners, heard, candidates[0].parameter_count, SUBSAMPLE)
    return Starts([candidates[i] for i in order[:wanted]], cross)


def guesses(question: ProposeStart) -> Iterator[Mixture]:
    """Generate starts without rows: equal experts, with random coefficients and a randomly moved gate.

    Examples
    --------
    >>> from consilience.fit import Specification
    >>> summary = ColumnSummary(9.0, np.zeros(1), np.ones(1), np.zeros(1), np.eye(1))
    >>> [mixture.K for mixture in guesses(ProposeStart(Specification(K=2), summary, seed=0, n_init=4))]
    [2, 2, 2, 2, 2]
    """
    rng = np.random.default_rng(question.seed)
    blank = question.specification.blank(question.summary)
    spread = blank.experts.coefficient_scale(question.summary)
    for _ in range(GUESSES):
        coefficients = spread * rng.standard_normal(blank.experts.free_coefficients().size) / np.sqrt(blank.design.p)
        experts = blank.experts.moved(coefficients, np.zeros(blank.experts.shape_parameters))
        gate = blank.gate.moved(0.1 * rng.standard_normal(blank.gate.parameter_count))
        yield Mixture(blank.design, gate, experts)
