"""Summary of a site's fit, which the coordinator combines."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.aggregate.combine.support import CovariateSummary
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class SiteModel:
    """A mixture fitted at one site, in raw coordinates, with the moments needed to combine it with others.

    Parameters
    ----------
    mixture : Mixture
    weight : float
        Total weight of the site's rows, or its number of groups.
    label_counts : (K,) array
        ``Σ τ_k`` over labels: rows, or groups.
    mass : (K,) array
        ``Σ w τ_k`` over rows.
    second : (K, p (p + 1) / 2) array
        ``S_k = Σ w τ_k x̃ x̃ᵀ`` of Gaussian experts, packed; without rows for other families.
    log_likelihood : float
        Log-likelihood of the mixture on the site's rows.
    precision : (K, f (f + 1) / 2) array
        Inverse covariance of each expert's free coefficients, packed; without rows if not available.
    covariates : CovariateSummary or None
        Summary of the covariates that the gate reads; None if not needed.
    exposure : float
        Mean exposure of counts.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.datasets import soft
    >>> truth = soft(10, random_state=0).truth
    >>> none = np.empty((0, 0))
    >>> SiteModel(truth, 10.0, np.full(4, 2.5), np.full(4, 2.5), none, -20.0, none).log_likelihood_per_row
    -2.0
    """

    mixture: Mixture
    weight: float
    label_counts: Array
    mass: Array
    second: Array
    log_likelihood: float
    precision: Array
    covariates: CovariateSummary | None = None
    exposure: float = 1.0

    @property
    def log_likelihood_per_row(self) -> float:
        """Log-likelihood per unit of weight."""
        return self.log_likelihood / self.weight
