"""Information criteria; smaller is better."""

from __future__ import annotations

import numpy as np

from consilience.model.mixture import Mixture
from consilience.model.rows import Rows


def label_count(rows: Rows) -> float:
    """Return the n of BIC: the total weight, or the number of groups with positive weight."""
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    if rows.groups is None:
        return float(weight.sum())
    return float(len(np.unique(rows.groups.codes[weight > 0])))


def log_likelihood(mixture: Mixture, rows: Rows) -> float:
    """Compute ``Σ w log p(y | x)`` over rows or groups."""
    return float(sum(np.sum(at.log_density * at.mass) for _, at in mixture.posteriors(rows)))


def aic(ll: float, P: int) -> float:
    """Compute Akaike's information criterion, ``-2 ll + 2 P``, for ``P`` parameters.

    Examples
    --------
    >>> aic(-10.0, 3)
    26.0
    """
    return -2 * ll + 2 * P


def bic(ll: float, P: int, n: float) -> float:
    """Compute the Bayesian information criterion, ``-2 ll + P log n``.

    Examples
    --------
    >>> round(bic(-10.0, 3, 100), 3)
    33.816
    """
    return -2 * ll + P * float(np.log(n))


def entropy(mixture: Mixture, rows: Rows) -> float:
    """Compute the entropy ``-Σ w Σ_k τ_k log τ_k`` of the responsibilities."""
    total = 0.0
    for _, at in mixture.posteriors(rows):
        log_tau = np.log(np.maximum(at.tau, np.finfo(float).tiny))
        total -= float(np.sum(at.tau * log_tau * at.mass))
    return total
