"""Moments of clients in the subspace of their regressions: starts, and whole fits if all moments are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit.checks import check_start
from consilience.fit.client_starts import client_ascents
from consilience.fit.climb import Ascent, Expect, drive
from consilience.fit.problem import Problem
from consilience.messages.dialogue import Dialogue, Each
from consilience.messages.questions import Clients
from consilience.methods.clients.directions import Directions
from consilience.model.clients.moments import ClientMoments, expect_clients
from consilience.model.families.requirement import gaussian
from consilience.model.mixture import Mixture
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array

SAME_END = 1e-3
"""Difference in log-likelihood per client below which two starts count as one."""
MOST_STARTS = 3


@dataclass(frozen=True, eq=False)
class ClientSubspace:
    """Result of the first rounds: the subspace of the experts, and the clients' moments in it.

    Parameters
    ----------
    directions : Directions
    clients : ClientMoments
        Moments in the subspace, or in all coefficients if ``whole``.
    whole : bool
    singles : tuple of str
        The sites, if each is one client; else empty.
    """

    directions: Directions
    clients: ClientMoments
    whole: bool
    singles: tuple[str, ...]

    @property
    def present(self) -> int:
        """Return the number of clients with rows."""
        return int(np.count_nonzero(self.clients.n))

    def starts(self, problem: Problem, given: Mixture | None, rng: np.random.Generator, n_init: int) -> list[Mixture]:
        """Return the given start, or the best ends of EM in the subspace: several if their likelihoods are close."""
        specification = problem.specification
        if given is not None:
            check_start(given, specification.blank(problem.summary))
            return [given.in_coordinates(self.directions.design)]
        if self.clients.G < specification.K:
            raise InvalidInputError(f"{self.clients.G} clients are too few for {specification.K} experts")
        basis, spread = self.directions.basis, self.directions.spread
        f = min(specification.K, basis.shape[1])
        few = (self.clients.projected(basis) if self.whole else self.clients).leading(f)
        ends = client_ascents(few, spread[:f], specification.K, specification.structure, rng, n_init=n_init)
        return [self._lifted(end.mixture, problem, basis[:, :f]) for end in distinct(ends)]

    def _lifted(self, mixture: Mixture, problem: Problem, basis: Array) -> Mixture:
        """Map a mixture in the subspace to all coefficients."""
        blank, experts = problem.specification.blank(problem.summary), gaussian(mixture.experts)
        lifted = replace(experts, B=self.directions.theta + experts.B @ basis.T)
        gate = blank.gate if blank.gate.reads_covariates else mixture.gate
        return Mixture(self.directions.design, gate, lifted)

    def ascent(self, problem: Problem, start: Mixture) -> Ascent:
        """Run EM on the moments of all clients, without further rounds."""

        def respond(asked: Expect) -> Statistics:
            theta = self.directions.theta
            return expect_clients(asked.mixture, self.clients, theta, information=asked.information)

        end = drive(problem.climb(start), respond)
        if end.statistics.information is None:
            end = replace(end, statistics=respond(Expect(end.mixture, information=True)))
        return end


def client_subspace(found: Directions, *, whole: bool) -> Dialogue[ClientSubspace]:
    """Ask for each client's moments: all of them if ``whole``, else those in the subspace."""
    question = Clients(found.design, found.theta, None if whole else found.basis)
    each: Mapping[str, ClientMoments] = yield Each(question)
    singles = tuple(each) if all(part.G == 1 for part in each.values()) else ()
    return ClientSubspace(found, reduce(add, each.values()), whole, singles)


def distinct(ends: Sequence[Ascent]) -> list[Ascent]:
    """Select the best end and distinct ends of similar likelihood, at most three."""
    kept = [ends[0]]
    for end in ends[1:]:
        apart = kept[-1].penalised - end.penalised
        if SAME_END * end.statistics.weight < apart and ends[0].penalised - end.penalised < end.statistics.weight:
            kept.append(end)
    return kept[:MOST_STARTS]
