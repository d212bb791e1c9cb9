"""Between-site heterogeneity of coefficients: Cochran's Q, I² and the variance between sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc

from consilience.aggregate.camps import Camps, camps
from consilience.aggregate.combine.pool import Pool
from consilience.numerics.arrays import Array, IntArray, Mask, kronecker, unpack
from consilience.numerics.linalg import inverse_bounded


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

    Examples
    --------
    >>> found = heterogeneity(np.array([[0.0], [4.0]]), np.array([[1.0], [1.0]]))
    >>> found.Q.ravel(), found.I2.ravel(), found.tau2.ravel()
    (array([8.]), array([0.875]), array([7.]))
    """

    Q: Array
    df: Array
    I2: Array
    tau2: Array

    @property
    def p_value(self) -> Array:
        """P-value of Q under homogeneity, ``(K, f)``."""
        return np.asarray(gammaincc(np.maximum(self.df, 1) / 2, self.Q / 2))

    def permuted(self, permutation: IntArray) -> Heterogeneity:
        """Reorder the experts."""
        return Heterogeneity(self.Q[permutation], self.df[permutation], self.I2[permutation], self.tau2[permutation])

    @classmethod
    def stacked(cls, parts: list[Heterogeneity]) -> Heterogeneity:
        """Stack the results of several experts."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("Q", "df", "I2", "tau2")))


def heterogeneity(estimates: Array, variances: Array) -> Heterogeneity:
    """Compute Q, I² and τ² of one expert, ``(1, f)`` each, from estimates ``(M, f)`` of sites and variances.

    Examples
    --------
    >>> heterogeneity(np.array([[1.0], [1.0], [1.0]]), np.ones((3, 1))).I2
    array([[0.]])
    """
    M, f = estimates.shape
    if M < 2:
        nothing = np.full((1, f), np.nan)
        return Heterogeneity(nothing, np.full((1, f), max(M - 1.0, 0.0)), nothing, nothing)
    w = 1 / variances
    total = w.sum(axis=0)
    Q = np.sum(w * (estimates - np.sum(w * estimates, axis=0) / total) ** 2, axis=0)
    excess = np.maximum(Q - (M - 1), 0.0)
    I2 = excess / np.where(Q > 0, Q, 1.0)
    tau2 = excess / (total - np.sum(w**2, axis=0) / total)
    return Heterogeneity(Q[None], np.full((1, f), M - 1.0), I2[None], tau2[None])


def between_sites(pool: Pool, labels: IntArray, used: Mask, K: int) -> Heterogeneity:
    """Compute the heterogeneity of coefficients on raw covariates; experts of a site with the same label count once.

    For classes the coefficients are the free contrasts, as in ``SiteModel.precision``.

    Parameters
    ----------
    pool : Pool
    labels : (L,) array of int
        The combined expert of each component.
    used : (L,) array of bool
    K : int
    """
    f = pool.coefficients.shape[1]
    U = kronecker(np.eye(f // pool.design.p), pool.design.to_raw())
    parts = []
    for k in range(K):
        _, J, right = _of_expert(pool, used & pool.informed & (labels == k))
        C = _inverted(J)
        estimates = np.einsum("ab,mbc,mc->ma", U, C, right, optimize=True)
        parts.append(heterogeneity(estimates, np.einsum("ab,mbc,ac->ma", U, C, U, optimize=True)))
    return Heterogeneity.stacked(parts)


def camps_between(pool: Pool, labels: IntArray, K: int) -> Camps:
    """Test whether the sites form two camps, by the coefficients of all their experts, also those set aside."""
    f = pool.coefficients.shape[1]
    estimates, covariances = np.full((K, pool.M, f), np.nan), np.tile(np.eye(f), (K, pool.M, 1, 1))
    for k in range(K):
        sites, J, right = _of_expert(pool, pool.informed & (labels == k))
        for m, own, moment in zip(sites, J, right, strict=True):
            covariances[k, m] = inverse_bounded(own)[0]
            estimates[k, m] = covariances[k, m] @ moment
    return camps(list(estimates), list(covariances))


def _of_expert(pool: Pool, mine: Mask) -> tuple[IntArray, Array, Array]:
    """Return the sites of some components, the sums of their precisions, and of precisions times coefficients."""
    f, at = pool.coefficients.shape[1], np.flatnonzero(mine)
    sites, place = np.unique(pool.owner[at], return_inverse=True)
    J, right = np.zeros((len(sites), f, f)), np.zeros((len(sites), f))
    own = unpack(pool.precision[at])
    np.add.at(J, place, own)
    np.add.at(right, place, np.einsum("lab,lb->la", own, pool.coefficients[at]))
    return sites, J, right


def _inverted(J: Array) -> Array:
    """Compute ``J_m⁻¹``, ``(M, f, f)``; the generalised inverse if singular."""
    try:
        return np.asarray(np.linalg.inv(J))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(J, hermitian=True))
