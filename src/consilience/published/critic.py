r"""Value and gradients of a log-ratio critic between data and a mixture of regressions, as sums over rows.

The critic is the log ratio of two mixtures that share ``π`` and ``σ²`` with the mixture under test,

.. math:: \psi(x, y) = \log \sum_j \pi_j e^{-(y - \gamma_j^\top x)^2 / 2\sigma^2}
          - \log \sum_j \pi_j e^{-(y - \gamma_j'^\top x)^2 / 2\sigma^2},

and the sum over rows is that of :math:`\psi(x_i, y_i) - E\,\psi(x_i, Y)` with ``Y`` drawn from the mixture at the same
``x_i``: terms in the covariates alone cancel. The expectation is over ``K`` experts and a normal variable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.errors import MessageError
from consilience.messages import Row, register
from consilience.messages.checks import HEADS, ROUNDING, TooCostlyError, reads_ungrouped, regressions_of, weight_problem
from consilience.messages.codec import Struct
from consilience.messages.records import MATRIX, MIXTURE, NUMBER, VECTOR
from consilience.model import Block, Mixture, Rows
from consilience.model.families.registry import Regressions
from consilience.model.kernels import block_rows
from consilience.model.mixture import posterior
from consilience.model.received import CrossProducts, is_moderate
from consilience.model.statistics import Additive
from consilience.numerics.arrays import Array, log_sum_exp
from consilience.numerics.quadrature import hermite_nodes

NODES = 8
"""Number of nodes: exact for polynomials of degree 15; error below 0.003 for a log of a sum of exponentials."""


# ---------------------------------------------------------------- critic


@dataclass(frozen=True, eq=False)
class MinimaxSums(Additive):
    r"""Sums over rows of the critic's value and gradients, and of the E-step at the mixture.

    Parameters
    ----------
    above, below, B : (K, p) array
        Gradients in :math:`\gamma`, :math:`\gamma'` and the mixture's coefficients.
    value : float
        :math:`\sum_i w_i \{\psi(x_i, y_i) - E\,\psi(x_i, Y)\}`.
    shares : (K,) array
        Sums of responsibilities.
    squares : float
        Sum of squared residuals, weighted by responsibilities.
    log_likelihood, weight : float
        Log-likelihood of the rows under the mixture, and their weight.
    """

    above: Array
    below: Array
    B: Array
    value: float
    shares: Array
    squares: float
    log_likelihood: float
    weight: float


def minimax_sums(mixture: Mixture, above: Array, below: Array, rows: Rows) -> MinimaxSums:
    r"""Compute the sums over ``rows`` at a mixture of regressions with constant gate, one response and one variance.

    With the responsibilities :math:`r_j(x, y)` of the mixture of ``above`` and :math:`r_j'` of that of ``below``,

    .. math::
        \partial_{\gamma_j} \psi = r_j\,(y - \gamma_j^\top x)\,x / \sigma^2, \qquad
        \partial_y \psi = \textstyle\sum_j (r_j \gamma_j - r_j' \gamma_j')^\top x / \sigma^2.

    Parameters
    ----------
    mixture : Mixture
    above, below : (K, p) array
        :math:`\gamma` and :math:`\gamma'`, in the coordinates of the mixture's design.
    rows : Rows
        Rows without groups.
    """
    K, p = above.shape
    none = np.zeros((K, p))
    total = MinimaxSums(none, none, none, 0.0, np.zeros(K), 0.0, 0.0, 0.0)
    for block in rows.blocks(mixture.design, block_rows(p, 6 * K * K * NODES)):
        total = total + _block_sums(mixture, above, below, block)
    return total


def _block_sums(mixture: Mixture, above: Array, below: Array, block: Block) -> MinimaxSums:
    gate, experts, panel = mixture.gate, mixture.experts, block.panel
    log_pi, pi = gate.evaluate(panel)  # (K, 1)
    sigma2, n = float(Regressions.of(mixture).variances[0]), panel.shape[1]
    w = np.ones(n) if block.weight is None else block.weight
    t, omega = hermite_nodes(NODES)
    drawn = experts.mean(panel)[:, 0, None] + np.sqrt(sigma2) * t[:, None]  # (K, Q, n)
    chance = (pi * omega)[:, :, None] * w  # (K, Q, n)
    y = np.concatenate([block.Y, drawn.reshape(-1, n)])  # (1 + K Q, n)
    signed = np.concatenate([w[None], -chance.reshape(-1, n)])
    up, down = (_side(y, gamma @ panel, log_pi, sigma2, signed) for gamma in (above, below))
    slope = (up.mean - down.mean)[1:].reshape(drawn.shape) / sigma2  # ∂ψ/∂y at the points drawn
    at = posterior(gate, experts, block)
    return MinimaxSums(
        up.pull @ panel.T,
        -(down.pull @ panel.T),
        -np.sum(chance * slope, axis=1) @ panel.T,
        up.value - down.value,
        at.row_tau.sum(axis=1),
        float(np.sum(at.row_tau * at.at.r[:, 0] ** 2)),
        float(np.sum(at.log_density * at.mass)),
        float(w.sum()),
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """One of the two mixtures of the critic, summed over points with signs and weights."""

    value: float
    pull: Array  # (K, n)  what a row's gradient is, times its x
    mean: Array  # (S, n)  Σ_j r_j γ_jᵀx at each point


def _side(y: Array, a: Array, log_pi: Array, sigma2: float, signed: Array) -> _Side:
    """Compute ``log Σ_j π_j exp(-(y - a_j)² / 2σ²)`` at ``y (S, n)``, means ``a (K, n)``, weighted by ``signed``."""
    gap = y - a[:, None]  # (K, S, n)
    total, r = log_sum_exp(log_pi[:, :, None] - gap**2 / (2 * sigma2))
    mean = np.einsum("ksn,kn->sn", r, a)
    r *= signed
    return _Side(float(np.sum(signed * total)), np.einsum("ksn,ksn->kn", r, gap) / sigma2, mean)


# ---------------------------------------------------------------- the question

MOST_CRITICS = 64
"""Maximum number of experts of a critic, whose memory grows with their square."""


@dataclass(frozen=True, eq=False)
class CriticSums:
    """Ask for the value and gradients of a critic between the rows and a mixture of regressions: ``MinimaxSums``.

    Parameters
    ----------
    mixture : Mixture
        Gaussian mixture with constant gate, one response and one variance.
    above, below : (K, p) array
        Coefficients of the two mixtures whose log ratio is the critic
        (:func:`minimax_sums`).

    Examples
    --------
    >>> from consilience.model import Mixture
    >>> from consilience.published import CriticSums
    >>> import numpy as np
    >>> from consilience.model import ConstantGate, Design, GaussianExperts
    >>> B = np.array([[[1.0, 0.0]], [[-1.0, 0.0]]])
    >>> mixture = Mixture(Design.raw(1), ConstantGate(np.full(2, 0.5)), GaussianExperts(B, np.ones((2, 1, 1))))
    >>> CriticSums(mixture, B[:, 0], B[:, 0]).above.shape
    (2, 2)
    """

    mixture: Mixture
    above: Array
    below: Array

    @property
    def disclosed(self) -> str:
        """Return a description of what an answer discloses."""
        K = self.mixture.K
        return (
            f"the value of a critic and its gradients for {K} experts, which are weighted sums of x over rows; the "
            "sums of responsibilities and of squared residuals, the total weight and the log-likelihood"
        )


def check_comparison(question: CriticSums) -> None:
    """Raise an error unless the critics are those of a mixture of regressions with constant gate and one variance."""
    found, parts = regressions_of(question.mixture), (question.above, question.below)
    if question.mixture.K > MOST_CRITICS:
        raise TooCostlyError(f"a critic has {question.mixture.K} experts; at most {MOST_CRITICS}")
    if not all(part.shape == found.B.shape for part in parts):
        raise MessageError("the critics do not have the shape of the mixture's coefficients")
    if not (len(np.unique(found.variances)) == 1 and all(is_moderate(part) for part in parts)):
        raise MessageError("the mixture has more than one variance, or a critic has values that are not finite")


def is_comparison(asked: CriticSums, given: MinimaxSums) -> bool:
    """Whether gradients and sums have the shapes of the critics."""
    gradients = given.above.shape == given.below.shape == given.B.shape == asked.above.shape
    return gradients and given.shares.shape == (asked.mixture.K,)


def in_critic(_: CriticSums, given: MinimaxSums) -> str:
    """Return what no rows can give, such as a negative mass; empty if nothing."""
    if np.any(given.shares < 0) or abs(given.shares.sum() - given.weight) > ROUNDING * given.weight:
        return "masses that are negative, or do not add up to the number of rows"
    return "a negative sum of squares" if given.squares < 0 else weight_problem(given.weight)


register(
    Row(
        kinds=(14, 27),
        question=Struct(CriticSums, {"mixture": MIXTURE, "above": MATRIX, "below": MATRIX}, check_comparison),
        answer=Struct(
            MinimaxSums,
            {
                "above": MATRIX,
                "below": MATRIX,
                "B": MATRIX,
                "value": NUMBER,
                "shares": VECTOR,
                "squares": NUMBER,
                "log_likelihood": NUMBER,
                "weight": NUMBER,
            },
        ),
        reads=reads_ungrouped,
        contribution=lambda asked, rows: minimax_sums(asked.mixture, asked.above, asked.below, rows),
        fits=is_comparison,
        largest=lambda asked: HEADS + 3 * asked.above.size + asked.mixture.K,
        impossible=in_critic,
        products=lambda _, given: CrossProducts.counted(given.weight),
    ),
)
