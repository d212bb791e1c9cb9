"""Information criteria; smaller is better."""

from __future__ import annotations

import numpy as np

from consilience.fit.specification import Specification
from consilience.model import Experts, Gate, Mixture, Rows, Statistics


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
    >>> from consilience.fit import aic
    >>> aic(-10.0, 3)
    26.0
    """
    return -2 * ll + 2 * P


def bic(ll: float, P: int, n: float) -> float:
    """Compute the Bayesian information criterion, ``-2 ll + P log n``.

    Examples
    --------
    >>> from consilience.fit import bic
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


def entropy_of_sums(mixture: Mixture, statistics: Statistics) -> float | None:
    """Compute :func:`entropy` from statistics at ``mixture``, or None if they do not state it.

    It is the log-likelihood minus ``Σ w Σ_k τ_k (log π_k + log f_k)``, a sum that statistics contain for a constant
    gate with Gaussian or Student-t experts. A softmax gate needs ``Σ w log Σ_k exp(x̃ᵀ α_k)`` and other families sums
    of log densities, which statistics lack: their entropy would be one more sum in the answers of sites.
    """
    if mixture.K == 1:
        return 0.0
    weights = mixture.gate.expected_log_weight(statistics.gate)
    density = None if mixture.experts.discrete else mixture.experts.expected_log_density(statistics.experts)
    if weights is None or density is None or not np.any(statistics.experts.plain):
        return None
    return max(statistics.log_likelihood - weights - density, 0.0)


def has_entropy_of_sums(specification: Specification) -> bool:
    """Whether the statistics of a model state the entropy of its responsibilities, :func:`entropy_of_sums`."""
    experts, gate = specification.experts, specification.gate_type
    stated = experts.expected_log_density is not Experts.expected_log_density and not experts.discrete
    return specification.K == 1 or (stated and gate.expected_log_weight is not Gate.expected_log_weight)
