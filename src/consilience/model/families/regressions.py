"""Build mixtures of linear regressions from arrays."""

from __future__ import annotations

import numpy as np

from consilience.model.design import Design
from consilience.model.families import covariance as cov
from consilience.model.families.gaussian import GaussianExperts
from consilience.model.gates import ConstantGate, Gate, SoftmaxGate
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array


def linear_experts(B: Array, variances: Array | float, structure: str = "full") -> GaussianExperts:
    """Build linear regressions with one response.

    Parameters
    ----------
    B : (K, p) array
        Coefficients.
    variances : (K,) array or float
    structure : str
        Covariance structure; ``"tied"`` uses the first variance.

    Examples
    --------
    >>> linear_experts(np.zeros((2, 3)), 4.0, "tied").covariance
    array([[4.]])
    """
    kind = cov.as_structure(structure)
    matrices = np.broadcast_to(np.asarray(variances, dtype=np.float64), (len(B),))[:, None, None].copy()
    return GaussianExperts(B[:, None], cov.stored(matrices, kind), kind)


def mixture_of_regressions(
    pi: Array, B: Array, variances: Array | float, design: Design | None = None, structure: str = "full"
) -> Mixture:
    """Build a mixture of linear regressions with one response and a constant gate; raw covariates by default.

    Parameters
    ----------
    pi : (K,) array
        Mixture weights.
    B, variances, structure
        As in :func:`linear_experts`.
    design : Design, optional

    Examples
    --------
    >>> mixture_of_regressions(np.array([0.5, 0.5]), np.array([[0.0, 1.0], [0.0, -1.0]]), 1.0).K
    2
    """
    return _mixture(ConstantGate(pi), B, variances, design, structure)


def mixture_of_experts(
    alpha: Array, B: Array, variances: Array | float, design: Design | None = None, structure: str = "full"
) -> Mixture:
    """Build a mixture of linear regressions with one response and a softmax gate.

    Parameters
    ----------
    alpha : (K, p) array
        Coefficients of the gate.
    B, variances, design, structure
        As in :func:`mixture_of_regressions`.

    Examples
    --------
    >>> mixture_of_experts(np.zeros((2, 3)), np.zeros((2, 3)), 1.0).design.d
    2
    """
    return _mixture(SoftmaxGate(alpha), B, variances, design, structure)


def _mixture(gate: Gate, B: Array, variances: Array | float, design: Design | None, structure: str) -> Mixture:
    at = Design.raw(B.shape[1] - 1) if design is None else design
    return Mixture(at, gate, linear_experts(B, variances, structure))


def standard_regression(design: Design) -> Mixture:
    """Return one expert with mean 0 and variance 1; its statistics are ``Σ w``, ``Σ w y²``, ``Σ w y x̃``, ``Σ w x̃ x̃ᵀ``.

    Examples
    --------
    >>> standard_regression(Design.raw(2)).experts.B.shape
    (1, 1, 3)
    """
    return mixture_of_regressions(np.ones(1), np.zeros((1, design.p)), 1.0, design)
