"""Scores of sites: climbs by scores alone, with a simulated information, and products of scores for the sandwich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Fit, Inference, Specification, StopReason, climb, infer
from consilience.fit.climb import Climb, newton_step
from consilience.fit.inference import default_kind
from consilience.fit.simulated_information import SimulatedInformation, complete_statistics
from consilience.messages import Dialogue, Each, Likelihood, LogLikelihood, ScoreProducts, ScoreSums, Total, together
from consilience.methods.task import Task
from consilience.model import Mixture, Penalty, Statistics
from consilience.model.expectation import Meat
from consilience.model.information import is_informable, score
from consilience.numerics.arrays import Array

INFORMATION = ("observed", "simulated")
"""Where the information comes from: the rows of the sites, or the mixture."""
LONGEST_LAST_STEP = 0.5
"""Largest last step, in standard errors by root mean square, after which intervals are shown. With a simulated
information, each step removes most of the error, so that the rest is a fraction of the last step."""
SPREAD_APART = 0.05
"""Largest relative difference of ``Σ π_k (1 - π_k)`` between simulated and real rows for intervals of the gate."""
SETTLED = 0.05
"""Length of a step, in the same unit, below which no other follows."""


def check_information_kind(information: str) -> None:
    """Raise an error unless the name of the information is known."""
    if information not in INFORMATION:
        raise InvalidInputError(f"information={information!r}: expected 'observed' or 'simulated'")


def check_simulable(specification: Specification) -> None:
    """Raise an error unless responses can be simulated from covariates alone; counts may have exposures."""
    if not specification.has_moments:
        raise InvalidInputError(
            f"information='simulated' is for Gaussian experts, not for family={specification.family!r}: use 'observed'"
        )


def by_scores(
    steps: Climb,
    simulation: SimulatedInformation,
    sites: tuple[str, ...] | None = None,
    *,
    first: Statistics | None = None,
    scored: float = float("inf"),
) -> Dialogue[Ascent]:
    """Run a climb; sites compute the score at its mixtures, and at the last one only the likelihood.

    Parameters
    ----------
    steps : generator
        The climb.
    simulation : Simulation
    sites : tuple of str or None
        Sites that are asked; None for all.
    first : Statistics or None
        The score at the first mixture, if it is known.
    scored : float
        Number of mixtures, the first included, at which the score is asked for; at later ones only the likelihood.
    """
    mixture, scores, asked = next(steps).mixture, first, 0
    if first is not None:
        check_ungrouped(first, mixture.K)
    try:
        while True:
            if scores is None or 0 < asked < scored:
                scores = yield Total(ScoreSums(mixture), sites)
                check_ungrouped(scores, mixture.K)
            elif asked:
                value: Likelihood = yield Total(LogLikelihood(mixture), sites)
                scores = with_likelihood(scores, value)
            asked, mixture = asked + 1, steps.send(complete_statistics(mixture, scores, simulation)).mixture
    except StopIteration as reached:
        ascent: Ascent = reached.value
        return ascent


def check_ungrouped(scores: Statistics, K: int) -> None:
    """Raise an error if labels belong to groups of rows: simulated rows have no groups."""
    if not np.isclose(scores.experts.plain[:K].sum(), scores.weight):
        raise InvalidInputError("information='simulated' is for one label per row, not for groups: use 'observed'")


def with_likelihood(scores: Statistics, value: Likelihood) -> Statistics:
    """Return the sums at the last mixture at which sites computed them, with the likelihood at the next one."""
    likelihood = value.log_likelihood
    return replace(scores, log_likelihood=likelihood, absolute=abs(likelihood), weight=value.weight)


def scoring_ascent(
    start: Mixture, penalty: Penalty, simulation: SimulatedInformation, max_iter: int
) -> Dialogue[Ascent]:
    """Take steps by scores until one is short, or does not raise the likelihood.

    Each mixture that is asked about shows more of the sites' rows, so that no step is tried twice, and after one that
    is expected to be short sites are asked for the likelihood only.
    """
    first: Statistics = yield Total(ScoreSums(start))
    mixture, trace = start, tuple[float, ...]()
    segments: tuple[int, ...] = (0,)
    while True:
        step = newton_step(mixture, complete_statistics(mixture, first, simulation), penalty)
        last = step is not None and length_of(step.decrement, mixture) < SETTLED
        steps = climb(mixture, penalty, max_iter=1, near=True)
        end = yield from by_scores(steps, simulation, first=first, scored=1 if last else 2)
        segments += tuple(max(len(trace) - 1, 0) + place for place in end.segments[1:])
        trace += end.trace[len(trace) > 0 :]
        short = end.n_iter > 0 and last_step(end) < SETTLED
        if last or short or not end.n_iter or len(trace) > max_iter:
            break
        mixture, first = end.mixture, end.statistics
    stop = StopReason.SETTLED if short else StopReason.MAX_ITER if end.n_iter else StopReason.STALLED
    reached = end.stop if end.stop.converged else stop
    return replace(end, trace=trace, segments=segments, passes=len(trace), stop=reached)


def length_of(gain: float, mixture: Mixture) -> float:
    """Return the length of a step that gains D in log-likelihood, in standard errors by root mean square.

    It is about ``sqrt(2 D / P)`` for P parameters.
    """
    return float(np.sqrt(2 * max(gain, 0.0) / mixture.parameter_count))


def spread_apart(ascent: Ascent, simulation: SimulatedInformation) -> float:
    """Return the largest relative difference of ``Σ π_k (1 - π_k)`` between simulated and real rows."""
    mixture, K = ascent.mixture, ascent.mixture.K
    if not mixture.gate.reads_covariates or K < 2:
        return 0.0
    exact = ascent.statistics.gate.plain[K:]
    simulated = simulation.statistics(mixture, ascent.statistics.weight).gate.plain[K:]
    return float(np.max(np.abs(simulated / np.maximum(exact, np.finfo(float).tiny) - 1)))


def last_step(ascent: Ascent) -> float:
    """Return the length of the last accepted step of an ascent, in standard errors by root mean square."""
    return length_of(ascent.trace[-1] - ascent.trace[-2], ascent.mixture)


def simulated_inference(fit: Fit, simulation: SimulatedInformation) -> Inference:
    """Compute standard errors from the simulated information.

    They are withheld if covariates were taken as normal, if the last step was long, or refused; those of the gate also
    if the spread of its weights over simulated rows is not that over the rows of the sites.
    """
    inference, ascent = infer(fit, kind="simulated"), fit.ascent
    found = {} if not (reason := _reason(ascent, simulation)) else {"gate": reason, "experts": reason}
    if not found and (apart := spread_apart(ascent, simulation)) > SPREAD_APART:
        found["gate"] = (
            f"the simulated covariates are not like the sites': the spread of the gate's weights differs by "
            f"{apart:.0%}, at most {SPREAD_APART:.0%}; information='observed' has no such limit"
        )
    others = {part: said for part, said in inference.withheld.items() if part not in found}
    return replace(inference, withheld=found | others)


def _reason(ascent: Ascent, simulation: SimulatedInformation) -> str:
    """Return why no standard errors are shown; empty if they are."""
    if simulation.is_normal:
        return (
            "covariates were simulated from a normal distribution, and standard errors could be wrong by a quarter: "
            "OneShot(information='simulated') with a softmax gate has summaries of them"
        )
    if not ascent.n_iter:
        return "" if ascent.stop.converged else "no step raised the likelihood"
    length = last_step(ascent)
    if length > LONGEST_LAST_STEP:
        return f"the last step had a length of {length:.2g} standard errors, at most {LONGEST_LAST_STEP}: take more"
    return ""


# ---------------------------------------------------------------- the meat of the sandwich


def ask_meats(
    ends: Sequence[Ascent], task: Task, sites: tuple[str, ...] | None = None, *, request: type[Total | Each] = Total
) -> Dialogue[list[Meat | None]]:
    """Ask for the products of scores at the ends of climbs, in one message; None where one table would not use them.

    ``request`` is the kind of the other requests of the round: with ``Each`` the answers are added here.
    """
    wanted = [uses_sandwich(end.statistics, end.mixture, task) for end in ends]
    asked = [
        ScoreProducts(end.mixture, end.statistics.experts.second) for end, w in zip(ends, wanted, strict=True) if w
    ]
    found = iter((yield from together([_summed(request(question, sites)) for question in asked])))
    return [next(found) if w else None for w in wanted]


def ask_meats_and_scores(
    ends: Sequence[Ascent], task: Task, sites: tuple[str, ...] | None = None
) -> Dialogue[tuple[list[Meat | None], list[Mapping[str, Array] | None]]]:
    """Ask for the products of scores at the ends of climbs and, in the same message, for the score of each site."""
    wanted = [uses_sandwich(end.statistics, end.mixture, task) for end in ends]
    asked: list[Dialogue[Any]] = [ask_meats(ends, task, sites, request=Each)]
    at = [end.mixture for end, w in zip(ends, wanted, strict=True) if w]
    asked += [each_score(mixture, sites) for mixture in at]
    meats, *each = yield from together(asked)
    known = zip(at, each, strict=True)
    scores = iter([{site: score(mixture, own) for site, own in found.items()} for mixture, found in known])
    return meats, [next(scores) if w else None for w in wanted]


def each_score(mixture: Mixture, sites: tuple[str, ...] | None = None) -> Dialogue[Mapping[str, Statistics]]:
    """Ask each site for its statistics at a mixture without second moments."""
    each: Mapping[str, Statistics] = yield Each(ScoreSums(mixture), sites)
    return each


def _summed(request: Total | Each) -> Dialogue[Meat]:
    answer = yield request
    total: Meat = answer if isinstance(request, Total) else reduce(add, answer.values())
    return total


def uses_sandwich(statistics: Statistics, mixture: Mixture, task: Task) -> bool:
    """Whether standard errors of one table with the same labels would use the sandwich, and sites may be asked."""
    kind = default_kind(statistics.weight, clustered=task.clustered)
    return task.sandwich and kind == "larger" and statistics.information is not None and is_informable(mixture)
