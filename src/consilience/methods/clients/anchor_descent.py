"""Moment descent of anchor clients, in subspaces estimated from all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from consilience.messages.anchor_questions import Anchors
from consilience.messages.client_questions import Pairs
from consilience.messages.dialogue import Dialogue, PerSite, Total
from consilience.messages.questions import Answers, Several
from consilience.model.clients.anchors import AnchorSteps
from consilience.model.design import Design
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, Mask
from consilience.numerics.subspace import orthonormal

PASSES = 5
"""Number of rounds of orthogonal iteration for the subspaces of one step."""
NEAR_ENOUGH = 0.2
"""Residual, relative to the separation, at which an anchor stops."""


@dataclass(frozen=True, eq=False)
class Descent:
    """State of A anchors.

    Parameters
    ----------
    design : Design
    sites : tuple of str, (A,)
    places : tuple of int, (A,)
        Index of each anchor among the clients of its site.
    theta : (A, p) array
    basis : (A, p, f) array
        Basis of the subspace of each anchor's next step.
    going, present : (A,) array of bool
        Which anchors still move, and which still answer.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Descent.begun(Design.raw(4), {"north": (3, 8), "south": (0,)}, np.zeros(5), 2, rng).basis.shape
    (3, 5, 2)
    """

    design: Design
    sites: tuple[str, ...]
    places: tuple[int, ...]
    theta: Array
    basis: Array
    going: Mask
    present: Mask

    @classmethod
    def begun(
        cls, design: Design, places: Mapping[str, tuple[int, ...]], theta: Array, K: int, rng: np.random.Generator
    ) -> Descent:
        """Start all anchors at ``theta (p,)``, with one random basis of ``min(K, p)`` directions."""
        where = [(site, place) for site, found in places.items() for place in found]
        A, f = len(where), min(K, design.p)
        basis = np.tile(orthonormal(rng.standard_normal((design.p, f))), (A, 1, 1))
        all_of_them = np.ones(A, dtype=bool)
        sites, at = tuple(site for site, _ in where), tuple(place for _, place in where)
        return cls(design, sites, at, np.tile(theta, (A, 1)), basis, all_of_them, all_of_them)

    def looked_around(self, *, alike: bool) -> Dialogue[Descent]:
        """Update the subspaces of the anchors that move; one for all if their coefficients are ``alike``."""
        index = np.flatnonzero(self.going)
        asked = index[:1] if alike else index
        if not len(asked):
            return self
        found = yield from subspaces(self.design, self.theta[asked], self.basis[asked])
        basis = self.basis.copy()
        basis[index] = found
        return replace(self, basis=basis)

    def stepped(self, separation: float | None) -> Dialogue[Descent]:
        """Take half of each anchor's estimated step; an anchor stops if it is small relative to the separation."""
        asked = [a for a in range(len(self.sites)) if self.going[a]]
        if not asked:
            return self
        of_site = {site: [a for a in asked if self.sites[a] == site] for site in (self.sites[a] for a in asked)}
        answers: Mapping[str, AnchorSteps] = yield PerSite(
            {
                site: Anchors(self.design, tuple(self.places[a] for a in own), self.theta[own], self.basis[own])
                for site, own in of_site.items()
            }
        )
        theta, going, present = self.theta.copy(), self.going.copy(), self.present.copy()
        for site, own in of_site.items():
            if site not in answers:
                going[own], present[own] = False, False
                continue
            step = answers[site].step
            if separation is not None:
                going[own] = np.linalg.norm(step, axis=1) > NEAR_ENOUGH * separation
            theta[own] += 0.5 * going[own][:, None] * np.einsum("apf,af->ap", self.basis[own], step)
        return replace(self, theta=theta, going=going, present=present)


def subspaces(design: Design, theta: Array, basis: Array) -> Dialogue[Array]:
    """Estimate the leading subspace of ``Y(θ)`` at each of ``theta (A, p)`` by iteration from ``basis (A, p, f)``.

    Examples
    --------
    >>> request = next(subspaces(Design.raw(1), np.zeros((2, 2)), np.tile(np.eye(2)[:, :1], (2, 1, 1))))
    >>> len(request.question.questions)
    2
    """
    for _ in range(PASSES):
        answers: Answers = yield Total(Several(tuple(Pairs(design, at, U) for at, U in zip(theta, basis, strict=True))))
        basis = np.array([orthonormal(sums.product) for sums in answers.items])
    return basis


def random_start(summary: ColumnSummary, design: Design, rng: np.random.Generator) -> Array:
    """Draw ``θ_0 ~ N(0, I / p)`` about the mean response, in standard deviations of the response.

    Examples
    --------
    >>> summary = ColumnSummary(9.0, np.zeros(1), np.eye(1), np.full(1, 1e6), np.ones((1, 1)))
    >>> bool(abs(random_start(summary, summary.design(True), np.random.default_rng(0))[0] - 1e6) < 9)
    True
    """
    theta = np.sqrt(summary.y_covariance[0, 0] / design.p) * rng.standard_normal(design.p)
    if design.intercept:
        theta[0] += summary.y_mean[0]
    return np.asarray(theta)
