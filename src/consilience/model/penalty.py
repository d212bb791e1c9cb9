"""Penalties of the M-step: ridges on slopes and a lower bound on variances."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Penalty:
    """Ridges and variance floor of a fit; they are not part of the statistics.

    The penalised log-likelihood is ``Σ_i ll_i - (gate_ridge / 2) Σ_k ‖slopes_k‖²`` in the coordinates of the
    mixture's design with ``Σ_k alpha_k = 0``, and likewise for the slopes of experts. Ridges are totals: independent
    of the number of rows and sites.

    Parameters
    ----------
    gate_ridge, expert_ridge : float
        Ridge on slopes.
    floor : (q, q) array
        Lower bound of the experts' shapes, as their family reads it: of every covariance in the positive semidefinite
        order, or of every dispersion; zeros for none.

    Examples
    --------
    >>> Penalty().gate_ridge
    0.001
    """

    gate_ridge: float = 1e-3
    expert_ridge: float = 0.0
    floor: Array = field(default_factory=lambda: np.zeros((1, 1)))


def slope_mask(p: int, intercept: bool) -> Array:
    """Return ``(p,)`` ones for slopes and zero for the intercept.

    Examples
    --------
    >>> slope_mask(3, intercept=True)
    array([0., 1., 1.])
    """
    mask = np.ones(p)
    if intercept:
        mask[0] = 0.0
    return mask
