"""Fisher scoring: the score of all rows with an information that is simulated from the mixture itself.

The observed information weighs rows by products of responsibilities, and a single row between two experts can dominate
them. Its expectation needs no rows: covariates are drawn from a normal distribution with the means and covariances that
the sites have stated, responses from the mixture, and

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

from dataclasses import dataclass, replace

import numpy as np

from consilience.model.expectation import expect
from consilience.model.mixture import Mixture
from consilience.model.moments import Moments
from consilience.model.rows import Rows
from consilience.model.statistics import Statistics
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array

SIMULATED = 20_000
"""Number of simulated rows."""
PER_PARAMETER = 20
"""Minimum number of simulated rows for each parameter."""


@dataclass(frozen=True)
class Simulation:
    """Simulated rows of sites, of which only means and covariances of the covariates are known.

    Parameters
    ----------
    summaries : tuple of ColumnSummary
        One for each site, or one for all.
    seed : int

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.model.summary import column_summary
    >>> data = soft(8000, n_experts=2, n_features=2, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None])
    >>> simulated = Simulation((column_summary(rows),), seed=1).statistics(data.truth, 8000.0).information
    >>> observed = expect(data.truth, rows, information=True).information
    >>> bool(np.abs(np.diag(simulated) / np.diag(observed) - 1).max() < 0.1)
    True
    """

    summaries: tuple[ColumnSummary, ...]
    seed: int

    def covariates(self, n: int) -> Array:
        """Draw about n rows of covariates, from each site by its weight."""
        rng = np.random.default_rng([self.seed, n])
        weights = np.array([each.weight for each in self.summaries])
        counts = np.ceil(n * weights / weights.sum()).astype(int)
        return np.concatenate([_drawn(each, int(m), rng) for each, m in zip(self.summaries, counts, strict=True)])

    def statistics(self, mixture: Mixture, weight: float) -> Statistics:
        """Compute the statistics of simulated rows at a mixture, with the information, scaled to a weight."""
        X = self.covariates(max(SIMULATED, PER_PARAMETER * mixture.parameter_count))
        Y, _ = mixture.sample(X, np.random.default_rng(self.seed))
        return expect(mixture, Rows(X, Y), information=True).scaled(weight / len(X))


def _drawn(summary: ColumnSummary, n: int, rng: np.random.Generator) -> Array:
    """Draw rows of covariates with the means and covariances of a site; columns may be dependent or constant."""
    values, vectors = np.linalg.eigh(summary.x_products / summary.weight)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(summary.x_mean + rng.standard_normal((n, len(values))) @ root.T)


def completed(mixture: Mixture, scores: Statistics, simulation: Simulation) -> Statistics:
    """Return statistics at a mixture with the sums of ``scores``, and simulated second moments and information.

    Parameters
    ----------
    mixture : Mixture
    scores : Statistics
        Without second moments, as :func:`~consilience.model.expectation.score_sums` computes them.
    simulation : Simulation

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.model.expectation import score_sums
    >>> from consilience.model.summary import column_summary
    >>> data = soft(500, n_experts=2, n_features=2, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None])
    >>> scores, simulation = score_sums(data.truth, rows), Simulation((column_summary(rows),), seed=1)
    >>> found = completed(data.truth, scores, simulation)
    >>> found.log_likelihood == scores.log_likelihood, found.experts.second.shape
    (True, (2, 6))
    """
    simulated = simulation.statistics(mixture, scores.weight)
    gate, experts = (
        Moments(exact.plain, exact.first, other.second)
        for exact, other in ((scores.gate, simulated.gate), (scores.experts, simulated.experts))
    )
    return replace(scores, gate=gate, experts=experts, information=simulated.information)
