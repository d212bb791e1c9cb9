r"""What clients compute for moment descent: steps of anchors, and local steps on the regression that each selects.

Anchors are clients with enough rows to estimate a direction in a low-dimensional subspace.

The residual vectors ``e = (y - x̃ᵀθ) x̃`` of a client with coefficients ``θ*`` have the mean ``r = E[x̃x̃ᵀ](θ* - θ)``.
In a basis ``U`` of the subspace in which ``r`` lies, the mean of :math:`U^\top e_i e_j^\top U` over pairs of distinct
rows is unbiased for :math:`U^\top r r^\top U`: its largest eigenvalue is an estimate of ``‖r‖²``, its eigenvector of
the direction of ``r``, up to the sign. The sign is that of the product with :math:`\sum_i U^\top e_i`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from consilience.errors import MessageError
from consilience.messages import Row, register
from consilience.messages.checks import HEADS, reads_design, reads_mixture, regressions_of
from consilience.messages.codec import Struct, Tuple, Whole
from consilience.messages.records import CUBE, DESIGN, FLAG, MATRIX, MIXTURE, MOST_PARTS, NUMBER, VECTOR
from consilience.model import Block, Design, Mixture, Rows
from consilience.model.clients import as_clients
from consilience.model.families.registry import Regressions
from consilience.model.gates import SMALLEST_WEIGHT
from consilience.model.kernels import block_rows
from consilience.model.received import CrossProducts, is_moderate
from consilience.model.rows import GroupBlock
from consilience.model.statistics import Additive
from consilience.numerics.arrays import Array, log_sum_exp


@dataclass(frozen=True, eq=False)
class ClientSizes:
    """Row counts or weights of clients ``(G,)``; ``+`` concatenates."""

    n: Array

    def __add__(self, other: ClientSizes) -> ClientSizes:
        return ClientSizes(np.concatenate([self.n, other.n]))


def client_sizes(rows: Rows) -> ClientSizes:
    """Count the rows of each client."""
    groups = as_clients(rows).groups
    assert groups is not None  # noqa: S101 - for the type checker: clients are groups
    return ClientSizes(np.bincount(groups.codes, weights=rows.weight, minlength=len(groups.bounds) - 1).astype(float))


@dataclass(frozen=True, eq=False)
class AnchorSteps:
    """Estimate of ``Uᵀ r`` for each of A anchors, ``(A, f)``: the norm is ``σ``, the direction that of the step."""

    step: Array


def anchor_step(rows: Rows, place: int, design: Design, theta: Array, basis: Array) -> Array:
    """Compute ``σ b`` of one client, ``(f,)``: zero if it has one row, or if no eigenvalue is positive.

    Parameters
    ----------
    rows : Rows
        Rows with one response.
    place : int
        Index of the client, in the order of groups.
    design : Design
    theta : (p,) array
    basis : (p, f) array
    """
    groups = as_clients(rows).groups
    assert groups is not None  # noqa: S101 - for the type checker: clients are groups
    index = groups.order[groups.bounds[place] : groups.bounds[place + 1]]
    panel = design.panel(rows.X[index])
    w = np.ones(len(index)) if rows.weight is None else rows.weight[index]
    E = (basis.T @ panel) * (rows.Y[index, 0] - theta @ panel)  # (f, n)
    return leading_step(E, w)


def leading_step(E: Array, w: Array) -> Array:
    """Compute ``σ b`` from projected residual vectors ``E (f, n)`` with weights ``(n,)``."""
    n, total = float(w.sum()), E @ w
    if n <= 1:
        return np.zeros(len(E))
    A = (np.outer(total, total) - (E * w) @ E.T) / (n * (n - 1))
    values, vectors = np.linalg.eigh(A)
    sigma, b = np.sqrt(max(values[-1], 0.0)), vectors[:, -1]
    return np.asarray(sigma * np.where(b @ total < 0, -b, b))


def anchor_steps(
    pieces: Iterable[Rows], places: Sequence[int], design: Design, theta: Array, basis: Array
) -> AnchorSteps:
    """Compute the steps of the anchors at ``places`` among the clients of all ``pieces``; NaN for a missing client.

    Parameters
    ----------
    pieces : iterable of Rows
        Clients are numbered from the first piece to the last.
    places : sequence of int, (A,)
    design : Design
    theta : (A, p) array
    basis : (A, p, f) array
    """
    found, first = np.full((len(places), basis.shape[2]), np.nan), 0
    for rows in pieces:
        G = len(client_sizes(rows).n)
        for a, place in enumerate(places):
            if first <= place < first + G:
                found[a] = anchor_step(rows, place - first, design, theta[a], basis[a])
        first += G
    return AnchorSteps(found)


# ---------------------------------------------------------------- local steps of all clients
#
# With rows X and y, residuals r = y - X θ and the loss L(θ) = ‖r‖² / 2n of a client, s gradient steps of length η are
# θ ← θ + η X'r / n, and a proximal step is the minimiser of L(θ') + ‖θ' - θ‖² / 2η.


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


# ---------------------------------------------------------------- questions


@dataclass(frozen=True)
class Sizes:
    """Ask for the number of rows of each client: ``ClientSizes``.

    Examples
    --------
    >>> from consilience.published import Sizes
    >>> Sizes().disclosed
    'the number of rows of each client'
    """

    disclosed = "the number of rows of each client"
    """Description of what an answer discloses."""


@dataclass(frozen=True, eq=False)
class Anchors:
    """Ask some clients of a site for a step towards their coefficients, within a subspace: ``AnchorSteps``.

    Parameters
    ----------
    design : Design
    places : tuple of int, (A,)
        Indices of the anchors among the site's clients.
    theta : (A, p) array
        Coefficients at which each anchor computes its residuals.
    basis : (A, p, f) array
        Basis of the subspace of each anchor's step.

    Examples
    --------
    >>> from consilience.model import Design
    >>> from consilience.published import Anchors
    >>> import numpy as np
    >>> Anchors(Design.raw(2), (4,), np.zeros((1, 3)), np.eye(3)[None, :, :2]).basis.shape
    (1, 3, 2)
    """

    design: Design
    places: tuple[int, ...]
    theta: Array
    basis: Array

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        A, _, f = self.basis.shape
        return f"for each of {A} clients, {f} numbers: an estimate of the mean of residual times x in {f} directions"


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Ask each client to select a regression and to update it on its own rows: ``ClusterSums``.

    Parameters
    ----------
    mixture : Mixture
        The regressions of all clusters; weights and variances are used for the log-likelihood only.
    steps : int
        Number of gradient steps of each client.
    rate : float
        Step length.
    prox : bool
        Whether to take one proximal step instead of gradient steps.

    Examples
    --------
    >>> from consilience.published import LocalSteps
    >>> from consilience.datasets import clients
    >>> LocalSteps(clients([5], n_features=2, random_state=0).truth, steps=5, rate=0.1).prox
    False
    """

    mixture: Mixture
    steps: int
    rate: float
    prox: bool = False

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        return (
            f"for each of {self.mixture.K} clusters, sums over its clients of the changes of their coefficients and of "
            "their squared residuals, and the numbers of clients and rows; the log-likelihood"
        )


def check_client_sizes(sizes: ClientSizes) -> None:
    """Raise an error if sizes of clients are negative or not finite."""
    if not (np.all(sizes.n >= 0) and is_moderate(sizes.n)):
        raise MessageError("the sizes of clients must be non-negative and finite")


def check_anchors(question: Anchors) -> None:
    """Raise an error unless each anchor has finite coefficients and a finite basis of the design's dimension."""
    A, p = len(question.places), question.design.p
    fits = question.theta.shape == (A, p) and question.basis.shape[:2] == (A, p) and 1 <= question.basis.shape[2] <= p
    if not fits:
        raise MessageError("the coefficients or bases of anchors have inconsistent shapes")
    if not (is_moderate(question.theta) and is_moderate(question.basis)):
        raise MessageError("the coefficients or bases of anchors are not finite")


def check_local_steps(question: LocalSteps) -> None:
    """Raise an error unless the model is a mixture of regressions of one response and the rate is valid."""
    regressions_of(question.mixture)
    if not (question.rate > 0 and np.isfinite(question.rate)):
        raise MessageError("the rate of local steps must be positive and finite")


def check_cluster_sums(sums: ClusterSums) -> None:
    """Raise an error if sums over clusters have inconsistent shapes, negative counts, or values that are not finite."""
    parts = (sums.rows, sums.clients, sums.squares)
    if not all(part.shape == (len(sums.moved),) and np.all(part >= 0) for part in parts):
        raise MessageError("the sums over clusters have inconsistent shapes or negative counts")
    if not all(is_moderate(part) for part in (*parts, sums.moved)):
        raise MessageError("the sums over clusters are not finite")


def answer_anchors(question: Anchors, chunks: Callable[[], Iterable[Rows]]) -> AnchorSteps:
    """Compute the steps of some clients of a site, numbered over all pieces of its data."""
    for rows in chunks():
        reads_design(question, rows)
    answer = anchor_steps(chunks(), question.places, question.design, question.theta, question.basis)
    if np.any(np.isnan(answer.step)):
        raise MessageError("the question names a client that the site does not have")
    return answer


MOST_CLIENTS = 10**9
MOST_STEPS = 1_000

register(
    Row(
        kinds=(15, 28),
        question=Struct(Sizes, {}),
        answer=Struct(ClientSizes, {"n": VECTOR}, check_client_sizes),
        adds=False,
        contribution=lambda _, rows: client_sizes(rows),
        products=lambda _, given: CrossProducts.counted(float(given.n.sum()), float(np.sum(given.n > 0))),
    ),
    Row(
        kinds=(16, 29),
        question=Struct(
            Anchors,
            {
                "design": DESIGN,
                "places": Tuple(Whole(0, MOST_CLIENTS), MOST_PARTS),
                "theta": MATRIX,
                "basis": CUBE,
            },
            check_anchors,
        ),
        answer=Struct(AnchorSteps, {"step": MATRIX}),
        adds=False,
        whole=answer_anchors,
        largest=lambda asked: HEADS + len(asked.places) * int(asked.basis.shape[2]),
        fits=lambda asked, given: given.step.shape == (len(asked.places), asked.basis.shape[2]),
    ),
    Row(
        kinds=(17, 30),
        question=Struct(
            LocalSteps,
            {"mixture": MIXTURE, "steps": Whole(1, MOST_STEPS), "rate": NUMBER, "prox": FLAG},
            check_local_steps,
        ),
        answer=Struct(
            ClusterSums,
            {"moved": MATRIX, "rows": VECTOR, "clients": VECTOR, "squares": VECTOR, "log_likelihood": NUMBER},
            check_cluster_sums,
        ),
        reads=reads_mixture,
        contribution=lambda asked, rows: local_steps(
            asked.mixture, rows, steps=asked.steps, rate=asked.rate, prox=asked.prox
        ),
        fits=lambda asked, given: given.moved.shape == asked.mixture.coefficients.shape,
        largest=lambda asked: HEADS + asked.mixture.coefficients.size + 3 * asked.mixture.K,
        products=lambda _, given: CrossProducts.counted(float(given.rows.sum())),
    ),
)
