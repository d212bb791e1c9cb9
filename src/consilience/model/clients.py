"""Sufficient statistics of clients: groups of rows that share one label.

For Gaussian experts with one response, ``n``, ``XᵀX``, ``Xᵀr`` and ``rᵀr`` of a client are sufficient. They allow every
step of EM on the labels of clients, from any start, without reading the rows again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from consilience.model.design import Design
from consilience.model.expectation import missing_of_scores
from consilience.model.families.registry import Regressions
from consilience.model.information import complete_information
from consilience.model.kernels import block_rows
from consilience.model.mixture import Mixture
from consilience.model.rows import Block, Groups, Rows
from consilience.model.statistics import Additive, Moments, Statistics
from consilience.numerics.arrays import Array, IntArray, log_sum_exp, pack, triangle_size, unpack, upper_triangle

CHUNK_BYTES = 64 * 2**20
"""Maximum number of score entries of clients held at a time."""


@dataclass(frozen=True, eq=False)
class ClientMoments:
    """The moments of G clients, one row each; ``+`` concatenates.

    Parameters
    ----------
    n : (G,) array
        Number or weight of the client's rows.
    S : (G, f (f + 1) / 2) array
        Upper triangles of ``Σ v vᵀ`` over its rows, with ``v = Uᵀ x̃``.
    b : (G, f) array
        ``Σ v r``, with residuals ``r = y - x̃ᵀ θ``.
    c : (G,) array
        ``Σ r²``.
    """

    n: Array
    S: Array
    b: Array
    c: Array

    def __add__(self, other: ClientMoments) -> ClientMoments:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return ClientMoments(*(np.concatenate(pair) for pair in pairs))

    @property
    def G(self) -> int:
        """Number of clients."""
        return len(self.n)

    @property
    def f(self) -> int:
        """Number of coefficients."""
        return int(self.b.shape[1])

    def leading(self, f: int) -> ClientMoments:
        """Return the moments in the first ``f`` directions."""
        rows, columns = upper_triangle(self.f)
        return ClientMoments(self.n, self.S[:, (rows < f) & (columns < f)], self.b[:, :f], self.c)

    def projected(self, basis: Array) -> ClientMoments:
        """Return the moments in the directions of ``basis (f, h)``."""
        S = basis.T @ unpack(self.S) @ basis
        return ClientMoments(self.n, pack(S), self.b @ basis, self.c)

    def ridge_fits(self, ridge: Array) -> Array:
        """Compute each client's ridge fit ``(Σ v vᵀ + diag(ridge))⁻¹ Σ v r``, ``(G, f)``."""
        return np.asarray(np.linalg.solve(unpack(self.S) + np.diag(ridge), self.b[:, :, None])[:, :, 0])

    def squares(self, B: Array) -> Array:
        """Compute ``Σ (r - vᵀ B_k)²`` of each client under each of ``B (K, f)``: ``(K, G)``."""
        products = pack(B[:, :, None] * B[:, None, :] * (2 - np.eye(self.f)))
        return np.maximum(self.c - 2 * B @ self.b.T + products @ self.S.T, 0.0)


def as_clients(rows: Rows) -> Rows:
    """Return the rows with groups as clients; rows without groups are one client."""
    return rows if rows.groups is not None else replace(rows, groups=Groups.of(np.zeros(rows.n, dtype=np.intp)))


def client_moments(rows: Rows, design: Design, theta: Array, basis: Array | None = None) -> ClientMoments:
    """Compute the moments of each client in ``rows``, in the order of its groups.

    Parameters
    ----------
    rows : Rows
        Rows with one response.
    design : Design
    theta : (p,) array
        Coefficients of the residuals.
    basis : (p, f) array or None
        Directions ``U`` of the moments; None for all coefficients.
    """
    f = design.p if basis is None else basis.shape[1]
    total = ClientMoments(np.empty(0), np.empty((0, triangle_size(f))), np.empty((0, f)), np.empty(0))
    for block in as_clients(rows).blocks(design, block_rows(design.p, 4 * f)):
        if block.groups is not None and len(block.groups.starts):
            total = total + _of_block(block, theta, basis)
    return total


def _of_block(block: Block, theta: Array, basis: Array | None) -> ClientMoments:
    groups = block.groups
    assert groups is not None  # noqa: S101 - for the type checker: clients are groups
    V = block.panel if basis is None else basis.T @ block.panel
    r = block.Y[0] - theta @ block.panel
    w = np.ones(len(r)) if block.weight is None else block.weight
    return ClientMoments(
        np.add.reduceat(w, groups.starts),
        pack(client_products(V * w, V, groups.starts, groups.sizes)),
        np.add.reduceat(V * (w * r), groups.starts, axis=1).T,
        np.add.reduceat(w * r * r, groups.starts),
    )


def client_products(A: Array, B: Array, starts: IntArray, sizes: IntArray) -> Array:
    """Compute ``Σ_i a_i b_iᵀ`` over the columns of each client, ``(G, a, b)``, batched over clients of equal size."""
    out = np.empty((len(starts), len(A), len(B)))
    for size in np.unique(sizes):
        chosen = np.flatnonzero(sizes == size)
        columns = starts[chosen][:, None] + np.arange(size)  # (g, size)
        out[chosen] = A[:, columns].transpose(1, 0, 2) @ B[:, columns].transpose(1, 2, 0)
    return out


def expect_clients(
    mixture: Mixture, moments: ClientMoments, theta: Array, *, information: bool = False, given: Array | None = None
) -> Statistics:
    """E-step on the labels of clients from their moments; equals ``expect`` on their rows.

    Parameters
    ----------
    mixture : Mixture
        Gaussian experts with one response and a constant gate, on the design of the moments.
    moments : ClientMoments
        Moments in all coefficients.
    theta : (f,) array
        Coefficients of the residuals in the moments.
    information : bool
        Whether to add the observed information.
    given : (K, G) array or None
        Responsibilities to use instead of the mixture's own.
    """
    regressions = Regressions.of(mixture)
    B, sigma2 = regressions.B - theta, regressions.variances[:, None]
    squares = moments.squares(B)
    present = (moments.n > 0).astype(float)
    log_density = -0.5 * (squares / sigma2 + moments.n * np.log(2 * np.pi * sigma2))
    ll, tau = log_sum_exp(mixture.gate.evaluate(moments.b.T)[0] + log_density)
    tau = tau if given is None else given
    ll, weighted = ll * present, tau * present
    second = tau @ moments.S
    first = tau @ moments.b - np.einsum("kab,kb->ka", unpack(second), B)
    plain = np.concatenate([tau @ moments.n, np.sum(tau * squares, axis=1)])
    labels = Moments(weighted.sum(axis=1), np.empty((0, moments.f)), np.empty((0, second.shape[1])))
    sums = float(ll.sum()), float(np.abs(ll).sum()), float(present.sum())
    statistics = Statistics(labels, Moments(plain, first, second), *sums)
    if not information:
        return statistics
    missing = _missing(mixture, moments, B, squares / sigma2, weighted)
    return replace(statistics, information=complete_information(mixture, statistics) - missing)


def _missing(mixture: Mixture, moments: ClientMoments, B: Array, z2: Array, tau: Array) -> Array:
    """Compute ``Σ_g Cov_τ(complete score)``, clients in chunks."""
    K, f = B.shape
    size = max(1, CHUNK_BYTES // (8 * (f * f + 2 * K * (f + 2))))
    P = mixture.parameter_count
    total = np.zeros((P, P))
    for start in range(0, moments.G, size):
        part = slice(start, start + size)
        total += missing_of_scores(mixture, *_scores(mixture, moments, B, z2, part), tau[:, part], 1.0)
    return total


def _scores(mixture: Mixture, moments: ClientMoments, B: Array, z2: Array, part: slice) -> tuple[Array, IntArray]:
    """Return complete scores of some clients, sorted by expert, and the offset of each expert."""
    n, S, b = moments.n[part], unpack(moments.S[part]), moments.b[part]
    variances = Regressions.of(mixture).variances
    parts = []
    for k in range(mixture.K):
        linear = (b - S @ B[k]).T / variances[k]
        gate = np.ones((int(k < mixture.K - 1), len(n)))
        parts.append(np.vstack([linear, gate, 0.5 * (z2[k, part] - n)]))
    return np.vstack(parts), np.cumsum([0, *(len(part) for part in parts)])


# ---------------------------------------------------------------- pairs of rows of a client
#
# Two rows i, j of a client with coefficients θ_z have independent residual vectors e = (y - x̃ᵀθ) x̃ with the same mean
# E[x̃x̃ᵀ](θ_z - θ). The mean of e_i e_jᵀ over all pairs of distinct rows is therefore unbiased for the outer product of
# that mean; the diagonal pairs, which contain the noise, are left out (a U-statistic).


@dataclass(frozen=True, eq=False)
class PairSums(Additive):
    """Sums over clients of products of pairs of rows, each client weighted by its number of rows less one.

    Parameters
    ----------
    product : (p, p) array, or (p, K)
        ``Σ_g (1 / n_g) Σ_{i ≠ j} e_i e_jᵀ``, or this times a basis.
    pairs : float
        ``Σ_g (n_g - 1)``.
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
    """
    p = design.p
    total = PairSums(np.zeros((p, p if basis is None else basis.shape[1])), 0.0)
    for block in as_clients(rows).blocks(design, block_rows(p, 3 * p)):
        if block.groups is not None and len(block.groups.starts):
            total = total + _pairs_of_block(block, theta, basis)
    return total


def _pairs_of_block(block: Block, theta: Array, basis: Array | None) -> PairSums:
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
