r"""Moment descent at anchors: clients with enough rows to estimate a direction in a low-dimensional subspace.

The residual vectors ``e = (y - x̃ᵀθ) x̃`` of a client with coefficients ``θ*`` have the mean ``r = E[x̃x̃ᵀ](θ* - θ)``.
In a basis ``U`` of the subspace in which ``r`` lies, the mean of :math:`U^\top e_i e_j^\top U` over pairs of distinct
rows is unbiased for :math:`U^\top r r^\top U`: its largest eigenvalue is an estimate of ``‖r‖²``, its eigenvector of
the direction of ``r``, up to the sign. The sign is that of the product with :math:`\sum_i U^\top e_i`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.model.clients.moments import as_clients
from consilience.model.design import Design
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class ClientSizes:
    """Row counts or weights of clients ``(G,)``; ``+`` concatenates.

    Examples
    --------
    >>> (ClientSizes(np.array([3.0])) + ClientSizes(np.array([5.0, 1.0]))).n
    array([3., 5., 1.])
    """

    n: Array

    def __add__(self, other: ClientSizes) -> ClientSizes:
        return ClientSizes(np.concatenate([self.n, other.n]))


def client_sizes(rows: Rows) -> ClientSizes:
    """Count the rows of each client.

    Examples
    --------
    >>> from consilience.model import Groups
    >>> client_sizes(Rows(np.zeros((3, 1)), np.zeros((3, 1)), groups=Groups.of([4, 7, 7]))).n
    array([1., 2.])
    """
    groups = as_clients(rows).groups
    assert groups is not None  # noqa: S101 - for the type checker: clients are groups
    return ClientSizes(np.bincount(groups.codes, weights=rows.weight, minlength=len(groups.bounds) - 1).astype(float))


@dataclass(frozen=True, eq=False)
class AnchorSteps:
    """Estimate of ``Uᵀ r`` for each of A anchors, ``(A, f)``: the norm is ``σ``, the direction that of the step.

    Examples
    --------
    >>> AnchorSteps(np.array([[3.0, 4.0]])).step.shape
    (1, 2)
    """

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

    Examples
    --------
    >>> rows = Rows(np.array([[1.0], [1.0]]), np.array([[-2.0], [-2.0]]))
    >>> anchor_step(rows, 0, Design.raw(1, intercept=False), np.zeros(1), np.ones((1, 1)))
    array([-2.])
    """
    groups = as_clients(rows).groups
    assert groups is not None  # noqa: S101 - for the type checker: clients are groups
    index = groups.order[groups.bounds[place] : groups.bounds[place + 1]]
    panel = design.panel(rows.X[index])
    w = np.ones(len(index)) if rows.weight is None else rows.weight[index]
    E = (basis.T @ panel) * (rows.Y[index, 0] - theta @ panel)  # (f, n)
    return leading_step(E, w)


def leading_step(E: Array, w: Array) -> Array:
    """Compute ``σ b`` from projected residual vectors ``E (f, n)`` with weights ``(n,)``.

    Examples
    --------
    >>> leading_step(np.array([[3.0, 3.0], [-4.0, -4.0]]), np.ones(2))
    array([ 3., -4.])
    """
    n, total = float(w.sum()), E @ w
    if n <= 1:
        return np.zeros(len(E))
    A = (np.outer(total, total) - (E * w) @ E.T) / (n * (n - 1))
    values, vectors = np.linalg.eigh(A)
    sigma, b = np.sqrt(max(values[-1], 0.0)), vectors[:, -1]
    step: Array = sigma * np.where(b @ total < 0, -b, b)
    return step


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

    Examples
    --------
    >>> rows = Rows(np.array([[1.0], [1.0]]), np.array([[-2.0], [-2.0]]))
    >>> anchor_steps([rows, rows], [1], Design.raw(1, intercept=False), np.zeros((1, 1)), np.ones((1, 1, 1))).step
    array([[-2.]])
    """
    found, first = np.full((len(places), basis.shape[2]), np.nan), 0
    for rows in pieces:
        G = len(client_sizes(rows).n)
        for a, place in enumerate(places):
            if first <= place < first + G:
                found[a] = anchor_step(rows, place - first, design, theta[a], basis[a])
        first += G
    return AnchorSteps(found)
