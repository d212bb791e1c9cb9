r"""Spectral start for a symmetric pair of regressions, from the eigenvectors of :math:`\sum y^2 x x^\top`.

For :math:`y = \pm x^\top b + \sigma \varepsilon` with either sign equally often and :math:`x \sim N(0, I)`,

.. math:: E[y^2 x x^\top] = (\|b\|^2 + \sigma^2) I + 2\, b b^\top :

the top eigenvector has the direction of ``b``, and its eigenvalue determines the length of ``b``. Other covariates are
whitened first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.fit import Expect
from consilience.messages import Answers, Dialogue, Row, Several, Total, register
from consilience.messages.checks import HEADS, reads_design, weight_problem
from consilience.messages.codec import Struct, Symmetric
from consilience.messages.records import DESIGN, NUMBER
from consilience.model import Design, Mixture, Rows, mixture_of_regressions
from consilience.model.families.registry import standard_regression
from consilience.model.kernels import block_rows, second_moments
from consilience.model.received import CrossProducts
from consilience.model.statistics import Additive
from consilience.numerics.arrays import Array, triangle_size, unpack
from consilience.numerics.linalg import is_semidefinite, whitening

LEAST_PART = 0.01
"""Minimum signal and noise of the start, as a fraction of the mean square of the response. Both are differences of
large numbers, and EM does not leave a start without signal."""


@dataclass(frozen=True, eq=False)
class SquaredMoments(Additive):
    """The sums ``Σ w y² x̃ x̃ᵀ`` and ``Σ w``.

    Parameters
    ----------
    second : (p, p) array
    weight : float
    """

    second: Array
    weight: float


def squared_moments(design: Design, rows: Rows) -> SquaredMoments:
    """Compute ``Σ w y² x̃ x̃ᵀ`` over rows with one response, block by block; groups are ignored."""
    total, weight = np.zeros((1, triangle_size(design.p))), 0.0
    for block in rows.blocks(design, block_rows(design.p, 2)):
        w = np.ones(block.panel.shape[1]) if block.weight is None else block.weight
        total += second_moments(block.panel, w * block.Y**2, block.workspace)
        weight += float(w.sum())
    return SquaredMoments(unpack(total[0]), weight)


def symmetric_pair(squared: Array, second: Array, square: float) -> tuple[Array, float]:
    r"""Estimate coefficients and noise variance of ``y = ± xᵀ b + σ ε`` from means over rows.

    With the eigenvalues :math:`l_1 \ge l_2 \ge \dots` of whitened ``squared``, ``b`` lies along the first eigenvector,
    :math:`\|b\|^2 = (l_1 - \operatorname{mean} y^2) / 2`, and :math:`\sigma^2 = \operatorname{mean} y^2 - \|b\|^2`.

    Parameters
    ----------
    squared, second : (p, p) array
        Means of ``y² x xᵀ`` and of ``x xᵀ``.
    square : float
        Mean of ``y²``.

    Returns
    -------
    b : (p,) array
        Coefficients up to sign, which is not identified: the largest entry is positive.
    sigma2 : float
        Noise variance. Neither it nor ``‖b‖²`` is below 0.01 of the mean square of ``y``.
    """
    W = whitening(second)
    values, vectors = np.linalg.eigh(W.T @ squared @ W)
    length2 = np.clip((values[-1] - square) / 2, LEAST_PART * square, (1 - LEAST_PART) * square)
    b = np.sqrt(length2) * (W @ vectors[:, -1])
    sign = 1.0 if b[np.abs(b).argmax()] >= 0 else -1.0
    return sign * b, float(square - length2)


# ---------------------------------------------------------------- one round over all sites


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
    """

    mixture: Mixture
    Sxx: Array
    Syy: float
    weight: float


def spectral_start(design: Design, structure: str = "full") -> Dialogue[SpectralStart]:
    """Ask all sites for ``Σ w x̃ x̃ᵀ``, ``Σ w y²`` and ``Σ w y² x̃ x̃ᵀ`` in one round; return the spectral start.

    The coefficients are those of :func:`~consilience.published.spectral.symmetric_pair`, for one response.

    Parameters
    ----------
    design : Design
        Coordinates of the start.
    structure : {"full", "diag", "spherical", "tied"}
        Storage form of the single variance.
    """
    answers: Answers = yield Total(Several((Expect(standard_regression(design)), SquaredResponses(design))))
    statistics, squared = answers.items
    weight, Syy = (float(value) for value in statistics.experts.plain)
    Sxx = unpack(statistics.experts.second)[0]
    b, sigma2 = symmetric_pair(squared.second / squared.weight, Sxx / weight, Syy / weight)
    return SpectralStart(symmetric_mixture(design, b, sigma2, structure), Sxx, Syy, weight)


def symmetric_mixture(design: Design, b: Array, sigma2: float, structure: str = "full") -> Mixture:
    """Return the mixture of ``N(x̃ᵀ b, σ²)`` and ``N(-x̃ᵀ b, σ²)`` with equal weights."""
    return mixture_of_regressions(np.full(2, 0.5), np.array([b, -b]), sigma2, design, structure)


@dataclass(frozen=True, eq=False)
class SquaredResponses:
    """Ask for ``Σ w y² x̃ x̃ᵀ`` on a design, for one response: :class:`SquaredMoments`.

    Examples
    --------
    >>> from consilience.model import Design
    >>> from consilience.published import SquaredResponses
    >>> SquaredResponses(Design.raw(2)).design.p
    3
    """

    design: Design

    disclosed = "the total weight, and the sum over rows of y² xxᵀ"
    """Description of what an answer discloses."""


def in_squares(_: SquaredResponses, given: SquaredMoments) -> str:
    """Return what no rows can give: second moments that are not positive semidefinite; empty if nothing."""
    if not is_semidefinite(given.second):
        return "second moments that are not positive semidefinite"
    return weight_problem(given.weight)


register(
    Row(
        kinds=(13, 26),
        question=Struct(SquaredResponses, {"design": DESIGN}),
        answer=Struct(SquaredMoments, {"second": Symmetric(), "weight": NUMBER}),
        reads=reads_design,
        contribution=lambda asked, rows: squared_moments(asked.design, rows),
        fits=lambda asked, given: given.second.shape == (asked.design.p, asked.design.p),
        largest=lambda asked: HEADS + triangle_size(asked.design.p),
        impossible=in_squares,
        products=lambda _, given: CrossProducts.counted(given.weight),
    ),
)
