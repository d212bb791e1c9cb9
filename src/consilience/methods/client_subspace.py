"""Moments of clients in the subspace of their regressions: starts, and whole fits if all moments are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Expect, Problem, Specification, drive
from consilience.fit.client_starts import client_ascents
from consilience.fit.specification import check_fittable, check_start
from consilience.messages import Answers, Clients, Dialogue, Each, Pairs, Several, Summarise, Total
from consilience.model import ColumnSummary, Design, Mixture, Statistics
from consilience.model.clients import ClientMoments, PairSums, expect_clients
from consilience.model.families.registry import gaussian, standard_regression
from consilience.numerics.arrays import Array, unpack
from consilience.numerics.linalg import leading_eigenpairs, orthonormalise, whitening

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
        return [self._lifted(end.mixture, problem, basis[:, :f]) for end in distinct_ends(ends)]

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


def distinct_ends(ends: Sequence[Ascent]) -> list[Ascent]:
    """Select the best end and distinct ends of similar likelihood, at most three."""
    kept = [ends[0]]
    for end in ends[1:]:
        apart = kept[-1].penalised - end.penalised
        if SAME_END * end.statistics.weight < apart and ends[0].penalised - end.penalised < end.statistics.weight:
            kept.append(end)
    return kept[:MOST_STARTS]


# ---------------------------------------------------------------- the subspace


FAR_OFF = 3.0
"""Distance of a mean from 0, in standard deviations, above which columns are centred before pairs are requested."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Subspace of the regressions of clients.

    Parameters
    ----------
    summaries : mapping of str to ColumnSummary
        Summary of each site.
    summary : ColumnSummary
        Summary of all sites.
    design : Design
    theta : (p,) array
        Coefficients at which residuals are computed.
    basis : (p, f) array
        Basis of the subspace; covariates have unit variance in its directions.
    values : array
        Eigenvalues of the pair sums, by decreasing absolute value.
    """

    summaries: Mapping[str, ColumnSummary]
    summary: ColumnSummary
    design: Design
    theta: Array
    basis: Array
    values: Array

    @property
    def spread(self) -> Array:
        """Return mean squares over clients of the coefficients in each direction, ``(f,)``, bounded below."""
        sizes = np.abs(self.values)
        return np.asarray(np.maximum(sizes[: self.basis.shape[1]], 1e-3 * sizes.max() + np.finfo(float).tiny))


def estimate_directions(
    specification: Specification, d: int, K: int, iterations: int, rng: np.random.Generator
) -> Dialogue[Directions]:
    """Estimate the ``K`` directions in which clients differ most, from one sum of ``p²`` numbers or by iteration.

    Parameters
    ----------
    specification : Specification
        Model to fit; it states whether there is an intercept.
    d, K : int
        Numbers of covariates and directions.
    iterations : int
        Number of rounds of orthogonal iteration, with ``p K`` numbers each; 0 for the sum.
    rng : numpy.random.Generator
        Generator of the basis from which the iteration starts.
    """
    raw = Design.raw(d, specification.intercept)
    theta = np.zeros(raw.p)
    question = Several((Summarise(d, 1), *_about(raw, theta, whole=not iterations)))
    each: Mapping[str, Answers] = yield Each(question)
    summaries = {site: found.items[0] for site, found in each.items()}
    summary, *sums = reduce(add, each.values()).items
    check_fittable(specification, summary)
    design, at = specification.designs(summary)[0], raw
    if _is_far_off(summary, specification.intercept):
        at, theta = design, centre(summary, design)
        answers: Answers = yield Total(Several(_about(design, theta, whole=not iterations)))
        sums = list(answers.items)
    back = at.from_raw() @ design.to_raw()  # sums in the coordinates of the design: units do not matter
    theta = design.from_raw() @ at.to_raw() @ theta
    Sxx = back.T @ unpack(sums[0].experts.second)[0] @ back
    W = whitening(Sxx / float(sums[0].experts.plain[0]))
    if iterations:
        start = orthonormalise(rng.standard_normal((W.shape[1], min(K, W.shape[1]))))
        values, U = yield from iterate_directions(Pairs(design, theta), W, start, iterations)
    else:
        values, U = leading_directions(replace(sums[1], product=back.T @ sums[1].product @ back), W, K)
    return Directions(summaries, summary, design, theta, W @ U, values)


def _about(design: Design, theta: Array, *, whole: bool) -> tuple[Expect | Pairs, ...]:
    """Return the questions whose answers determine the subspace."""
    return (Expect(standard_regression(design)), *((Pairs(design, theta),) if whole else ()))


def _is_far_off(summary: ColumnSummary, intercept: bool) -> bool:
    """Whether the means would dominate sums about 0; without an intercept, 0 is the common point of the experts."""
    means = np.concatenate([summary.x_mean, summary.y_mean])
    variances = np.concatenate([summary.x_variance, np.diagonal(summary.y_covariance)])
    return intercept and bool(np.any(means**2 > FAR_OFF**2 * variances))


def centre(summary: ColumnSummary, design: Design) -> Array:
    """Return the coefficients ``(p,)`` of the mean response, in which only the intercept is not 0."""
    theta = np.zeros(design.p)
    if design.intercept:
        theta[0] = summary.y_mean[0]
    return theta


def leading_directions(sums: PairSums, W: Array, K: int) -> tuple[Array, Array]:
    """Compute the whitened eigenvalues of the pair sums, by decreasing absolute value, and the first K eigenvectors."""
    values, vectors = leading_eigenpairs(W.T @ sums.product @ W / max(sums.pairs, 1.0), W.shape[1])
    return values, vectors[:, :K]


def iterate_directions(pairs: Pairs, W: Array, U: Array, rounds: int) -> Dialogue[tuple[Array, Array]]:
    """Compute the same by orthogonal iteration from a basis ``U``: ``U ← orth(Wᵀ Y W U)``, one round each."""
    values = np.zeros(U.shape[1])
    for _ in range(rounds):
        sums: PairSums = yield Total(replace(pairs, basis=W @ U))
        product = W.T @ sums.product / max(sums.pairs, 1.0)
        values = np.asarray(np.linalg.eigvalsh(U.T @ product)[::-1])
        U = orthonormalise(product)
    return values, U
