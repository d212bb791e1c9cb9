"""Partial pooling of similar sites: a robust centre, and each site's estimate shrunk towards it.

Coefficients are compared in coordinates whitened by their covariance per row, so that distances are comparable between
experts. Weights and covariances are estimated per site, with the centre's as a few prior rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate.disagreement import Camps, camps
from consilience.aggregate.robust.centre import coordinate_median, geometric_median
from consilience.aggregate.robust.estimate import Estimate, shrink_step
from consilience.aggregate.robust.shrinkage import ShrunkVectors, division, shrink_whitened
from consilience.fit.influence import ExpertsWithout
from consilience.model import Gate, Mixture
from consilience.numerics.arrays import Array, IntArray, Mask

LEAST_GATES = 3
"""Minimum number of sites with a covariance of their gate's slopes to shrink slopes; else all have the centre's."""

NO_OTHERS = 1e-9
"""Weight of the other sites in the centre below which there are none."""
MEDIAN_OF_SQUARE = 0.455
"""Median of a chi-square of one degree of freedom."""


@dataclass(frozen=True, eq=False)
class CentreParts:
    """The coefficients of the sites and their weights in the centre: ``v_k = Σ_m A_mk z_mk``.

    Parameters
    ----------
    points : (M, K, f) array
    shares : (M, K, f, f) array
        The weights; they sum to the identity.
    """

    points: Array
    shares: Array

    def permuted(self, permutation: IntArray) -> CentreParts:
        """Return the parts with experts in another order."""
        return CentreParts(self.points[:, permutation], self.shares[:, permutation])

    def without(self, gone: Mask, covariance: Array) -> ExpertsWithout:
        """Return the centre without some sites, with the same weights; NaN for experts of which no other has a weight.

        Its change is ``(I - A)⁻¹ (A v - Σ A_mk z_mk)`` with ``A = Σ A_mk`` over these sites, and its covariance
        ``(I - A)⁻¹ V``, with that of the centre ``V (K, f, f)``.
        """
        moments: Array = np.einsum("mkab,mkb->mka", self.shares, self.points)
        A, v = self.shares[gone].sum(axis=0), moments.sum(axis=0)
        left, found = np.eye(v.shape[1]) - A, ExpertsWithout(np.full(v.shape, np.nan), covariance, covariance.copy())
        for k in range(len(v)):
            if np.trace(left[k]) > NO_OTHERS * len(left[k]):  # NaN is not
                found.change[k] = np.linalg.solve(left[k], A[k] @ v[k] - moments[gone, k].sum(axis=0))
                found.after[k] = np.linalg.solve(left[k], covariance[k])
        return found


@dataclass(frozen=True, eq=False)
class Sharing:
    """The centre, and each site's mixture shrunk towards it.

    Parameters
    ----------
    centre : Mixture
    covariance : (K, f, f) array
        Covariance of the centre's coefficients: sampling error at the sites, and variance between sites.
    mixtures : mapping of str to Mixture
    shrinkage : (M, K) array
        Fraction of each site's coefficients that comes from the other sites; nearly 0 if a site is far from them.
    kept : (M, K) array of bool
        Which experts of which sites define the centre. An expert with too few rows at a site is not kept and is shrunk
        fully.
    gate_shrinkage : (M,) array
        Shrinkage of the slopes of each site's gate; 0 for gates without slopes.
    between : (K,) array
        Standard deviation of the coefficients between sites, root mean square over coefficients, in units of their
        standard deviation for one row.
    division : float
        Evidence that the sites form groups: above 1, their differences have a common direction beyond sampling error,
        and a centre between the groups represents none of them.
    parts : CentreParts or None
        What the centre's coefficients are the mean of, if they are a mean.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import Estimate, share_estimates
    >>> from consilience.model import Mixture
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> experts = GaussianExperts(np.zeros((1, 1, 1)), np.ones((1, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    >>> alike = {name: Estimate(mixture, np.array([50.0]), np.full((1, 1, 1), 0.02)) for name in "abcd"}
    >>> found = share_estimates(alike)
    >>> found.shrinkage.ravel(), found.covariance.ravel()
    (array([0.75, 0.75, 0.75, 0.75]), array([0.005]))
    """

    centre: Mixture
    covariance: Array
    mixtures: Mapping[str, Mixture]
    shrinkage: Array
    kept: Mask
    gate_shrinkage: Array
    between: Array
    division: float
    parts: CentreParts | None = None

    def centre_without(self, gone: Collection[str]) -> ExpertsWithout:
        """Return the centre of the other sites that were kept, with the same weights; NaN if it is not a mean."""
        out = np.array([site in gone for site in self.mixtures])
        if self.parts is None:
            return ExpertsWithout(np.full_like(self.covariance[:, 0], np.nan), self.covariance, self.covariance)
        return self.parts.without(out, self.covariance)

    def permuted(self, permutation: IntArray) -> Sharing:
        """Return the result with experts in another order."""
        return replace(
            self,
            centre=self.centre.permuted(permutation),
            covariance=self.covariance[permutation],
            mixtures={site: mixture.permuted(permutation) for site, mixture in self.mixtures.items()},
            shrinkage=self.shrinkage[:, permutation],
            kept=self.kept[:, permutation],
            between=self.between[permutation],
            parts=None if self.parts is None else self.parts.permuted(permutation),
        )


def share_estimates(estimates: Mapping[str, Estimate], *, equal: bool = False, barred: Collection[str] = ()) -> Sharing:
    """Shrink the estimates of sites towards a robust centre, by an amount that depends on their differences.

    Coefficients of each expert are shrunk (:func:`~consilience.aggregate.robust.shrinkage.shrink`) in coordinates
    whitened by the geometric median of their covariances per row; slopes of a softmax gate likewise, all experts as one
    vector. A site more than half of whose experts are far from the others' is excluded from the centre. Weights and
    covariances of the experts are estimated per site; the centre's count as ``f`` rows, or fewer if sites differ.

    Parameters
    ----------
    estimates : mapping of str to Estimate
        Finite estimates in common labels.
    equal : bool
        Whether to give every site the geometric median, however they differ.
    barred : collection of str
        Sites excluded from the centre.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import Estimate, share_estimates
    >>> from consilience.model import Mixture
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> def site(mean):
    ...     experts = GaussianExperts(np.array([[[mean]]]), np.ones((1, 1, 1)))
    ...     mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    ...     return Estimate(mixture, np.array([50.0]), np.full((1, 1, 1), 0.02))
    >>> found = share_estimates({"north": site(0.1), "south": site(-0.1), "east": site(0.0), "west": site(90.0)})
    >>> found.kept.ravel(), found.mixtures["west"].experts.B.ravel().round(2)
    (array([ True,  True,  True, False]), array([90.]))
    >>> found.shrinkage.ravel().round(2)
    array([0.42, 0.42, 0.42, 0.  ])
    """
    sites = list(estimates.values())
    out = np.array([name in barred for name in estimates])
    out = np.zeros_like(out) if out.all() else out
    each = _experts_drawn(sites, equal=equal, barred=out)
    far = _mostly_far(each)
    if np.any(far & ~out):
        each = _experts_drawn(sites, equal=equal, barred=far | out)
    coefficients = np.array([_steps(site, m, each) for m, site in enumerate(sites)])  # (M, K, f)
    own, pooled = _shapes(sites)
    gates, gate, gate_shrinkage = _gates(sites, far | out, equal=equal)
    return Sharing(
        _mixture(sites[0].mixture, gate, np.array([one.found.centre for one in each]), pooled),
        np.array([one.found.covariance for one in each]),
        {
            name: _mixture(site.mixture, gates[m], coefficients[m], own[m])
            for m, (name, site) in enumerate(estimates.items())
        },
        np.stack([one.found.shrinkage for one in each], axis=1),
        np.stack([one.found.kept for one in each], axis=1),
        gate_shrinkage,
        np.sqrt([one.found.between for one in each]),
        0.0 if equal else division([one.residuals for one in each]),
        CentreParts(np.array([site.points for site in sites]), np.stack([one.found.shares for one in each], axis=1)),
    )


def camps_of(estimates: Mapping[str, Estimate]) -> Camps:
    """Test whether sites form two camps, by the coefficients of all experts; experts with too few rows are left out."""
    sites = list(estimates.values())
    labels = np.array([site.label_counts for site in sites])
    points = np.where((labels > sites[0].mixture.design.p)[:, :, None], [site.points for site in sites], np.nan)
    covariances = np.array([site.covariance for site in sites])
    return camps(list(np.swapaxes(points, 0, 1)), list(np.swapaxes(covariances, 0, 1)))


def _experts_drawn(sites: list[Estimate], *, equal: bool, barred: Mask) -> list[ShrunkVectors]:
    """Shrink the coefficients of each expert towards their centre."""
    return [
        shrink_whitened(
            np.array([site.points[k] for site in sites]),
            np.array([site.covariance[k] for site in sites]),
            np.array([site.label_counts[k] for site in sites]),
            least=sites[0].mixture.design.p + 1,
            equal=equal,
            barred=barred,
            tested=sites[0].mixture.K,
        )
        for k in range(sites[0].mixture.K)
    ]


def _steps(site: Estimate, m: int, each: list[ShrunkVectors]) -> Array:
    """Take the EM step of site ``m`` on the posterior of each expert, ``(K, f)``."""
    information = np.linalg.inv(site.covariance) if site.information is None else site.information
    steps = zip(site.coefficients, information, each, strict=True)
    return np.array([shrink_step(b, C, one.found.others[m], one.found.pull[m]) for b, C, one in steps])


def _mostly_far(each: list[ShrunkVectors]) -> Mask:
    """Return the sites more than half of whose experts, of those with rows, are not kept."""
    kept = np.stack([one.found.kept for one in each], axis=1)  # (M, K)
    silent = ~kept & np.stack([one.found.shrinkage == 1 for one in each], axis=1)
    far = ~kept & ~silent
    mostly: Mask = 2 * far.sum(axis=1) > (~silent).sum(axis=1)
    return mostly if not mostly.all() else np.zeros_like(mostly)


def _shapes(sites: list[Estimate]) -> tuple[Array, Array]:
    """Return the shapes of the experts of each site ``(M, K, m)`` with prior rows, and the centre's ``(K, m)``."""
    experts = [site.mixture.experts for site in sites]
    own = np.array([each.shape_values() for each in experts])
    if not own.size:
        return own, own[0]
    pooled = np.array([geometric_median(own[:, k]) for k in range(own.shape[1])])
    rows = np.array([site.label_counts for site in sites])
    if experts[0].ties_shapes:
        rows = np.repeat(rows.sum(axis=1, keepdims=True), own.shape[1], axis=1)
    size = np.log(np.linalg.norm(own, axis=2) / np.linalg.norm(pooled, axis=1))  # (M, K)
    differ = _differ(size**2, 2 / np.maximum(rows, 1.0))
    prior = 2 / np.maximum(differ, 2 / sites[0].coefficients.shape[1])
    weight = (rows / (rows + prior))[:, :, None]
    return weight * own + (1 - weight) * pooled, pooled


def _differ(square: Array, chance: Array) -> Array:
    """Estimate the variance between sites from squared deviations ``(M, ...)``, with sampling variance ``chance``."""
    return np.maximum(np.median(square / MEDIAN_OF_SQUARE - chance, axis=0), 0.0)


def _gates(sites: list[Estimate], out: Mask, *, equal: bool) -> tuple[list[Gate], Gate, Array]:
    """Return the gate of each site, that of the centre, and the shrinkage of each site."""
    gates = [site.mixture.gate for site in sites]
    if not gates[0].reads_covariates:
        labels, prior = np.array([site.label_counts for site in sites]), float(sites[0].coefficients.shape[1])
        share = coordinate_median(labels / labels.sum(axis=1, keepdims=True))
        share /= share.sum()
        rows, spread = labels.sum(axis=1, keepdims=True), float(share @ (1 - share))
        gaps = np.sum((labels / rows - share) ** 2, axis=1)
        prior = spread / max(float(_differ(gaps, spread / rows[:, 0])), spread / prior) if spread > 0 else prior
        own = (labels + prior * share) / (rows + prior)
        return [gates[0].with_shares(pi) for pi in own], gates[0].with_shares(share), np.zeros(len(sites))
    free = np.array([gate.contrasts() for gate in gates])  # (M, K - 1, p)
    first = int(sites[0].mixture.design.intercept)
    slopes, shrinkage, centre = _slopes(sites, out, free[:, :, first:].reshape(len(sites), -1), equal=equal)
    target = free.copy()
    target[:, :, first:] = slopes.reshape(free[:, :, first:].shape)
    middle = np.array([coordinate_median(free[:, k]) for k in range(free.shape[1])]).reshape(free.shape[1:])
    middle[:, first:] = centre.reshape(middle[:, first:].shape)
    moved: list[Gate] = [gate.moved((t - f).ravel()) for gate, t, f in zip(gates, target, free, strict=True)]
    return moved, gates[0].moved((middle - free[0]).ravel()), shrinkage


def _slopes(sites: list[Estimate], out: Mask, slopes: Array, *, equal: bool) -> tuple[Array, Array, Array]:
    """Shrink the slopes of the gates ``(M, g)`` towards their centre; return slopes, shrinkage, centre ``(g,)``."""
    known = np.array([site.slopes is not None for site in sites])
    if slopes.shape[1] == 0:
        return slopes, np.zeros(len(sites)), np.zeros(0)
    if equal or known.sum() < LEAST_GATES:
        centre = geometric_median(slopes[known] if known.sum() >= LEAST_GATES else slopes)
        return np.repeat(centre[None], len(sites), axis=0), np.ones(len(sites)), centre
    use = [site for site in sites if site.slopes is not None]
    covariance = np.array([site.slopes for site in use])
    own = zip(use, slopes[known], strict=True)
    points = np.array([step if site.slopes_located is None else site.slopes_located for site, step in own])
    labels = np.array([site.label_counts.sum() for site in use])
    found = shrink_whitened(points, covariance, labels, least=1.0, equal=False, barred=out[known]).found
    shrinkage = np.ones(len(sites))
    shrinkage[known] = found.shrinkage
    estimates = np.repeat(found.centre[None], len(sites), axis=0)
    estimates[known] = [
        shrink_step(z, np.linalg.inv(C) if site.slopes_information is None else site.slopes_information, v, Q)
        for site, C, z, v, Q in zip(use, covariance, slopes[known], found.others, found.pull, strict=True)
    ]
    return estimates, shrinkage, found.centre


def _mixture(like: Mixture, gate: Gate, coefficients: Array, shapes: Array) -> Mixture:
    """Build a mixture from these parts, in the structure of ``like``."""
    old = like.experts
    delta = coefficients.ravel() - old.free_coefficients()
    experts = old.moved(delta, np.zeros(old.shape_parameters))
    return replace(like, gate=gate, experts=experts.with_shape_values(shapes))
