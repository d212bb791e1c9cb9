"""Estimate the subspace spanned by the experts of clients, from pairs of rows of one client.

Two rows i, j of a client with coefficients ``θ_z`` have independent residual vectors ``e = (y - x̃ᵀθ) x̃`` with the same
mean ``E[x̃x̃ᵀ](θ_z - θ)``. The mean of ``e_i e_jᵀ`` over all pairs of distinct rows is therefore unbiased for the outer
product of that mean; the diagonal pairs, which contain the noise, are left out (a U-statistic).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.model.clients.moments import as_clients
from consilience.model.design import Design
from consilience.model.kernels import block_rows
from consilience.model.moments import Additive
from consilience.model.rows import Block, Rows
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class PairSums(Additive):
    """Sums over clients of products of pairs of rows, each client weighted by its number of rows less one.

    Parameters
    ----------
    product : (p, p) array, or (p, K)
        ``Σ_g (1 / n_g) Σ_{i ≠ j} e_i e_jᵀ``, or this times a basis.
    pairs : float
        ``Σ_g (n_g - 1)``.

    Examples
    --------
    >>> (PairSums(np.ones((1, 1)), 2.0) + PairSums(np.ones((1, 1)), 1.0)).pairs
    3.0
    """

    product: Array
    pairs: float


def pair_sums(rows: Rows, design: Design, theta: Array, basis: Array | None = None) -> PairSums:
    """Sum over the pairs of rows of each client; clients with one row contribute nothing.

    ``Y(θ) = Σ_g (1 / n_g) [s_g s_gᵀ - Σ_i e_i e_iᵀ]`` with ``s_g = Σ_i e_i``: all pairs at the cost of two products.

    Parameters
    ----------
    rows : Rows
        Rows with one response.
    design : Design
    theta : (p,) array
    basis : (p, K) array or None
        With a basis ``U``, ``Y(θ) U`` is returned: a step of orthogonal iteration.

    Examples
    --------
    >>> from consilience.model import Groups
    >>> rows = Rows(np.array([[1.0], [2.0], [9.0]]), np.array([[3.0], [1.0], [1.0]]), groups=Groups.of([0, 0, 1]))
    >>> sums = pair_sums(rows, Design.raw(1, intercept=False), np.zeros(1))
    >>> sums.product, sums.pairs  # one pair: (3 * 1) (1 * 2), in both orders, over two rows
    (array([[6.]]), 1.0)
    """
    p = design.p
    total = PairSums(np.zeros((p, p if basis is None else basis.shape[1])), 0.0)
    for block in as_clients(rows).blocks(design, block_rows(p, 3 * p)):
        if block.groups is not None and len(block.groups.starts):
            total = total + _of_block(block, theta, basis)
    return total


def _of_block(block: Block, theta: Array, basis: Array | None) -> PairSums:
    groups = block.groups
    assert groups is not None  # noqa: S101 - for the type checker: clients are groups
    r = block.Y[0] - theta @ block.panel
    w = np.ones(len(r)) if block.weight is None else block.weight
    E = block.panel * r  # (p, n)
    n = np.add.reduceat(w, groups.starts)
    several = n > 1
    inverse = np.where(several, 1 / np.maximum(n, 1.0), 0.0)
    sums = np.add.reduceat(E * w, groups.starts, axis=1)
    own = w * np.repeat(inverse, groups.sizes)
    if basis is None:
        product = (sums * inverse) @ sums.T - (E * own) @ E.T
    else:
        product = (sums * inverse) @ (sums.T @ basis) - (E * own) @ (E.T @ basis)
    return PairSums(product, float(np.sum(n[several] - 1)))
