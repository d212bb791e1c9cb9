"""Transport cost between experts: Kullback-Leibler divergence averaged over a support."""

from __future__ import annotations

import numpy as np

from consilience.model.families.base import Experts
from consilience.numerics.arrays import Array


def support_costs(experts: Experts, others: Experts, panel: Array, mass: Array) -> Array:
    """Compute the cost of each expert at each of ``others``: ``Σ_s mass_ls KL(f_l ‖ g_k)(x_s)``.

    Parameters
    ----------
    experts, others : Experts
        L and K experts of one family.
    panel : (p, S) array
        The support in the experts' design.
    mass : (L, S) array
        Mass of each expert at each point.

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
