"""The weights of rows in answers, and the leverage of a row in their span.

The vectors by which a question weighs the rows of a site.

The sums of an answer at a mixture are ``Σ_i w_i m(x_i, y_i)`` with polynomials ``m`` of low degree in the columns and
weights ``w`` that the mixture chooses: responsibilities ``τ_k``, gate weights ``π_k``, products ``π_k π_l`` (and
``τ_k τ_l`` with the observed information), the log density and its absolute value. Families whose sums are not
polynomials of the columns, such as counts and classes, add factors of their own. Whoever chooses the mixture chooses
the weights; what a combination of answers can single out depends on the span of these vectors alone.

Rule L: no row may have much leverage in the span of all vectors by which the rows were ever weighted.

Let ``W (n, R)`` have the weight vectors of all answers as columns. A combination ``c`` of answers is a sum over rows
with the weights ``W c``, so that the best approximation of row i alone, ``e_i``, is its projection on the span of W.
The leverage

    h_i = e_iᵀ P_W e_i,    0 ≤ h_i ≤ 1,

is 1 if some combination of the answers is a function of row i alone. Limits on single vectors and on pairs of vectors
do not bound it: combinations of four large sets can be one row.

The vectors are computed in blocks of rows from the mixtures, in several passes: for their products, and for the
leverages. Vectors that add nothing to the span are left out, so that memory is ``r²`` numbers for a span of dimension
r, and ``r`` times a block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from consilience.errors import InvalidInputError
from consilience.fit import Expect
from consilience.messages import LogLikelihood, Question, Sample, ScoreProducts, ScoreSums, Several
from consilience.messages.table import row_of
from consilience.model import Mixture, Rows
from consilience.model.mixture import Posterior
from consilience.numerics.arrays import Array, IntArray


@dataclass(frozen=True, eq=False)
class Weighting:
    """A mixture by which rows are weighted, and which of its weights the answer uses.

    Parameters
    ----------
    mixture : Mixture
    sums : bool
        Whether sums over responsibilities and gate weights are in the answer; otherwise it is a likelihood only.
    gate : bool
        Whether sums over gate weights and their products are in the answer.
    curvature : bool
        Whether products of the gate weights of two experts are in the answer; their squares always are.
    information : bool
        Whether the observed information is in the answer: products of responsibilities.
    """

    mixture: Mixture
    sums: bool = True
    gate: bool = True
    curvature: bool = True
    information: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What the vectors are, in words for the site; those of the family itself come after them."""
        K, pairs = self.mixture.K, [f"{k + 1}, {m + 1}" for k, m in _pairs(self.mixture.K)]
        found = ["log density", "absolute log density"]
        if self.sums:
            found += [f"responsibilities of expert {k + 1}" for k in range(K)]
        if self.sums and self._reads_gate:
            found += [f"gate weights of expert {k + 1}" for k in range(K)]
            found += [f"products of gate weights of experts {k + 1}, {m + 1}" for k, m in self._gate_pairs]
        if self.information:
            found += [f"products of responsibilities of experts {pair}" for pair in pairs]
        return tuple(found)

    @property
    def _reads_gate(self) -> bool:
        return self.gate and self.mixture.gate.reads_covariates

    @property
    def _gate_pairs(self) -> list[tuple[int, int]]:
        return [(k, m) for k, m in _pairs(self.mixture.K) if self.curvature or k == m]

    def vectors(self, rows: Rows) -> Array:
        """Compute the weights of some rows, ``(c, n)``; c is the same for all rows of a site."""
        if rows.groups is not None or rows.weight is not None:
            raise InvalidInputError("there are no rules for rounds over rows with groups or weights: pass plain rows")
        parts = [self._of_block(at, block.panel.shape[0]) for block, at in self.mixture.posteriors(rows)]
        return np.concatenate(parts, axis=1) if parts else np.empty((0, 0))

    def _of_block(self, at: Posterior, p: int) -> Array:
        found = [at.log_density[None], np.abs(at.log_density)[None]]
        if self.sums:
            found.append(at.tau)
        if self.sums and self._reads_gate:
            pi = np.broadcast_to(at.pi, at.tau.shape)
            found += [pi, _products(pi, self._gate_pairs)]
        if self.information:
            found.append(_products(at.tau, _pairs(self.mixture.K)))
        return np.concatenate([*found, *self._of_family(at, p)])

    def _of_family(self, at: Posterior, p: int) -> Iterator[Array]:
        """Yield weights of the family's own, unless its sums are ``Σ τ m(x, y)`` with polynomials ``m``."""
        weights = self.mixture.experts.weights(at.at, at.tau, p)
        if not self.sums or (weights.second.shape == at.tau.shape and np.array_equal(weights.second, at.tau)):
            return
        yield np.asarray(weights.first)
        yield np.asarray(weights.second)
        if self.information:
            linear = self.mixture.experts.scores(at.at).linear  # (K, channels, n)
            weighted = (at.tau[:, None] * linear).reshape(-1, at.tau.shape[1])
            yield _products(weighted, _pairs(len(weighted)))


def _pairs(K: int) -> list[tuple[int, int]]:
    """Return all pairs of K vectors, each with itself too; none for K = 1, whose weights are 1."""
    return [(k, m) for k in range(K) for m in range(k, K)] if K > 1 else []


def _products(vectors: Array, pairs: list[tuple[int, int]]) -> Array:
    """Multiply pairs of vectors ``(K, n)``."""
    if not pairs:
        return np.empty((0, vectors.shape[1]))
    k, m = np.array(pairs).T
    return np.asarray(vectors[k] * vectors[m])


def weightings_of(question: Question) -> tuple[Weighting, ...]:
    """Return the weightings of a question; none for questions whose sums do not depend on a mixture."""
    if isinstance(question, Several):
        return tuple(each for part in question.questions for each in weightings_of(part))
    match question.question if isinstance(question, Sample) else question:
        case Expect() as asked:
            return (Weighting(asked.mixture, information=asked.information),)
        case ScoreSums() as asked:
            return (Weighting(asked.mixture, curvature=False),)
        case ScoreProducts() as asked:
            return (Weighting(asked.mixture, information=True),)
        case LogLikelihood() as asked:
            return (Weighting(asked.mixture, sums=False),)
        case asked:
            mixture = row_of(asked).weighs(asked)
            return () if mixture is None else (Weighting(mixture),)


# ---------------------------------------------------------------- leverage

BLOCK = 2048
"""Rows in a block."""
NEW = 1e-10
"""Part of a vector, by length, outside the span of the others that counts: rounding hides what is smaller."""
CLEAR = 1e-4
"""Part of a vector that is computed well from the products of the vectors."""
Chunks = Callable[[], Iterable[Rows]]
"""Reads the rows of a site again, in chunks."""


@dataclass(frozen=True, eq=False)
class Level:
    """Vectors of some weightings that add m dimensions to a span of r.

    Parameters
    ----------
    weightings : tuple of Weighting
    owner, place : (m,) array of int
        Place of the weighting of each vector, and place of the vector among those of the weighting.
    scale : (m,) array
        Lengths of the vectors.
    projection : (m, r) array
        Products with the orthonormal basis so far.
    factor : (m, m) array
        Cholesky factor of the products of what is left of the vectors, lower triangular.
    """

    weightings: tuple[Weighting, ...]
    owner: IntArray
    place: IntArray
    scale: Array
    projection: Array
    factor: Array


@dataclass(frozen=True, eq=False)
class Span:
    """Span of the vectors by which the rows of a site were weighted.

    Parameters
    ----------
    levels : tuple of Level
        Each adds to the span of those before it.
    """

    levels: tuple[Level, ...] = ()

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return sum(len(level.factor) for level in self.levels)

    def orthonormal(self, rows: Rows) -> Array:
        """Compute an orthonormal basis at some rows, ``(r, n)``.

        Each level is computed from those before it by the same operations, whatever follows: parts of vectors that
        are small beside them are differences in which rounding must not change.
        """
        Q = np.empty((self.rank, rows.n))
        done, known = 0, dict[int, Array]()
        for level in self.levels:
            V = _vectors(level.weightings, level.owner, level.place, rows, known) / level.scale[:, None]
            m = len(V)
            V -= level.projection @ Q[:done]
            Q[done : done + m] = solve_triangular(level.factor, V, lower=True, check_finite=False)
            done += m
        return Q


def _vectors(
    weightings: Sequence[Weighting], owner: IntArray, place: IntArray, rows: Rows, known: dict[int, Array]
) -> Array:
    """Compute some vectors of weightings at some rows, ``(m, n)``; those that are ``known`` are not computed again."""
    for j in np.unique(owner):
        if id(weightings[j]) not in known:
            known[id(weightings[j])] = weightings[j].vectors(rows)
    return np.array([known[id(weightings[j])][i] for j, i in zip(owner, place, strict=True)])


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


def extend_span(span: Span, weightings: Sequence[Weighting], chunks: Chunks, least: float = 0.0) -> tuple[Span, Thin]:
    """Add the vectors of some weightings to a span; also return the thinnest of them.

    Parts of a vector that are small beside the vector count too, if sums in double precision can show them. They are
    found in several levels: each adds the clearest parts, and computes what is left of the other vectors.

    Parameters
    ----------
    span : Span
    weightings : sequence of Weighting
    chunks : callable
        Returns the rows of the site, in chunks.
    least : float
        Effective rows that each vector must have; otherwise the span is returned as it was.
    """
    new = _measured(weightings, chunks)
    if not np.all(np.isfinite(new.scale)):
        return span, Thin(0.0, "weights that are not finite")
    if new.thin.effective < least:
        return span, new.thin
    pending = np.flatnonzero(new.scale > 0)
    while len(pending):
        A, G = _residuals(span, new, pending, chunks)
        length = np.sqrt(np.maximum(np.diag(G), 0.0))
        clear = length > NEW
        pending, A, G, length = pending[clear], A[:, clear], G[np.ix_(clear, clear)], length[clear]
        chosen, L = _pivoted(G / np.outer(length, length))
        if len(chosen):
            span = Span((*span.levels, new.level(pending[chosen], A[:, chosen].T, length[chosen, None] * L)))
        pending = np.delete(pending, chosen)
    return span, new.thin


def leverages(span: Span, chunks: Chunks) -> Iterator[Array]:
    """Yield the leverages of the rows, block by block."""
    for rows in site_blocks(chunks):
        yield np.sum(span.orthonormal(rows) ** 2, axis=0)


def largest_leverage(span: Span, chunks: Chunks) -> float:
    """Compute the largest leverage of a row in a span; at most 1, also where rounding of nearly equal vectors adds."""
    if not span.rank:
        return 0.0
    return min(1.0, float(max((h.max(initial=0.0) for h in leverages(span, chunks)), default=0.0)))


def site_blocks(chunks: Chunks) -> Iterator[Rows]:
    """Yield the rows of a site in blocks."""
    for rows in chunks():
        for start in range(0, rows.n, BLOCK):
            yield rows.take(np.arange(start, min(start + BLOCK, rows.n)))


@dataclass(frozen=True, eq=False)
class _New:
    """Vectors of new weightings: where each stands, its length (0 if it vanishes), and the thinnest of them."""

    weightings: Sequence[Weighting]
    owner: IntArray  # (c,)  place of the weighting
    place: IntArray  # (c,)  place among the vectors of the weighting
    scale: Array  # (c,)
    thin: Thin

    def at(self, rows: Rows, wanted: IntArray) -> Array:
        """Compute some of the vectors at some rows, with length 1 over all rows."""
        return _vectors(self.weightings, self.owner[wanted], self.place[wanted], rows, {}) / self.scale[wanted, None]

    def level(self, chosen: IntArray, projection: Array, factor: Array) -> Level:
        """Return the level of some of the vectors."""
        owners, owner = np.unique(self.owner[chosen], return_inverse=True)
        mine = tuple(self.weightings[j] for j in owners)
        return Level(mine, owner, self.place[chosen], self.scale[chosen], np.ascontiguousarray(projection), factor)


def _measured(weightings: Sequence[Weighting], chunks: Chunks) -> _New:
    """Compute lengths and effective rows of vectors; squares of tiny weights would vanish, hence the largest first."""
    peaks: list[Array] = []
    for rows in site_blocks(chunks):
        here = [np.abs(each.vectors(rows)).max(axis=1) for each in weightings]
        peaks = [np.maximum(a, b) for a, b in zip(peaks, here, strict=True)] if peaks else here
    owner = np.repeat(np.arange(len(peaks)), [len(each) for each in peaks])
    place = np.concatenate([*(np.arange(len(each)) for each in peaks), np.empty(0, dtype=np.int64)])
    peak = np.concatenate([*peaks, np.empty(0)])
    if not np.all(np.isfinite(peak)):
        return _New(weightings, owner, place, peak, Thin(0.0))
    unit = np.where(peak > 0, peak, 1.0)
    total, squares = np.zeros(len(peak)), np.zeros(len(peak))
    for rows in site_blocks(chunks) if len(peak) else ():
        V = np.abs(np.concatenate([each.vectors(rows) for each in weightings])) / unit[:, None]
        total += V.sum(axis=1)
        squares += np.einsum("cn,cn->c", V, V)
    effective = np.where(peak > 0, total**2 / np.where(peak > 0, squares, 1.0), np.inf)
    thin = Thin()
    if len(peak):
        at = int(np.argmin(effective))
        names = weightings[owner[at]].names
        thin = Thin(float(effective[at]), names[place[at]] if place[at] < len(names) else "weights of the family")
    return _New(weightings, owner, place, np.where(peak > 0, unit * np.sqrt(squares), 0.0), thin)


def _residuals(span: Span, new: _New, pending: IntArray, chunks: Chunks) -> tuple[Array, Array]:
    """Project vectors on a span: coefficients ``A (r, c)`` on its orthonormal basis, products ``G (c, c)`` of the rest.

    The rest is computed row by row and projected once more, so that it is exact even if it is small.
    """
    first = np.zeros((span.rank, len(pending)))
    for rows in site_blocks(chunks) if span.rank else ():
        first += span.orthonormal(rows) @ new.at(rows, pending).T
    again, G = np.zeros_like(first), np.zeros((len(pending), len(pending)))
    for rows in site_blocks(chunks):
        Q = span.orthonormal(rows)
        R = new.at(rows, pending) - first.T @ Q
        again += Q @ R.T
        G += R @ R.T
    return first + again, G - again.T @ again


def _pivoted(G: Array) -> tuple[IntArray, Array]:
    """Factor products ``G (c, c)`` of vectors of length 1, the clearest part first, as long as parts are clear.

    Returns
    -------
    chosen : (m,) array of int
    L : (m, m) array
        Cholesky factor of the chosen, lower triangular.
    """
    rest = np.ones(len(G))
    order: list[int] = []
    L = np.zeros_like(G)
    while len(order) < len(G) and rest.max() > CLEAR**2:
        j, m = int(rest.argmax()), len(order)
        L[:, m] = (G[:, j] - L[:, :m] @ L[j, :m]) / np.sqrt(rest[j])
        order.append(j)
        rest = rest - L[:, m] ** 2
        rest[order] = 0.0
    chosen = np.array(order, dtype=np.int64)
    return chosen, np.tril(L[chosen][:, : len(order)])
