"""Federated EM: the likelihood of all rows of all sites climbed exactly, one sum over sites per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit.checks import check_fittable, check_start, on_floor
from consilience.fit.climb import Ascent, Climb, Expect, climb
from consilience.fit.fitting import Fit, finished
from consilience.fit.specification import Specification
from consilience.fit.starts import SUBSAMPLE
from consilience.fit.summary import ColumnSummary
from consilience.model.information import is_informable
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.protocols.dialogue import Dialogue, Each, Total, together
from consilience.protocols.questions import Answers, Candidates, FitLocally, LogLikelihood, Several, Summarise

CANDIDATES = 10
"""Most sites that are asked for a start."""
GUESSES = 5
"""Starts drawn from the summary alone, where no site has rows enough for one."""


@dataclass(frozen=True)
class FederatedEM:
    """Exact EM over sites: safeguarded steps, then Newton, standard errors at the end; the pooled fit to rounding.

    Rounds: one for means and scales; without a given start one in which large sites (at most 10) fit a sample of their
    rows and one in which all sites say how likely those mixtures are; then one per step.

    Parameters
    ----------
    n_climbs : int
        How many of the best starts are climbed, side by side in the same messages; the best end is taken.
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

    n_climbs: int = 1
    newton: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.n_climbs <= CANDIDATES:
            raise InvalidInputError(f"n_climbs={self.n_climbs!r}: expected a whole number from 1 to {CANDIDATES}")

    def dialogue(
        self,
        specifications: Sequence[Specification],
        d: int,
        q: int,
        *,
        start: Mixture | None = None,
        seed: int = 0,
        n_init: int = 6,
        tol: float = 1e-9,
        max_iter: int = 500,
    ) -> Dialogue[tuple[Fit, ...]]:
        """One fit for each specification, all of them in the same messages.

        Parameters
        ----------
        specifications : sequence of Specification
        d, q : int
            Covariates and responses.
        start : Mixture or None
            A start in place of the sites' own.
        seed, n_init : int
            Of the starts at the sites.
        tol, max_iter
            As in :func:`~consilience.fit.climb`.
        """
        summaries: Mapping[str, ColumnSummary] = yield Each(Summarise(d, q))
        summary = reduce(add, summaries.values())
        starters = large_sites({site: part.weight for site, part in summaries.items()})

        def one(specification: Specification) -> Dialogue[Fit]:
            check_fittable(specification, summary)
            penalty = specification.penalty(summary)
            if start is None:
                question = FitLocally(specification, summary, seed, n_init)
                starts = yield from best_candidates(question, penalty, starters, self.n_climbs)
            else:
                check_start(start, specification.blank(summary))
                starts = [start.in_coordinates(summary.design(specification.intercept))]
            climbs = [climb(at, penalty, tol=tol, max_iter=max_iter, newton=self.newton) for at in starts]
            ascents = yield from together([totalled(each) for each in climbs])
            return (yield from concluded(ascents, penalty))

        return (yield from together([one(specification) for specification in specifications]))


def large_sites(weights: Mapping[str, float]) -> tuple[str, ...]:
    """The sites that are asked for a start: of those with rows enough, or of the largest, at most ten, spread evenly.

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


def totalled(steps: Climb) -> Dialogue[Ascent]:
    """A climb whose questions are asked of all sites.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit import climb
    >>> from consilience.model import Penalty
    >>> next(totalled(climb(soft(10, random_state=0).truth, Penalty()))).question.information
    False
    """
    try:
        question = next(steps)
        while True:
            question = steps.send((yield Total(question)))
    except StopIteration as reached:
        ascent: Ascent = reached.value
        return ascent


def concluded(ascents: Sequence[Ascent], penalty: Penalty) -> Dialogue[Fit]:
    """The fit at the best end, with the observed information in its statistics where there can be one."""
    ranked = sorted(ascents, key=lambda ascent: (on_floor(ascent.mixture, penalty), -ascent.penalised))
    best = ranked[0]
    if best.statistics.information is None and is_informable(best.mixture):
        best = replace(best, statistics=(yield Total(Expect(best.mixture, information=True))))
    values = tuple(ascent.penalised / max(ascent.statistics.weight, 1.0) for ascent in ranked)
    return finished(best, penalty, values)


def best_candidates(
    question: FitLocally, penalty: Penalty, sites: tuple[str, ...], wanted: int
) -> Dialogue[list[Mixture]]:
    """The ``wanted`` starts that explain the rows of all sites best, of those that ``sites`` find in their own."""
    found: Mapping[str, Candidates] = yield Each(question, sites)
    candidates = [mixture for site in found.values() for mixture in site.mixtures]
    if not candidates:
        candidates = list(guesses(question))
    if len(candidates) == 1:
        return candidates
    answers: Answers = yield Total(Several(tuple(LogLikelihood(mixture) for mixture in candidates)))
    values = [at.log_likelihood - m.ridge(penalty) for at, m in zip(answers.items, candidates, strict=True)]
    order = sorted(range(len(values)), key=lambda i: (on_floor(candidates[i], penalty), -values[i]))
    return [candidates[i] for i in order[:wanted]]


def guesses(question: FitLocally) -> Iterator[Mixture]:
    """Mixtures of equal experts, each expert and its gate moved a random step: starts that need no rows.

    Examples
    --------
    >>> summary = ColumnSummary(9.0, np.zeros(1), np.ones(1), np.zeros(1), np.eye(1))
    >>> [mixture.K for mixture in guesses(FitLocally(Specification(K=2), summary, seed=0, n_init=4))]
    [2, 2, 2, 2, 2]
    """
    rng = np.random.default_rng(question.seed)
    blank = question.specification.blank(question.summary)
    spread = 1.0
    if question.specification.family == "gaussian":
        spread = np.sqrt(np.diagonal(question.summary.y_covariance).mean())
    for _ in range(GUESSES):
        coefficients = spread * rng.standard_normal(blank.experts.free_coefficients().size) / np.sqrt(blank.design.p)
        experts = blank.experts.moved(coefficients, np.zeros(blank.experts.shape_parameters))
        gate = blank.gate.moved(0.1 * rng.standard_normal(blank.gate.parameter_count))
        yield Mixture(blank.design, gate, experts)
