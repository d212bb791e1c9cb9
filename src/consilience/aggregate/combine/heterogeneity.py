"""Heterogeneity between sites: Cochran's Q, I² and the variance between them, and the experts without some sites."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaincc

from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.disagreement import Camps, camps
from consilience.fit.influence import ExpertsWithout
from consilience.model import Experts, Gate
from consilience.model.families.base import MomentExperts
from consilience.numerics.arrays import Array, IntArray, Mask, kronecker, unpack
from consilience.numerics.linalg import inverse_bounded, solve_symmetric, symmetrise

SIGNIFICANT = 0.01
"""P-value of Q below which the variance between sites is part of the standard errors."""


@dataclass(frozen=True, eq=False)
class Heterogeneity:
    """Between-site heterogeneity of each coefficient of each expert, all ``(K, f)``.

    Parameters
    ----------
    Q : (K, f) array
        ``Σ_m w_m (b_m - b̄)²`` with ``w_m = 1 / v_m``; NaN for an expert of fewer than two sites.
    df : (K, f) array
        Number of sites that sent the coefficient, less one.
    I2 : (K, f) array
        ``max(0, (Q - df) / Q)``: the fraction of the variation not explained by sampling.
    tau2 : (K, f) array
        Variance between sites (DerSimonian and Laird).
    concentration : (K, f) array
        ``Σ_m (w_m / Σ w)²``: one over the effective number of sites.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import heterogeneity
    >>> found = heterogeneity(np.array([[0.0], [4.0]]), np.array([[1.0], [1.0]]))
    >>> found.Q.ravel(), found.I2.ravel(), found.tau2.ravel()
    (array([8.]), array([0.875]), array([7.]))
    """

    Q: Array
    df: Array
    I2: Array
    tau2: Array
    concentration: Array

    @property
    def between_variance(self) -> Array:
        """Variance that sites' differences add to a mean over sites, ``τ² Σ_m (w_m / Σ w)²``; 0 if not significant."""
        significant = self.p_value < SIGNIFICANT
        return np.where(significant, np.nan_to_num(self.tau2 * self.concentration), 0.0)

    @property
    def p_value(self) -> Array:
        """P-value of Q under homogeneity, ``(K, f)``."""
        return np.asarray(gammaincc(np.maximum(self.df, 1) / 2, self.Q / 2))

    def permuted(self, permutation: IntArray) -> Heterogeneity:
        """Reorder the experts."""
        return Heterogeneity(*(part[permutation] for part in vars(self).values()))

    @classmethod
    def stacked(cls, parts: list[Heterogeneity]) -> Heterogeneity:
        """Stack the results of several experts."""
        return cls(*(np.concatenate(each) for each in zip(*(vars(part).values() for part in parts), strict=True)))


def heterogeneity(estimates: Array, variances: Array) -> Heterogeneity:
    """Compute Q, I² and τ² of one expert, ``(1, f)`` each, from estimates ``(M, f)`` of sites and variances.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import heterogeneity
    >>> heterogeneity(np.array([[1.0], [1.0], [1.0]]), np.ones((3, 1))).I2
    array([[0.]])
    """
    M, f = estimates.shape
    if M < 2:
        nothing = np.full((1, f), np.nan)
        return Heterogeneity(nothing, np.full((1, f), max(M - 1.0, 0.0)), nothing, nothing, nothing)
    w = 1 / variances
    total = w.sum(axis=0)
    Q = np.sum(w * (estimates - np.sum(w * estimates, axis=0) / total) ** 2, axis=0)
    excess = np.maximum(Q - (M - 1), 0.0)
    I2 = excess / np.where(Q > 0, Q, 1.0)
    tau2 = excess / (total - np.sum(w**2, axis=0) / total)
    concentration = np.sum((w / total) ** 2, axis=0)
    return Heterogeneity(Q[None], np.full((1, f), M - 1.0), I2[None], tau2[None], concentration[None])


@dataclass(frozen=True, eq=False)
class SiteCoefficients:
    """Coefficients on raw covariates of each combined expert at each site.

    Parameters
    ----------
    sites : tuple of str
    estimates, variances : (K, M, f) array
        NaN for a site without the expert, or with too few rows of it for its precision to be believed, and for
        covariates that are not read. For classes the coefficients are the free contrasts, as in
        ``SiteModel.precision``.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import SiteCoefficients
    >>> found = SiteCoefficients(("north",), np.zeros((2, 1, 3)), np.ones((2, 1, 3)))
    >>> found.permuted(np.array([1, 0])).estimates.shape
    (2, 1, 3)
    """

    sites: tuple[str, ...]
    estimates: Array
    variances: Array

    def permuted(self, permutation: IntArray) -> SiteCoefficients:
        """Reorder the experts."""
        return SiteCoefficients(self.sites, self.estimates[permutation], self.variances[permutation])


def site_coefficients(pool: Pool, labels: IntArray, K: int, stated: Stated) -> SiteCoefficients:
    """Return the coefficients of each combined expert at each site; experts of a site with the same label count once.

    Parameters
    ----------
    pool : Pool
    labels : (L,) array of int
        The combined expert of each component.
    K : int
    stated : Stated
        Precision of the components.
    """
    U = kronecker(np.eye(pool.coefficients.shape[1] // pool.design.p), pool.design.to_raw())
    estimates, variances = np.full((2, K, pool.M, len(U)), np.nan)
    read = np.flatnonzero(U.any(axis=1))
    for k in range(K):
        sites, J, right = _of_expert(pool, stated.precision, stated.reliable & (labels == k))
        C = invert_precision(J)
        estimates[k][np.ix_(sites, read)] = np.einsum("ab,mbc,mc->ma", U[read], C, right, optimize=True)
        variances[k][np.ix_(sites, read)] = np.einsum("ab,mbc,ac->ma", U[read], C, U[read], optimize=True)
    return SiteCoefficients(pool.names, estimates, variances)


def coefficients_between_sites(found: SiteCoefficients) -> Heterogeneity:
    """Compute the heterogeneity of the coefficients of each expert over the sites that have it."""
    parts = []
    for estimates, variances in zip(found.estimates, found.variances, strict=True):
        known, read = np.isfinite(estimates).any(axis=1), np.asarray(np.isfinite(found.estimates).any(axis=(0, 1)))
        own = np.ix_(known, read)
        parts.append(_of_columns_read(heterogeneity(estimates[own], variances[own]), read))
    return Heterogeneity.stacked(parts)


def _of_columns_read(found: Heterogeneity, read: Mask) -> Heterogeneity:
    """Return the heterogeneity ``(1, f)`` of all coefficients from that of those whose covariates are read."""
    if read.all():
        return found
    whole = {name: np.full((1, len(read)), np.nan) for name in vars(found)}
    for name, values in whole.items():
        values[:, read] = getattr(found, name)
    return Heterogeneity(**whole)


def shapes_between_sites(pool: Pool, labels: IntArray, experts: Experts, stated: Stated) -> Heterogeneity:
    """Compute the heterogeneity of log variances, ``(K, s)``; NaN for families without second moments.

    The experts of a site with the same label count as one, whose variance includes their distance. The variance of a
    log variance is that for normal residuals, ``2 / (n - p)``.
    """
    K, s, p = experts.K, experts.log_shapes().shape[1], pool.design.p
    if not isinstance(experts, MomentExperts) or s == 0:
        return Heterogeneity.stacked([heterogeneity(np.empty((0, s)), np.empty((0, s)))] * K)
    second = np.concatenate([unpack(model.second) for model in pool.models])
    parts = []
    for k in range(K):
        mine = np.flatnonzero(stated.reliable & (labels == k))
        sites, place = np.unique(pool.owner[mine], return_inverse=True)
        n = np.bincount(place, pool.rows[mine], len(sites))
        if not len(sites):
            parts.append(heterogeneity(np.empty((0, s)), np.empty((0, s))))
            continue
        own = pool.components.experts
        blank = own.permuted(mine[np.unique(place, return_index=True)[1]])
        merged = blank.moment_barycentres(own.permuted(mine), place, pool.rows[mine], second[mine])
        degrees = (n - p)[:, None]
        parts.append(heterogeneity(merged.log_shapes() + np.log(n[:, None] / degrees), np.tile(2 / degrees, (1, s))))
    return Heterogeneity.stacked(parts)


def gates_between_sites(pool: Pool, labels: IntArray, gate: Gate, sites: Mask) -> Heterogeneity:
    """Compute the heterogeneity of each expert's log odds given the covariates, ``(K, 1)``.

    At each site, ``δ = (n_k - Σ_i ρ_k(x_i)) / Σ_i ρ_k (1 - ρ_k)`` is the shift of the log odds of expert ``k`` from the
    combined gate ``ρ`` that would explain its number of labels, with variance ``1 / Σ_i ρ_k (1 - ρ_k)``. The labels are
    not known, so this variance is an upper bound, and Q errs on the low side.

    Parameters
    ----------
    pool : Pool
    labels : (L,) array of int
    gate : Gate
        The combined gate.
    sites : (M,) array of bool
        Sites whose gates were used.
    """
    shifts, variances = [], []
    for m in np.flatnonzero(sites):
        counts = np.bincount(labels[pool.own[m]], pool.models[m].label_counts, gate.K)
        if gate.reads_covariates:
            panel, weight = pool.points_of(int(m))
            rho = gate.evaluate(panel)[1]
            weight = weight * (counts.sum() / weight.sum())
        else:
            rho, weight = gate.read(), np.array([counts.sum()])
        spread = np.maximum((rho * (1 - rho)) @ weight, 1.0)
        shifts.append((counts - rho @ weight) / spread)
        variances.append(1 / spread)
    delta, v = np.array(shifts).reshape(-1, gate.K), np.array(variances).reshape(-1, gate.K)
    return Heterogeneity.stacked([heterogeneity(delta[:, [k]], v[:, [k]]) for k in range(gate.K)])


def camps_between(pool: Pool, labels: IntArray, K: int) -> Camps:
    """Test whether the sites form two camps, by the coefficients of all their experts, also those set aside."""
    f, precision = pool.coefficients.shape[1], unpack(pool.precision)
    estimates, covariances = np.full((K, pool.M, f), np.nan), np.tile(np.eye(f), (K, pool.M, 1, 1))
    for k in range(K):
        sites, J, right = _of_expert(pool, precision, pool.informed & (labels == k))
        for m, own, moment in zip(sites, J, right, strict=True):
            covariances[k, m] = inverse_bounded(own)[0]
            estimates[k, m] = covariances[k, m] @ moment
    return camps(list(estimates), list(covariances))


def _of_expert(pool: Pool, precision: Array, mine: Mask) -> tuple[IntArray, Array, Array]:
    """Return the sites of some components, the sums of their precisions, and of precisions times coefficients."""
    f, at = pool.coefficients.shape[1], np.flatnonzero(mine)
    sites, place = np.unique(pool.owner[at], return_inverse=True)
    J, right = np.zeros((len(sites), f, f)), np.zeros((len(sites), f))
    own = precision[at]
    np.add.at(J, place, own)
    np.add.at(right, place, np.einsum("lab,lb->la", own, pool.coefficients[at]))
    return sites, J, right


# ---------------------------------------------------------------- precision of combined coefficients


ROWS_PER_COEFFICIENT = 10.0
"""Effective rows per coefficient from which the precision that a site states of its expert is used."""
LEAST_STATED = 0.5
"""Least fraction of an expert's information that must come from such components; the precision is zero below it."""


@dataclass(frozen=True, eq=False)
class Stated:
    """Precision of the components of all sites at the combined mixture, and how they enter the combined coefficients.

    Parameters
    ----------
    precision : (L, f, f) array
        Inverse covariance of each component's coefficients if its residuals had at least the combined variance; NaN if
        the site sent none. A site makes spurious experts that fit a few rows closely; their own variance claims too
        much.
    weight : (L, f, f) array
        Weight of the component in the combined coefficients.
    reliable : (L,) array of bool
        Whether the component has enough rows per coefficient for its precision to be believed.
    """

    precision: Array
    weight: Array
    reliable: Mask

    @classmethod
    def of(cls, pool: Pool, labels: IntArray, used: Mask, experts: Experts) -> Stated:
        """Read the precision of the components that ``labels (L,)`` assign to the combined ``experts``."""
        own = unpack(pool.precision)
        counted = used & pool.informed
        rows, p = pool.rows, pool.design.p
        if not isinstance(experts, MomentExperts):
            f = pool.coefficients.shape[1]
            return cls(own, np.nan_to_num(own), counted & (rows >= ROWS_PER_COEFFICIENT * f))
        second = np.concatenate([unpack(model.second) for model in pool.models])
        mine, theirs = _factors(pool.components.experts), _factors(experts)[labels]
        move = kronecker(_at_most_one(np.asarray(mine @ np.linalg.inv(theirs))), np.eye(p))
        complete, weight = kronecker(_inverse_product(mine), second), kronecker(_inverse_product(theirs), second)
        kept = np.trace(invert_precision(complete) @ np.nan_to_num(own), axis1=1, axis2=2) / len(complete[0])
        effective = rows * np.clip(kept, 0.0, 1.0)
        precision = move.transpose(0, 2, 1) @ own @ move
        return cls(precision, weight, counted & (effective >= ROWS_PER_COEFFICIENT * p))


def combined_precision(pool: Pool, labels: IntArray, used: Mask, experts: Experts, stated: Stated) -> Array:
    """Compute the inverse covariance of each combined expert's coefficients, ``(K, f, f)``; zero if little is known.

    The combined coefficients are ``b = Σ_l A_l b_l`` with ``A_l = (Σ_j W_j)⁻¹ W_l``. A component whose precision
    ``J_l`` is believed adds ``A_l J_l⁻¹ A_lᵀ`` to the covariance of ``b``; one of few rows, whose error is larger than
    its information says, adds ``A_l d dᵀ A_lᵀ`` with ``d = b_l - b``.

    Parameters
    ----------
    pool : Pool
    labels : (L,) array of int
    used : (L,) array of bool
    experts : Experts
        The combined experts, on the design of the pool.
    stated : Stated
    """
    f = pool.coefficients.shape[1]
    target = experts.free_coefficients().reshape(experts.K, f)
    found = np.zeros((experts.K, f, f))
    for k in range(experts.K):
        mine = np.flatnonzero(used & (labels == k))
        inverse, full_rank = solve_symmetric(stated.weight[mine].sum(axis=0), np.eye(f))
        A, known = inverse @ stated.weight[mine], stated.reliable[mine]
        if not full_rank or np.trace(A[known].sum(axis=0)) < LEAST_STATED * f:
            continue
        gap = np.einsum("lab,lb->la", A[~known], pool.coefficients[mine[~known]] - target[k])
        sampling = A[known] @ invert_precision(stated.precision[mine[known]]) @ A[known].transpose(0, 2, 1)
        covariance = sampling.sum(axis=0) + gap.T @ gap
        found[k] = solve_symmetric(symmetrise(covariance), np.eye(f))[0]
    return found


def invert_precision(J: Array) -> Array:
    """Compute ``J_m⁻¹``, ``(M, f, f)``; the generalised inverse if one is singular."""
    try:
        return np.asarray(np.linalg.inv(J))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(J, hermitian=True))


def _factors(experts: Any) -> Array:
    """Return the Cholesky factors of the covariances of these moment experts, ``(K, q, q)``."""
    return np.asarray(np.linalg.cholesky(experts.matrices))


def _at_most_one(M: Array) -> Array:
    """Return the matrices ``(L, q, q)`` with singular values cut at 1."""
    U, s, Vt = np.linalg.svd(M)
    return np.asarray((U * np.minimum(s, 1.0)[:, None, :]) @ Vt)


def _inverse_product(L: Array) -> Array:
    """Compute ``(L Lᵀ)⁻¹``."""
    inverse = np.linalg.inv(L)
    return np.asarray(inverse.transpose(0, 2, 1) @ inverse)


# ---------------------------------------------------------------- the experts without some sites


@dataclass(frozen=True, eq=False)
class FixedPlan:
    """The experts of sites that were combined, the combined expert of each, and its weight there.

    Parameters
    ----------
    owners : tuple of str, (L,)
        Site of each expert.
    labels : (L,) array of int
    weight : (L, f, f) array
    coefficients : (L, f) array
    """

    owners: tuple[str, ...]
    labels: IntArray
    weight: Array
    coefficients: Array

    @classmethod
    def of(cls, pool: Pool, labels: IntArray, used: Mask, stated: Stated) -> FixedPlan:
        """Return the plan of the experts that were used."""
        at = np.flatnonzero(used)
        owners = tuple(pool.names[m] for m in pool.owner[at])
        return cls(owners, labels[at], np.nan_to_num(stated.weight[at]), pool.coefficients[at])

    def permuted(self, place: IntArray) -> FixedPlan:
        """Return the plan with combined expert ``k`` at ``place[k]``."""
        return replace(self, labels=place[self.labels])

    def without(self, gone: Collection[str]) -> ExpertsWithout:
        """Return the experts that the other sites give at the same plan; NaN for one that they do not have.

        ``b = (Σ W_l)⁻¹ Σ W_l b_l`` over the experts of the other sites, with a variance of about ``(Σ W_l)⁻¹``.
        """
        left = np.array([owner not in gone for owner in self.owners])
        K, f = int(self.labels.max()) + 1, self.coefficients.shape[1]
        found = ExpertsWithout(np.full((K, f), np.nan), np.zeros((K, f, f)), np.zeros((K, f, f)))
        for k in range(K):
            (b, V), (b_left, V_left) = (self._mean(mine) for mine in (self.labels == k, (self.labels == k) & left))
            found.change[k], found.before[k], found.after[k] = b_left - b, V, V_left
        return found

    def _mean(self, mine: Mask) -> tuple[Array, Array]:
        """Return the weighted mean of some experts' coefficients and its variance; NaN if they do not determine it."""
        W, f = self.weight[mine], self.coefficients.shape[1]
        V, full_rank = solve_symmetric(W.sum(axis=0), np.eye(f))
        if not full_rank:
            return np.full(f, np.nan), np.zeros((f, f))
        return V @ np.einsum("lab,lb->a", W, self.coefficients[mine]), V
