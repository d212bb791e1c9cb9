"""Starting values of several kinds: no single kind is reliable, a mixture of kinds nearly always contains a good one.

A start is a set of responsibilities ``(K, m)`` over labels (rows, or groups); one M-step turns it into a mixture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from consilience.fit.specification import Specification
from consilience.model.expectation import expect
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, IntArray
from consilience.numerics.kmeans import draw, kmeans, squared_distances
from consilience.numerics.linalg import solve_symmetric

SUBSAMPLE = 3000
"""Maximum number of rows of a site that its starts are fitted to."""
CONCENTRATIONS = 20
"""Number of attempts at a closely fitted set of rows."""
SOFTNESS = 0.1
"""Total responsibility that a start gives to the experts other than the assigned one."""


@dataclass(frozen=True, eq=False)
class StartSample:
    """A sample of the data for the starts: one point per label."""

    rows: Rows
    specification: Specification
    summary: ColumnSummary
    X: Array  # (m, p)      design rows (means over groups)
    F: Array  # (m, f)      response features (means over groups)
    weight: Array  # (m,)

    @property
    def m(self) -> int:
        """Number of labels."""
        return len(self.weight)


def start_sample(rows: Rows, specification: Specification, summary: ColumnSummary) -> StartSample:
    """Build the points for the starts from ``rows``."""
    X = summary.design(specification.intercept).panel(rows.X).T
    F = specification.blank(summary).experts.response_features(rows)
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    if rows.groups is not None:
        order, starts = rows.groups.order, rows.groups.bounds[:-1]
        mass = np.maximum(np.add.reduceat(weight[order], starts), np.finfo(float).tiny)
        X, F = (np.add.reduceat((A * weight[:, None])[order], starts, axis=0) / mass[:, None] for A in (X, F))
        weight = mass
    return StartSample(rows, specification, summary, X, F, weight)


Start = Callable[[StartSample, np.random.Generator], IntArray]


def by_covariates(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by k-means on the covariates (on the responses if there are none)."""
    return kmeans(t.X if t.rows.X.shape[1] else t.F, t.specification.K, t.weight, rng)


def by_covariates_and_responses(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by k-means on covariates and responses; responses have the same total scale as the covariates."""
    weighted = t.F * np.sqrt(max(t.X.shape[1], 1) / t.F.shape[1])
    return kmeans(np.hstack([t.X, weighted]), t.specification.K, t.weight, rng)


def by_grouped_cells(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by grouping 3K k-means cells at random."""
    K = t.specification.K
    Z = np.hstack([t.X, t.F])
    cells = kmeans(Z, min(3 * K, t.m), t.weight, rng, max_iter=10)
    return rng.permutation(np.arange(3 * K) % K)[cells]


def by_residuals(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by the best of K regressions, each fitted around a seed drawn where the others fit badly."""
    p = t.X.shape[1]
    size = min(t.m, max(4 * p, 20))
    error: Array = np.full(t.m, np.inf)
    labels: IntArray = np.zeros(t.m, dtype=np.intp)
    for k in range(t.specification.K):
        seed = draw(t.weight * (error if k else 1.0), rng)
        near = np.argpartition(squared_distances(t.X, t.X[seed : seed + 1])[:, 0], size - 1)[:size]
        B = ridge_regression(t.X[near], t.F[near], t.weight[near])
        residual: Array = np.sum((t.F - t.X @ B) ** 2, axis=1)
        labels[residual < error] = k
        error = np.minimum(error, residual)
    return labels


def ridge_regression(X: Array, F: Array, weight: Array, penalty: float = 1e-3) -> Array:
    """Compute the coefficients ``(p, f)`` of a lightly penalised least squares fit."""
    A = (X * weight[:, None]).T @ X
    ridge = penalty * max(float(np.trace(A)) / max(len(A), 1), np.finfo(float).tiny)
    return solve_symmetric(A + ridge * np.eye(len(A)), (X * weight[:, None]).T @ F)[0]


def by_random_rows(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by the best of K regressions, each fitted to a few rows drawn at random."""
    size = min(t.m, t.X.shape[1] + 3)
    residuals = []
    for _ in range(t.specification.K):
        few = rng.choice(t.m, size, replace=False)
        B = ridge_regression(t.X[few], t.F[few], t.weight[few])
        residuals.append(np.sum((t.F - t.X @ B) ** 2, axis=1))
    labels: IntArray = np.argmin(residuals, axis=0)
    return labels


def by_concentration(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels one after another to the rows that one regression fits best, a tenth to four tenths of all rows.

    A regression on a few random rows is fitted again to the rows nearest to it, several times (:func:`concentrated`).
    This finds experts with a small variance, which other starts leave inside wide ones.
    """
    p = t.X.shape[1]
    labels: IntArray = np.zeros(t.m, dtype=np.intp)
    for k in range(1, t.specification.K):
        left = np.flatnonzero(labels == 0)
        size = min(max(2 * p, int(rng.uniform(0.1, 0.4) * t.m)), len(left) // 2)
        if size:
            labels[left[concentrated(t, left, size, rng)]] = k
    return labels


def concentrated(t: StartSample, inside: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Return ``size`` positions in ``inside`` whose labels one regression fits closely.

    As in the fast algorithm for least trimmed squares: two steps from each of many sets of as few rows as possible,
    and more from the best of them.
    """
    X, F, weight = t.X[inside], t.F[inside], t.weight[inside]
    least = min(len(inside), X.shape[1] + 1)

    def stepped(chosen: IntArray, steps: int) -> tuple[float, IntArray]:
        for _ in range(steps):
            B = ridge_regression(X[chosen], F[chosen], weight[chosen], 1e-6)
            residual: Array = np.sum((F - X @ B) ** 2, axis=1)
            chosen = np.argpartition(residual, size - 1)[:size]
        return float(residual[chosen].sum()), chosen

    first = [stepped(rng.choice(len(inside), least, replace=False), 2) for _ in range(CONCENTRATIONS)]
    first.sort(key=lambda attempt: attempt[0])
    return min((stepped(chosen, 8) for _, chosen in first[:2]), key=lambda attempt: attempt[0])[1]


def by_residual_clusters(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by k-means on the residuals of one regression."""
    return kmeans(t.F - t.X @ ridge_regression(t.X, t.F, t.weight), t.specification.K, t.weight, rng)


def by_quantiles(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels by quantiles of a random direction of the responses and of the residuals of one regression."""
    residual = t.F - t.X @ ridge_regression(t.X, t.F, t.weight)
    Z = np.hstack([t.F, residual])
    direction = rng.standard_normal(Z.shape[1])
    ranks = np.argsort(np.argsort(Z @ direction, kind="stable"), kind="stable")
    labels: IntArray = ranks * t.specification.K // t.m
    return labels


def at_random(t: StartSample, rng: np.random.Generator) -> IntArray:
    """Assign labels at random."""
    return rng.permutation(np.arange(t.m) % t.specification.K)


KINDS: tuple[Start, ...] = (
    by_covariates,
    by_concentration,
    by_residuals,
    by_covariates_and_responses,
    by_concentration,
    by_grouped_cells,
    by_quantiles,
    by_concentration,
    by_random_rows,
    by_residual_clusters,
    by_concentration,
    at_random,
)
"""Kinds of starts in the order in which they are drawn; concentration, whose ends differ most, several times."""


def softened(labels: IntArray, K: int) -> Array:
    """Return responsibilities ``(K, m)`` that favour the labels ``(m,)``.

    Examples
    --------
    >>> softened(np.array([0, 1]), 2)
    array([[0.95, 0.05],
           [0.05, 0.95]])
    """
    resp: Array = SOFTNESS / K + (1 - SOFTNESS) * (np.arange(K)[:, None] == labels)
    return resp


def mixture_from(resp: Array, t: StartSample) -> Mixture:
    """Compute the mixture for responsibilities ``(K, m)`` by an M-step (two for Newton-type steps)."""
    mixture = t.specification.with_order(len(resp)).blank(t.summary)
    if mixture.design.intercept:
        mixture = replace(mixture, experts=mixture.experts.at_level(t.rows))
    penalty = t.specification.penalty(t.summary)
    for _ in range(1 + mixture.experts.newton_type):
        mixture = mixture.maximise(expect(mixture, t.rows, given=resp), penalty)
    return mixture


def merged(rows: Rows) -> Rows:
    """Merge duplicate rows, sorted, with summed weights, so that starts depend on neither order nor repetition."""
    exposure = np.ones(rows.n) if rows.exposure is None else rows.exposure
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    table = np.column_stack([rows.X, rows.Y, exposure])
    distinct, codes = np.unique(table, axis=0, return_inverse=True)
    d, q = rows.X.shape[1], rows.Y.shape[1]
    X, Y = np.ascontiguousarray(distinct[:, :d]), np.ascontiguousarray(distinct[:, d : d + q])
    mass: Array = np.bincount(codes.ravel(), weight).astype(np.float64)
    return Rows(X, Y, mass, None if rows.exposure is None else distinct[:, -1])


def subsample(rows: Rows, size: int, rng: np.random.Generator, *, events: bool = False) -> Rows:
    """Draw at most about ``size`` rows with positive weight; groups stay whole.

    With ``events``, rows with a positive response are at least half of the draw where they are fewer in the data; the
    other rows have weights that make up for it.
    """
    present = np.ones(rows.n, dtype=bool) if rows.weight is None else rows.weight > 0
    if rows.groups is None:
        index = np.flatnonzero(present)
        if len(index) > size and events:
            return merged(_with_events(rows, index, size, rng))
        if len(index) > size:
            index = np.sort(rng.choice(index, size, replace=False))
        return merged(rows.take(index))
    sizes = np.diff(rows.groups.bounds)
    if rows.n <= size and present.all():
        return rows
    order = rng.permutation(len(sizes))
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), size, side="right")))]] = True
    return rows.take(np.flatnonzero(chosen[rows.groups.codes] & present))


def _with_events(rows: Rows, index: IntArray, size: int, rng: np.random.Generator) -> Rows:
    """Draw rows with and without events separately, half of each where events are rarer, with weights."""
    happened = rows.Y[index].max(axis=1) > 0
    parts = [index[happened], index[~happened]]
    half = [min(len(part), size // 2) for part in parts]
    sizes = [min(len(parts[0]), size - half[1]), min(len(parts[1]), size - half[0])]
    drawn = [np.sort(rng.choice(part, k, replace=False)) for part, k in zip(parts, sizes, strict=True)]
    each = [len(part) / max(k, 1) for part, k in zip(parts, sizes, strict=True)]
    least = min(share for share, k in zip(each, sizes, strict=True) if k)
    chosen = rows.take(np.concatenate(drawn))
    own = np.ones(chosen.n) if chosen.weight is None else chosen.weight
    return replace(chosen, weight=own * np.repeat(np.array(each) / least, sizes))
