"""Rule L: no row may have much leverage in the span of all vectors by which the rows were ever weighted.

Let ``W (n, R)`` have the weight vectors of all answers as columns. A combination ``c`` of answers is a sum over rows with
the weights ``W c``, so that the best approximation of row i alone, ``e_i``, is its projection on the span of W. The
leverage

    h_i = e_iᵀ P_W e_i,    0 ≤ h_i ≤ 1,

is 1 if some combination of the answers is a function of row i alone. Limits on single vectors and on pairs of vectors do
not bound it: combinations of four large sets can be one row.

The vectors are computed in blocks of rows from the mixtures, twice: once for the Gram matrix of the vectors, once for
the leverages. Vectors that add nothing to the span are left out, so that memory is ``r²`` numbers for a span of
dimension r, and ``r`` times a block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, IntArray
from consilience.site.policy.rounds.weightings import Weighting

BLOCK = 2048
"""Rows in a block."""
NEW = 1e-6
"""Part of a vector, by length, that must be outside the span of the vectors before it for the vector to count."""
Chunks = Callable[[], Iterable[Rows]]
"""Reads the rows of a site again, in chunks."""


@dataclass(frozen=True, eq=False)
class Kept:
    """Vectors of one weighting that span something new.

    Parameters
    ----------
    weighting : Weighting
    places : (c,) array of int
        Places of the vectors among those of the weighting.
    scale : (c,) array
        Lengths of the vectors.
    """

    weighting: Weighting
    places: IntArray
    scale: Array


@dataclass(frozen=True, eq=False)
class Span:
    """Span of the vectors by which the rows of a site were weighted.

    Parameters
    ----------
    kept : tuple of Kept
        A basis, r vectors in all.
    order : (r,) array of int
        Order of the vectors of the basis in the factor.
    factor : (r, r) array
        Cholesky factor of the Gram matrix of the basis, lower triangular.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(500, n_experts=2, n_features=2, random_state=0)
    >>> rows = lambda: [Rows(data.X, data.y[:, None])]
    >>> span, thin = extended(Span(), [Weighting(data.truth)], rows)
    >>> span.rank, bool(0 < largest_leverage(span, rows) < 0.5)
    (5, True)
    """

    kept: tuple[Kept, ...] = ()
    order: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    factor: Array = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return len(self.factor)

    def basis(self, rows: Rows) -> Array:
        """Compute the basis at some rows, ``(r, n)``."""
        parts = [each.weighting.vectors(rows)[each.places] / each.scale[:, None] for each in self.kept]
        return np.asarray(np.concatenate(parts)[self.order]) if parts else np.empty((0, rows.n))


@dataclass(frozen=True)
class Thin:
    """The weight vector with the fewest effective rows.

    Parameters
    ----------
    effective : float
        Its effective rows ``(Σ |w|)² / Σ w²``.
    name : str
        What it is, in words for the site.
    """

    effective: float = float("inf")
    name: str = ""


def extended(span: Span, weightings: Sequence[Weighting], chunks: Chunks) -> tuple[Span, Thin]:
    """Add the vectors of some weightings to a span; also return the thinnest of them.

    Parameters
    ----------
    span : Span
    weightings : sequence of Weighting
    chunks : callable
        Returns the rows of the site, in chunks.
    """
    largest = _largest(weightings, chunks)
    peak = np.concatenate([*largest, np.empty(0)])
    if not np.all(np.isfinite(peak)):
        return span, Thin(0.0, "weights that are not finite")
    present = peak > 0
    unit = np.where(present, peak, 1.0)
    C, G, total = np.zeros((span.rank, len(peak))), np.zeros((len(peak), len(peak))), np.zeros(len(peak))
    for rows in blocks(chunks) if len(peak) else ():
        new = np.concatenate([each.vectors(rows) for each in weightings]) / unit[:, None]
        C += span.basis(rows) @ new.T
        G += new @ new.T
        total += np.abs(new).sum(axis=1)
    length = np.where(present, np.sqrt(np.diag(G)), 1.0)
    thin = _thinnest(weightings, largest, np.where(present, (total / length) ** 2, np.inf))
    chosen, factor = _new_directions(span.factor, C / length, G / np.outer(length, length), present)
    return _joined(span, _kept(weightings, largest, chosen, unit * length), chosen, factor), thin


def leverages(span: Span, chunks: Chunks) -> Iterator[Array]:
    """Yield the leverages of the rows, block by block."""
    for rows in blocks(chunks):
        yield np.sum(solve_triangular(span.factor, span.basis(rows), lower=True, check_finite=False) ** 2, axis=0)


def largest_leverage(span: Span, chunks: Chunks) -> float:
    """Compute the largest leverage of a row in a span."""
    if not span.rank:
        return 0.0
    return float(max((h.max(initial=0.0) for h in leverages(span, chunks)), default=0.0))


def blocks(chunks: Chunks) -> Iterator[Rows]:
    """Yield the rows of a site in blocks."""
    for rows in chunks():
        for start in range(0, rows.n, BLOCK):
            yield rows.take(np.arange(start, min(start + BLOCK, rows.n)))


def _largest(weightings: Sequence[Weighting], chunks: Chunks) -> list[Array]:
    """Compute the largest absolute value of each vector, by weighting: squares of tiny weights would vanish."""
    found: list[Array] = []
    for rows in blocks(chunks):
        here = [np.abs(each.vectors(rows)).max(axis=1) for each in weightings]
        found = [np.maximum(a, b) for a, b in zip(found, here, strict=True)] if found else here
    return found


def _thinnest(weightings: Sequence[Weighting], largest: Sequence[Array], effective: Array) -> Thin:
    if not len(effective):
        return Thin()
    names = [
        each.names[i] if i < len(each.names) else "weights of the family"
        for each, vectors in zip(weightings, largest, strict=True)
        for i in range(len(vectors))
    ]
    at = int(np.argmin(effective))
    return Thin(float(effective[at]), names[at])


def _new_directions(factor: Array, C: Array, G: Array, present: Array) -> tuple[IntArray, Array]:
    """Select vectors that add to a span, the one with the largest new part first; return them and the new factor.

    Parameters
    ----------
    factor : (r, r) array
        Cholesky factor of the old basis.
    C : (r, c) array
        Products of the old basis with the new vectors.
    G : (c, c) array
        Products of the new vectors, with diagonal 1.
    present : (c,) array of bool
        Which of the new vectors are not 0.
    """
    A = solve_triangular(factor, C, lower=True, check_finite=False) if len(factor) else C
    S = G - A.T @ A
    rest = np.where(present, np.diag(S), 0.0)
    order: list[int] = []
    L = np.zeros_like(G)
    while len(order) < len(G) and rest.max() > NEW**2:
        j, m = int(rest.argmax()), len(order)
        L[:, m] = (S[:, j] - L[:, :m] @ L[j, :m]) / np.sqrt(rest[j])
        order.append(j)
        rest = rest - L[:, m] ** 2
        rest[order] = 0.0
    chosen = np.array(order, dtype=np.int64)
    below = np.tril(L[chosen][:, : len(order)])
    return chosen, np.block([[factor, np.zeros((len(factor), len(order)))], [A[:, chosen].T, below]])


def _kept(
    weightings: Sequence[Weighting], largest: Sequence[Array], chosen: IntArray, scale: Array
) -> Iterator[tuple[Kept, IntArray]]:
    """Yield the chosen vectors of each weighting, with their places among the chosen."""
    first = 0
    for each, vectors in zip(weightings, largest, strict=True):
        mine = np.flatnonzero((chosen >= first) & (chosen < first + len(vectors)))
        if len(mine):
            yield Kept(each, chosen[mine] - first, scale[chosen[mine]]), mine
        first += len(vectors)


def _joined(span: Span, kept: Iterable[tuple[Kept, IntArray]], chosen: IntArray, factor: Array) -> Span:
    found = list(kept)
    places = np.concatenate([*(mine for _, mine in found), np.empty(0, dtype=np.int64)])
    order = np.empty(len(chosen), dtype=np.int64)
    order[places] = np.arange(len(chosen))
    return Span((*span.kept, *(each for each, _ in found)), np.append(span.order, span.rank + order), factor)
