"""Convergence rate of EM: the largest fraction of missing information.

Near a maximum one EM step multiplies the error of the parameters by

    M = I - (J_complete + R)⁻¹ (J_observed + R) = (J_complete + R)⁻¹ J_missing,

so the rate of EM is the largest eigenvalue of ``M``. A gate or an expert that takes one Newton step on its part of the
expected complete likelihood has the same ``M`` as one that is maximised exactly: the difference is of second order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh, solve_triangular

from consilience.errors import InvalidInputError
from consilience.model.information import complete_information, ridge
from consilience.model.mixture import Mixture
from consilience.model.statistics import Penalty, Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import cholesky_or_none


@dataclass(frozen=True, eq=False)
class Rate:
    """The local convergence rate of EM, from the fractions of missing information.

    A rate near 0 means that responses and covariates determine the labels. A rate near 1 means that experts overlap:
    most of the information on some direction of the parameters is missing, EM converges slowly along it, and the Newton
    steps of :func:`~consilience.fit.climb` are worth their cost of two to three EM passes each.

    Parameters
    ----------
    shares : (P,) array
        Eigenvalues of ``(J_complete + R)⁻¹ J_missing``, the largest first, each in ``[0, 1]``; NaN if there is a
        reason.
    reason : str
        Why there is no rate; empty if there is one.
    """

    shares: Array
    reason: str = ""

    @property
    def rate(self) -> float:
        """Factor by which an EM step reduces the error of the parameters; its square reduces the likelihood gap."""
        return float(self.shares[0])

    @property
    def passes_per_digit(self) -> float:
        """Number of EM steps per decimal digit of the parameters, ``-1 / log10(rate)``."""
        with np.errstate(divide="ignore"):  # a rate of 0 needs none, a rate of 1 never gets there
            return float(1 / np.abs(np.log10(self.rate)))


def em_rate(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Rate:
    """Compute the rate of EM at ``mixture``: the largest eigenvalue of ``I - (J_complete + R)⁻¹ (J_observed + R)``.

    At a maximum of the penalised likelihood it is the linear rate of EM's last steps; near one, an approximation.
    Labels may belong to rows or to groups. No data are read: over sites, the sum of their statistics gives the rate of
    federated EM.

    Parameters
    ----------
    mixture : Mixture
        The mixture in the coordinates of the penalty: ``fit.ascent.mixture``.
    statistics : Statistics
        Statistics at ``mixture``, with the information.
    penalty : Penalty

    Returns
    -------
    Rate
        Has a reason instead of numbers if ``J_observed + R`` is not positive definite.
    """
    if statistics.information is None:
        raise InvalidInputError(
            "the rate needs the information and these statistics have none: take them with "
            "expect(mixture, rows, information=True)"
        )
    R = ridge(mixture, penalty)
    complete, observed = complete_information(mixture, statistics) + R, statistics.information + R
    L = cholesky_or_none(complete)
    if L is None or cholesky_or_none(observed) is None:
        return Rate(np.full(len(R), np.nan), "the information is not positive definite: no maximum, or a flat one")
    half = solve_triangular(L, complete - observed, lower=True, check_finite=False)
    missing = solve_triangular(L, half.T, lower=True, check_finite=False)
    return Rate(np.clip(eigvalsh(missing)[::-1], 0.0, 1.0))
