"""Sites that are similar, not equal: a robust centre, and for each site an estimate between its own and the centre.

Coefficients are compared in coordinates whitened by the covariance that one row's worth of them has, so that a distance
means the same for every expert. Shares and covariances stay with the site, with the centre's as a few rows of prior.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from consilience.aggregate.centre import Shrinkage, coordinate_median, geometric_median, shrunk
from consilience.model import covariance as cov
from consilience.model.gates import ConstantGate, Gate
from consilience.model.gaussian import GaussianExperts
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array, Labels, Mask
from consilience.numerics.linalg import cholesky_or_none

LEAST_GATES = 3
"""Sites with a covariance of their gate's slopes from which on slopes are shrunk; with fewer all have the centre's."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the rows of one site say, one step from where it stood.

    Parameters
    ----------
    mixture : Mixture
        In coordinates that all sites share.
    labels : (K,) array
        ``Σ τ_k`` over the labels of the site.
    covariance : (K, f, f) array
        Of each expert's free coefficients.
    slopes : (g, g) array or None
        Covariance of the free slopes of a softmax gate; None where it is not to be trusted, or the gate has none.

    Examples
    --------
    >>> from consilience.model import Design
    >>> experts = GaussianExperts(np.array([[[0.0]], [[5.0]]]), np.ones((2, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), experts)
    >>> Estimate(mixture, np.array([50.0, 50.0]), np.full((2, 1, 1), 0.02)).coefficients
    array([[0.],
           [5.]])
    """

    mixture: Mixture
    labels: Array
    covariance: Array
    slopes: Array | None = None

    @property
    def coefficients(self) -> Array:
        """Free coefficients of each expert, ``(K, f)``."""
        return self.mixture.experts.free_coefficients().reshape(self.mixture.K, -1)

    def is_finite(self) -> bool:
        """Whether it has rows, and all that is compared is finite."""
        parts = (self.coefficients, self.labels, self.covariance, self.mixture.gate.contrasts())
        if not (all(bool(np.all(np.isfinite(part))) for part in parts) and self.labels.sum() > 0):
            return False
        experts = self.mixture.experts
        return not isinstance(experts, GaussianExperts) or all(
            cholesky_or_none(S) is not None for S in experts.matrices
        )

    def permuted(self, order: Labels) -> Estimate:
        """The same with experts in another order; the covariance of slopes, which has an order of its own, is lost."""
        if np.array_equal(order, np.arange(len(order))):
            return self
        return Estimate(self.mixture.permuted(order), self.labels[order], self.covariance[order])


@dataclass(frozen=True, eq=False)
class Sharing:
    """The centre, and each site's mixture between its own and the centre.

    Parameters
    ----------
    centre : Mixture
    covariance : (K, f, f) array
        Of the centre's coefficients: from chance at the sites, and from the differences between them.
    mixtures : mapping of str to Mixture
    borrowed : (M, K) array
        Share of each site's coefficients that comes from the other sites; nearly 0 where a site is far from them.
    kept : (M, K) array of bool
        Which experts of which sites the centre is made of. An expert of which a site has too few rows is not kept and
        borrows all.
    gate_borrowed : (M,) array
        The same for the slopes of each site's gate; 0 for gates without.
    between : (K,) array
        Standard deviation of the coefficients between sites, root mean square over coefficients, in units of the
        standard deviation that one row's worth of them has.
    division : float
        How far the sites fall into camps, where they may differ: above 1, their differences have one direction in
        common more than chance allows, and a centre between the camps stands for neither.

    Examples
    --------
    >>> from consilience.model import Design
    >>> experts = GaussianExperts(np.zeros((1, 1, 1)), np.ones((1, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    >>> alike = {name: Estimate(mixture, np.array([50.0]), np.full((1, 1, 1), 0.02)) for name in "abcd"}
    >>> found = shared(alike)
    >>> found.borrowed.ravel(), found.covariance.ravel()
    (array([0.75, 0.75, 0.75, 0.75]), array([0.005]))
    """

    centre: Mixture
    covariance: Array
    mixtures: Mapping[str, Mixture]
    borrowed: Array
    kept: Mask
    gate_borrowed: Array
    between: Array
    division: float

    def permuted(self, order: Labels) -> Sharing:
        """The same with experts in another order."""
        return replace(
            self,
            centre=self.centre.permuted(order),
            covariance=self.covariance[order],
            mixtures={site: mixture.permuted(order) for site, mixture in self.mixtures.items()},
            borrowed=self.borrowed[:, order],
            kept=self.kept[:, order],
            between=self.between[order],
        )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """One vector of each site drawn towards its centre, and how the sites lie in whitened coordinates."""

    found: Shrinkage  # back in the coordinates it came in
    covariance: Array  # (D, D) of the centre
    residuals: Array  # (M, D) from the centre, of unit variance where only chance and ĥ² are at work; 0 if not kept


def in_common_labels(estimates: Mapping[str, Estimate], centre: Mixture) -> dict[str, Estimate]:
    """Estimates with their experts in the order nearest to the centre's, in units of their standard errors.

    Examples
    --------
    >>> from consilience.model import Design
    >>> experts = GaussianExperts(np.array([[[0.0]], [[5.0]]]), np.ones((2, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), experts)
    >>> site = Estimate(mixture.permuted(np.array([1, 0])), np.array([50.0, 50.0]), np.full((2, 1, 1), 0.02))
    >>> in_common_labels({"north": site}, mixture)["north"].coefficients.ravel()
    array([0., 5.])
    """
    target = centre.experts.free_coefficients().reshape(centre.K, -1)
    variances = np.array([np.diagonal(site.covariance, axis1=1, axis2=2).mean(axis=0) for site in estimates.values()])
    scale = np.sqrt(coordinate_median(np.maximum(variances, np.finfo(float).tiny)))
    found = {}
    for name, site in estimates.items():
        _, order = linear_sum_assignment(cdist(target / scale, site.coefficients / scale))
        found[name] = site.permuted(order)
    return found


def shared(estimates: Mapping[str, Estimate], *, equal: bool = False, barred: Collection[str] = ()) -> Sharing:
    """Draw the estimates of sites towards a robust centre, as far as their differences allow.

    Coefficients of each expert go through :func:`~consilience.aggregate.centre.shrunk` in coordinates whitened by the
    geometric median of the covariances that one row's worth of them has; slopes of a softmax gate likewise, all experts
    as one vector. A site more than half of whose experts are far from the others' has no say in the centre at all.
    Shares and covariances of the experts stay with the site; the centre's count as ``f`` rows.

    Parameters
    ----------
    estimates : mapping of str to Estimate
        All finite, in common labels.
    equal : bool
        Give every site the geometric median, whatever they differ.
    barred : collection of str
        Sites that are to have no say in the centre.

    Examples
    --------
    >>> from consilience.model import Design
    >>> def site(mean):
    ...     experts = GaussianExperts(np.array([[[mean]]]), np.ones((1, 1, 1)))
    ...     mixture = Mixture(Design.raw(0), ConstantGate(np.ones(1)), experts)
    ...     return Estimate(mixture, np.array([50.0]), np.full((1, 1, 1), 0.02))
    >>> found = shared({"north": site(0.1), "south": site(-0.1), "east": site(0.0), "west": site(90.0)})
    >>> found.kept.ravel(), found.mixtures["west"].experts.B.ravel().round(2)
    (array([ True,  True,  True, False]), array([90.]))
    >>> found.borrowed.ravel().round(2)
    array([0.42, 0.42, 0.42, 0.  ])
    """
    sites = list(estimates.values())
    out = np.array([name in barred for name in estimates])
    out = np.zeros_like(out) if out.all() else out
    each = _experts_drawn(sites, equal=equal, barred=out)
    far = _mostly_far(each)
    if np.any(far & ~out):
        each = _experts_drawn(sites, equal=equal, barred=far | out)
    coefficients = np.stack([drawn.found.estimates for drawn in each], axis=1)  # (M, K, f)
    own, pooled = _covariances(sites)
    gates, gate, gate_borrowed = _gates(sites, far | out, equal=equal)
    return Sharing(
        _mixture(sites[0].mixture, gate, np.array([drawn.found.centre for drawn in each]), pooled),
        np.array([drawn.covariance for drawn in each]),
        {
            name: _mixture(site.mixture, gates[m], coefficients[m], None if own is None else own[m])
            for m, (name, site) in enumerate(estimates.items())
        },
        np.stack([drawn.found.borrowed for drawn in each], axis=1),
        np.stack([drawn.found.kept for drawn in each], axis=1),
        gate_borrowed,
        np.sqrt([drawn.found.between / coefficients.shape[2] for drawn in each]),
        0.0 if equal else division([drawn.residuals for drawn in each]),
    )


def division(residuals: Sequence[Array]) -> float:
    """How far sites fall into camps: the largest eigenvalue of their likeness over what chance allows.

    With residuals ``r_mk (D,)`` of unit variance the likeness ``(1 / K D) Σ_k r_mkᵀ r_lk`` of M sites has eigenvalues
    up to about ``(1 + √(M / K D))²`` (Marchenko and Pastur); half as much again is allowed. Sites that were moved the
    same way, each by no more than chance, show here.

    Parameters
    ----------
    residuals : sequence of (M, D) array
        Of each expert; rows of zeros for sites that are not kept.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> apart = rng.normal(size=(20, 10))
    >>> division([apart]) < 1 < division([apart + 2 * (np.arange(20) < 9)[:, None]])
    True
    """
    R = np.concatenate(list(residuals), axis=1)
    R = R[np.any(R != 0, axis=1)]
    M, size = R.shape
    if M < 2 or size == 0:
        return 0.0
    largest = float(np.linalg.eigvalsh(R @ R.T / size)[-1])
    return float(largest / (1.5 * (1 + np.sqrt(M / size)) ** 2))


def _experts_drawn(sites: list[Estimate], *, equal: bool, barred: Mask) -> list[_Drawn]:
    """The coefficients of each expert drawn towards their centre."""
    return [
        _drawn(
            np.array([site.coefficients[k] for site in sites]),
            np.array([site.covariance[k] for site in sites]),
            np.array([site.labels[k] for site in sites]),
            least=sites[0].mixture.design.p + 1,
            equal=equal,
            barred=barred,
        )
        for k in range(sites[0].mixture.K)
    ]


def _mostly_far(each: list[_Drawn]) -> Mask:
    """Sites more than half of whose experts, of those with rows, are not kept."""
    kept = np.stack([drawn.found.kept for drawn in each], axis=1)  # (M, K)
    silent = ~kept & np.stack([drawn.found.borrowed == 1 for drawn in each], axis=1)
    far = ~kept & ~silent
    mostly: Mask = 2 * far.sum(axis=1) > (~silent).sum(axis=1)
    return mostly if not mostly.all() else np.zeros_like(mostly)


def _drawn(theta: Array, covariance: Array, labels: Array, *, least: float, equal: bool, barred: Mask) -> _Drawn:
    """Shrinkage of ``theta (M, D)`` in coordinates where one row's worth has unit covariance.

    Who has fewer than ``least`` rows says nothing of its own, and has the centre; who is ``barred`` has no say in it.
    """
    D, thin = theta.shape[1], labels < least
    speak = ~thin | thin.all()
    own, out = covariance[speak], barred[speak] & ~np.all(barred[speak])
    unit = geometric_median((labels[speak, None, None] * own).reshape(-1, D * D)).reshape(D, D)
    L = np.asarray(np.linalg.cholesky(unit), dtype=np.float64)
    white = solve_triangular(L, theta[speak].T, lower=True).T
    variances = np.array([np.trace(_whitened(L, each)) for each in own])
    found = _all_equal(white, out) if equal or thin.all() else shrunk(white, variances, out)
    spread = np.sqrt((found.between + variances) / D)
    residuals = np.zeros_like(theta)
    residuals[speak] = np.where(found.kept[:, None], (white - found.centre) / spread[:, None], 0.0)
    within = np.einsum("m,mab->ab", found.weights**2, own)
    centre_covariance = within + np.sum(found.weights**2) * found.between / D * unit
    back = replace(found, centre=L @ found.centre, estimates=found.estimates @ L.T)
    return _Drawn(_with_silent(back, speak, thin), centre_covariance, residuals)


def _with_silent(found: Shrinkage, speak: Mask, thin: Mask) -> Shrinkage:
    """The shrinkage of those who speak, with the others: they have the centre and no say in it."""
    M = len(speak)
    weights, kept, borrowed = np.zeros(M), np.zeros(M, dtype=bool), np.ones(M)
    estimates = np.repeat(found.centre[None], M, axis=0)
    weights[speak], kept[speak], estimates[speak], borrowed[speak] = (
        found.weights,
        found.kept,
        found.estimates,
        found.borrowed,
    )
    return Shrinkage(found.centre, found.between, weights, estimates, borrowed, kept & ~thin)


def _whitened(L: Array, covariance: Array) -> Array:
    half = solve_triangular(L, covariance, lower=True)
    return np.asarray(solve_triangular(L, half.T, lower=True))


def _all_equal(points: Array, barred: Mask) -> Shrinkage:
    """Every site has the geometric median of those that are not barred."""
    centre, M = geometric_median(points[~barred]), len(points)
    weights = ~barred / np.sum(~barred)
    return Shrinkage(centre, 0.0, weights, np.repeat(centre[None], M, axis=0), np.ones(M), ~barred)


def _covariances(sites: list[Estimate]) -> tuple[Array | None, Array | None]:
    """Covariances of the experts of each site ``(M, K, q, q)`` with the centre's ``(K, q, q)`` as prior, and these."""
    experts: list[Any] = [site.mixture.experts for site in sites]
    if not isinstance(experts[0], GaussianExperts):
        return None, None
    own = np.array([each.matrices for each in experts])
    M, K, q, _ = own.shape
    pooled = np.array([geometric_median(own[:, k].reshape(M, -1)).reshape(q, q) for k in range(K)])
    rows = np.array([site.labels for site in sites])
    if experts[0].structure == "tied":
        rows = np.repeat(rows.sum(axis=1, keepdims=True), K, axis=1)
    prior = sites[0].coefficients.shape[1]
    weight = (rows / (rows + prior))[:, :, None, None]
    return weight * own + (1 - weight) * pooled, pooled


def _gates(sites: list[Estimate], out: Mask, *, equal: bool) -> tuple[list[Gate], Gate, Array]:
    """The gate of each site, that of the centre, and how much each site borrowed."""
    gates: list[Any] = [site.mixture.gate for site in sites]
    if isinstance(gates[0], ConstantGate):
        labels, prior = np.array([site.labels for site in sites]), sites[0].coefficients.shape[1]
        share = coordinate_median(labels / labels.sum(axis=1, keepdims=True))
        share /= share.sum()
        own = (labels + prior * share) / (labels.sum(axis=1, keepdims=True) + prior)
        return [ConstantGate(pi) for pi in own], ConstantGate(share), np.zeros(len(sites))
    free = np.array([gate.contrasts() for gate in gates])  # (M, K - 1, p)
    first = int(sites[0].mixture.design.intercept)
    slopes, borrowed, centre = _slopes(sites, out, free[:, :, first:].reshape(len(sites), -1), equal=equal)
    target = free.copy()
    target[:, :, first:] = slopes.reshape(free[:, :, first:].shape)
    middle = np.array([coordinate_median(free[:, k]) for k in range(free.shape[1])]).reshape(free.shape[1:])
    middle[:, first:] = centre.reshape(middle[:, first:].shape)
    moved: list[Gate] = [gate.moved((t - f).ravel()) for gate, t, f in zip(gates, target, free, strict=True)]
    return moved, gates[0].moved((middle - free[0]).ravel()), borrowed


def _slopes(sites: list[Estimate], out: Mask, slopes: Array, *, equal: bool) -> tuple[Array, Array, Array]:
    """Slopes of the gates ``(M, g)`` drawn towards their centre, how much, and the centre ``(g,)``."""
    known = np.array([site.slopes is not None for site in sites])
    if slopes.shape[1] == 0:
        return slopes, np.zeros(len(sites)), np.zeros(0)
    if equal or known.sum() < LEAST_GATES:
        centre = geometric_median(slopes[known] if known.sum() >= LEAST_GATES else slopes)
        return np.repeat(centre[None], len(sites), axis=0), np.ones(len(sites)), centre
    covariance = np.array([site.slopes for site in sites if site.slopes is not None])
    labels = np.array([site.labels.sum() for site, use in zip(sites, known, strict=True) if use])
    found = _drawn(slopes[known], covariance, labels, least=1.0, equal=False, barred=out[known]).found
    borrowed = np.ones(len(sites))
    borrowed[known] = found.borrowed
    drawn = np.repeat(found.centre[None], len(sites), axis=0)
    drawn[known] = found.estimates
    return drawn, borrowed, found.centre


def _mixture(like: Mixture, gate: Gate, coefficients: Array, covariances: Array | None) -> Mixture:
    """A mixture with these parts, in the structure of ``like``."""
    old: Any = like.experts
    delta = coefficients.ravel() - old.free_coefficients()
    experts = old.moved(delta, np.zeros(old.shape_parameters))
    if covariances is not None:
        experts = GaussianExperts(experts.B, cov.stored(covariances, old.structure), old.structure)
    return Mixture(like.design, gate, experts)
