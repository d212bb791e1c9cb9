r"""Local steps of clients: each client selects its best regression and updates it on its own rows.

With rows ``X`` and ``y``, residuals :math:`r = y - X \theta` and the loss :math:`L(\theta) = \|r\|^2 / 2n` of a client,
:math:`s` gradient steps of length :math:`\eta` are :math:`\theta \leftarrow \theta + \eta X^\top r / n`, and a proximal
step is the minimiser of :math:`L(\theta') + \|\theta' - \theta\|^2 / 2 \eta`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from consilience.model.clients.moments import as_clients
from consilience.model.families.requirement import Regressions
from consilience.model.gates import SMALLEST_WEIGHT
from consilience.model.kernels import block_rows
from consilience.model.mixture import Mixture
from consilience.model.moments import Additive
from consilience.model.rows import Block, GroupBlock, Rows
from consilience.numerics.arrays import Array
from consilience.numerics.softmax import log_sum_exp

Improvement = Callable[[Array, Array, Array], Array]
"""Maps rows ``(g, m, p)``, residuals ``(g, m)`` and ``η / n (g, 1)`` of g clients to their steps ``(g, p)``."""


@dataclass(frozen=True, eq=False)
class ClusterSums(Additive):
    """Sums over the clients that selected each of K regressions.

    Parameters
    ----------
    moved : (K, p) array
        ``Σ_i n_i (θ_i - θ_k)``: the clients' steps, weighted by their numbers of rows.
    rows, clients : (K,) array
        ``Σ_i n_i``, and the number of clients.
    squares : (K,) array
        Sum of the clients' squared residuals before the steps.
    log_likelihood : float
        Log-likelihood of all clients under the current mixture.

    Examples
    --------
    >>> one = ClusterSums(np.ones((2, 3)), np.ones(2), np.ones(2), np.ones(2), -1.0)
    >>> (one + one).rows
    array([2., 2.])
    """

    moved: Array
    rows: Array
    clients: Array
    squares: Array
    log_likelihood: float


def local_steps(mixture: Mixture, rows: Rows, *, steps: int, rate: float, prox: bool = False) -> ClusterSums:
    """Run each client's local steps from the regression with the smallest residuals; sum within clusters.

    Parameters
    ----------
    mixture : Mixture
        Gaussian experts with one response and a constant gate.
    rows : Rows
    steps : int
        Number of gradient steps of each client.
    rate : float
        Step size ``η``.
    prox : bool
        Whether to take one proximal step instead.

    Examples
    --------
    >>> from consilience.model import Design, Groups, mixture_of_regressions
    >>> rows = Rows(np.array([[1.0], [2.0], [1.0]]), np.array([[2.0], [4.0], [-1.0]]), groups=Groups.of([0, 0, 1]))
    >>> design = Design.raw(1, intercept=False)
    >>> pair = mixture_of_regressions(np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]), 1.0, design)
    >>> sums = local_steps(pair, rows, steps=1, rate=0.1)
    >>> sums.moved.ravel(), sums.rows  # the first client moves by 0.1 (1 · 1 + 2 · 2) / 2, the second is content
    (array([0.5, 0. ]), array([2., 1.]))
    """
    improve: Improvement = _proximal_step if prox else partial(_gradient_steps, steps=steps)
    K, p = mixture.K, mixture.design.p
    zero = np.zeros(K)
    total = ClusterSums(np.zeros((K, p)), zero, zero, zero, 0.0)
    for block in as_clients(rows).blocks(mixture.design, block_rows(p, 3 * p + K)):
        if block.groups is not None and len(block.groups.starts):
            total = total + _of_block(mixture, block, block.groups, rate, improve)
    return total


def _of_block(mixture: Mixture, block: Block, groups: GroupBlock, rate: float, improve: Improvement) -> ClusterSums:
    regressions = Regressions.of(mixture)
    w = np.ones(block.panel.shape[1]) if block.weight is None else block.weight
    residuals = block.Y[0] - regressions.B @ block.panel  # (K, n)
    squares = np.add.reduceat(w * residuals**2, groups.starts, axis=1)  # (K, G)
    n = np.add.reduceat(w, groups.starts)
    picked = squares.argmin(axis=0)
    own = residuals[np.repeat(picked, groups.sizes), np.arange(len(w))]
    eta = np.where(n > 0, rate / np.where(n > 0, n, 1.0), 0.0)
    moves = _moves(block.panel * np.sqrt(w), own * np.sqrt(w), eta, groups, improve)
    chosen = (picked == np.arange(mixture.K)[:, None]) * groups.present  # (K, G)
    return ClusterSums(
        (chosen * n) @ moves,
        chosen @ n,
        chosen.sum(axis=1),
        np.sum(chosen * squares, axis=1),
        float(_log_densities(regressions, squares, n) @ groups.present),
    )


def _moves(V: Array, r: Array, eta: Array, groups: GroupBlock, improve: Improvement) -> Array:
    """Compute each client's step ``(G, p)`` from rows ``V (p, n)`` and residuals, batched by the clients' sizes."""
    moves = np.empty((len(eta), len(V)))
    for size in np.unique(groups.sizes):
        chosen = np.flatnonzero(groups.sizes == size)
        columns = groups.starts[chosen][:, None] + np.arange(size)  # (g, size)
        moves[chosen] = improve(V[:, columns].transpose(1, 2, 0), r[columns], eta[chosen][:, None])
    return moves


def _gradient_steps(X: Array, r: Array, eta: Array, steps: int) -> Array:
    """Compute ``Σ_t η Xᵀ r_t`` with ``r_{t+1} = r_t - η X Xᵀ r_t``, ``(g, p)``."""
    total = np.zeros((len(X), X.shape[2]))
    for _ in range(steps):
        move = eta * _times(X.transpose(0, 2, 1), r)
        r = r - _times(X, move)
        total += move
    return total


def _proximal_step(X: Array, r: Array, eta: Array) -> Array:
    """Compute ``(I + η Xᵀ X)⁻¹ η Xᵀ r = η Xᵀ (I + η X Xᵀ)⁻¹ r``, ``(g, p)``, with the smaller of the two matrices."""
    Xt, (_, size, p) = X.transpose(0, 2, 1), X.shape
    if size < p:
        return eta * _times(Xt, _solved(np.eye(size) + eta[:, :, None] * (X @ Xt), r))
    return _solved(np.eye(p) + eta[:, :, None] * (Xt @ X), eta * _times(Xt, r))


def _times(A: Array, b: Array) -> Array:
    return np.asarray((A @ b[:, :, None])[:, :, 0])


def _solved(A: Array, b: Array) -> Array:
    return np.asarray(np.linalg.solve(A, b[:, :, None])[:, :, 0], dtype=np.float64)


def _log_densities(regressions: Regressions, squares: Array, n: Array) -> Array:
    """Compute ``log Σ_k π_k N(y_i; X_i θ_k, σ_k²)`` of each client, ``(G,)``."""
    sigma2 = regressions.variances[:, None]
    log_share = np.log(np.maximum(regressions.pi, SMALLEST_WEIGHT))[:, None]
    return log_sum_exp(log_share - 0.5 * (squares / sigma2 + n * np.log(2 * np.pi * sigma2)))[0]
