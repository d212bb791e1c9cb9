"""Contributions of groups to a private sum of scores: one label, one score and one bounded vector for each group.

The label of a group is one, so that its score is that of all of its rows together: ``τ_k Σ_i s_ik`` for an expert, and
``(τ_k - π_k) x̄`` for a gate, which reads the mean of the group. An expectation over the responses of a whole group has
no nodes. S sets of responses are drawn from the mixture at the group's covariates, and beside the observed set they
give the whitened scores ``z_0, ..., z_S``. The group contributes

    u = ω_0 (z_0 - a),    ω_j = min(1, c / ‖z_j - a‖),    Σ_j ω_j (z_j - a) = 0,

where the centre ``a`` is found from all of them, the observed one among them. At the true mixture all sets have one
distribution given the covariates, and ``a`` does not depend on their order, so that ``E[u]`` is the mean of
``ω_j (z_j - a)`` over j, which is zero, whatever S is. The centre is inside the clip: a group moves the sum by at most
``c``, and not by twice as much as if a mean of clipped draws were subtracted.

The integers of a group are a function of its own rows, of the question, and of how many groups with the very same rows
came before it: responses that are drawn have a seed that is made of these. Without the number, groups that are equal to
the last bit, which are frequent if responses and covariates are classes, would share their draws, whose error would not
average out. A group more therefore adds one vector to the sum, of a length of at most
:func:`~consilience.model.contributions.sensitivity`, which is checked in integers, last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model.contributions import COUNTED, DRAWS, Frame, Integers, refusal, rounded, tied
from consilience.model.kernels import Workspace
from consilience.model.mixture import Mixture
from consilience.model.rows import Block, Groups, Rows
from consilience.numerics.arrays import Array, IntArray, Mask, log_sum_exp

SETS = DRAWS + 1
"""Number of sets of responses of a group: the observed one, and those that are drawn."""
CENTRINGS = 8
"""Number of times that the centre is computed."""
CELLS = 2**18
"""Number of numbers of a batch above which it has fewer groups, or reads its rows in pieces."""

Seen = Counter[bytes]
"""Numbers of groups with the same rows that were read before, by a hash of these."""


# ---------------------------------------------------------------- groups, a batch at a time


@dataclass(frozen=True, eq=False)
class GroupedCovariates:
    """Public covariates of whole groups, group after group; its length and its parts are those of groups.

    Parameters
    ----------
    X : (m, d) array
    sizes : (G,) array of int

    Examples
    --------
    >>> groups = GroupedCovariates(np.arange(6.0).reshape(6, 1), np.array([1, 3, 2]))
    >>> len(groups), groups[1:].sizes, groups[np.array([2, 0])].X.ravel()
    (3, array([3, 2]), array([4., 5., 0.]))
    """

    X: Array
    sizes: IntArray

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, which: slice | IntArray) -> GroupedCovariates:
        ends = np.cumsum(self.sizes)
        chosen = np.arange(len(self))[which]
        index = [np.arange(ends[g] - self.sizes[g], ends[g]) for g in chosen]
        return GroupedCovariates(self.X[np.concatenate([np.zeros(0, dtype=np.intp), *index])], self.sizes[which])

    @property
    def labels(self) -> IntArray:
        """Group of each row, ``(m,)``."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def rows(self, Y: Array) -> Rows:
        """Return the rows with responses ``Y (m, q)``."""
        return Rows(self.X, Y, groups=Groups.of(self.labels))

    def drawn(self, mixture: Mixture, rng: np.random.Generator) -> Rows:
        """Return the rows with responses that a mixture draws, after one label for each group."""
        size, G = mixture.block_size(), len(self)
        blocks = self.rows(np.zeros((len(self.X), mixture.experts.q))).blocks(mixture.design, size, mixture.gate_design)
        panel = np.hstack([block.groups.panel for block in blocks if block.groups is not None])
        pi = np.broadcast_to(mixture.gate.evaluate(panel)[1], (mixture.K, G))
        labels = np.minimum((np.cumsum(pi, axis=0) < rng.random(G)).sum(axis=0), mixture.K - 1)
        return self.rows(mixture.sample(self.X, rng, labels[self.labels])[0])


@dataclass(frozen=True, eq=False)
class Batch:
    """B groups of n rows each, the last ones copies: ``X (n, B, d)``, ``Y (n, B, q)``, ``exposure (n, B)``.

    ``seeds`` are those of the draws of each group that is no copy.
    """

    X: Array
    Y: Array
    exposure: Array | None
    valid: Mask  # (B,)
    seeds: list[int]


def batches(frame: Frame, rows: Rows, seen: Seen) -> Iterator[tuple[IntArray, Batch]]:
    """Yield groups of the same size, with their places: as many at once as the mixture and their size tell."""
    groups = rows.groups
    assert groups is not None  # noqa: S101 - for the type checker: the caller has looked
    sizes = np.diff(groups.bounds)
    for n in np.unique(sizes):
        same, B = np.flatnonzero(sizes == n), max(1, rows_at_once(frame) // int(n))
        for start in range(0, len(same), B):
            places = same[start : start + B]
            index = groups.order[groups.bounds[places] + np.arange(n)[:, None]]  # (n, b)
            yield places, _batch(frame, rows, index, B, seen)


def rows_at_once(frame: Frame) -> int:
    """Return the number of rows of a group that are read at once, and of rows of a batch."""
    experts = frame.mixture.experts
    numbers = experts.K * (experts.channels + experts.shapes + 2) + frame.mixture.parameter_count
    return max(1, CELLS // (SETS * numbers))


def _batch(frame: Frame, rows: Rows, index: IntArray, B: int, seen: Seen) -> Batch:
    """Read the groups of the rows at ``index (n, b)``, with copies of the last one up to B."""
    seeds = [_seed(rows, index[:, b], seen) for b in range(index.shape[1])]
    index = index[:, np.minimum(np.arange(B), len(seeds) - 1)]
    X, Y = rows.X[index], rows.Y[index]
    exposure = None if rows.exposure is None else rows.exposure[index]
    fit = np.all(np.isfinite(X), axis=2) & np.all(np.isfinite(Y), axis=2)
    flat = np.where(fit[:, :, None], Y, 0.0).reshape(-1, Y.shape[2])
    fit &= frame.mixture.experts.supports(flat, None if exposure is None else exposure.ravel()).reshape(fit.shape)
    if exposure is not None:
        fit &= np.isfinite(exposure) & (exposure > 0)
    valid = np.all(fit, axis=0)
    if exposure is not None:
        exposure = np.where(valid, exposure, 1.0)
    return Batch(np.where(valid[:, None], X, 0.0), Y, exposure, valid, seeds)


def _seed(rows: Rows, index: IntArray, seen: Seen) -> int:
    """Return the seed of a group's draws: a hash of its rows, and of how many equal groups there were before."""
    parts = [rows.X[index], rows.Y[index], np.zeros(0) if rows.exposure is None else rows.exposure[index]]
    same = blake2b(b"|".join(part.tobytes() for part in parts), digest_size=32).digest()
    place = seen[same]
    seen[same] += 1
    return int.from_bytes(blake2b(same + place.to_bytes(8, "little"), digest_size=16).digest(), "little")


# ---------------------------------------------------------------- scores


@dataclass(frozen=True, eq=False)
class GroupScores:
    """Scores of B groups at N sets of responses.

    Parameters
    ----------
    mixture : Mixture
    tau : (K, N, B) array
    linear : (K, channels p, N, B) array
        Complete scores of the coefficients of each expert, summed over the rows of a group.
    shape : (K, shapes, N, B) array
        Those of its shapes, before tying.
    pi : (K, B) array
    gate_panel : (p, B) array
        What the gate reads: the mean of the group, or 1.
    """

    mixture: Mixture
    tau: Array
    linear: Array
    shape: Array
    pi: Array
    gate_panel: Array

    @cached_property
    def scores(self) -> Array:
        """Scores ``(P, N, B)`` in the order of the free parameters."""
        tau, rest, mixture = self.tau, self.tau.shape[1:], self.mixture
        of_gate = ((tau[:-1] - self.pi[:-1, None])[:, None] * self.gate_panel[:, None]).reshape(-1, *rest)
        of_coefficients = (tau[:, None] * self.linear).reshape(-1, *rest)
        parts = [of_gate, of_coefficients] if mixture.gate.reads_covariates else [of_coefficients, of_gate]
        return np.concatenate([*parts, tied((tau[:, None] * self.shape).reshape(-1, *rest), mixture.experts.tie())])

    def whitened(self, W: Array) -> Array:
        """Compute ``Wᵀ s``, ``(P, N, B)``, for a lower triangular ``W``, term by term."""
        z = np.zeros(self.scores.shape)
        for place, score in enumerate(self.scores):
            z[: place + 1] += W[place, : place + 1, None, None] * score
        return z


def group_scores(frame: Frame, batch: Batch, *, observed: bool = True) -> GroupScores:
    """Compute the scores of a batch at sets of responses, which are all drawn unless the first one was ``observed``."""
    rngs = [np.random.default_rng(seed) for seed in batch.seeds]
    mixture, (n, B, _) = frame.mixture, batch.X.shape
    copies = np.minimum(np.arange(B), len(rngs) - 1)
    gate_panel = _gate_panel(mixture, batch, pieces := _pieces(n, rows_at_once(frame)))
    log_pi, pi = frame.shares(gate_panel)
    labels = [_labels(pi[:, b], rng) for b, rng in enumerate(rngs)]
    K, c, s, p = mixture.K, mixture.experts.channels, mixture.experts.shapes, mixture.design.p
    density, linear, shape = np.zeros((K, SETS, B)), np.zeros((K * c, p, SETS, B)), np.zeros((K * s, SETS, B))
    for piece in pieces:
        panel = mixture.design.panel(batch.X[piece].reshape(-1, batch.X.shape[2]))
        eta, sizes = frame.predictors(panel), None if batch.exposure is None else batch.exposure[piece]
        own = eta.reshape(len(eta), -1, B)
        drawn = [
            _drawn(frame, own[:, :, b], labels[b], None if sizes is None else sizes[:, b], rng)
            for b, rng in enumerate(rngs)
        ]
        Y = np.stack([drawn[b] for b in copies], axis=2)  # (N, r, B, q)
        if observed:
            Y[0] = np.where(batch.valid[:, None], batch.Y[piece], Y[0])
        many = None if sizes is None else np.tile(sizes.ravel(), SETS)
        block = Block(np.tile(eta, (1, SETS)), Y.reshape(-1, Y.shape[3]).T, None, many, None, Workspace())
        at = frame.own_experts.evaluate(block)
        found, form = frame.own_experts.scores(at), (-1, *Y.shape[:3])
        density += np.add.reduce(at.log_density.reshape(form), axis=2)
        each = found.linear.reshape(form)
        for j, x in enumerate(panel.reshape(p, -1, B)):
            linear[:, j] += np.add.reduce(each * x, axis=2)
        shape += np.add.reduce(found.shape.reshape(form), axis=2)
    _, tau = log_sum_exp(log_pi[:, None] + density)
    read = gate_panel if mixture.gate.reads_covariates else np.ones((1, B))
    return GroupScores(mixture, tau, linear.reshape(K, c * p, SETS, B), shape.reshape(K, s, SETS, B), pi, read)


def _pieces(n: int, most: int) -> list[slice]:
    return [slice(i, min(i + most, n)) for i in range(0, n, most)]


def _gate_panel(mixture: Mixture, batch: Batch, pieces: list[slice]) -> Array:
    """Compute what a gate reads: the mean of its design over the rows of each group, ``(p, B)``."""
    n, B, d = batch.X.shape
    total = np.zeros((mixture.reads.p, B))
    for piece in pieces:
        panel = mixture.reads.panel(batch.X[piece].reshape(-1, d))
        total += np.add.reduce(panel.reshape(len(panel), -1, B), axis=1)
    mean: Array = total / n
    return mean


def _labels(pi: Array, rng: np.random.Generator) -> IntArray:
    """Draw a label for each set of responses, ``(N,)``."""
    below = np.cumsum(pi)[:, None] < rng.random(SETS)
    return np.asarray(np.minimum(below.sum(axis=0), len(pi) - 1))


def _drawn(frame: Frame, eta: Array, labels: IntArray, sizes: Array | None, rng: np.random.Generator) -> Array:
    """Draw sets of responses of one group, ``(N, r, q)``, from predictors ``(·, r)``; NaN where there is no draw."""
    r, many = eta.shape[1], None if sizes is None else np.tile(sizes, SETS)
    try:
        Y = frame.own_experts.sample(np.tile(eta, (1, SETS)), np.repeat(labels, r), rng, many)
    except (ValueError, ArithmeticError):  # a generator does not take every number
        Y = np.full((SETS * r, frame.own_experts.q), np.nan)
    return np.asarray(Y, dtype=np.float64).reshape(SETS, r, -1)


# ---------------------------------------------------------------- contributions


def shrinkage_of(z: Array, clip: float) -> Array:
    """Compute ``ω = min(1, clip / ‖z‖)``, ``(N, B)``, of vectors ``z (P, N, B)``."""
    length = np.sqrt(np.add.reduce(z * z, axis=0))
    return np.asarray(np.where(length > clip, clip / length, 1.0))


def centre_of(z: Array, clip: float) -> tuple[Array, Array]:
    """Compute the centre ``a (P, B)`` of vectors ``z (P, N, B)``, and their ``ω (N, B)`` around it."""
    centre = np.zeros((len(z), z.shape[2]))
    omega = shrinkage_of(z, clip)
    for _ in range(CENTRINGS):
        centre = np.add.reduce(omega * z, axis=1) / np.add.reduce(omega, axis=0)
        omega = shrinkage_of(z - centre[:, None], clip)
    return centre, omega


def group_contributions(mixture: Mixture, rows: Rows, factor: Array, clip: float, seen: Seen | None = None) -> Integers:
    """Compute the contribution of each group to a private sum of scores, ``(G, P)``.

    Parameters
    ----------
    mixture : Mixture
    rows : Rows
        With groups, without clusters and weights.
    factor, clip
        As in :func:`~consilience.model.contributions.contributions`.
    seen : Counter, optional
        Groups that were read before, which this one adds to; none by default.

    Returns
    -------
    (G, P) array of int64
        Each row has a Euclidean length of at most ``sensitivity(P)``. Groups of which a row is not finite, or outside
        the support of the family, have zeros.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(10, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None], groups=Groups.of(np.arange(10) // 3))
    >>> group_contributions(data.truth, rows, np.eye(data.truth.parameter_count), 1.0).shape[0]
    4
    """
    if rows.groups is None:
        raise InvalidInputError("contributions of groups need rows with groups")
    if reason := refusal(rows, of_groups=True):
        raise InvalidInputError(reason)
    frame, W, counted = Frame(mixture), np.tril(factor), Seen() if seen is None else seen
    k = np.zeros((len(rows.groups.bounds) - 1, mixture.parameter_count), dtype=np.int64)
    with np.errstate(all="ignore"):
        for places, batch in batches(frame, rows, counted):
            z = group_scores(frame, batch).whitened(W)
            centre, omega = centre_of(z, clip)
            u = omega[0] * (z[:, 0] - centre)
            k[places] = rounded(u, clip, batch.valid).T[: len(places)]
    return k


def group_total(mixture: Mixture, rows: Rows, factor: Array, clip: float, seen: Seen) -> list[int]:
    """Compute the sum of the contributions of groups and ``COUNTED G``, ``P + 1`` integers without noise.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(10, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None], groups=Groups.of(np.arange(10) // 3))
    >>> group_total(data.truth, rows, np.eye(data.truth.parameter_count), 1.0, Seen())[-1] // COUNTED
    4
    """
    k = group_contributions(mixture, rows, factor, clip, seen)
    return [*map(int, k.sum(axis=0)), COUNTED * len(k)]
