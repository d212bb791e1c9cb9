r"""Value and gradients of a log-ratio critic between data and a mixture of regressions, as sums over rows.

The critic is the log ratio of two mixtures that share ``π`` and ``σ²`` with the mixture under test,

.. math:: \psi(x, y) = \log \sum_j \pi_j e^{-(y - \gamma_j^\top x)^2 / 2\sigma^2}
          - \log \sum_j \pi_j e^{-(y - \gamma_j'^\top x)^2 / 2\sigma^2},

and the sum over rows is that of :math:`\psi(x_i, y_i) - E\,\psi(x_i, Y)` with ``Y`` drawn from the mixture at the same
``x_i``: terms in the covariates alone cancel. The expectation is over ``K`` experts and a normal variable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model.families.requirement import Regressions
from consilience.model.kernels import block_rows
from consilience.model.mixture import Mixture
from consilience.model.moments import Additive
from consilience.model.posterior import posterior
from consilience.model.rows import Block, Rows
from consilience.numerics.arrays import Array
from consilience.numerics.quadrature import NODES, normal_nodes
from consilience.numerics.softmax import log_sum_exp


@dataclass(frozen=True, eq=False)
class MinimaxSums(Additive):
    r"""Sums over rows of the critic's value and gradients, and of the E-step at the mixture.

    Parameters
    ----------
    above, below, B : (K, p) array
        Gradients in :math:`\gamma`, :math:`\gamma'` and the mixture's coefficients.
    value : float
        :math:`\sum_i w_i \{\psi(x_i, y_i) - E\,\psi(x_i, Y)\}`.
    shares : (K,) array
        Sums of responsibilities.
    squares : float
        Sum of squared residuals, weighted by responsibilities.
    log_likelihood, weight : float
        Log-likelihood of the rows under the mixture, and their weight.

    Examples
    --------
    >>> none = MinimaxSums(*np.zeros((3, 2, 1)), 0.0, np.zeros(2), 0.0, 0.0, 0.0)
    >>> (none + none).weight
    0.0
    """

    above: Array
    below: Array
    B: Array
    value: float
    shares: Array
    squares: float
    log_likelihood: float
    weight: float


def minimax_sums(mixture: Mixture, above: Array, below: Array, rows: Rows) -> MinimaxSums:
    r"""Compute the sums over ``rows`` at a mixture of regressions with constant gate, one response and one variance.

    With the responsibilities :math:`r_j(x, y)` of the mixture of ``above`` and :math:`r_j'` of that of ``below``,

    .. math::
        \partial_{\gamma_j} \psi = r_j\,(y - \gamma_j^\top x)\,x / \sigma^2, \qquad
        \partial_y \psi = \textstyle\sum_j (r_j \gamma_j - r_j' \gamma_j')^\top x / \sigma^2.

    Parameters
    ----------
    mixture : Mixture
    above, below : (K, p) array
        :math:`\gamma` and :math:`\gamma'`, in the coordinates of the mixture's design.
    rows : Rows
        Rows without groups.

    Examples
    --------
    If both sets of critic vectors are equal, the value and the mixture's gradients are zero:

    >>> from consilience.model import Design, mixture_of_regressions
    >>> B = np.array([[1.0], [-1.0]])
    >>> mixture = mixture_of_regressions(np.full(2, 0.5), B, 1.0, Design.raw(1, intercept=False))
    >>> sums = minimax_sums(mixture, B, B, Rows(np.ones((3, 1)), np.array([[1.0], [1.5], [-1.0]])))
    >>> sums.value, sums.B.ravel()
    (0.0, array([0., 0.]))
    """
    K, p = above.shape
    none = np.zeros((K, p))
    total = MinimaxSums(none, none, none, 0.0, np.zeros(K), 0.0, 0.0, 0.0)
    for block in rows.blocks(mixture.design, block_rows(p, 6 * K * K * NODES)):
        total = total + _block_sums(mixture, above, below, block)
    return total


def _block_sums(mixture: Mixture, above: Array, below: Array, block: Block) -> MinimaxSums:
    gate, experts, panel = mixture.gate, mixture.experts, block.panel
    log_pi, pi = gate.evaluate(panel)  # (K, 1)
    sigma2, n = float(Regressions.of(mixture).variances[0]), panel.shape[1]
    w = np.ones(n) if block.weight is None else block.weight
    t, omega = normal_nodes()
    drawn = experts.mean(panel)[:, 0, None] + np.sqrt(sigma2) * t[:, None]  # (K, Q, n)
    chance = (pi * omega)[:, :, None] * w  # (K, Q, n)
    y = np.concatenate([block.Y, drawn.reshape(-1, n)])  # (1 + K Q, n)
    signed = np.concatenate([w[None], -chance.reshape(-1, n)])
    up, down = (_side(y, gamma @ panel, log_pi, sigma2, signed) for gamma in (above, below))
    slope = (up.mean - down.mean)[1:].reshape(drawn.shape) / sigma2  # ∂ψ/∂y at the points drawn
    at = posterior(gate, experts, block)
    return MinimaxSums(
        up.pull @ panel.T,
        -(down.pull @ panel.T),
        -np.sum(chance * slope, axis=1) @ panel.T,
        up.value - down.value,
        at.row_tau.sum(axis=1),
        float(np.sum(at.row_tau * at.at.r[:, 0] ** 2)),
        float(np.sum(at.log_density * at.mass)),
        float(w.sum()),
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """One of the two mixtures of the critic, summed over points with signs and weights."""

    value: float
    pull: Array  # (K, n)  what a row's gradient is, times its x
    mean: Array  # (S, n)  Σ_j r_j γ_jᵀx at each point


def _side(y: Array, a: Array, log_pi: Array, sigma2: float, signed: Array) -> _Side:
    """Compute ``log Σ_j π_j exp(-(y - a_j)² / 2σ²)`` at ``y (S, n)``, means ``a (K, n)``, weighted by ``signed``."""
    gap = y - a[:, None]  # (K, S, n)
    total, r = log_sum_exp(log_pi[:, :, None] - gap**2 / (2 * sigma2))
    mean = np.einsum("ksn,kn->sn", r, a)
    r *= signed
    return _Side(float(np.sum(signed * total)), np.einsum("ksn,ksn->kn", r, gap) / sigma2, mean)
