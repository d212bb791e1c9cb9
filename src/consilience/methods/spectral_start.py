"""Spectral start of two regressions with opposite coefficients, in one round over all sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.fit.climb import Expect
from consilience.fit.spectral import symmetric_pair
from consilience.messages.dialogue import Dialogue, Total
from consilience.messages.questions import Answers, Several, SquaredResponses
from consilience.model.design import Design
from consilience.model.families.regressions import mixture_of_regressions
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array, unpack


@dataclass(frozen=True, eq=False)
class SpectralStart:
    """Two regressions ``± b`` with equal weights and one variance, and constant sums over all rows.

    Parameters
    ----------
    mixture : Mixture
    Sxx : (p, p) array
        ``Σ w x̃ x̃ᵀ`` in the coordinates of the mixture's design.
    Syy : float
        ``Σ w y²``.
    weight : float
        ``Σ w`` over rows, with or without groups.

    Examples
    --------
    >>> pair = symmetric_mixture(Design.raw(1, intercept=False), np.array([2.0]), 0.5)
    >>> SpectralStart(pair, np.eye(1), 9.0, 2.0).mixture.experts.B.ravel()
    array([ 2., -2.])
    """

    mixture: Mixture
    Sxx: Array
    Syy: float
    weight: float


def spectral_start(design: Design, structure: str = "full") -> Dialogue[SpectralStart]:
    """Ask all sites for ``Σ w x̃ x̃ᵀ``, ``Σ w y²`` and ``Σ w y² x̃ x̃ᵀ`` in one round; return the spectral start.

    The coefficients are those of :func:`~consilience.fit.spectral.symmetric_pair`, for one response.

    Parameters
    ----------
    design : Design
        Coordinates of the start.
    structure : {"full", "diag", "spherical", "tied"}
        Storage form of the single variance.

    Examples
    --------
    >>> request = next(spectral_start(Design.raw(2)))
    >>> [type(question).__name__ for question in request.question.questions]
    ['Expect', 'SquaredResponses']
    """
    answers: Answers = yield Total(Several((Expect(one_expert(design)), SquaredResponses(design))))
    statistics, squared = answers.items
    weight, Syy = (float(value) for value in statistics.experts.plain)
    Sxx = unpack(statistics.experts.second)[0]
    b, sigma2 = symmetric_pair(squared.second / squared.weight, Sxx / weight, Syy / weight)
    return SpectralStart(symmetric_mixture(design, b, sigma2, structure), Sxx, Syy, weight)


def one_expert(design: Design) -> Mixture:
    """Return one expert with mean 0 and variance 1; its statistics are ``Σ w``, ``Σ w y²``, ``Σ w y x̃``, ``Σ w x̃ x̃ᵀ``.

    Examples
    --------
    >>> one_expert(Design.raw(2)).experts.B.shape
    (1, 1, 3)
    """
    return mixture_of_regressions(np.ones(1), np.zeros((1, design.p)), 1.0, design)


def symmetric_mixture(design: Design, b: Array, sigma2: float, structure: str = "full") -> Mixture:
    """Return the mixture of ``N(x̃ᵀ b, σ²)`` and ``N(-x̃ᵀ b, σ²)`` with equal weights.

    Examples
    --------
    >>> symmetric_mixture(Design.raw(1, intercept=False), np.array([2.0]), 0.5).experts.variances.ravel()
    array([0.5, 0.5])
    """
    return mixture_of_regressions(np.full(2, 0.5), np.array([b, -b]), sigma2, design, structure)
