"""Clustered clients: every client follows one of K regressions; EM over client labels from a spectral start.

One round estimates the subspace that the regressions span, and one the clients' moments in this subspace, from which
the start is computed. Rounds of EM follow; the labels of clients are computed at their sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Expect, Fit, Problem, Specification, StopReason
from consilience.fit.influence import left_out_by_scores
from consilience.fit.specification import check_same_covariates
from consilience.messages import Clients, Dialogue, Each, Pairs, Sample, Summarise, Total, together
from consilience.methods.client_subspace import ClientSubspace, client_subspace, estimate_directions
from consilience.methods.federated_em import ask_information, ask_total
from consilience.methods.site_reports import survey_sites, with_camps, with_unlikely
from consilience.methods.task import Method, QuestionKind, Task, check_participation
from consilience.model import Mixture, Statistics
from consilience.model.families.registry import Requirement, gaussian
from consilience.model.information import is_informable, score
from consilience.numerics.arrays import Array, unpack
from consilience.numerics.linalg import count_above_noise

RACE = 3
"""Number of steps after which only the best of several starts is continued."""
SAME_ROWS = 1e-9
"""Difference of second moments, relative to the largest, above which two sums are over different rows."""
LEAST_SITES, MOST_SITES = 3, 1000
"""Numbers of sites between which they are compared in a last round; single clients are too few rows."""
REQUIRED = Requirement("ClusteredClients", one_response=True, instead="FederatedEM with groups")


@dataclass(frozen=True)
class ClusteredClients(Method):
    """EM over client labels from a spectral start.

    Clients are the groups of each site's rows; a site without groups is one client. Rounds: one for the subspace that
    the experts span (two if columns are far from centred), one for each client's moments in it, then one per EM step,
    three if labels are clear; and one in which the sites are compared at the result: sites unlike the others are named,
    and two camps of sites are a doubt.

    Parameters
    ----------
    moments : {"sums", "clients"}
        What a site sends after the subspace is known. ``"sums"``: sums over clients, weighted by responsibilities that
        are computed at the site. ``"clients"``: once, each client's ``XᵀX``, ``Xᵀy`` and ``yᵀy``, from which the
        coordinator computes everything else; for a client with fewer rows than columns these disclose the rows up to
        a rotation.
    iterations : int
        Number of rounds of orthogonal iteration for the subspace, with ``p K`` numbers each; 0 computes it from one sum
        of ``p²`` numbers.
    participation : float
        Fraction of the clients that take part in each EM step, drawn anew each time. If it is below 1, or if the
        participating clients change between rounds, statistics are averaged over rounds.

    Examples
    --------
    >>> from consilience import ClusteredClients, Federation, MixtureOfRegressions
    >>> from consilience.datasets import clients
    >>> fleet = clients([10] * 60, n_features=5, random_state=0)
    >>> sites = Federation({"all": {"X": fleet.X, "y": fleet.y, "groups": fleet.groups}})
    >>> fit = sites.fit(MixtureOfRegressions(3, fit_intercept=False, random_state=0), method=ClusteredClients())
    >>> fit.model.converged_, len(fit.record.rounds)
    (True, 4)
    """

    moments: Literal["sums", "clients"] = "sums"
    iterations: int = 0
    participation: float = 1.0

    by_client = True
    partial = True

    def __post_init__(self) -> None:
        if self.moments not in ("sums", "clients"):
            raise InvalidInputError(f"moments={self.moments!r}: expected 'sums' or 'clients'")
        if isinstance(self.iterations, bool) or not isinstance(self.iterations, int) or self.iterations < 0:
            raise InvalidInputError(f"iterations={self.iterations!r}: expected a whole number, 0 or more")
        check_participation(self.participation)

    def question_kinds(self, task: Task) -> Sequence[QuestionKind]:
        """Return what the subspace of the experts is found by, the moments of clients, and sums at common models."""
        of_each = "all" if self.moments == "clients" else "in the directions of the experts"
        found = [
            QuestionKind(Summarise, "first", 1),
            QuestionKind(Pairs, "to find the directions in which the experts differ", max(self.iterations, 2)),
            QuestionKind(Clients, f"once the directions are known, {of_each}", 1),
            QuestionKind(Expect, "first, in each step, and at the result"),
        ]
        drawn = QuestionKind(Sample, "in each step, for a part of the clients")
        return found if self.participation == 1 else [*found, drawn]

    def dialogue(self, task: Task) -> Dialogue[tuple[ClusteredFit, ...]]:
        """Return one fit for each specification; all are computed in the same messages."""
        for each in task.specifications:
            self._check(each, task.q)
        most, rng = max(each.K for each in task.specifications), np.random.default_rng(task.seed)
        found = yield from estimate_directions(task.specifications[0], task.d, most, self.iterations, rng)
        fleet = yield from client_subspace(found, whole=self.moments == "clients")
        problems = [Problem(each, found.summary, task.tol, task.max_iter, near=True) for each in task.specifications]
        starts = [fleet.starts(p, task.start, np.random.default_rng(task.seed), task.n_init) for p in problems]
        if fleet.whole:
            ends = [p.ranked([fleet.ascent(p, at) for at in mine]) for p, mine in zip(problems, starts, strict=True)]
        else:
            climbs = [self._climbs(p, mine, fleet, task.seed) for p, mine in zip(problems, starts, strict=True)]
            ends = list((yield from together(climbs)))
        survey = survey_sites(task, found.summaries)
        fits = [p.fit(mine[0], mine) for p, mine in zip(problems, ends, strict=True)]
        if LEAST_SITES <= len(found.summaries) <= MOST_SITES and self.participation == 1 and not fleet.whole:
            rows = {site: summary.weight for site, summary in found.summaries.items() if summary.weight > 0}
            at_sites = yield from together([_each_expect(fit.ascent.mixture) for fit in fits])
            largest, joint = max(zip(fits, at_sites, strict=True), key=lambda pair: pair[0].mixture.K)
            survey = with_unlikely(survey, {s: joint[s].log_likelihood / n for s, n in rows.items() if s in joint})
            survey = with_camps(survey, largest.ascent.mixture, joint)
            fits = [
                _with_left_out(replace(fit, survey=survey), own, task.institutions)
                for fit, own in zip(fits, at_sites, strict=True)
            ]
        return tuple(ClusteredFit(**vars(replace(fit, survey=survey)), spectrum=found.values) for fit in fits)

    def _check(self, specification: Specification, q: int) -> None:
        REQUIRED.check(specification.family, specification.gate, q)
        check_same_covariates(specification, "ClusteredClients", REQUIRED.instead)
        if specification.gate_type.reads_covariates and (self.moments == "clients" or self.participation < 1):
            raise InvalidInputError(
                "moments='clients' and participation below 1 require a constant gate: use MixtureOfRegressions"
            )

    def _climbs(
        self, problem: Problem, starts: Sequence[Mixture], fleet: ClientSubspace, seed: int
    ) -> Dialogue[list[Ascent]]:
        """Run EM from the best of the starts; with averaging over rounds if the participating clients change."""
        if self.participation == 1:
            start = yield from race_starts(problem, starts, fleet.present)
            end = None if start is None else (yield from steady(climb_to_information(problem, start), fleet.present))
            if end is not None:
                return [end]
        if problem.specification.gate_type.reads_covariates:
            raise InvalidInputError(
                "the participating clients change between rounds, and a gate that reads covariates requires the same "
                "clients in every round: use MixtureOfRegressions, or on_drop='continue'"
            )
        participants = Participation(self.participation, fleet.present, seed, fleet.singles)
        return [(yield from average_rounds(problem, starts[0], participants))]


def _each_expect(mixture: Mixture) -> Dialogue[Mapping[str, Statistics]]:
    found: Mapping[str, Statistics] = yield Each(Expect(mixture))
    return found


def _with_left_out(fit: Fit, each: Mapping[str, Statistics], institutions: Mapping[str, str]) -> Fit:
    """Return the fit with its changes without each institution, from the statistics of the sites."""
    scores = {site: score(fit.ascent.mixture, own) for site, own in each.items()}
    return replace(fit, left_out=left_out_by_scores(fit, scores, institutions))


def race_starts(problem: Problem, starts: Sequence[Mixture], present: int) -> Dialogue[Mixture | None]:
    """Return the only start, or the best mixture after a few steps from several; None if clients rejoin."""
    if len(starts) == 1:
        return starts[0]
    short = replace(problem, max_iter=RACE, newton=False)
    ends = yield from together([steady(ask_total(short.climb(at)), present) for at in starts])
    left = [end for end in ends if end is not None]
    return problem.ranked(left)[0].mixture if len(left) == len(ends) else None


def steady(steps: Dialogue[Ascent], present: int) -> Dialogue[Ascent | None]:
    """Run EM on sums over all clients, without those that have left; return None if clients rejoin."""
    before = None
    request = next(steps)
    while True:
        statistics: Statistics = yield request
        if statistics.weight > present + 0.5 or (before is not None and _are_others(statistics, before)):
            return None
        before = statistics
        try:
            request = steps.send(statistics)
        except StopIteration as reached:
            ascent: Ascent = reached.value
            return ascent


def climb_to_information(problem: Problem, start: Mixture) -> Dialogue[Ascent]:
    """Run EM from a start to convergence; return the ascent with the information."""
    return (yield from ask_information(problem, (yield from ask_total(problem.climb(start)))))


def _are_others(now: Statistics, before: Statistics) -> bool:
    """Whether new clients take part: the sum of ``x̃ x̃ᵀ`` over all experts depends only on their rows."""
    if abs(now.weight - before.weight) > 0.5:
        return now.weight > before.weight
    S, earlier = now.experts.second.sum(axis=0), before.experts.second.sum(axis=0)
    return bool(np.any(np.abs(S - earlier) > SAME_ROWS * np.abs(earlier).max()))


@dataclass(frozen=True, eq=False)
class ClusteredFit(Fit):
    """A fit of clustered clients, with the spectrum that suggests the number of clusters.

    Parameters
    ----------
    spectrum : array
        Eigenvalues of the mean product over pairs of rows, in whitened coordinates, by decreasing absolute value; only
        those of the directions used if these were found by iteration. The number of eigenvalues above the noise is the
        number of linearly independent regressions.

    Examples
    --------
    >>> from consilience import ClusteredClients, Federation, MixtureOfRegressions
    >>> from consilience.datasets import clients
    >>> fleet = clients([10] * 300, n_features=20, random_state=0)
    >>> sites = Federation({"all": {"X": fleet.X, "y": fleet.y, "groups": fleet.groups}})
    >>> fit = sites.fit(MixtureOfRegressions(3, random_state=0), method=ClusteredClients()).fit
    >>> fit.gap_order
    3
    """

    spectrum: Array

    @property
    def gap_order(self) -> int:
        """Return the number of eigenvalues above the noise, a quick look at the number of clusters.

        The fit ignores it. It counts too few or too many clusters if covariates are far from centred, have heavy tails
        or have another mean at every client, if clusters differ in the intercept alone, and if a cluster is small. To
        choose the number of clusters use :meth:`consilience.Federation.select_order`.
        """
        return count_above_noise(self.spectrum)


# ---------------------------------------------------------------- partial participation
#
# Clients change between rounds. The likelihoods of two rounds are of different data, so they cannot accept or reject a
# step. Statistics are averaged instead (Cappé and Moulines, "On-line expectation-maximization algorithm for latent data
# models", 2009): after t rounds the noise from the selection of clients is smaller by a factor √t.


UNAVERAGED = 2
"""Number of first rounds that are not averaged, because their statistics are far from convergence."""
MOST_ROUNDS = 100
SETTLED = 0.05
"""Fraction of the variance of any expert's coefficients that may be due to the selection of clients."""


@dataclass(frozen=True)
class Participation:
    """Selection of the clients that take part in a round.

    Parameters
    ----------
    share : float
        Sampling probability of a client.
    clients : int
        Number of clients.
    seed : int
    singles : tuple of str
        The sites, if each of them is one client, so that only those drawn are asked; else empty, and every site samples
        its clients.
    """

    share: float
    clients: int
    seed: int
    singles: tuple[str, ...] = ()

    def request(self, question: Expect, number: int) -> Total:
        """Return the request of a round."""
        if self.share == 1:
            return Total(question)
        rng = np.random.default_rng([self.seed, number])
        if not self.singles:
            return Total(Sample(question, self.share, int(rng.integers(2**62))))
        draws = rng.random(len(self.singles))
        chosen = tuple(site for site, u in zip(self.singles, draws, strict=True) if u < self.share)
        return Total(question, chosen or self.singles)


def average_rounds(problem: Problem, start: Mixture, participants: Participation) -> Dialogue[Ascent]:
    """Run EM from a start with other clients in each round, for Gaussian experts and a constant gate."""
    mixture, kept, stop, number = start, None, StopReason.ROUNDS, 0
    for number in range(1, min(MOST_ROUNDS, problem.max_iter) + 1):
        statistics: Statistics = yield participants.request(Expect(mixture), number)
        new = at_origin(mixture, statistics)
        rounds = max(1, number - UNAVERAGED)
        kept = new if kept is None else mix_statistics(kept, new, 1 / rounds)
        step = origin(mixture).maximise(kept, problem.penalty)
        change = participants.clients * squared_change(mixture, step, kept)
        mixture = step
        if number > UNAVERAGED and rounds * change < SETTLED:  # a change of 1 / rounds of one round's noise
            stop = StopReason.SETTLED
            break
    question = Expect(mixture, information=is_informable(mixture))
    last: Statistics = yield participants.request(question, 0)  # the same clients for all orders that are compared
    statistics = final_statistics(mixture, kept, last).scaled(participants.clients)
    value = mixture.penalised(statistics, problem.penalty)
    return Ascent(mixture, statistics, (value,), number + 1, int(last.information is not None), 0, stop)


def final_statistics(mixture: Mixture, kept: Statistics | None, last: Statistics) -> Statistics:
    """Return statistics per unit of weight: averaged moments, which the mixture maximises, and the rest of ``last``."""
    statistics = last.scaled(1 / max(last.weight, 1.0))
    if kept is None:
        return statistics
    moments = gaussian(origin(mixture).experts).solution(kept.experts).moments(gaussian(mixture.experts).B)
    return replace(statistics, gate=kept.gate, experts=moments)


def squared_change(before: Mixture, after: Mixture, statistics: Statistics) -> float:
    """Compute ``max_k δ_kᵀ S_k δ_k / σ²_k`` per coefficient: the squared change in standard errors for weight 1."""
    delta = after.coefficients - before.coefficients
    S, variances = unpack(statistics.experts.second), gaussian(after.experts).variances[:, 0]
    return float(np.max(np.einsum("ka,kab,kb->k", delta, S, delta) / variances) / delta.shape[1])


def origin(mixture: Mixture) -> Mixture:
    """Return the mixture with coefficients 0, about which statistics of several rounds are averaged."""
    experts = gaussian(mixture.experts)
    return replace(mixture, experts=replace(experts, B=np.zeros_like(experts.B)))


def at_origin(mixture: Mixture, statistics: Statistics) -> Statistics:
    """Convert statistics to coefficients 0, with the same responsibilities; per unit of weight."""
    experts = gaussian(mixture.experts)
    moments = experts.solution(statistics.experts).moments(np.zeros_like(experts.B))
    return replace(statistics, experts=moments).scaled(1 / max(statistics.weight, 1.0))


def mix_statistics(a: Statistics, b: Statistics, share: float) -> Statistics:
    """Return ``(1 - share) a + share b``."""
    return a.scaled(1 - share) + b.scaled(share)
