"""How fast EM converges: the share of information that is missing because labels are not seen.

Near a maximum one EM step multiplies the error of the parameters by

    M = I - (J_complete + R)⁻¹ (J_observed + R) = (J_complete + R)⁻¹ J_missing,

so that EM's rate is the largest eigenvalue of ``M``. A gate or an expert that takes one Newton step on its part of the
expected complete likelihood has the same ``M`` as one that goes to its maximum: the two differ by squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh, solve_triangular

from consilience.errors import InvalidInputError
from consilience.model.information import complete_information, ridge
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import cholesky_or_none


@dataclass(frozen=True, eq=False)
class Rate:
    """The local rate of EM, from the shares of information that are missing.

    A rate near 0 says that responses and covariates tell the labels. A rate near 1 says that experts overlap: most of
    what labels would tell about some direction of the parameters is missing, EM creeps along it, and the Newton steps
    of :func:`~consilience.fit.climb` pay, though each of their passes costs two to three plain ones.

    Parameters
    ----------
    shares : (P,) array
        Eigenvalues of ``(J_complete + R)⁻¹ J_missing``, the largest first, each in ``[0, 1]``; not numbers where
        there is a reason.
    reason : str
        Why there is no rate; empty where there is one.

    Examples
    --------
    >>> rate = Rate(np.array([0.9, 0.5, 0.0]))
    >>> rate.rate, round(rate.passes_per_digit, 1)
    (0.9, 21.9)
    """

    shares: Array
    reason: str = ""

    @property
    def rate(self) -> float:
        """What an EM step leaves of the error of the parameters; of the gap in likelihood it leaves the square."""
        return float(self.shares[0])

    @property
    def passes_per_digit(self) -> float:
        """EM steps for one more decimal digit of the parameters, ``-1 / log10(rate)``."""
        with np.errstate(divide="ignore"):  # a rate of 0 needs none, a rate of 1 never gets there
            return float(1 / np.abs(np.log10(self.rate)))


def em_rate(mixture: Mixture, statistics: Statistics, penalty: Penalty) -> Rate:
    """The rate of EM at ``mixture``: the largest eigenvalue of ``I - (J_complete + R)⁻¹ (J_observed + R)``.

    It is the rate with which EM's last steps shrink if ``mixture`` is a maximum of the penalised likelihood, and near
    one a good guess. The label may belong to rows or to groups. No data are read: over sites, the sum of their
    statistics gives the rate of federated EM.

    Parameters
    ----------
    mixture : Mixture
        In the coordinates in which the penalty is meant: ``fit.ascent.mixture``.
    statistics : Statistics
        Taken at ``mixture``, with the information.
    penalty : Penalty

    Returns
    -------
    Rate
        With a reason in place of numbers where ``J_observed + R`` is not positive definite.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification, fit_mixture
    >>> from consilience.model import Rows, expect
    >>> data = soft(3000, random_state=0)
    >>> rows = Rows(data.X, data.y[:, None])
    >>> fit = fit_mixture(rows, Specification(K=4), rng=np.random.default_rng(0))
    >>> statistics = expect(fit.ascent.mixture, rows, information=True)
    >>> rate = em_rate(fit.ascent.mixture, statistics, fit.penalty)
    >>> round(rate.rate, 2), round(rate.passes_per_digit, 1)
    (0.25, 1.7)
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
        return Rate(np.full(len(R), np.nan), "the information is not positive definite: not a maximum, or a flat one")
    half = solve_triangular(L, complete - observed, lower=True, check_finite=False)
    missing = solve_triangular(L, half.T, lower=True, check_finite=False)
    return Rate(np.clip(eigvalsh(missing)[::-1], 0.0, 1.0))
