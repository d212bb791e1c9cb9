"""Match the experts of two mixtures: labels are arbitrary, so mixtures are aligned before they are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, IntArray

CLEARLY = 2.0
"""Factor by which the squared distance to other experts exceeds that to a clear match."""


def alignment(mixture: Mixture, reference: Mixture) -> IntArray:
    """Return the order for which ``mixture.permuted(permutation)`` is closest to ``reference``, by optimal assignment.

    Distance: squared difference of expert coefficients in the coordinates of the reference's design.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> experts = GaussianExperts(B=np.array([[[0.0]], [[5.0]]]), covariance=np.ones((2, 1, 1)))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.3, 0.7])), experts)
    >>> alignment(mixture.permuted(np.array([1, 0])), mixture)
    array([1, 0])
    """
    ours, theirs = mixture.in_coordinates(reference.design).coefficients, reference.coefficients
    return _assigned(np.sum((ours[:, None] - theirs) ** 2, axis=2))


@dataclass(frozen=True, eq=False)
class Matching:
    """Experts of a mixture matched to those of a reference by their responsibilities.

    Parameters
    ----------
    permutation : (K,) array of int
        ``mixture.permuted(permutation)`` has the labels of the reference.
    clear : bool
        Whether each expert of the reference is nearer to its match than to every other expert, by a factor of 2 in
        squared distance; if not, labels are arbitrary.
    """

    permutation: IntArray
    clear: bool


def matching(mixture: Mixture, reference: Array, rows: Rows) -> Matching:
    """Match experts so that responsibilities differ least in squares from ``reference (m, K)`` on ``rows``.

    Responsibilities depend on all parameters. Experts with equal coefficients and different variances or weights are
    told apart.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> experts = GaussianExperts(B=np.zeros((2, 1, 1)), covariance=np.array([[[1.0]], [[16.0]]]))
    >>> mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.3, 0.7])), experts)
    >>> rows = Rows(np.empty((3, 0)), np.array([[0.0], [1.0], [5.0]]))
    >>> found = matching(mixture.permuted(np.array([1, 0])), mixture.responsibilities(rows), rows)
    >>> found.permutation, found.clear
    (array([1, 0]), True)
    """
    ours = mixture.responsibilities(rows)
    distance = np.sum(ours**2, axis=0)[:, None] - 2 * ours.T @ reference + np.sum(reference**2, axis=0)
    permutation = _assigned(distance)
    matched = distance[permutation]  # (K, K), matches on the diagonal
    others = np.where(np.eye(mixture.K, dtype=bool), np.inf, matched).min(axis=0)
    return Matching(permutation, bool(np.all(CLEARLY * np.diagonal(matched) <= others)))


def _assigned(cost: Array) -> IntArray:
    ours_at, theirs_at = linear_sum_assignment(cost)
    permutation: IntArray = ours_at[np.argsort(theirs_at)]
    return permutation
