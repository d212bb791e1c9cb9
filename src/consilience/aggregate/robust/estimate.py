"""A site's estimate with its covariance, and the alignment of estimates to common labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from consilience.aggregate.robust.centre import coordinate_median, geometric_median
from consilience.model import Mixture
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
    located : (K, f) array or None
        Coefficients at the maximum of the site's likelihood as far as one Newton step shows, to which ``covariance``
        belongs; None if the mixture's are these. An EM step covers part of the way only.
    information : (K, f, f) array or None
        Complete-data information of each expert's coefficients, with which an EM step is shrunk; None for the inverse
        of ``covariance``.
    undetermined : int
        Number of directions of coefficients that the site's rows do not determine.
    slopes_located, slopes_information : (g,) and (g, g) array or None
        The same for the free slopes of the gate.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import Estimate
    >>> from consilience.model import Mixture
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
    located: Array | None = None
    information: Array | None = None
    undetermined: int = 0
    slopes_located: Array | None = None
    slopes_information: Array | None = None

    @property
    def coefficients(self) -> Array:
        """Return the free coefficients of each expert, ``(K, f)``."""
        return self.mixture.coefficients

    @property
    def points(self) -> Array:
        """Return the coefficients that are compared between sites, ``(K, f)``."""
        return self.coefficients if self.located is None else self.located

    def is_finite(self) -> bool:
        """Whether the site has rows and its numbers are finite."""
        parts = (self.points, self.coefficients, self.label_counts, self.covariance, self.mixture.gate.contrasts())
        if not (all(bool(np.all(np.isfinite(part))) for part in parts) and self.label_counts.sum() > 0):
            return False
        return not self.mixture.experts.invalid()

    def permuted(self, permutation: IntArray) -> Estimate:
        """Return the estimate with experts in another order; the covariance of the gate's slopes is dropped."""
        if np.array_equal(permutation, np.arange(len(permutation))):
            return self
        return replace(
            self,
            mixture=self.mixture.permuted(permutation),
            label_counts=self.label_counts[permutation],
            covariance=self.covariance[permutation],
            slopes=None,
            slopes_located=None,
            slopes_information=None,
            located=None if self.located is None else self.located[permutation],
            information=None if self.information is None else self.information[permutation],
        )


def shrink_step(step: Array, information: Array, towards: Array, pull: Array) -> Array:
    """Take an EM step on the posterior, ``(D,)``: ``(C + Q)⁻¹ (C b + Q v)``.

    ``b`` is the EM step on the likelihood and ``C`` its complete-data information. A fixed point is a maximum of the
    likelihood with a prior of mean ``v`` and precision ``Q``; an infinite ``Q`` gives ``v``.
    """
    if not np.all(np.isfinite(pull)):
        return towards
    gap = np.linalg.lstsq(information + pull, pull @ (towards - step), rcond=None)[0]
    return np.asarray(step + gap)


def in_common_labels(estimates: Mapping[str, Estimate], centre: Mixture) -> dict[str, Estimate]:
    """Permute the experts of estimates to match the centre's, in units of their standard errors.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import Estimate, in_common_labels
    >>> from consilience.model import Mixture
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


# ---------------------------------------------------------------- labels
#
# Labels are matched by unsquared distances and centred by geometric medians, so that the influence of outlying sites is
# bounded: the breakdown point is nearly one half.


ALL_CANDIDATES = 300
"""Number of sites up to which every site is a candidate for the reference."""
DRAWN_CANDIDATES = 50
"""Number of candidates drawn from more sites; their distances to as many as ``ALL_CANDIDATES`` drawn sites count."""
MAX_PASSES = 10


@dataclass(frozen=True, eq=False)
class Alignment:
    """Common labels of M sites.

    Parameters
    ----------
    permutations : (M, K) array of int
        ``points[m][permutations[m]]`` has the common labels.
    consensus : (K, D) array
        Geometric median over the sites for each label.
    reference : int
        The site whose labels became the common ones.
    converged : bool
        Whether matching to the consensus reproduces the labels.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import Alignment
    >>> points = np.array([[[0.0], [5.0]], [[5.1], [0.1]]])
    >>> labels = Alignment(np.array([[0, 1], [1, 0]]), np.array([[0.05], [5.05]]), 0, True)
    >>> points[1][labels.permutations[1]].ravel()
    array([0.1, 5.1])
    """

    permutations: IntArray
    consensus: Array
    reference: int
    converged: bool


def consistent_labels(points: Array, *, seed: int = 0) -> Alignment:
    """Align the labels of the K components of M sites.

    The reference is the site whose median distance to the others is smallest, ``d(m, l) = min_σ Σ_j ‖θ_mσ(j) - θ_lj‖``;
    it is an honest one if most sites are. Every site is matched to it by optimal assignment. Then, alternately, the
    geometric median of each label replaces the reference, and sites are matched again, until nothing changes. Neither
    step increases ``Σ_m Σ_j ‖θ_mσ_m(j) - v_j‖``.

    The result does not depend on the order of sites or of their components, up to ties; labels are those of the
    reference.

    Parameters
    ----------
    points : (M, K, D) array
        Vectors by which components are matched, in comparable units: coefficients, for instance.
    seed : int
        Seed to draw 50 candidates for the reference, and 300 sites to compare them with, if there are more than 300
        sites; otherwise unused.

    Returns
    -------
    Alignment

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import consistent_labels
    >>> honest = np.array([[0.0], [5.0], [9.0]])
    >>> points = np.array([honest, honest[[2, 0, 1]] + 0.1, honest[::-1] - 0.1, [[70.0], [-30.0], [20.0]]])
    >>> labels = consistent_labels(points)
    >>> labels.permutations[:3]
    array([[0, 1, 2],
           [1, 2, 0],
           [2, 1, 0]])
    >>> labels.consensus.round(2).ravel()
    array([-0.05,  5.05,  9.05])
    """
    reference = _medoid(points, seed)
    permutations, _ = _matched(points, points[reference])
    consensus = _medians(points, permutations)
    converged = False
    for _ in range(MAX_PASSES):
        before = permutations
        permutations, _ = _matched(points, consensus)
        converged = np.array_equal(permutations, before)
        if converged:
            break
        consensus = _medians(points, permutations)
    return Alignment(permutations, consensus, reference, converged)


def _medoid(points: Array, seed: int) -> int:
    """Return the site with the smallest median distance to all, or to some that are drawn from many."""
    M = len(points)
    candidates = others = np.arange(M)
    if M > ALL_CANDIDATES:
        rng = np.random.default_rng(seed)
        candidates = np.sort(rng.choice(M, DRAWN_CANDIDATES, replace=False))
        others = np.sort(rng.choice(M, ALL_CANDIDATES, replace=False))
    typical = [np.median(_matched(points[others], points[m])[1]) for m in candidates]
    return int(candidates[np.argmin(typical)])


def _matched(points: Array, centres: Array) -> tuple[IntArray, Array]:
    """Return the permutations ``(M, K)`` that match sites to ``centres (K, D)``, and the distances left ``(M,)``."""
    M, K, D = points.shape
    costs = cdist(centres, points.reshape(M * K, D)).reshape(K, M, K)
    permutations = np.array([linear_sum_assignment(costs[:, m])[1] for m in range(M)], dtype=np.intp)
    return permutations, costs[np.arange(K), np.arange(M)[:, None], permutations].sum(axis=1)


def _medians(points: Array, permutations: IntArray) -> Array:
    """Compute the geometric median of each label, ``(K, D)``."""
    aligned = np.take_along_axis(points, permutations[:, :, None], axis=1)
    return np.array([geometric_median(aligned[:, j]) for j in range(aligned.shape[1])])
