"""Penalties of the M-step: ridges on slopes and a lower bound on variances."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Penalty:
    """Ridges and variance floor of a fit; they are not part of the statistics.

    The penalised log-likelihood is ``Σ_i ll_i - (gate_ridge / 2) Σ_k alpha_kᵀ F alpha_k`` in the coordinates of the
    mixture's design with ``Σ_k alpha_k = 0``, and likewise for the coefficients of experts. With the correlation of the
    covariates as ``F``, the penalty is on the variance of the linear predictor and the same in all coordinates. Ridges
    are totals: independent of the number of rows and sites.

    Parameters
    ----------
    gate_ridge, expert_ridge : float
        Ridge on slopes.
    floor : (q, q) array
        Lower bound of the experts' shapes, as their family reads it: of every covariance in the positive semidefinite
        order, or of every dispersion; zeros for none.
    gate_form, expert_form : (p, p) array or None
        Positive semidefinite matrix ``F``, zero for the intercept; None for the sum of squared slopes.

    Examples
    --------
    >>> Penalty().gate_ridge
    0.001
    >>> Penalty(gate_ridge=2.0).gate_matrix(2, intercept=True)
    array([[0., 0.],
           [0., 2.]])
    """

    gate_ridge: float = 1e-3
    expert_ridge: float = 0.0
    floor: Array = field(default_factory=lambda: np.zeros((1, 1)))
    gate_form: Array | None = None
    expert_form: Array | None = None

    def gate_matrix(self, p: int, *, intercept: bool) -> Array:
        """Return the second derivative of the ridge by one expert's gate coefficients, ``(p, p)``."""
        return _matrix(self.gate_ridge, self.gate_form, p, intercept)

    def expert_matrix(self, p: int, *, intercept: bool) -> Array:
        """Return the second derivative of the ridge by the coefficients of one expert's predictor, ``(p, p)``."""
        return _matrix(self.expert_ridge, self.expert_form, p, intercept)


def _matrix(ridge: float, form: Array | None, p: int, intercept: bool) -> Array:
    return np.diag(ridge * slope_mask(p, intercept)) if form is None else ridge * form


def quadratic(coefficients: Array, form: Array) -> float:
    """Compute ``½ Σ bᵀ F b`` over coefficients ``(..., p)``.

    Examples
    --------
    >>> quadratic(np.array([[1.0, 2.0], [3.0, 0.0]]), np.eye(2))
    7.0
    """
    return 0.5 * float(np.sum((coefficients @ form) * coefficients))


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
