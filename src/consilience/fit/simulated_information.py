"""Fisher scoring: the score of all rows with an information that is simulated from the mixture itself.

The observed information weighs rows by products of responsibilities, and a single row between two experts can dominate
them. Its expectation needs no rows: covariates are drawn from the summaries that sites have stated, or from a normal
distribution with their means and covariances, responses from the mixture, and

    J ≈ N / n  Σ_i  J(x_i, y_i; θ),    i = 1 ... n simulated rows,

takes the place of the observed information of N rows, and simulated second moments that of theirs. The score is exact.
A step ``J⁻¹ g`` from a consistent estimate loses nothing at large N [1]_; with an approximate J, the rest of the error
shrinks by about a constant factor in each step.

References
----------
.. [1] L. Le Cam, "On the asymptotic theory of estimation and testing hypotheses", Proc. Third Berkeley Symposium 1
   (1956), 129-156.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from consilience.model import ColumnSummary, Mixture, Moments, Rows, Statistics, expect
from consilience.numerics.arrays import Array

SIMULATED = 20_000
"""Number of simulated rows."""
PER_PARAMETER = 20
"""Minimum number of simulated rows for each parameter."""


class Covariates(Protocol):
    """A distribution of covariates, such as a summary of those of a site."""

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n rows ``(n, d)``."""


@dataclass(frozen=True, eq=False)
class NormalCovariates:
    """Normal covariates with the means and covariances of a summary; columns may be dependent or constant."""

    summary: ColumnSummary

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n rows ``(n, d)``."""
        values, vectors = np.linalg.eigh(self.summary.x_products / self.summary.weight)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(self.summary.x_mean + rng.standard_normal((n, len(values))) @ root.T)


@dataclass(frozen=True, eq=False)
class SimulatedInformation:
    """Simulated rows of sites, of which only summaries of the covariates are known.

    Parameters
    ----------
    weights : tuple of float
        Weight of each site, or one for all.
    covariates : tuple of Covariates
        The distribution of the covariates of each.
    seed : int
    """

    weights: tuple[float, ...]
    covariates: tuple[Covariates, ...]
    seed: int

    @classmethod
    def normal(cls, summaries: Sequence[ColumnSummary], seed: int) -> SimulatedInformation:
        """Return a simulation with normal covariates."""
        found = [each for each in summaries if each.weight > 0]
        return cls(tuple(each.weight for each in found), tuple(NormalCovariates(each) for each in found), seed)

    @property
    def is_normal(self) -> bool:
        """Whether the covariates of a site are taken as normal."""
        return any(isinstance(each, NormalCovariates) for each in self.covariates)

    def drawn(self, n: int) -> Array:
        """Draw about n rows of covariates, from each site by its weight."""
        rng = np.random.default_rng([self.seed, n])
        counts = np.ceil(n * np.array(self.weights) / sum(self.weights)).astype(int)
        return np.concatenate([each.sample(int(m), rng) for each, m in zip(self.covariates, counts, strict=True)])

    def statistics(self, mixture: Mixture, weight: float) -> Statistics:
        """Compute the statistics of simulated rows at a mixture, with the information, scaled to a weight."""
        X = self.drawn(max(SIMULATED, PER_PARAMETER * mixture.parameter_count))
        Y, _ = mixture.sample(X, np.random.default_rng(self.seed))
        return expect(mixture, Rows(X, Y), information=True).scaled(weight / len(X))


def complete_statistics(mixture: Mixture, scores: Statistics, simulation: SimulatedInformation) -> Statistics:
    """Return statistics at a mixture with the sums of ``scores``, and simulated second moments and information.

    Parameters
    ----------
    mixture : Mixture
    scores : Statistics
        Without second moments, as :func:`~consilience.model.expectation.score_sums` computes them.
    simulation : Simulation
    """
    simulated = simulation.statistics(mixture, scores.weight)
    gate, experts = (
        Moments(exact.plain, exact.first, other.second)
        for exact, other in ((scores.gate, simulated.gate), (scores.experts, simulated.experts))
    )
    return replace(scores, gate=gate, experts=experts, information=simulated.information)
