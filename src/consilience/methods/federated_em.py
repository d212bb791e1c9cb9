"""Federated EM: exact maximisation of the likelihood of all rows of all sites, one sum over sites per step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, islice
from operator import add
from typing import Any

import numpy as np

from consilience.aggregate.disagreement import CrossLikelihood
from consilience.errors import InvalidInputError, LargeMessagesWarning, warn
from consilience.fit import Ascent, Expect, Fit, Problem, Specification, infer
from consilience.fit.climb import Climb, is_over_same_data
from consilience.fit.fitting import polish
from consilience.fit.inference import coefficient_covariances
from consilience.fit.influence import left_out_by_scores
from consilience.fit.parameters import parameters
from consilience.fit.specification import is_at_bound
from consilience.fit.starts import SUBSAMPLE, StartEnds
from consilience.fit.survey import Survey
from consilience.messages import (
    Answers,
    Dialogue,
    Each,
    Likelihood,
    LogLikelihood,
    ProposeStart,
    ScoreProducts,
    ScoreSums,
    Several,
    StartCandidates,
    Summarise,
    Total,
    together,
)
from consilience.methods.own_gates import (
    ask_own_meats,
    best_end,
    check_own_gates,
    check_per_site,
    climb_gates,
    climb_own_gates,
    own_gates_fit,
    own_parameters,
)
from consilience.methods.score_steps import (
    ask_meats,
    each_score,
)
from consilience.methods.site_reports import (
    UNLIKE,
    compare_sites,
    cross_likelihood,
    parameter_columns,
    survey_sites,
    total_summary,
)
from consilience.methods.task import Method, QuestionKind, Task
from consilience.model import ColumnSummary, Mixture, Penalty, layout_of
from consilience.model.families.registry import Requirement
from consilience.model.information import is_informable, score
from consilience.model.mixture import alignment, score_layout
from consilience.numerics.arrays import Array

CANDIDATES = 10
"""Maximum number of sites that are asked for a start."""
JUDGES = 300
"""Maximum number of sites that compute the likelihoods of all starts; evenly spaced if there are more."""
SITES_PER_SAMPLED = 8
"""Number of large sites for each one over which several starts are climbed, before the best goes on over all; ..."""
LEAST_SAMPLED = 2
"""... of which there are at least as many."""
GUESSES = 5
"""Number of starts drawn from the summary alone, if no site has enough rows to propose one."""
USUAL = 1.0
"""Difference in log-likelihood per row between honest sites: one may have more noise than another."""
SAME_MAXIMUM = 0.01
"""Difference of the log-likelihoods at the ends of two climbs up to which they are taken for the same maximum."""
Sites = tuple[str, ...] | None
"""Sites that take part; None for all."""


@dataclass(frozen=True)
class FederatedEM(Method):
    """Exact EM over sites, then Newton steps and standard errors: the pooled fit of the sites used, up to rounding.

    Rounds: one for means and scales; without a given start, one in which large sites (at most 10) fit a sample of their
    rows and one in which all sites compute the likelihood of those mixtures; then one per step, and a last one in which
    each site says how well the result explains its rows, and sends the products of scores that standard errors of one
    table would use. The climbs from several starts share these rounds; the result says how many of them ended at its
    log-likelihood. Where eight or more sites have 3,000 rows each, the starts are climbed over an eighth of these
    sites first, at least two, and the best goes on over all, with its first steps by the curvature of these sites:
    about four rounds more, and less than half of the passes over all rows.

    Parameters
    ----------
    n_climbs : int
        Number of starts from which the likelihood is maximised, in the same messages; the best result is returned.
    newton : bool
        Whether to switch to Newton steps near the maximum.
    screen : bool
        Whether a site is left out whose rows the experts of the other sites do not explain: at a gate of its own they
        explain them worse than its own model, by more than 0.25 in log-likelihood per row. The likelihood of the others
        is then maximised again. The result names the site; one that differs by less is named and used, and one with
        other shares of the same experts is used with a remark.
    per_site : {None, "gate", "shares"}
        What each site has of its own, while the experts are common: nothing, its gate, or the intercepts of its gate,
        which are its shares. It is the model of sites with other patients and the same disease; the result has a model
        of each site, their shares with intervals, and a test of equal gates (:class:`OwnGatesFit`).
    totals_only : bool
        Whether to ask for sums over sites only, as masked sums and coordinators of regions give them. Starts are the
        given one, or drawn without rows; no site is surveyed or set aside.

    Examples
    --------
    >>> from consilience import Federation, FederatedEM, MixtureOfExpertsRegressor
    >>> from consilience.datasets import soft
    >>> data = soft(2000, n_experts=2, n_features=3, random_state=0)
    >>> sites = Federation({"north": (data.X[:900], data.y[:900]), "south": (data.X[900:], data.y[900:])})
    >>> fit = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=FederatedEM())
    >>> fit.model.converged_
    True
    """

    n_climbs: int = 4
    newton: bool = True
    screen: bool = True
    per_site: str | None = None
    totals_only: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_climbs <= CANDIDATES:
            raise InvalidInputError(f"n_climbs={self.n_climbs!r}: expected a whole number from 1 to {CANDIDATES}")
        check_per_site(self.per_site)
        if self.per_site is not None and self.totals_only:
            raise InvalidInputError("a gate of each site needs the sums of each site: pass totals_only=False")

    def check_shared(self, specifications: Sequence[Specification]) -> None:
        """Raise an error if experts share coefficients and sites have gates of their own."""
        if self.per_site is not None and any(specification.shared for specification in specifications):
            raise InvalidInputError(
                f"per_site={self.per_site!r} with shared coefficients is not supported: leave one of the two out"
            )

    def question_kinds(self, task: Task) -> Sequence[QuestionKind]:
        """Return what the starts are found by, sums at common models, and what each site says of the result."""
        sums = QuestionKind(Expect, "in each step, until the likelihood rises no more")
        found = [QuestionKind(Summarise, "first", 1), sums]
        if task.start is None:
            proposed = QuestionKind(ProposeStart, "second, if the site is one of the ten largest", 1)
            found += [] if self.totals_only else [proposed]
            found.append(QuestionKind(LogLikelihood, "to choose among starts", 1))
        at_ends: list[type] = [] if self.totals_only else [ScoreSums]
        at_ends += [ScoreProducts] if task.sandwich else []
        return [*found, *(QuestionKind(each, "where the steps end") for each in at_ends)]

    def dialogue(self, task: Task) -> Dialogue[tuple[Fit, ...]]:
        """Return one fit for each specification; all are computed in the same messages."""
        if self.totals_only:
            return (yield from self._from_totals(task))
        summaries = yield from each_summary(task)
        survey, starters = survey_sites(task, summaries), large_sites(summaries)
        problems = self._problems(task, summaries)
        warn_if_large(problems, self.n_climbs if task.start is None else 1)
        judging = judges(tuple(summaries), starters)
        starts = yield from together([starting_points(p, task, starters, self.n_climbs, judging) for p in problems])
        climbed, ends = yield from climbs(problems, starts, survey, None, task, sample=sample_of(summaries))
        named = most_flexible(climbed).survey.named if self.screen else {}
        while named and len(named) < len(summaries):  # sites that the others explain after all are taken back
            members = tuple(site for site in summaries if site not in named)
            of_members = self._problems(task, {site: summaries[site] for site in members})
            again = [each.among(members, p, self.n_climbs) for each, p in zip(starts, of_members, strict=True)]
            sample = sample_of({site: summaries[site] for site in members})
            without = yield from climbs(of_members, again, survey.with_reasons(named), members, task, sample=sample)
            unlike = yield from unlike_sites(most_flexible(without[0]), starts, named)
            if len(unlike) == len(named):
                pairs = zip(climbed, without[0], strict=True)
                fits = tuple(say_change(fit, whole, named, parameter_columns(task)[: task.d]) for whole, fit in pairs)
                return (yield from self._with_own_gates(of_members, fits, without[1], members, task))
            named = {site: said for site, said in named.items() if site in unlike}
        return (yield from self._with_own_gates(problems, climbed, ends, tuple(summaries), task))

    def _from_totals(self, task: Task) -> Dialogue[tuple[Fit, ...]]:
        summary: ColumnSummary = yield Total(Summarise(task.d, task.q))
        problems = [task.problem(each, summary, newton=self.newton) for each in task.specifications]
        warn_if_large(problems, self.n_climbs if task.start is None else 1)
        starts = yield from together([public_starts(p, task, self.n_climbs) for p in problems])
        return (yield from climbs(problems, starts, Survey(), None, task))[0]

    def _with_own_gates(
        self,
        problems: Sequence[Problem],
        fits: tuple[Fit, ...],
        ends: Sequence[Sequence[Ascent]],
        sites: tuple[str, ...],
        task: Task,
    ) -> Dialogue[tuple[Fit, ...]]:
        """Return the fits with a gate of each site, from the different ends of the climbs with a common gate."""
        if self.per_site is None:
            return fits
        ends = [different_maxima(each) for each in ends]
        for problem in problems:
            check_own_gates(problem.blank)
        own = [own_parameters(problem.blank, self.per_site) for problem in problems]
        climbing = [
            climb_own_gates(dict.fromkeys(sites, end.mixture), places, problem.penalty, problem.max_iter)
            for problem, places, found in zip(problems, own, ends, strict=True)
            for end in found
        ]
        reached = iter((yield from together(climbing)))
        by_problem = [list(islice(reached, len(each))) for each in ends]
        best = [best_end(each, fit.penalty) for each, fit in zip(by_problem, fits, strict=True)]
        meats = yield from together([ask_own_meats(end, task) for end in best])
        known = zip(by_problem, fits, meats, strict=True)
        return tuple(own_gates_fit(*each, institutions=task.institutions) for each in known)

    def _problems(self, task: Task, summaries: Mapping[str, ColumnSummary]) -> list[Problem]:
        return [task.problem(each, total_summary(summaries), newton=self.newton) for each in task.specifications]


def climbs(
    problems: Sequence[Problem],
    starts: Sequence[Starts],
    survey: Survey,
    sites: Sites,
    task: Task,
    *,
    sample: tuple[str, ...] = (),
) -> Dialogue[tuple[tuple[Fit, ...], list[list[Ascent]]]]:
    """Maximise the likelihood of the rows of some sites, and ask how well the results explain those of each site.

    The ends of all climbs of each problem are returned too, best first. With a ``sample`` of the sites, several starts
    are climbed over these alone, and the best of each problem goes on over all.
    """
    mixtures, on_sample = [each.mixtures for each in starts], None
    if sample and max(map(len, mixtures)) > 1:
        on_sample = yield from ranked_ends(problems, mixtures, sample)
        ranked = yield from ends_from_sample(problems, [found[0] for found in on_sample], sample, sites)
    else:
        ranked = yield from ranked_ends(problems, mixtures, sites)
    best = yield from together([ask_information(p, found[0], sites) for p, found in zip(problems, ranked, strict=True)])
    best = yield from over_same_data(problems, best, sites, information=True)
    steps = [polish(end, p.penalty) for p, end in zip(problems, best, strict=True)]
    best = yield from together([ask_total(each, sites) for each in steps])
    columns = parameter_columns(task)[: task.d]
    witnesses = ask_witnesses(problems, best, [each.cross for each in starts], survey, sites, columns=columns)
    request = Each if survey.sites else Total
    last: list[Dialogue[Any]] = [witnesses, ask_meats(best, task, sites, request=request)]  # in one message
    (final, surveys, scores), meats = yield from together(last)
    if any(a is not b for a, b in zip(final, best, strict=True)):  # a site has left in this round
        scores, meats = [None] * len(final), (yield from ask_meats(final, task, sites))
    known_ends = zip(problems, final, ranked, on_sample or ranked, strict=True)
    fits = [replace(p.fit(end), starts=start_ends(each, sampled)) for p, end, each, sampled in known_ends]
    known = zip(fits, surveys, meats, scores, strict=True)
    told = [replace(fit, survey=each, meat=meat, site_scores=own) for fit, each, meat, own in known]
    return tuple(replace(f, left_out=left_out_by_scores(f, f.site_scores, task.institutions)) for f in told), ranked


def ends_from_sample(
    problems: Sequence[Problem], sampled: Sequence[Ascent], sample: tuple[str, ...], sites: Sites
) -> Dialogue[list[list[Ascent]]]:
    """Climb over all rows from the best end over the sample of each problem, first by the sample's curvature."""
    asked = [ask_information(problem, end, sample) for problem, end in zip(problems, sampled, strict=True)]
    sampled = yield from together(asked)
    steps = [problem.climb_from_sample(end) for problem, end in zip(problems, sampled, strict=True)]
    ends = yield from together([ask_total(each, sites) for each in steps])
    return [[end] for end in (yield from over_same_data(problems, ends, sites))]


def start_ends(ends: Sequence[Ascent], sampled: Sequence[Ascent]) -> StartEnds:
    """Return the values that the climbs reached, those over a sample of the sites scaled to all rows."""
    scale = ends[0].statistics.weight / max(sampled[0].statistics.weight, 1.0)
    values = (ends[0].penalised + scale * (each.penalised - sampled[0].penalised) for each in sampled)
    return StartEnds(tuple(values), tuple(f"start {i}" for i in range(len(sampled))))


def sample_of(summaries: Mapping[str, ColumnSummary]) -> tuple[str, ...]:
    """Select every eighth large site, at least two of eight or more, to compare the starts by climbs; else none.

    The starts are fits to a site's sample of ``SUBSAMPLE`` rows. Where every site has more, a few of them tell which
    start leads to the best maximum, for a fraction of the passes over all rows.
    """
    large = [site for site, summary in summaries.items() if summary.weight >= SUBSAMPLE]
    return (
        tuple(large[:: min(SITES_PER_SAMPLED, len(large) // LEAST_SAMPLED)]) if len(large) >= SITES_PER_SAMPLED else ()
    )


def unlike_sites(without: Fit, starts: Sequence[Starts], named: Iterable[str]) -> Dialogue[set[str]]:
    """Return the named sites that the experts of the other sites do not explain, at a gate of its own each.

    A site whose own model is degenerate is compared with what is usual at the others.

    Parameters
    ----------
    without : Fit
        Fit to the rows of the other sites.
    starts : sequence of Starts
        With the likelihoods of the sites' own models.
    named : iterable of str
    """
    mixture, statistics = without.ascent.mixture, without.ascent.statistics
    cross = next((each.cross for each in reversed(starts) if each.cross is not None), None)
    if cross is None or mixture.K == 1:
        return set(named)
    found = yield from climb_gates(dict.fromkeys(named, mixture), without.penalty)
    shared = mixture.parameter_count - mixture.gate.parameter_count
    optimism = np.diagonal(cross.values) - shared / (2 * cross.rows)
    own = dict(zip(cross.sites, optimism, strict=True))
    usual = statistics.log_likelihood / max(statistics.weight, 1.0) - USUAL
    reached = {site: at.log_likelihood / max(at.weight, 1.0) for site, (_, at) in found.items()}
    return {site for site in named if own.get(site, usual) - reached.get(site, -np.inf) > UNLIKE}


def say_change(fit: Fit, whole: Fit, left_out: Iterable[str], columns: tuple[str, ...]) -> Fit:
    """Return a fit without some sites, whose survey says how the coefficient that differs most would be with them.

    Parameters
    ----------
    fit, whole : Fit
        Without these sites, and with all.
    left_out : iterable of str
    columns : tuple of str
        Names of the covariates.
    """
    if fit.ascent.statistics.information is None:
        return fit
    there = parameters(whole.mixture.permuted(alignment(whole.mixture, fit.mixture))).experts
    here, error = parameters(fit.mixture).experts, infer(fit).standard_errors().experts
    z = np.nan_to_num(np.abs(there - here) / error)
    k, c, t = (int(i) for i in np.unravel_index(z.argmax(), z.shape))
    names = ("the intercept", *columns) if fit.mixture.design.intercept else columns
    if len(names) != z.shape[2] or z[k, c, t] == 0:
        return fit
    change = f"{there[k, c, t]:.3g} instead of {here[k, c, t]:.3g}, {z[k, c, t]:.1f} standard errors apart"
    said = f"with all sites {names[t]} of expert {k + 1} would be {change}"
    return replace(fit, survey=fit.survey.with_reasons(dict.fromkeys(left_out, said)))


def different_maxima(ends: Sequence[Ascent]) -> list[Ascent]:
    """Return the ends of climbs that are different maxima, best first."""
    found: list[Ascent] = []
    for end in ends:
        if all(abs(end.penalised - other.penalised) > SAME_MAXIMUM for other in found):
            found.append(end)
    return found


def most_flexible(fits: Sequence[Fit]) -> Fit:
    """Return the fit with the most experts: a site that even this one does not explain is unlike the others."""
    return max(fits, key=lambda fit: fit.mixture.K)


def each_summary(task: Task) -> Dialogue[Mapping[str, ColumnSummary]]:
    """Ask each site for its summary."""
    summaries: Mapping[str, ColumnSummary] = yield Each(Summarise(task.d, task.q))
    return summaries


def survey_columns(task: Task) -> Dialogue[tuple[ColumnSummary, tuple[str, ...], Survey]]:
    """Ask each site for its summary; return the sum, the sites to ask for a start, and the survey of the sites."""
    summaries = yield from each_summary(task)
    return total_summary(summaries), large_sites(summaries), survey_sites(task, summaries)


@dataclass(frozen=True, eq=False)
class Starts:
    """Starting points, best first.

    Parameters
    ----------
    mixtures : list of Mixture
    cross : CrossLikelihood or None
        Likelihoods of the sites' models on each other's rows, if sites sent them.
    proposed : list of (str, Mixture)
        All mixtures that sites proposed, each with its site.
    heard : mapping of str to sequence of Likelihood
        Likelihoods of the proposed mixtures on the rows of each site.
    """

    mixtures: list[Mixture]
    cross: CrossLikelihood | None = None
    proposed: list[tuple[str, Mixture]] = field(default_factory=list)
    heard: Mapping[str, Sequence[Likelihood]] = field(default_factory=dict)

    def among(self, members: Sequence[str], problem: Problem, wanted: int) -> Starts:
        """Return the ``wanted`` best starts of the members, on the rows of the members."""
        own = [i for i, (site, _) in enumerate(self.proposed) if site in members]
        if not own:
            return replace(self, mixtures=[problem.from_start(mixture) for mixture in self.mixtures])
        value = {i: sum(self.heard[site][i].log_likelihood for site in members if site in self.heard) for i in own}
        best = sorted(own, key=lambda i: -value[i])[:wanted]
        return replace(self, mixtures=[problem.from_start(self.proposed[i][1]) for i in best])


def starting_points(
    problem: Problem, task: Task, sites: tuple[str, ...], wanted: int, judging: Sites = ()
) -> Dialogue[Starts]:
    """Return the given start, or the ``wanted`` best of those that ``sites`` propose.

    The sites ``judging`` (None for all) each state their likelihoods of the proposed starts; if there are none, the
    sums over all sites are asked for.
    """
    problem.check()
    if task.start is not None:
        return Starts([problem.from_start(task.start)])
    question = ProposeStart(problem.specification, problem.summary, task.seed, task.n_init)
    return (yield from best_candidates(question, problem.penalty, sites, wanted, judging))


def public_starts(problem: Problem, task: Task, wanted: int) -> Dialogue[Starts]:
    """Return the given start, or the ``wanted`` best of those that are drawn without rows."""
    problem.check()
    if task.start is not None:
        return Starts([problem.from_start(task.start)])
    drawn = list(guesses(ProposeStart(problem.specification, problem.summary, task.seed, task.n_init)))
    total: Answers = yield Total(Several(tuple(LogLikelihood(mixture) for mixture in drawn)))
    order = sorted(range(len(drawn)), key=lambda i: -total.items[i].log_likelihood)
    return Starts([drawn[i] for i in order[:wanted]])


def ranked_ends(
    problems: Sequence[Problem],
    starts: Sequence[Sequence[Mixture]],
    sites: Sites = None,
) -> Dialogue[list[list[Ascent]]]:
    """Run the climbs from all starts in the same messages; return the ascents of each problem, best first."""
    owners = [problem for problem, found in zip(problems, starts, strict=True) for _ in found]
    steps_of_all = [problem.climb(at) for problem, at in zip(owners, chain(*starts), strict=True)]
    ends = yield from together([ask_total(steps, sites) for steps in steps_of_all])
    ends = yield from over_same_data(owners, ends, sites)
    return [p.ranked([end for owner, end in zip(owners, ends, strict=True) if owner is p]) for p in problems]


def over_same_data(
    problems: Sequence[Problem], ends: Sequence[Ascent], sites: Sites = None, *, information: bool = False
) -> Dialogue[tuple[Ascent, ...]]:
    """Return ascents over the same data: those that ended before a site left are continued without it."""
    ends = tuple(ends)
    while True:
        last = min(ends, key=lambda end: end.statistics.weight).statistics
        behind = [i for i, end in enumerate(ends) if not is_over_same_data(end.statistics, last)]
        if not behind:
            return ends
        again = yield from together([resume(problems[i], ends[i], sites, information=information) for i in behind])
        renewed = dict(zip(behind, again, strict=True))
        ends = tuple(renewed.get(i, end) for i, end in enumerate(ends))


def resume(problem: Problem, ascent: Ascent, sites: Sites = None, *, information: bool = False) -> Dialogue[Ascent]:
    """Continue an ascent over other data, as a new segment of its trace."""
    more = yield from ask_total(problem.climb(ascent.mixture), sites)
    joined = replace(
        more,
        trace=ascent.trace + more.trace,
        passes=ascent.passes + more.passes,
        informed_passes=ascent.informed_passes + more.informed_passes,
        halvings=ascent.halvings + more.halvings,
        segments=ascent.segments + tuple(len(ascent.trace) + first for first in more.segments),
    )
    return (yield from ask_information(problem, joined, sites)) if information else joined


def ask_information(problem: Problem, ascent: Ascent, sites: Sites = None) -> Dialogue[Ascent]:
    """Return the ascent with the observed information in its statistics, if it can be computed."""
    if ascent.statistics.information is not None or not is_informable(ascent.mixture):
        return ascent
    statistics = yield Total(Expect(ascent.mixture, information=True), sites)
    if is_over_same_data(statistics, ascent.statistics):
        return replace(ascent, statistics=statistics)
    return (yield from resume(problem, ascent, sites, information=True))


def ask_witnesses(
    problems: Sequence[Problem],
    ends: Sequence[Ascent],
    crosses: Sequence[CrossLikelihood | None],
    survey: Survey,
    sites: Sites = None,
    *,
    columns: tuple[str, ...] = (),
) -> Dialogue[tuple[tuple[Ascent, ...], list[Survey], list[Mapping[str, Array] | None]]]:
    """Ask each site how well the final mixtures explain its rows; return the ascents, surveys and scores of sites.

    A site that leaves in this round is left out of the fits, as in any other round.
    """
    if len(survey.sites if sites is None else sites) < 2:
        return tuple(ends), [survey] * len(ends), [None] * len(ends)
    found = yield from together([each_score(end.mixture, sites) for end in ends])
    surveys = []
    largest = max(end.mixture.K for end in ends)  # a smaller order may explain no site
    for problem, end, cross, joint in zip(problems, ends, crosses, found, strict=True):
        penalty = problem.penalty if largest == end.mixture.K else None
        judged = compare_sites(
            survey,
            cross,
            joint,
            end.mixture,
            penalty=penalty,
            columns=columns,
            covariances=coefficient_covariances(end.mixture, end.statistics, problem.penalty),
        )
        surveys.append((yield from judged))
    total = reduce(add, found[0].values())
    scores: list[Mapping[str, Array] | None] = [
        {site: score(end.mixture, own) for site, own in joint.items()} for end, joint in zip(ends, found, strict=True)
    ]
    if is_over_same_data(total, ends[0].statistics):
        return tuple(ends), surveys, scores
    again = [resume(p, end, sites, information=True) for p, end in zip(problems, ends, strict=True)]
    ends = yield from together(again)
    return (yield from over_same_data(problems, ends, sites, information=True)), surveys, scores


def large_sites(summaries: Mapping[str, ColumnSummary]) -> tuple[str, ...]:
    """Select at most ten sites to ask for a start, evenly spaced among those with enough rows or the largest."""
    weights = {site: summary.weight for site, summary in summaries.items()}
    least = min(sorted(weights.values(), reverse=True)[:CANDIDATES][-1], SUBSAMPLE)
    large = [site for site, weight in weights.items() if weight >= least]
    places = np.linspace(0, len(large), min(CANDIDATES, len(large)), endpoint=False)
    return tuple(large[int(place)] for place in places)


def judges(sites: tuple[str, ...], starters: tuple[str, ...]) -> Sites:
    """Select the sites that compare starts: all (None), or those that propose them and others, evenly spaced."""
    if len(sites) <= JUDGES:
        return None
    others = [site for site in sites if site not in starters]
    places = np.linspace(0, len(others), JUDGES - len(starters), endpoint=False)
    chosen = {*starters, *(others[int(place)] for place in places)}
    return tuple(site for site in sites if site in chosen)


def ask_total(steps: Climb, sites: Sites = None) -> Dialogue[Ascent]:
    """Run a climb, with each of its questions asked of ``sites``, by default all; return where it ended.

    Parameters
    ----------
    steps : generator
        As :meth:`Problem.climb <consilience.fit.Problem.climb>` or
        :meth:`Problem.evaluate <consilience.fit.Problem.evaluate>` return it.
    sites : tuple of str or None

    Examples
    --------
    >>> from consilience.methods import ask_total
    >>> from consilience.datasets import soft
    >>> from consilience.fit import climb
    >>> from consilience.model import Penalty
    >>> next(ask_total(climb(soft(10, random_state=0).truth, Penalty()))).question.information
    False
    """
    try:
        question = next(steps)
        while True:
            question = steps.send((yield Total(question, sites)))
    except StopIteration as reached:
        ascent: Ascent = reached.value
        return ascent


def best_candidates(
    question: ProposeStart, penalty: Penalty, sites: tuple[str, ...], wanted: int, judging: Sites = ()
) -> Dialogue[Starts]:
    """Ask ``sites`` for starts; return the ``wanted`` ones with the highest likelihood over those judging, or all."""
    found: Mapping[str, StartCandidates] = yield Each(question, sites)
    owners = [name for name, site in found.items() for _ in site.mixtures]
    candidates = [mixture for site in found.values() for mixture in site.mixtures]
    if not candidates:
        candidates = list(guesses(question))
    if len(candidates) == 1:
        return Starts(candidates)
    asked, cross = Several(tuple(LogLikelihood(mixture) for mixture in candidates)), None
    heard: Mapping[str, Sequence[Likelihood]] = {}
    if judging != ():
        each: Mapping[str, Answers] = yield Each(asked, judging)
        heard = {site: answers.items for site, answers in each.items()}
        sound = [i for i in range(len(owners)) if not is_at_bound(candidates[i], penalty)]  # guesses have no owner
        likelihoods = {site: [answers[i] for i in sound] for site, answers in heard.items()}
        cross = cross_likelihood([owners[i] for i in sound], likelihoods, candidates[0].parameter_count, SUBSAMPLE)
        total = reduce(add, each.values())
    else:
        total = yield Total(asked)
    values = [at.log_likelihood - m.ridge(penalty) for at, m in zip(total.items, candidates, strict=True)]
    order = sorted(range(len(values)), key=lambda i: (is_at_bound(candidates[i], penalty), -values[i]))
    return Starts([candidates[i] for i in order[:wanted]], cross, list(zip(owners, candidates, strict=False)), heard)


def guesses(question: ProposeStart) -> Iterator[Mixture]:
    """Generate starts without rows: equal experts, with random coefficients and a randomly moved gate."""
    rng = np.random.default_rng(question.seed)
    blank = question.specification.blank(question.summary)
    spread = blank.experts.coefficient_scale(question.summary)
    shared = question.specification.penalty(question.summary).shared
    for _ in range(GUESSES):
        coefficients = spread * rng.standard_normal(blank.experts.free_coefficients().size) / np.sqrt(blank.design.p)
        experts = blank.experts.moved(coefficients, np.zeros(blank.experts.shape_parameters))
        gate = blank.gate.moved(0.1 * rng.standard_normal(blank.gate.parameter_count))
        yield replace(blank, gate=gate, experts=experts.with_shared(shared))


# ---------------------------------------------------------------- size of answers


LARGE = 16e6
"""Bytes of an answer from which on :func:`warn_if_large` warns: minutes per round over a line of 1 Mbit/s."""
GRADIENT_EM = Requirement("GradientEM", one_response=True)
"""Models that the method with short messages fits."""


def bytes_of_answer(mixture: Mixture, climbs: int) -> int:
    """Return the bytes of a site's answer in the largest round of federated EM.

    It has ``K p (p + 1) / 2`` sums for the experts and as many as its curvature has entries for the gate, for each of
    the climbs; in the last rounds, of the best climb alone, also the missing information if it is computed.
    """
    layout = layout_of(mixture)
    informed = layout.size(information=is_informable(mixture))
    return 8 * max(climbs * layout.size(information=False), informed)


def warn_if_large(problems: Sequence[Problem], climbs: int) -> None:
    """Warn if a site's answer in a round is large; name what a method with short messages sends instead."""
    largest = max(problems, key=lambda problem: bytes_of_answer(problem.blank, climbs))
    size, mixture = bytes_of_answer(largest.blank, climbs), largest.blank
    if size < LARGE:
        return
    warn(
        f"each site's answer has {size / 1e6:.0f} MB in a round ({climbs} climb(s), {mixture.K} experts, "
        f"{mixture.design.p} coefficients): {_instead(largest, climbs)}",
        LargeMessagesWarning,
    )


def _instead(problem: Problem, climbs: int) -> str:
    """Return the ways to shorter answers."""
    mixture, specification = problem.blank, problem.specification
    ways = [f"n_climbs=1 takes {bytes_of_answer(mixture, 1) / 1e6:.0f} MB"] if climbs > 1 else []
    try:
        GRADIENT_EM.check(specification.family, specification.gate, mixture.experts.q)
    except InvalidInputError:
        return "; ".join([*ways, "fewer covariates or experts take less"])
    short = 8 * score_layout(mixture).size(information=False)
    return "; ".join([*ways, f"GradientEM takes {short / 1e6:.2g} MB in each of more rounds, without standard errors"])
