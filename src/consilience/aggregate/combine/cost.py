"""What it costs to let one expert stand for another: Kullback-Leibler divergence, over the rows it explains."""

from __future__ import annotations

import numpy as np

from consilience.model.families.base import Experts
from consilience.model.families.gaussian import GaussianExperts
from consilience.numerics.arrays import Array

BLOCK = 2**20
"""Most numbers of a table of differences that is held at once."""


def moment_costs(experts: GaussianExperts, others: GaussianExperts, mass: Array, second: Array) -> Array:
    """Cost of each Gaussian expert at each of ``others``, from its moments alone: no covariates are needed.

    ``c_lk = m_l d(Σ_l, Σ_k) + ½ tr Σ_k⁻¹ (B_l - B_k) S_l (B_l - B_k)ᵀ`` with ``m_l = Σ_i τ_il`` and
    ``S_l = Σ_i τ_il x̃_i x̃_iᵀ``, which the E-step has at hand: the divergence summed over the rows of expert l.

    Parameters
    ----------
    experts : GaussianExperts
        L of them.
    others : GaussianExperts
        K of them, on the same design.
    mass : (L,) array
    second : (L, p, p) array

    Returns
    -------
    (L, K) array

    Examples
    --------
    >>> one = GaussianExperts(np.array([[[0.0]]]), np.ones((1, 1, 1)))
    >>> two = GaussianExperts(np.array([[[0.0]], [[2.0]]]), np.ones((2, 1, 1)))
    >>> moment_costs(one, two, np.array([3.0]), np.array([[[3.0]]]))
    array([[0., 6.]])
    """
    _, Linv = others.factors
    spread = np.empty((experts.K, others.K))
    size = max(BLOCK // (others.K * experts.q * experts.p), 1)
    for i in range(0, experts.K, size):
        gap = Linv @ (experts.B[i : i + size, None] - others.B)  # (·, K, q, p)
        flat = gap.reshape(len(gap), -1, experts.p)
        spread[i : i + size] = np.sum((flat @ second[i : i + size] * flat).reshape(len(gap), others.K, -1), axis=2)
    return mass[:, None] * experts.shape_divergence(others) + 0.5 * spread


def support_costs(experts: Experts, others: Experts, panel: Array, mass: Array) -> Array:
    """Cost of each expert at each of ``others``, averaged over a support: ``Σ_s mass_ls KL(f_l ‖ g_k)(x_s)``.

    Parameters
    ----------
    experts, others : Experts
        L and K of one family.
    panel : (p, S) array
        The support in their design.
    mass : (L, S) array
        How much of each point belongs to each expert.

    Returns
    -------
    (L, K) array

    Examples
    --------
    >>> one = GaussianExperts(np.array([[[0.0]]]), np.ones((1, 1, 1)))
    >>> two = GaussianExperts(np.array([[[0.0]], [[2.0]]]), np.ones((2, 1, 1)))
    >>> support_costs(one, two, np.ones((1, 3)), np.ones((1, 3)))
    array([[0., 6.]])
    """
    costs: Array = np.einsum("lks,ls->lk", experts.divergence(others, panel), mass)
    return costs
