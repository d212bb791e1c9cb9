"""One mixture per site, shrunk towards a robust centre: for sites that differ, some of them possibly corrupted.

Every site fits its own mixture. Labels are aligned, and all sites restart from the geometric median of the fits, which
corrects poor local fits. In the first rounds all sites have the centre's mixture; in later rounds each site's estimate
is shrunk towards the centre by empirical Bayes, without a tuning constant. A site whose local fit explains its rows
much better than its shrunk mixture continues from the local fit. In the end a site gets the best of its shrunk mixture
and its rivals: the centre as it is, one regression for all rows or for its own, and its local fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from consilience.aggregate import Estimate, Sharing, in_common_labels, share_estimates
from consilience.aggregate.robust.sharing import camps_of
from consilience.errors import InvalidInputError
from consilience.fit import Expect, StopReason
from consilience.fit.inference import inverse_information
from consilience.fit.influence import left_out_of_experts
from consilience.messages import Answers, Dialogue, Each, FitSite, LogLikelihood, PerSite, Several, Summarise
from consilience.methods.per_site.local_fits import LocalFits, local_fits, units
from consilience.methods.per_site.rivals import (
    Kind,
    RegressionRivals,
    Rival,
    best_rival,
    final_question,
    local_rival,
    rivals_of_site,
    sum_rivals,
)
from consilience.methods.per_site.shared_fit import LastRound, SharedFit
from consilience.methods.site_reports import survey_sites
from consilience.methods.task import Method, QuestionKind, Task, check_participation, check_whole
from consilience.model import ColumnSummary, Mixture, Penalty, Statistics, information
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.linalg import inverse_bounded

EQUAL_ROUNDS = 0.6
"""Maximum fraction of the rounds in which all sites have the centre's mixture."""
CENTRE_SETTLED = 0.02
"""Change of the centre, in standard errors of a typical site, below which sites may differ."""
SETTLED = 0.1
"""Change of the sites' coefficients, in standard errors, below which the rounds end."""
INFORMED = 5
"""Rounds from one request for the information, a large message, to the next, in the stage in which sites differ."""
SECOND_LOOK = 4
"""Round, of the stage in which sites differ, after which a site with a better local fit continues from it."""
DAMPED = 8
"""Number of rounds, of the stage in which sites differ, after which steps are halved."""
WIDE = 0.25
"""Fraction of the responses' covariance that experts have at the restart."""
MOST_OPTIMISM = 2.5
"""Maximum optimism of a local fit, per parameter."""
REPLAYED = "it repeated the answer of an earlier round to a different question"


@dataclass(frozen=True)
class SharedCentre(Method):
    """One mixture per site, shrunk towards a robust centre as far as the sites agree.

    Parameters
    ----------
    rounds : int
        Maximum number of rounds after the local fits; they end once no coefficient changes by 0.1 standard errors. One
        more round evaluates each site's mixture and its rivals on its rows.
    participation : float
        Fraction of the sites, drawn at random, that are asked in each round; below 1, all sites are first asked for a
        summary. A site that joins late starts from the centre. The last round, in which sites evaluate the mixtures
        that they get, asks all sites that have answered.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture, SharedCentre
    >>> rng = np.random.default_rng(0)
    >>> def rows(shift):
    ...     return np.r_[rng.normal(0 + shift, 1, (60, 2)), rng.normal(6 + shift, 1, (40, 2))]
    >>> sites = Federation({name: (rows(shift),) for name, shift in zip("abcd", (0.0, 0.3, -0.3, 0.2))})
    >>> result = sites.fit(GaussianMixture(2, random_state=0), method=SharedCentre())
    >>> abs(result.model.means_.round(0)), sorted(result.models)
    (array([[0., 0.],
           [6., 6.]]), ['a', 'b', 'c', 'd'])
    """

    rounds: int = 50
    participation: float = 1.0

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds)
        check_participation(self.participation)

    def question_kinds(self, task: Task) -> Sequence[QuestionKind]:
        """Return the site's own fit, sums at its own model, and likelihoods at the end."""
        found = [
            QuestionKind(FitSite, "first", 1),
            QuestionKind(Expect, "at the model that the site gets, until no coefficient changes", self.rounds),
            QuestionKind(LogLikelihood, "last", 1),
        ]
        return found if self.participation == 1 else [QuestionKind(Summarise, "before all others", 1), *found]

    def dialogue(self, task: Task) -> Dialogue[tuple[SharedFit]]:
        """Return one fit: the centre and each site's mixture."""
        specification = task.only("SharedCentre")
        question = task.fit_site(describe=False)
        if self.participation == 1:
            fits = yield from local_fits(question)
            weights, summaries = dict(fits.weights), fits.summaries
        else:
            present: Mapping[str, ColumnSummary] = yield Each(Summarise(task.d, task.q))
            fits = yield from local_fits(question, self._drawn(tuple(present), task.seed, 0))
            summaries = present
            weights = {site: fits.weights.get(site, summary.weight) for site, summary in present.items()}
        sites, penalty = tuple(weights), specification.penalty(fits.summary)
        blank = specification.with_order(1).blank(fits.summary)
        one = RegressionRivals(blank, penalty, exact=specification.has_moments)
        state = _Rounds(fits, restart(fits), penalty, weights, one)
        for number in range(1, self.rounds + 1):
            answers = yield PerSite(state.questions(self._drawn(sites, task.seed, number)))
            state.take(answers)
            state.share(last=number >= int(EQUAL_ROUNDS * self.rounds))
            if state.settled:
                break
        values = yield PerSite(state.finals())
        fit = replace(state.ending(values).fit(penalty), survey=survey_sites(task, summaries))
        sharing, institutions = fit.sharing, task.institutions
        left_out = left_out_of_experts(fit, sharing.mixtures, institutions, sharing.centre_without)
        return (replace(fit, left_out=left_out),)

    def _drawn(self, sites: tuple[str, ...], seed: int, number: int) -> tuple[str, ...]:
        """Draw the sites that are asked in a round."""
        size = max(1, round(self.participation * len(sites)))
        drawn = np.random.default_rng([seed, number]).choice(len(sites), size, replace=False)
        return tuple(sites[i] for i in np.sort(drawn))


@dataclass
class _Rounds:
    """State of the rounds: the current mixture of each site, its last answer, and the shrinkage."""

    fits: LocalFits
    centre: Mixture
    penalty: Penalty
    weights: dict[str, float]
    regressions: RegressionRivals
    stand: dict[str, Mixture] = field(default_factory=dict)
    asked: dict[str, Mixture] = field(default_factory=dict)
    answers: dict[str, Statistics] = field(default_factory=dict)
    estimates: dict[str, Estimate] = field(default_factory=dict)
    informed: dict[str, Curvature | None] = field(default_factory=dict)
    aligned: dict[str, Estimate] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    sharing: Sharing | None = None
    equal: bool = True
    differing: int = 0
    settled: bool = False
    number: int = 0

    def questions(self, drawn: tuple[str, ...]) -> Mapping[str, Expect | Several]:
        """Return the question to each site: the statistics at its mixture, in some rounds with the information."""
        informed = not self.equal and self.differing % INFORMED == 0 and information.is_informable(self.centre)
        asked = {site: Expect(self.stand.get(site, self.centre), information=informed) for site in drawn}
        return self.regressions.beside(asked)

    def take(self, answers: Mapping[str, Statistics | Answers]) -> None:
        """Store the answers; those that overflow are ignored."""
        self.number += 1
        several = {site: each.items for site, each in answers.items() if isinstance(each, Answers)}
        if several:
            self.regressions.take({site: of_one for site, (_, of_one) in several.items()})
        for site, given in answers.items():
            statistics = given.items[0] if isinstance(given, Answers) else given
            stand = self.stand.get(site, self.centre)
            with np.errstate(over="ignore", invalid="ignore"):
                found = curvature(stand, statistics, self.penalty)
                if found is not None or statistics.information is not None:
                    self.informed[site] = found
                estimate = estimate_site(stand, statistics, self.penalty, self.informed.get(site))
            if estimate.is_finite():
                if self._replayed(site, stand, statistics):
                    self.remarks.setdefault(site, [REPLAYED])
                self.estimates[site], self.asked[site], self.answers[site] = estimate, stand, statistics
                self.weights[site] = statistics.weight
        if not self.estimates:
            raise InvalidInputError("no site has sent a usable answer")

    def _replayed(self, site: str, stand: Mixture, statistics: Statistics) -> bool:
        """Whether the sums of an answer to a new question are exactly those of the previous answer."""
        if site not in self.answers or np.array_equal(_parameters(stand), _parameters(self.asked[site])):
            return False
        return np.array_equal(statistics.experts.to_array(), self.answers[site].experts.to_array())

    def share(self, *, last: bool) -> None:
        """Shrink the estimates; ``last`` ends the stage in which all sites have the centre's mixture."""
        self.aligned = usable = in_common_labels(self.estimates, self.centre)
        self.sharing = sharing = share_estimates(usable, equal=self.equal, barred=self.remarks)
        moved = np.array([_moved(self.asked[s], sharing.mixtures[s], estimate) for s, estimate in usable.items()])
        self.centre, self.stand = sharing.centre, dict(sharing.mixtures)
        if self.differing >= DAMPED:  # otherwise a site at the threshold of being kept may oscillate
            self.stand = {site: _halfway(self.asked[site], mixture) for site, mixture in self.stand.items()}
        if self.equal:
            self.equal = not (np.median(moved.max(axis=1)) < CENTRE_SETTLED or last)
            return
        self.differing += 1
        self.settled = bool(np.max(moved, where=sharing.kept, initial=0.0) < SETTLED)
        if self.differing == SECOND_LOOK:
            better = {site: own for site, own in self.fits.mixtures.items() if self._was_better(site)}
            self.stand |= {site: own.permuted(alignment(own, self.centre)) for site, own in better.items()}
        self.settled = self.settled and self.differing > SECOND_LOOK

    def _was_better(self, site: str) -> bool:
        """Whether a site's local fit explains its rows better than its current mixture, by more than its optimism."""
        if site not in self.answers:
            return False
        statistics, own = self.answers[site], self.fits.mixtures[site]
        return self.fits.log_likelihoods[site] > statistics.log_likelihood + optimism(own, statistics.weight)

    def finals(self) -> dict[str, Several]:
        """Return the last question to each site: the likelihoods of the mixtures that it may get."""
        return {site: final_question(self._contenders(site)) for site in self._shared.mixtures}

    @property
    def _shared(self) -> Sharing:
        assert self.sharing is not None  # at least one round  # noqa: S101
        return self.sharing

    def _contenders(self, site: str) -> dict[Kind, Mixture]:
        """Return the mixtures that a site evaluates in the last round; a single site has nothing to share."""
        several = self.centre.K > 1 and len(self._shared.mixtures) > 1
        regressions = self.regressions.candidates(site) if several else {}
        return {"shared": self._shared.mixtures[site], "centre": self.centre, **regressions}

    def ending(self, values: Mapping[str, Answers]) -> LastRound:
        """Return the state after the last round, in which sites evaluated their shared mixtures and the rivals."""
        heard = {site: each for site, each in self.aligned.items() if site not in self.remarks}
        rivals = self._rivals(values)
        return LastRound(
            self._shared,
            self.asked,
            self.answers,
            self.weights,
            self.remarks,
            self.number,
            StopReason.SETTLED if self.settled else StopReason.ROUNDS,
            {site: best_rival(own) for site, own in rivals.items()},
            {site: estimate.undetermined for site, estimate in self.estimates.items()},
            camps_of(heard or self.aligned),
            sum_rivals(rivals),
        )

    def _rivals(self, values: Mapping[str, Answers]) -> dict[str, dict[Kind, Rival]]:
        """Return the rivals at each site."""
        rows = sum(each.items[0].weight for each in values.values())
        found = {}
        for site, fraction in zip(self._shared.mixtures, self._shared.shrinkage.mean(axis=1), strict=True):
            if site in values:
                items = values[site].items
                found[site] = rivals_of_site(self._contenders(site), items, fraction, rows)
            if site in found and site in self.fits.mixtures:
                own = self.fits.mixtures[site]
                aligned = own.permuted(alignment(own, self.centre))
                found[site]["own"] = local_rival(aligned, self.fits.log_likelihoods[site], values[site].items[0].weight)
        return found


def optimism(own: Mixture, weight: float) -> float:
    """Return how much better a fit is on its own rows than on others, in log-likelihood: ``P N / (N - 2 P)``.

    As in Akaike's corrected criterion for P parameters and N numbers, but with P counted twice against N, because
    labels are estimated too. At most 2.5 P: the formula has no bound as N falls to 2 P, and a site whose shared mixture
    is far worse than any overfitting explains would have to keep it.
    """
    N, P = weight * own.experts.q, own.parameter_count
    return float(P * min(N / (N - 2 * P), MOST_OPTIMISM)) if N > 2 * P else MOST_OPTIMISM * P


def restart(fits: LocalFits) -> Mixture:
    """Return the common start of all sites: the geometric median of their fits, with equal weights, wide variances.

    The sites' own variances would be too small, because fits to few rows overfit.
    """
    mixtures = list(fits.mixtures.values())
    K = mixtures[0].K
    unit = np.tile(np.diag(units(mixtures) ** 2), (K, 1, 1))
    labels = {site: np.full(K, fits.weights[site] / K) for site in fits.mixtures}
    stated = {site: Estimate(each, labels[site], unit) for site, each in fits.mixtures.items()}
    centre = share_estimates(stated, equal=True).centre
    gate = centre.gate if centre.gate.reads_covariates else centre.gate.with_shares(np.full(K, 1 / K))
    return replace(centre, gate=gate, experts=centre.experts.with_wide_shapes(fits.summary, WIDE))


def _parameters(mixture: Mixture) -> Array:
    return np.concatenate([mixture.gate.contrasts().ravel(), mixture.experts.free_coefficients()])


def _halfway(before: Mixture, after: Mixture) -> Mixture:
    """Return the mixture with coefficients halfway between two."""
    experts: Any = after.experts
    delta = 0.5 * (before.experts.free_coefficients() - experts.free_coefficients())
    return replace(after, experts=experts.moved(delta, np.zeros(experts.shape_parameters)))


def _moved(before: Mixture, after: Mixture, estimate: Estimate) -> Array:
    """Compute the change of each expert's coefficients, in root mean square standard errors, ``(K,)``."""
    gap = after.coefficients - before.coefficients
    variance = np.maximum(np.diagonal(estimate.covariance, axis1=1, axis2=2), 1e-300)
    return np.asarray(np.sqrt(np.mean(gap**2 / variance, axis=1)))


# ---------------------------------------------------------------- a site's step


UNKNOWN_LABELS = 1.25
"""Factor for unknown labels on the complete-data covariance, if the observed information cannot be used."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """Inverse observed information of a site at one of its mixtures, for this pass and for later ones without it."""

    inverse: Array  # (P, P)
    label_counts: Array  # (K,)


def curvature(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Curvature | None:
    """Return the inverse of the observed information, or None if the statistics have none that is positive definite."""
    inverse = inverse_information(stand, statistics, penalty)
    return None if inverse is None else Curvature(inverse, statistics.gate.plain[: stand.K])


def estimate_site(stand: Mixture, statistics: Statistics, penalty: Penalty, known: Curvature | None) -> Estimate:
    """Compute a site's M-step and the covariance of its coefficients, from its statistics at ``stand``.

    Permuted expert labels are matched back to those of ``stand``. ``known`` is the curvature of this pass, or of an
    earlier one, whose covariances are rescaled to the present numbers of rows.
    """
    asked = statistics
    statistics = _in_labels_asked(stand, statistics, penalty)
    labels = statistics.gate.plain[: stand.K]
    step, complete = _stepped(stand, statistics, penalty), _complete(stand, statistics)
    if known is None:
        covariance, lost = _bounded(complete)
        slopes = _slopes_information(stand, statistics, penalty)
        of_slopes = None if slopes is None else UNKNOWN_LABELS * inverse_bounded(slopes)[0]
        return Estimate(step, labels, UNKNOWN_LABELS * covariance, of_slopes, None, complete, lost, None, slopes)
    at, K = information.coefficient_slice(stand), stand.K
    f = (at.stop - at.start) // K
    own = known.inverse[at, at].reshape(K, f, K, f)
    times = np.maximum(known.label_counts, 1.0) / np.maximum(labels, 1.0)
    covariance, lost = _bounded(np.array([np.linalg.inv(own[k, :, k]) for k in range(K)]))
    direction = np.zeros(stand.parameter_count)
    if statistics is asked:
        direction = known.inverse @ information.penalised_score(stand, statistics, information.ridge(stand, penalty))
    places = _slope_places(stand)
    return Estimate(
        step,
        labels,
        times[:, None, None] * covariance,
        known.inverse[np.ix_(places, places)] if len(places) else None,
        stand.coefficients + direction[at].reshape(K, -1) if statistics is asked else None,
        complete,
        lost,
        information.free_parameters(stand)[places] + direction[places] if len(places) else None,
        _slopes_information(stand, statistics, penalty),
    )


def _in_labels_asked(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Statistics:
    """Permute the statistics to the labels of the question, if the gate is constant."""
    if stand.gate.reads_covariates:
        return statistics
    permutation = alignment(stand.maximise(statistics, penalty), stand)
    if np.array_equal(permutation, np.arange(stand.K)):
        return statistics
    moments = stand.experts.relabelled(statistics.experts, permutation)
    if moments is None:
        return statistics
    return replace(statistics, experts=moments, gate=replace(statistics.gate, plain=statistics.gate.plain[permutation]))


def _stepped(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Mixture:
    """Compute the site's M-step, with variances of the residuals at ``stand``.

    Residuals at the new coefficients would be too small, because these are fitted to the rows and shrunk afterwards.
    """
    own = stand.maximise(statistics, penalty)
    shapes = stand.experts.shapes_at(statistics.experts, penalty)
    return replace(own, experts=own.experts.with_shape_values(shapes))


def _complete(stand: Mixture, statistics: Statistics) -> Array:
    """Return the complete-data information of each expert's coefficients, ``(K, f, f)``."""
    at, K = information.coefficient_slice(stand), stand.K
    complete = information.complete_information(stand, statistics)[at, at].reshape(K, -1, K, (at.stop - at.start) // K)
    return np.array([complete[k, :, k] for k in range(K)])


def _bounded(matrices: Array) -> tuple[Array, int]:
    """Invert ``(K, f, f)``; return also the number of directions that the rows do not determine."""
    found = [inverse_bounded(own) for own in matrices]
    return np.array([inverse for inverse, _ in found]), sum(lost for _, lost in found)


def _slope_places(stand: Mixture) -> IntArray:
    """Return the positions of the gate's free slopes among the free parameters."""
    if not stand.gate.reads_covariates or stand.K == 1:
        return np.zeros(0, dtype=np.intp)
    gate, p, first = information.gate_slice(stand), stand.reads.p, int(stand.design.intercept)
    return np.arange(gate.start, gate.stop).reshape(stand.K - 1, p)[:, first:].ravel()


def _slopes_information(stand: Mixture, statistics: Statistics, penalty: Penalty) -> Array | None:
    """Return the complete-data information of the gate's free slopes, its intercepts estimated."""
    places, gate = _slope_places(stand), information.gate_slice(stand)
    if not len(places):
        return None
    complete = (information.complete_information(stand, statistics) + information.ridge(stand, penalty))[gate, gate]
    at = places - gate.start
    rest = np.setdiff1d(np.arange(gate.stop - gate.start), at)
    found: Array = complete[np.ix_(at, at)]
    if len(rest):
        across = complete[np.ix_(rest, at)]
        found = found - across.T @ inverse_bounded(complete[np.ix_(rest, rest)])[0] @ across
    return found
