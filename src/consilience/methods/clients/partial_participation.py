"""EM with partial participation: clients change between rounds, and statistics are averaged over rounds.

The likelihoods of two rounds are of different data, so they cannot accept or reject a step. Statistics are averaged
instead (Cappé and Moulines, "On-line expectation-maximization algorithm for latent data models", 2009): after ``t``
rounds the noise from the selection of clients is smaller by a factor ``√t``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from consilience.fit.climb import Ascent, Expect
from consilience.fit.problem import Problem
from consilience.fit.stop import StopReason
from consilience.messages.dialogue import Dialogue, Total
from consilience.messages.questions import Sample
from consilience.model.families.requirement import gaussian
from consilience.model.information import is_informable
from consilience.model.mixture import Mixture
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import unpack

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

    Examples
    --------
    >>> Participation(0.5, 4, 1, ("a", "b", "c", "d")).request(Expect(None), 3).sites
    ('a', 'b', 'c')
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


def averaged(problem: Problem, start: Mixture, participants: Participation) -> Dialogue[Ascent]:
    """Run EM from a start with other clients in each round, for Gaussian experts and a constant gate."""
    mixture, kept, stop, number = start, None, StopReason.ROUNDS, 0
    for number in range(1, min(MOST_ROUNDS, problem.max_iter) + 1):
        statistics: Statistics = yield participants.request(Expect(mixture), number)
        new = at_origin(mixture, statistics)
        rounds = max(1, number - UNAVERAGED)
        kept = new if kept is None else mixed(kept, new, 1 / rounds)
        step = origin(mixture).maximise(kept, problem.penalty)
        change = participants.clients * squared_change(mixture, step, kept)
        mixture = step
        if number > UNAVERAGED and rounds * change < SETTLED:  # a change of 1 / rounds of one round's noise
            stop = StopReason.SETTLED
            break
    question = Expect(mixture, information=is_informable(mixture))
    last: Statistics = yield participants.request(question, 0)  # the same clients for all orders that are compared
    statistics = ended(mixture, kept, last).scaled(participants.clients)
    value = mixture.penalised(statistics, problem.penalty)
    return Ascent(mixture, statistics, (value,), number + 1, int(last.information is not None), 0, stop)


def ended(mixture: Mixture, kept: Statistics | None, last: Statistics) -> Statistics:
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


def mixed(a: Statistics, b: Statistics, share: float) -> Statistics:
    """Return ``(1 - share) a + share b``."""
    return a.scaled(1 - share) + b.scaled(share)
