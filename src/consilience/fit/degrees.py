"""Residual degrees of freedom of each expert, and what they do to standard errors and intervals."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri, stdtrit

from consilience.fit.parameters import Parameters
from consilience.model.information import coefficient_slice, complete_information
from consilience.model.mixture import Mixture
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import solve_symmetric


def coefficients_per_row(mixture: Mixture) -> int:
    """Return how many coefficients of an expert one observed number informs: ``p``, or ``(C - 1) p`` for C classes."""
    experts = mixture.experts
    return experts.p if experts.several_responses else experts.p * experts.channels


def effective_rows(mixture: Mixture, statistics: Statistics, inverse: Array) -> Array:
    """Compute the number of labelled rows that would inform each expert as well as its rows do, ``(K,)``.

    ``n_k r_k`` with ``n_k = Σ_i w_i τ_ik`` and ``r_k``, the mean fraction of the complete-data information on the
    expert's coefficients that is left when the labels are not known.

    Parameters
    ----------
    mixture : Mixture
    statistics : Statistics
        At ``mixture``.
    inverse : (P, P) array
        Inverse of the observed information.
    """
    C, at = complete_information(mixture, statistics), coefficient_slice(mixture)
    f = (at.stop - at.start) // mixture.K
    kept = np.ones(mixture.K)
    for k in range(mixture.K if f else 0):
        own = slice(at.start + k * f, at.start + (k + 1) * f)
        marginal, _ = solve_symmetric(inverse[own, own], np.eye(f))
        kept[k] = np.trace(solve_symmetric(C[own, own], marginal)[0]) / f
    return np.asarray(statistics.experts.plain[: mixture.K] * np.clip(kept, 0.0, 1.0))


def corrected(covariance: Array, estimates: Parameters, rows: Array, p: int) -> Array:
    """Return the covariance of the reported parameters, corrected for the coefficients that each expert has.

    Maximum likelihood divides the residuals of expert ``k`` by its rows ``n``, not by ``n - p``. Standard errors of its
    coefficients and of its shapes are multiplied by ``√(n / (n - p))``; those of log shapes, which are biased by about
    ``log(n / (n - p))``, are root mean square errors. An expert without an estimated shape has no residual variance to
    correct: one of a family without shapes, or of counts whose dispersion is at its bound (NaN).

    Parameters
    ----------
    covariance : (D, D) array
    estimates : Parameters
    rows : (K,) array
        Effective rows of each expert, more than ``p``.
    p : int
    """
    s = estimates.log_shapes.shape[1]
    if s == 0:
        return covariance
    shapes = np.arange(len(covariance) - estimates.log_shapes.size, len(covariance))
    estimated = np.isfinite(covariance[shapes, shapes]).reshape(-1, s).any(axis=1)
    inflation = np.where(estimated, rows / (rows - p), 1.0)
    scale = _of_experts(estimates, np.sqrt(inflation), 1.0)
    found = covariance * np.outer(scale, scale)
    found[shapes, shapes] += np.repeat(np.log(inflation) ** 2, s)
    return found


def degrees_of_freedom(estimates: Parameters, rows: Array, p: int) -> Array:
    """Return the residual degrees of freedom of each reported parameter, ``(D,)``; infinite for the gate."""
    return _of_experts(estimates, rows - p, np.inf)


def quantile(level: float, degrees: Array) -> Array:
    """Return the half-width of an interval in standard errors, from Student's distribution.

    Examples
    --------
    >>> quantile(0.95, np.array([5.0, 50.0, np.inf])).round(2)
    array([2.57, 2.01, 1.96])
    """
    upper = 0.5 + level / 2
    finite = np.isfinite(degrees)
    return np.where(finite, stdtrit(np.where(finite, degrees, 1.0), upper), ndtri(upper))


def _of_experts(estimates: Parameters, values: Array, gate: float) -> Array:
    """Return one number per reported parameter: that of its expert, or ``gate``."""
    K = len(values)
    parts = [np.repeat(values, part.size // K) for part in (estimates.experts, estimates.log_shapes)]
    return np.concatenate([np.full(estimates.gate.size, gate), *parts])
