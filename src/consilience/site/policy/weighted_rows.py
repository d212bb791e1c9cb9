"""The weights by which a fitted mixture counts the site's rows: all sums in the file are sums with these weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.errors import InvalidInputError
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Weights of n rows in the sums of K experts.

    Parameters
    ----------
    tau : (K, n) array
        Responsibilities: what part of a row each expert has.
    scores : (K, n) array
        Squared score of each row on the linear predictors of each expert; squared residuals over variances, for
        Gaussian experts.
    curvature : (h, n) array
        Weights of ``x xᵀ`` in the information on the coefficients.
    """

    tau: Array
    scores: Array
    curvature: Array

    @property
    def missing(self) -> Array:
        """Weights ``τ (1 - τ) s²`` of ``x xᵀ`` in the information that is missing without labels, ``(K, n)``."""
        return np.asarray(self.tau * (1.0 - self.tau) * self.scores)


def weighted_rows(mixture: Mixture, rows: Rows) -> WeightedRows:
    """Compute the weights of the rows under a mixture.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> data = soft(100, n_experts=2, n_features=2, random_state=0)
    >>> weighted_rows(data.truth, Rows(data.X, data.y[:, None])).tau.shape
    (2, 100)
    """
    if rows.groups is not None or rows.weight is not None:
        raise InvalidInputError("there are no rules for rows with groups or weights: pass plain rows")
    tau, scores, curvature = [], [], []
    for block, at in mixture.posteriors(rows):
        tau.append(at.tau.copy())
        scores.append(np.sum(mixture.experts.scores(at.at).linear ** 2, axis=1))
        curvature.append(np.array(mixture.experts.weights(at.at, at.tau, block.panel.shape[0]).second))
    return WeightedRows(*(np.concatenate(parts, axis=1) for parts in (tau, scores, curvature)))
