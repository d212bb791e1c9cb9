"""Sites that differ and sites that lie: each site's own mixture, drawn towards a robust centre as far as sites agree.

Every site fits by itself. Their labels are aligned, and all start again from the geometric median of their fits, which
cures sites that were lost. Rounds with that centre for all follow, then rounds in which each site keeps of its own
estimate what its rows can say better than the others': empirical Bayes, without a constant to choose. A site whose own
fit explains its rows much better than what has come of the centre goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np

from consilience.aggregate.robust.estimate import Estimate, in_common_labels
from consilience.aggregate.robust.sharing import Sharing, shared
from consilience.errors import InvalidInputError
from consilience.fit.climb import Expect
from consilience.fit.stop import StopReason
from consilience.messages.dialogue import Dialogue, Each, PerSite
from consilience.messages.questions import Summarise
from consilience.methods.per_site.local_fits import LocalFits, local_fits, units
from consilience.methods.per_site.shared_fit import LastRound, SharedFit
from consilience.methods.per_site.site_step import estimated
from consilience.methods.task import Method, Task
from consilience.model.alignment import alignment
from consilience.model.information import is_informable
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array

EQUAL_ROUNDS = 0.6
"""Largest share of the rounds in which all sites have the centre."""
CENTRE_SETTLED = 0.02
"""Change of the centre, in standard errors of a usual site, below which sites may differ."""
SETTLED = 0.1
"""Change of sites' coefficients, in their standard errors, below which the rounds end."""
INFORMED = 5
"""Rounds, of those in which sites differ, from one with the information to the next: it is most of a message."""
SECOND_LOOK = 4
"""The round, of those in which sites differ, after which a site whose own fit was better goes on from there."""
DAMPED = 8
"""Rounds, of those in which sites differ, after which they move by half."""
WIDE = 0.25
"""Share of the responses' covariance that experts begin with at the restart."""
REPLAYED = "it has given the answer of an earlier round to another question"


@dataclass(frozen=True)
class SharedCentre(Method):
    """Each site its own mixture, drawn towards a robust centre as far as sites agree.

    Parameters
    ----------
    rounds : int
        Most rounds after the local fits; fewer are used once nothing moves by more than 0.1 standard errors.
    participation : float
        Share of the sites, drawn at random, that each round asks; below 1 a roll call comes first. A site that joins
        late starts from the centre.

    Examples
    --------
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
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, Integral) or self.rounds < 1:
            raise InvalidInputError(f"rounds={self.rounds!r}: expected a whole number of at least 1")
        if not 0 < self.participation <= 1:
            raise InvalidInputError(f"participation={self.participation!r}: expected a share above 0, at most 1")

    def dialogue(self, task: Task) -> Dialogue[tuple[SharedFit]]:
        """The centre and each site's mixture."""
        specification = task.only("SharedCentre")
        question = task.fit_site(describe=False)
        if self.participation == 1:
            fits = yield from local_fits(question)
            weights = dict(fits.weights)
        else:
            present: Mapping[str, ColumnSummary] = yield Each(Summarise(task.d, task.q))
            fits = yield from local_fits(question, self._drawn(tuple(present), task.seed, 0))
            weights = {site: fits.weights.get(site, summary.weight) for site, summary in present.items()}
        sites, penalty = tuple(weights), specification.penalty(fits.summary)
        talk = _Rounds(fits, restart(fits), penalty, weights)
        for number in range(1, self.rounds + 1):
            answers = yield PerSite(talk.questions(self._drawn(sites, task.seed, number)))
            talk.take(answers)
            talk.share(last=number >= int(EQUAL_ROUNDS * self.rounds))
            if talk.settled:
                break
        return (talk.ending().fit(penalty),)

    def _drawn(self, sites: tuple[str, ...], seed: int, number: int) -> tuple[str, ...]:
        """Who is asked in a round."""
        size = max(1, round(self.participation * len(sites)))
        drawn = np.random.default_rng([seed, number]).choice(len(sites), size, replace=False)
        return tuple(sites[i] for i in np.sort(drawn))


@dataclass
class _Rounds:
    """The rounds so far: where each site stands, what it last said, and how they share."""

    fits: LocalFits
    centre: Mixture
    penalty: Penalty
    weights: dict[str, float]
    stand: dict[str, Mixture] = field(default_factory=dict)
    asked: dict[str, Mixture] = field(default_factory=dict)
    said: dict[str, Statistics] = field(default_factory=dict)
    estimates: dict[str, Estimate] = field(default_factory=dict)
    informed: dict[str, Estimate] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    sharing: Sharing | None = None
    equal: bool = True
    differing: int = 0
    settled: bool = False
    number: int = 0

    def questions(self, drawn: tuple[str, ...]) -> dict[str, Expect]:
        """What each of them is asked: the statistics where it stands, now and then with the information."""
        informed = not self.equal and self.differing % INFORMED == 0 and is_informable(self.centre)
        return {site: Expect(self.stand.get(site, self.centre), information=informed) for site in drawn}

    def take(self, answers: Mapping[str, Statistics]) -> None:
        """Note what sites have said; numbers that overflow are not taken."""
        self.number += 1
        for site, statistics in answers.items():
            stand = self.stand.get(site, self.centre)
            with np.errstate(over="ignore", invalid="ignore"):
                estimate = estimated(stand, statistics, self.penalty)
            if statistics.information is not None:
                self.informed[site] = estimate
            elif site in self.informed:
                estimate = estimate.with_covariances_of(self.informed[site])
            if estimate.is_finite():
                if self._replayed(site, stand, statistics):
                    self.remarks.setdefault(site, [REPLAYED])
                self.estimates[site], self.asked[site], self.said[site] = estimate, stand, statistics
                self.weights[site] = statistics.weight
        if not self.estimates:
            raise InvalidInputError("no site has given an answer that can be used")

    def _replayed(self, site: str, stand: Mixture, statistics: Statistics) -> bool:
        """Whether an answer has the sums of an earlier one, to the last digit, though the question is new."""
        if site not in self.said or np.array_equal(_parameters(stand), _parameters(self.asked[site])):
            return False
        return np.array_equal(statistics.experts.to_array(), self.said[site].experts.to_array())

    def share(self, *, last: bool) -> None:
        """Draw the sites together; ``last`` ends the stage in which all have the centre."""
        usable = in_common_labels(self.estimates, self.centre)
        self.sharing = sharing = shared(usable, equal=self.equal, barred=self.remarks)
        moved = np.array([_moved(self.asked[s], sharing.mixtures[s], estimate) for s, estimate in usable.items()])
        self.centre, self.stand = sharing.centre, dict(sharing.mixtures)
        if self.differing >= DAMPED:  # who is at the border of being kept would otherwise come and go
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
        """Whether a site's own fit explains its rows better than where it stood, by more than a fit flatters itself.

        A fit of P parameters to N numbers is flattered by ``P N / (N - 2 P)``: as in the corrected criterion of Akaike,
        but with P counted twice against N, since labels were chosen too.
        """
        if site not in self.said:
            return False
        statistics, own = self.said[site], self.fits.mixtures[site]
        N, P = statistics.weight * own.experts.q, own.parameter_count
        flattery = P * N / (N - 2 * P) if N > 2 * P else np.inf
        return self.fits.log_likelihoods[site] > statistics.log_likelihood + flattery

    def ending(self) -> LastRound:
        """Where the rounds ended."""
        assert self.sharing is not None  # at least one round  # noqa: S101
        stop = StopReason.SETTLED if self.settled else StopReason.ROUNDS
        return LastRound(self.sharing, self.asked, self.said, self.weights, self.remarks, self.number, stop)


def restart(fits: LocalFits) -> Mixture:
    """The geometric median of the sites' fits: where all of them start again, with equal shares and wide variances.

    The sites' own variances would be too small for it: fits to few rows are too close to them.
    """
    mixtures = list(fits.mixtures.values())
    K = mixtures[0].K
    unit = np.tile(np.diag(units(mixtures) ** 2), (K, 1, 1))
    labels = {site: np.full(K, fits.weights[site] / K) for site in fits.mixtures}
    stated = {site: Estimate(each, labels[site], unit) for site, each in fits.mixtures.items()}
    centre = shared(stated, equal=True).centre
    gate = centre.gate if centre.gate.reads_covariates else centre.gate.with_shares(np.full(K, 1 / K))
    return replace(centre, gate=gate, experts=centre.experts.with_wide_shapes(fits.summary, WIDE))


def _parameters(mixture: Mixture) -> Array:
    return np.concatenate([mixture.gate.contrasts().ravel(), mixture.experts.free_coefficients()])


def _halfway(before: Mixture, after: Mixture) -> Mixture:
    """The mixture with coefficients in the middle between two."""
    experts: Any = after.experts
    delta = 0.5 * (before.experts.free_coefficients() - experts.free_coefficients())
    return replace(after, experts=experts.moved(delta, np.zeros(experts.shape_parameters)))


def _moved(before: Mixture, after: Mixture, estimate: Estimate) -> Array:
    """The change of each expert's coefficients, in root mean square standard errors, ``(K,)``."""
    gap = after.coefficients - before.coefficients
    variance = np.maximum(np.diagonal(estimate.covariance, axis1=1, axis2=2), 1e-300)
    return np.asarray(np.sqrt(np.mean(gap**2 / variance, axis=1)))
