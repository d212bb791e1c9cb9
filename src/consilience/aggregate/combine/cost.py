"""What it costs to let one expert stand for another: Kullback-Leibler divergence, over the rows it explains."""

from __future__ import annotations

import numpy as np

from consilience.model.families.base import Experts
from consilience.numerics.arrays import Array


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
    >>> from consilience.model import GaussianExperts
    >>> one = GaussianExperts(np.array([[[0.0]]]), np.ones((1, 1, 1)))
    >>> two = GaussianExperts(np.array([[[0.0]], [[2.0]]]), np.ones((2, 1, 1)))
    >>> support_costs(one, two, np.ones((1, 3)), np.ones((1, 3)))
    array([[0., 6.]])
    """
    costs: Array = np.einsum("lks,ls->lk", experts.divergence(others, panel), mass)
    return costs
