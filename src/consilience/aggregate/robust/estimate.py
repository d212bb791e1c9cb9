"""A site's estimate with its covariance, and the alignment of estimates to common labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from consilience.aggregate.robust.centre import coordinate_median
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array, IntArray


@dataclass(frozen=True, eq=False)
class Estimate:
    """A site's estimate, covariance and label counts after one step.

    Parameters
    ----------
    mixture : Mixture
        The mixture in coordinates common to all sites.
    label_counts : (K,) array
        ``Σ τ_k`` over the labels of the site.
    covariance : (K, f, f) array
        Covariance of each expert's free coefficients.
    slopes : (g, g) array or None
        Covariance of the free slopes of a softmax gate; None if it is not reliable, or the gate has no slopes.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> experts = GaussianExperts(np.array([[[0.0]], [[5.0]]]), np.ones((2, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), experts)
    >>> Estimate(mixture, np.array([50.0, 50.0]), np.full((2, 1, 1), 0.02)).coefficients
    array([[0.],
           [5.]])
    """

    mixture: Mixture
    label_counts: Array
    covariance: Array
    slopes: Array | None = None

    @property
    def coefficients(self) -> Array:
        """Return the free coefficients of each expert, ``(K, f)``."""
        return self.mixture.coefficients

    def is_finite(self) -> bool:
        """Whether the site has rows and its numbers are finite."""
        parts = (self.coefficients, self.label_counts, self.covariance, self.mixture.gate.contrasts())
        if not (all(bool(np.all(np.isfinite(part))) for part in parts) and self.label_counts.sum() > 0):
            return False
        return not self.mixture.experts.invalid()

    def with_covariances_of(self, other: Estimate) -> Estimate:
        """Return the estimate with the covariances of another one, rescaled to this one's numbers of rows."""
        times = np.maximum(other.label_counts, 1.0) / np.maximum(self.label_counts, 1.0)
        return replace(self, covariance=times[:, None, None] * other.covariance, slopes=other.slopes)

    def permuted(self, permutation: IntArray) -> Estimate:
        """Return the estimate with experts in another order; the covariance of the gate's slopes is dropped."""
        if np.array_equal(permutation, np.arange(len(permutation))):
            return self
        return Estimate(
            self.mixture.permuted(permutation), self.label_counts[permutation], self.covariance[permutation]
        )


def in_common_labels(estimates: Mapping[str, Estimate], centre: Mixture) -> dict[str, Estimate]:
    """Permute the experts of estimates to match the centre's, in units of their standard errors.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> experts = GaussianExperts(np.array([[[0.0]], [[5.0]]]), np.ones((2, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), experts)
    >>> site = Estimate(mixture.permuted(np.array([1, 0])), np.array([50.0, 50.0]), np.full((2, 1, 1), 0.02))
    >>> in_common_labels({"north": site}, mixture)["north"].coefficients.ravel()
    array([0., 5.])
    """
    target = centre.coefficients
    variances = np.array([np.diagonal(site.covariance, axis1=1, axis2=2).mean(axis=0) for site in estimates.values()])
    scale = np.sqrt(coordinate_median(np.maximum(variances, np.finfo(float).tiny)))
    found = {}
    for name, site in estimates.items():
        _, permutation = linear_sum_assignment(cdist(target / scale, site.coefficients / scale))
        found[name] = site.permuted(permutation)
    return found
