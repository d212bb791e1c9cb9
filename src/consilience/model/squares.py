"""Contributions of rows to a private sum of squared residuals times products of covariates, for a private start.

If two regressions are mixed, the squared residual of one regression is ``v (1 + xᵀ D x)`` on average, and the leading
eigenvector of D is the direction in which the two differ. A row contributes

    u = Tᵀ ((r² / v - 1) φ(x)),    φ(x) = all products of two covariates, the constant among them,

clipped at ``c`` and rounded as in :mod:`consilience.model.contributions`: its integers are a function of the row and of
the question alone, and have a length of at most ``sensitivity(k)`` for the k columns of ``T``.
"""

from __future__ import annotations

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model.contributions import COUNTED, Frame, Integers, portions, refusal, rounded
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array

LARGEST_SQUARE = 1e6
"""Squared residuals are cut here, in units of the variance."""


def products(panel: Array) -> Array:
    """Compute all products of two covariates, ``(p (p + 1) / 2, n)``, from their panel ``(p, n)``."""
    i, j = np.triu_indices(len(panel))
    found: Array = panel[i] * panel[j]
    return found


def square_total(mixture: Mixture, rows: Rows, factor: Array, clip: float) -> list[int]:
    """Compute the sum of the contributions of rows and ``COUNTED n``, ``k + 1`` integers without noise.

    Examples
    --------
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> one = Mixture(Design.raw(1), ConstantGate(np.ones(1)), GaussianExperts(np.zeros((1, 1, 2)), np.ones((1, 1, 1))))
    >>> square_total(one, Rows(np.array([[2.0]]), np.array([[3.0]])), np.eye(3), 1e3)[-1] == COUNTED
    True
    """
    k = squares(mixture, rows, factor, clip)
    return [*map(int, k.sum(axis=0)), COUNTED * rows.n]


def squares(mixture: Mixture, rows: Rows, factor: Array, clip: float) -> Integers:
    """Compute the contribution of each row, ``(n, k)``.

    Parameters
    ----------
    mixture : Mixture
        One Gaussian expert with one response.
    rows : Rows
        Without groups, clusters and weights.
    factor : (p (p + 1) / 2, k) array
        ``T``.
    clip : float
    """
    if reason := refusal(rows):
        raise InvalidInputError(reason)
    frame, variance = Frame(mixture), float(mixture.experts.shape_values().ravel()[0])
    parts = []
    with np.errstate(all="ignore"):
        for chunk in portions(frame, rows):
            panel = mixture.design.panel(chunk.X)
            residual = chunk.Y[:, 0] - frame.predictors(panel)[0]
            excess = np.minimum(residual * residual / variance, LARGEST_SQUARE) - 1
            u = np.zeros((factor.shape[1], len(excess)))
            for weights, product in zip(factor, products(panel), strict=True):
                u += weights[:, None] * (excess * product)
            parts.append(rounded(u, clip, chunk.valid).T)
    return np.concatenate(parts)[: rows.n] if parts else np.empty((0, factor.shape[1]), dtype=np.int64)
