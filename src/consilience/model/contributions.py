"""Contributions of rows to a private sum of scores: clipped, centred, and rounded to integers.

The score of a row at a mixture is a stack of R numbers ``a``, each times the covariates that it belongs to, ``a ⊗ x``.
With a factor ``W`` and a bound ``c`` on its length, a row contributes

    u = Wᵀ (b ⊗ x),    b = ω (a - a(x)),    ω = min(1, c / ‖Wᵀ ((a - a(x)) ⊗ x)‖),

where the centre ``a(x)`` is such that ``E[u | x] = 0`` at the mixture: the sum over rows then estimates zero at the
true mixture, whatever the covariates are [1]_. The centre is inside the clip, so that one row moves the sum by at most
``c``. The expectation is a sum over nodes of the responses; where a family has none, the row's contribution is

    u = clip(Wᵀ (a ⊗ x)) - (1 / S) Σ_s clip(Wᵀ (a_s ⊗ x)),

with S responses drawn from the mixture, and half of ``c`` as the bound of each part.

What makes a private sum private is proven in ``docs/understand/private-scoring.rst``, and rests on this module in two
ways. The integers of a row are a function of that row and of the question alone, to the last bit: numbers of different
rows never meet in one sum, and products of matrices, whose rounding depends on where a row stands, are written out.
And whatever the question and the row, the integers have a length of at most :func:`sensitivity`, which is checked in
integers, last; a row of which anything is not finite contributes zeros.

References
----------
.. [1] H. R. Künsch, L. A. Stefanski and R. J. Carroll, "Conditionally unbiased bounded-influence estimation in general
   regression models", Journal of the American Statistical Association 84 (1989), 460-466.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInputError
from consilience.model.families.base import Experts
from consilience.model.gates import Gate
from consilience.model.kernels import Workspace
from consilience.model.kernels.clipping import NUMPY, Clipping, clipping_for, weighted_mean
from consilience.model.mixture import Mixture
from consilience.model.rows import Block, Rows
from consilience.numerics.arrays import Array, Mask, log_sum_exp

GRID = 2**20
"""Number of grid units to which the bound ``c`` on the length of a contribution is rounded."""
COUNTED = GRID // 4
"""Integer by which every row, valid or not, adds to the number of rows in a private sum."""
CENTRINGS = 4
"""Number of times that the centre is computed: two are enough for well separated experts, not for others."""
DRAWS = 32
"""Number of responses that are drawn for a row where a family has no nodes."""
CHUNK = 256
"""Number of rows that are computed at once. Rows are added to reach it, so that shapes never depend on their number."""
LARGEST_CHUNK = 2**22
"""Number of numbers of a chunk above which it has fewer rows."""

Integers = NDArray[np.int64]


def sensitivity(P: int) -> int:
    """Return an upper bound ``Δ`` on the length of the integers of a row with P parameters.

    The bound ``c`` is 2²⁰ units; rounding adds at most half a unit to each coordinate, ``√P / 2`` to the length.

    Examples
    --------
    >>> sensitivity(26) - 2**20
    4
    """
    return GRID + (isqrt(P) + 2) // 2 + 1


def total_sensitivity(P: int) -> int:
    """Return the sensitivity of the sum over rows: of the integers of a row together with :data:`COUNTED`.

    Examples
    --------
    >>> round(total_sensitivity(26) / sensitivity(26), 4)  # the number of rows costs 3 %
    1.0308
    """
    return isqrt(sensitivity(P) ** 2 + COUNTED**2) + 1


def private_total(mixture: Mixture, rows: Rows, factor: Array, clip: float) -> list[int]:
    """Compute the sum of the contributions of rows and ``COUNTED n``, ``P + 1`` integers without noise.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(10, random_state=0)
    >>> total = private_total(data.truth, Rows(data.X, data.y[:, None]), np.eye(data.truth.parameter_count), 1.0)
    >>> total[-1] // COUNTED
    10
    """
    k = contributions(mixture, rows, factor, clip)  # of at most 2^40 rows, so that the sums are exact
    return [*map(int, k.sum(axis=0)), COUNTED * rows.n]


class Columned(Protocol):
    """Rows, or a description of the columns of a file."""

    @property
    def groups(self) -> object: ...  # noqa: D102
    @property
    def clusters(self) -> object: ...  # noqa: D102
    @property
    def weight(self) -> object: ...  # noqa: D102


def refusal(rows: Columned, *, of_persons: bool = False, of_groups: bool = False) -> str:
    """Return why rows of this form cannot contribute; empty if they can. It does not depend on their values.

    Clusters are the persons whose rows are limited before; without persons they have no meaning here. Groups contribute
    as a whole (:mod:`consilience.model.group_contributions`).
    """
    if rows.groups is not None and not of_groups:
        return "rows have groups, whose rows have one label: pass unit='group', or leave groups out"
    if rows.groups is None and of_groups:
        return "unit='group' protects whole groups, and rows have none: add the group of each row"
    if rows.clusters is not None and not of_persons:
        more = "" if of_groups else ", or pass unit='person'"
        return f"rows have clusters, which are protected as persons only: leave clusters out{more}"
    if rows.weight is not None:
        return "private scoring counts each row once, and rows have weights: leave sample_weight out"
    return ""


def contributions(mixture: Mixture, rows: Rows, factor: Array, clip: float) -> Integers:
    """Compute the contribution of each row to a private sum of scores, ``(n, P)``.

    Parameters
    ----------
    mixture : Mixture
    rows : Rows
        Without groups, clusters and weights.
    factor : (P, P) array
        ``W``, of which the lower triangle is read: a contribution is ``Wᵀ s`` of a score ``s`` in the order of
        :mod:`consilience.model.information`.
    clip : float
        ``c``, which :data:`GRID` units of the result are.

    Returns
    -------
    (n, P) array of int64
        Each row has a Euclidean length of at most ``sensitivity(P)``, and depends on that row of ``rows`` alone.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(10, random_state=0)
    >>> P = data.truth.parameter_count
    >>> k = contributions(data.truth, Rows(data.X, data.y[:, None]), np.eye(P), 1.0)
    >>> k.shape == (10, P), bool(np.all(np.sum(k**2, axis=1) <= sensitivity(P) ** 2))
    (True, True)
    """
    if reason := refusal(rows):
        raise InvalidInputError(reason)
    frame = Frame(mixture, clipping_for(rows.n))
    W = np.tril(factor)
    with np.errstate(all="ignore"):
        M = W @ W.T
        parts = [_of_chunk(frame, chunk, W, M, clip).T for chunk in portions(frame, rows)]
    return np.concatenate(parts)[: rows.n] if parts else np.empty((0, mixture.parameter_count), dtype=np.int64)


def _of_chunk(frame: Frame, chunk: Portion, W: Array, M: Array, clip: float) -> Integers:
    """Compute the contributions of a chunk of rows, ``(P, n)``."""
    points = frame.points(chunk)
    Q = frame.products(points, M)
    b = points.clipped(Q, clip)
    return rounded(frame.combined(b, points, W), clip, chunk.valid)


def rounded(u: Array, clip: float, valid: Mask) -> Integers:
    """Clip vectors ``u (P, n)`` at length ``clip``, round them to the grid, and check their length in integers.

    The rows that are not ``valid``, not finite, or too long by the last check are zero.
    """
    with np.errstate(all="ignore"):
        top = np.max(np.abs(u), axis=0)
        length = top * np.sqrt(_sum_of_squares(u / np.where(top > 0, top, 1.0)))
        grid = u * np.where(length > clip, clip / length, 1.0) * (GRID / np.float64(clip))
    good = valid & np.all(np.isfinite(grid), axis=0)
    k = np.rint(np.clip(np.where(good, grid, 0.0), -2.0 * GRID, 2.0 * GRID)).astype(np.int64)
    squares = np.sum(k * k, axis=0)  # exact: at most 2^42 for each of at most 2^20 parameters
    return np.where(squares <= sensitivity(len(u)) ** 2, k, 0)


def _sum_of_squares(u: Array) -> Array:
    total = np.zeros(u.shape[1])
    for row in u:
        total += row * row
    return total


# ---------------------------------------------------------------- rows, a chunk at a time


@dataclass(frozen=True, eq=False)
class Portion:
    """A fixed number n of rows: ``X (n, d)``, ``Y (n, q)``, ``exposure (n,)``, and which are valid rows."""

    X: Array
    Y: Array
    exposure: Array | None
    valid: Mask


def portions(frame: Frame, rows: Rows) -> Iterator[Portion]:
    """Yield the rows in chunks of a fixed size, with copies of the last row at the end."""
    for start in range(0, rows.n, frame.chunk):
        index = np.minimum(np.arange(start, start + frame.chunk), rows.n - 1)
        X, Y = rows.X[index], rows.Y[index]
        exposure = None if rows.exposure is None else rows.exposure[index]
        valid = np.all(np.isfinite(X), axis=1) & np.all(np.isfinite(Y), axis=1)
        valid &= frame.mixture.experts.supports(np.where(valid[:, None], Y, 0.0), exposure)
        if exposure is not None:
            valid &= np.isfinite(exposure) & (exposure > 0)
            exposure = np.where(valid, exposure, 1.0)
        yield Portion(np.where(valid[:, None], X, 0.0), Y, exposure, valid)


def simulated(X: Array, q: int, exposure: Array | None = None) -> Portion:
    """Return a chunk of covariates ``X (n, d)`` whose responses are of no importance."""
    return Portion(X, np.zeros((len(X), q)), exposure, np.zeros(len(X), dtype=bool))


# ---------------------------------------------------------------- scores as numbers times covariates


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Scores of a chunk of n rows at N responses of each, and at the observed one.

    Parameters
    ----------
    numbers : (R, N, n) array
        ``a`` at the nodes, or at drawn responses.
    weights : (N, n) array
        Weights of the nodes, which add up to one.
    observed : (R, n) array
        ``a`` at the observed response.
    panels : tuple of (length, n) array
        Covariates that each number belongs to.
    tau : (K, N, n) array
        Responsibilities at the nodes.
    complete : (K, channels + shapes, N, n) array
        The scores of the experts at the nodes, with the shapes before tying.
    pi : (K, n) array
    drawn : bool
        Whether responses were drawn.
    clipping : Clipping
    """

    numbers: Array
    weights: Array
    observed: Array
    panels: tuple[Array, ...]
    tau: Array
    complete: Array
    pi: Array
    drawn: bool
    clipping: Clipping

    def clipped(self, Q: Array, clip: float) -> Array:
        """Return the clipped and centred numbers of the observed responses, ``b (R, n)``."""
        return self.clipped_at(self.observed[:, None], Q, clip)[:, 0]

    def clipped_at(self, numbers: Array, Q: Array, clip: float) -> Array:
        """Return the clipped and centred numbers of other responses of the rows, ``b (R, N, n)``."""
        if self.drawn:
            centre = weighted_mean(self.numbers * self.shrinkage(self.numbers, Q, clip / 2), self.weights)
            return numbers * self.shrinkage(numbers, Q, clip / 2) - centre[:, None]
        b = numbers - self.centre(Q, clip)[:, None]
        return b * self.shrinkage(b, Q, clip)

    def centre(self, Q: Array, clip: float) -> Array:
        """Compute ``a(x)``, ``(R, n)``: the mean of the numbers, weighted by how little each is clipped."""
        return self.clipping.centre(self.numbers, self.weights, Q, clip, CENTRINGS)

    def shrinkage(self, numbers: Array, Q: Array, clip: float) -> Array:
        """Compute ``ω``, ``(N, n)``, of numbers ``(R, N, n)``."""
        return self.clipping.shrinkage(numbers, Q, clip)

    def spread(self, Q: Array, clip: float) -> tuple[Array, Array]:
        """Return the numbers ``(R, N, n)`` whose weighted squares are the slope of ``u``, and their ``ω (N, n)``."""
        if self.drawn:
            return self.numbers, self.shrinkage(self.numbers, Q, clip / 2)
        b = self.numbers - self.centre(Q, clip)[:, None]
        return b, self.shrinkage(b, Q, clip)


@dataclass(frozen=True, eq=False)
class Frame:
    """How the score of a mixture is made of numbers times covariates, in the order of the free parameters."""

    mixture: Mixture
    clipping: Clipping = NUMPY

    @cached_property
    def node_count(self) -> int:
        """Number of nodes of a response under all experts; 0 if the family has none."""
        found = self.own_experts.nodes(np.zeros((self.own_experts.p, 1)))
        return 0 if found is None else found[0].shape[0] * found[0].shape[1]

    @property
    def size(self) -> int:
        """Number of numbers of a row: of its scores at all nodes, or draws, and of their products."""
        mixture = self.mixture
        of_gate = mixture.K - 1
        R = of_gate + mixture.experts.shape_parameters + mixture.K * mixture.experts.channels
        return R * ((self.node_count or DRAWS) + 1 + R)

    @property
    def chunk(self) -> int:
        """Number of rows that are computed at once: one where sums of a family may run over rows."""
        return max(1, min(CHUNK, LARGEST_CHUNK // self.size)) if self.node_count else 1

    # ------------------------------------------------------------------ linear predictors

    @cached_property
    def own_experts(self) -> Experts:
        """The experts as functions of their linear predictors: a product with 0 and 1 is exact wherever it stands."""
        B = self.mixture.experts.B
        size = int(np.prod(B.shape[:-1]))
        return replace(self.mixture.experts, B=np.eye(size).reshape(*B.shape[:-1], size))  # type: ignore[type-var]

    @cached_property
    def own_gate(self) -> Gate:
        """The gate as a function of its linear predictors."""
        gate = self.mixture.gate
        return replace(gate, alpha=np.eye(self.mixture.K)) if gate.reads_covariates else gate  # type: ignore[type-var]

    def predictors(self, panel: Array) -> Array:
        """Compute the linear predictors of the experts, ``(·, n)``, from their panel ``(p, n)``."""
        return predictors_of(self.mixture.experts.B.reshape(-1, len(panel)), panel)

    def shares(self, gate_panel: Array) -> tuple[Array, Array]:
        """Compute ``log π`` and ``π``, both ``(K, n)``."""
        gate, n = self.mixture.gate, gate_panel.shape[1]
        at = predictors_of(gate.read(), gate_panel) if gate.reads_covariates else gate_panel
        log_pi, pi = self.own_gate.evaluate(at)
        return np.broadcast_to(log_pi, (self.mixture.K, n)), np.broadcast_to(pi, (self.mixture.K, n))

    # ------------------------------------------------------------------ numbers

    def points(self, chunk: Portion) -> ScoredRows:
        """Compute the scores of a chunk at nodes, or at drawn responses, and at the observed response."""
        panel, gate_panel = self._covariates(chunk)
        eta, shares = self.predictors(panel), self.shares(gate_panel)
        pi = shares[1]
        Y, weights, drawn = self._responses(chunk, eta, pi)
        observed = np.where(chunk.valid[:, None], chunk.Y, Y[0])
        tau, complete, numbers = self._scored(eta, shares, np.concatenate([Y, observed[None]]), chunk.exposure)
        panels = self._panels(panel, gate_panel)
        nodes, of_experts = numbers[:, :-1], complete[:, :, :-1]
        return ScoredRows(nodes, weights, numbers[:, -1], panels, tau[:, :-1], of_experts, pi, drawn, self.clipping)

    def responses(self, chunk: Portion) -> tuple[Array, Array]:
        """Return responses ``(N, n, q)`` of the mixture and weights ``(N, n)`` with which expectations are computed."""
        panel, gate_panel = self._covariates(chunk)
        eta, shares = self.predictors(panel), self.shares(gate_panel)
        Y, weights, _ = self._responses(chunk, eta, shares[1])
        return Y, weights

    def log_density(self, chunk: Portion) -> Array:
        """Compute ``log f(y | x)`` of the rows of a chunk, ``(n,)``; of rows that are not valid it means nothing."""
        panel, gate_panel = self._covariates(chunk)
        log_pi, _ = self.shares(gate_panel)
        Y = np.where(chunk.valid[:, None], chunk.Y, 0.0)
        at = self.own_experts.evaluate(self._block(self.predictors(panel), Y[None], chunk.exposure))
        found: Array = log_sum_exp(log_pi + at.log_density.reshape(self.mixture.K, -1))[0]
        return found

    def numbers_at(self, chunk: Portion, Y: Array) -> Array:
        """Compute the numbers of the score, ``(R, N, n)``, at responses ``Y (N, n, q)``."""
        panel, gate_panel = self._covariates(chunk)
        return self._scored(self.predictors(panel), self.shares(gate_panel), Y, chunk.exposure)[2]

    def panels_of(self, chunk: Portion) -> tuple[Array, ...]:
        """Return the covariates that each number of the score is multiplied by, ``(length, n)`` each."""
        return self._panels(*self._covariates(chunk))

    def _covariates(self, chunk: Portion) -> tuple[Array, Array]:
        """Return what the experts and the gate read of a chunk, ``(p, n)`` each."""
        panel = self.mixture.design.panel(chunk.X)
        gate_design = self.mixture.gate_design
        return panel, panel if gate_design is None else gate_design.panel(chunk.X)

    def _scored(
        self, eta: Array, shares: tuple[Array, Array], Y: Array, exposure: Array | None
    ) -> tuple[Array, Array, Array]:
        """Compute responsibilities, the scores of the experts, and the numbers of the score at responses."""
        K, (log_pi, pi) = self.mixture.K, shares
        at = self.own_experts.evaluate(self._block(eta, Y, exposure))
        density = at.log_density.reshape(K, len(Y), -1)
        _, tau = log_sum_exp(log_pi[:, None] + density)
        scores = self.own_experts.scores(at)
        complete = np.concatenate([scores.linear, scores.shape], axis=1).reshape(K, -1, *tau.shape[1:])
        return tau, complete, self._numbers(tau, complete, pi)

    def _block(self, eta: Array, Y: Array, exposure: Array | None) -> Block:
        """Return a block of responses ``Y (N, n, q)``, with the linear predictors as its panel."""
        N = len(Y)
        many = None if exposure is None else np.tile(exposure, N)
        return Block(np.tile(eta, (1, N)), Y.reshape(-1, Y.shape[2]).T, None, many, None, Workspace())

    def _responses(self, chunk: Portion, eta: Array, pi: Array) -> tuple[Array, Array, bool]:
        """Return responses ``(N, n, q)`` and weights ``(N, n)`` with which expectations are computed."""
        found = self.own_experts.nodes(eta, chunk.exposure)
        if found is None:
            Y = np.stack([self._draws(chunk, eta, pi, i) for i in range(len(chunk.X))], axis=1)
            return Y, np.full(Y.shape[:2], 1 / len(Y)), True
        Y, weight = found
        weights = (pi[:, None] * weight).reshape(-1, weight.shape[2])
        return Y.reshape(-1, Y.shape[2], 1), weights, False

    def _draws(self, chunk: Portion, eta: Array, pi: Array, i: int) -> Array:
        """Draw responses of one row, ``(S, q)``, from a seed that is made of this row alone."""
        parts = [chunk.X[i], chunk.Y[i], np.zeros(0) if chunk.exposure is None else chunk.exposure[i : i + 1]]
        seed = blake2b(b"|".join(part.tobytes() for part in parts), digest_size=16).digest()
        rng = np.random.default_rng(int.from_bytes(seed, "little"))
        below = np.cumsum(pi[:, i])[:, None] < rng.random(DRAWS)
        labels = np.minimum(below.sum(axis=0), self.mixture.K - 1)
        sizes = None if chunk.exposure is None else np.full(DRAWS, chunk.exposure[i])
        return self.own_experts.sample(np.repeat(eta[:, i : i + 1], DRAWS, axis=1), labels, rng, sizes)

    def _numbers(self, tau: Array, complete: Array, pi: Array) -> Array:
        """Return ``a``, ``(R, N, n)``, from responsibilities and the scores of the experts."""
        mixture, c = self.mixture, self.mixture.experts.channels
        of_gate = tau[:-1] - pi[:-1, None]
        of_coefficients = (tau[:, None] * complete[:, :c]).reshape(-1, *tau.shape[1:])
        untied = (tau[:, None] * complete[:, c:]).reshape(-1, *tau.shape[1:])
        parts = [of_gate, of_coefficients] if mixture.gate.reads_covariates else [of_coefficients, of_gate]
        return np.concatenate([*parts, tied(untied, mixture.experts.tie())])

    def _panels(self, panel: Array, gate_panel: Array) -> tuple[Array, ...]:
        """Return what each number is multiplied by."""
        experts, one = self.mixture.experts, np.ones((1, panel.shape[1]))
        of_gate = [gate_panel if self.mixture.gate.reads_covariates else one] * (self.mixture.K - 1)
        of_coefficients = [panel] * (self.mixture.K * experts.channels)
        parts = of_gate + of_coefficients if self.mixture.gate.reads_covariates else of_coefficients + of_gate
        return (*parts, *([one] * experts.shape_parameters))

    # ------------------------------------------------------------------ products with covariates

    def products(self, points: ScoredRows, M: Array) -> Array:
        """Compute ``Q (R, R, n)`` with ``‖Wᵀ (a ⊗ x)‖² = aᵀ Q a``, for ``M = W Wᵀ``."""
        at = np.cumsum([0, *(len(panel) for panel in points.panels)])
        R, n = len(points.panels), points.panels[0].shape[1]
        Q = np.zeros((R, R, n))
        for r, panel in enumerate(points.panels):
            rows = np.zeros((int(at[r + 1]), n))
            for row, x in zip(M[at[r] : at[r + 1]], panel, strict=True):
                rows += row[: at[r + 1], None] * x
            for s in range(r + 1):
                for row, x in zip(rows[at[s] : at[s + 1]], points.panels[s], strict=True):
                    Q[r, s] += row * x
                Q[s, r] = Q[r, s]
        return Q

    def combined(self, b: Array, points: ScoredRows, W: Array) -> Array:
        """Compute ``Wᵀ (b ⊗ x)``, ``(P, n)``, for a lower triangular ``W``."""
        u, place = np.zeros((len(W), b.shape[1])), 0
        for number, panel in zip(b, points.panels, strict=True):
            for x in panel:
                u[: place + 1] += W[place, : place + 1, None] * (number * x)
                place += 1
        return u


def predictors_of(B: Array, panel: Array) -> Array:
    """Compute ``B x`` of a panel ``(p, n)`` for ``B (m, p)``, term by term: each column by itself, to the last bit."""
    eta = np.zeros((len(B), panel.shape[1]))
    for column, x in zip(B.T, panel, strict=True):
        eta += column[:, None] * x
    return eta


def tied(untied: Array, T: Array) -> Array:
    """Compute ``Tᵀ s`` of scores of shapes ``s (K shapes, ...)``, term by term."""
    found = np.zeros((T.shape[1], *untied.shape[1:]))
    for row, score in zip(T, untied, strict=True):
        for j in np.flatnonzero(row):
            found[j] += row[j] * score
    return found
