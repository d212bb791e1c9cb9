"""The experts of all sites side by side, with the moments of the rows they explain: what reduction starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.aggregate.cost import moment_costs, support_costs
from consilience.model.experts import Experts
from consilience.model.gaussian import GaussianExperts
from consilience.numerics.arrays import Array, Labels


@dataclass(frozen=True, eq=False)
class GaussianComponents:
    """L Gaussian experts of one design with their moments; their barycentres have closed forms, without covariates.

    Parameters
    ----------
    experts : GaussianExperts
        All sites' experts, one site after the other.
    mass : (L,) array
        ``m_l = Σ_i τ_il``.
    second : (L, p, p) array
        ``S_l = Σ_i τ_il x̃_i x̃_iᵀ``.

    Examples
    --------
    >>> experts = GaussianExperts(np.array([[[0.0]], [[4.0]]]), np.ones((2, 1, 1)))
    >>> components = GaussianComponents(experts, np.array([3.0, 1.0]), np.array([[[3.0]], [[1.0]]]))
    >>> middle = components.barycentres(np.array([0, 0]), components.experts.permuted(np.array([0])))
    >>> middle.B.ravel(), middle.covariance.ravel()  # the variance holds the spread of the two means
    (array([1.]), array([4.]))
    """

    experts: GaussianExperts
    mass: Array
    second: Array

    @classmethod
    def joined(cls, parts: Sequence[GaussianComponents]) -> GaussianComponents:
        """The components of several sites as one; covariances become full, since each site has its own."""
        experts = GaussianExperts(
            np.concatenate([part.experts.B for part in parts]),
            np.concatenate([part.experts.matrices for part in parts]),
        )
        return cls(
            experts, np.concatenate([part.mass for part in parts]), np.concatenate([part.second for part in parts])
        )

    def costs(self, targets: GaussianExperts) -> Array:
        """Cost of each component at each target, ``(L, K)``."""
        return moment_costs(self.experts, targets, self.mass, self.second)

    def barycentres(self, labels: Labels, current: GaussianExperts) -> GaussianExperts:
        """For each target the expert nearest to the components that ``labels (L,)`` give it; one without any stays.

        ``B_k = (Σ_l S_l)⁻¹ Σ_l S_l B_l`` and ``Σ_k = Σ_l [m_l Σ_l + (B_l - B_k) S_l (B_l - B_k)ᵀ] / Σ_l m_l``, in the
        covariance structure of ``current``. The spread of the coefficients belongs to the variance: without it local
        variances, which are too small, would make the result too sure of itself.
        """
        member = (labels == np.arange(current.K)[:, None]).astype(np.float64)  # (K, L)
        n = member @ self.mass
        S = np.einsum("kl,lab->kab", member, self.second)
        B = current.solved(S, np.einsum("kl,lab,lqb->kaq", member, self.second, self.experts.B, optimize=True), n)
        gap = self.experts.B[None] - B[:, None]  # (K, L, q, p)
        spread = np.einsum("kl,klqa,lab,klrb->kqr", member, gap, self.second, gap, optimize=True)
        return current.with_scatter(B, spread + np.einsum("kl,l,lqr->kqr", member, self.mass, self.experts.matrices), n)


@dataclass(frozen=True, eq=False)
class SupportComponents:
    """L experts of any family on a support: points of the covariates, with the mass that each expert has there.

    Parameters
    ----------
    experts : Experts
    panel : (p, S) array
        The support in their design.
    mass : (L, S) array

    Examples
    --------
    >>> experts = GaussianExperts(np.array([[[0.0]], [[4.0]]]), np.ones((2, 1, 1)))
    >>> components = SupportComponents(experts, np.ones((1, 1)), np.array([[3.0], [1.0]]))
    >>> components.barycentres(np.array([0, 0]), experts.permuted(np.array([0]))).covariance.ravel()
    array([4.])
    """

    experts: Experts
    panel: Array
    mass: Array

    def costs(self, targets: Experts) -> Array:
        """Cost of each component at each target, ``(L, K)``."""
        return support_costs(self.experts, targets, self.panel, self.mass)

    def barycentres(self, labels: Labels, current: Any) -> Any:
        """For each target the expert nearest to the components that ``labels (L,)`` give it; one without any stays."""
        member = (labels == np.arange(current.K)[:, None]).astype(np.float64)  # (K, L)
        mass = member @ self.mass  # (K, S)
        each = self.experts.mean(self.panel)  # (L, ·, S)
        mean = np.einsum("kl,ls,lqs->kqs", member, self.mass, each, optimize=True)
        mean /= np.where(mass > 0, mass, 1.0)[:, None]
        return current.projected(self.panel, mass, mean, self._within(member, each, mean))

    def _within(self, member: Array, each: Array, mean: Array) -> Array:
        """``Σ_ls mass_ls [Σ_l + (mean_l - mean_k)(mean_l - mean_k)ᵀ]``, ``(K, q, q)``; nothing without covariances."""
        if not isinstance(self.experts, GaussianExperts):
            return np.empty((len(member), 0, 0))
        gap = each[None] - mean[:, None]  # (K, L, q, S)
        spread = np.einsum("kl,ls,klqs,klrs->kqr", member, self.mass, gap, gap, optimize=True)
        own = np.einsum("kl,ls,lqr->kqr", member, self.mass, self.experts.matrices, optimize=True)
        within: Array = spread + own
        return within
