"""Optimal transport distance between mixtures: cost of moving one gate's mass to the other's experts, averaged over x.

Exact transport has both gates as margins: at each x the mass ``π_k(x)`` is moved to experts with masses ``ρ_l(x)``.
Relaxed transport has only the first margin, and each expert is assigned to the nearest one. The two differ by orders
of magnitude for sharp gates.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array, kronecker

NEGLIGIBLE = 1e-7
"""Tolerance of the linear program, below which probabilities count as zero."""


def relaxed_transport(mixture: Mixture, reference: Mixture, X: Array) -> float:
    """Compute ``E_x Σ_k π_k(x) min_l KL(f_k ‖ g_l)(x)`` over the rows of ``X (n, d)``, with only the first margin.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(100, random_state=0)
    >>> relaxed_transport(data.truth, data.truth, data.X)
    0.0
    """
    share, _, cost = _at(mixture, reference, X)
    return float(np.mean(np.sum(share * cost.min(axis=1), axis=0)))


def exact_transport(mixture: Mixture, reference: Mixture, X: Array) -> float:
    """Compute ``E_x min_P Σ_kl P_kl KL(f_k ‖ g_l)(x)`` with both gates as margins, by a linear program for each row.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data, other = soft(20, random_state=0), soft(20, random_state=1).truth
    >>> exact_transport(data.truth, other, data.X) >= relaxed_transport(data.truth, other, data.X)
    True
    """
    share, target, cost = _at(mixture, reference, X)
    points = zip(share.T, target.T, cost.transpose(2, 0, 1), strict=True)
    return float(np.mean([exact_cost(a, b, c) for a, b, c in points]))


def exact_cost(share: Array, target: Array, cost: Array) -> float:
    """Compute ``min Σ_kl P_kl c_kl`` over ``P ≥ 0`` with margins ``share (K,)`` and ``target (L,)``.

    Examples
    --------
    >>> round(exact_cost(np.array([0.5, 0.5]), np.array([0.75, 0.25]), np.array([[0.0, 1.0], [2.0, 0.0]])), 9)
    0.5
    """
    K, L = cost.shape
    margins = np.vstack([kronecker(np.eye(K), np.ones((1, L))), kronecker(np.ones((1, K)), np.eye(L))])
    total, (share, target) = share.sum(), (np.where(m < NEGLIGIBLE * m.sum(), 0.0, m) for m in (share, target))
    even = np.concatenate([share / share.sum(), target / target.sum()])  # rounding must not make it infeasible
    done = linprog(cost.ravel(), A_eq=margins[:-1], b_eq=even[:-1])
    plan = np.asarray(done.x, dtype=np.float64)
    return float(total * (cost.ravel() @ plan))


def _at(mixture: Mixture, reference: Mixture, X: Array) -> tuple[Array, Array, Array]:
    """Return both gates ``(K, n)`` and ``(L, n)`` and the costs ``(K, L, n)``, in the coordinates of the first."""
    panel = mixture.design.panel(X)
    other = reference.in_coordinates_of(mixture)
    return mixture.gate_weights(X).T, reference.gate_weights(X).T, mixture.experts.divergence(other.experts, panel)
