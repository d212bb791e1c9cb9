r"""Minimax estimation of a mixture of regressions: simultaneous gradient steps of critic and mixture.

Covariates are whitened, ``W`` with ``Wᵀ (X'X / n) W = I``, and the steps of expert j are divided by its weight. The
complete-data information is then the identity, for any covariates and weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from consilience.model.critic import MinimaxSums
from consilience.model.design import Design
from consilience.model.families.regressions import mixture_of_regressions
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import solve_symmetric

LEAST_SHARE = 1e-3
"""Weight of an expert below which its step length no longer increases."""
SLOWER = 10.0
"""Ratio of the critic's step length to the mixture's."""
FARTHEST = 1e6
"""Divergence bound: on the coefficients in units of ``σ``, and on ``σ`` relative to its initial value."""


@dataclass(frozen=True, eq=False)
class Stand:
    """State of the game: the parameters of the mixture and of the critic.

    Parameters
    ----------
    U : (K, r) array
        Coefficients of the mixture on whitened covariates.
    pi : (K,) array
        Weights of the mixture.
    sigma2 : float
        Variance of the mixture.
    above, below, reference : (K, r) array
        The critic's vectors and their shrinkage target, on whitened covariates and in units of ``σ``.

    Examples
    --------
    >>> U = np.array([[2.0], [-2.0]])
    >>> Stand(U, np.full(2, 0.5), 4.0, *np.zeros((3, 2, 1))).refreshed().reference.ravel()
    array([ 1., -1.])
    """

    U: Array
    pi: Array
    sigma2: float
    above: Array
    below: Array
    reference: Array

    def refreshed(self) -> Stand:
        """Return the state with the mixture's coefficients as reference."""
        return replace(self, reference=self.U / np.sqrt(self.sigma2))

    def facing(self, reference: Array) -> Stand:
        """Return the same mixture with another reference, and the critic equal to the reference."""
        return replace(self, above=reference, below=reference, reference=reference)


@dataclass(frozen=True, eq=False)
class Game:
    """Constants of the game: coordinates, penalty, variance floor, and whether the mixture is a symmetric pair.

    Parameters
    ----------
    design : Design
    structure : Structure
        Storage form of the single variance.
    W : (p, r) array
        Map from coefficients on whitened covariates to coefficients on the design.
    penalty : float
        Penalty ``λ``.
    floor : float
        Lower bound of the variance.
    symmetric : bool
        Whether the mixture is a pair of regressions with opposite coefficients and equal weights.

    Examples
    --------
    >>> game = Game(Design.raw(1, False), "full", np.array([[0.5]]), 0.41, 0.0, symmetric=True)
    >>> stand = game.standing(np.array([[6.0], [-2.0]]), np.array([0.7, 0.3]), 1.0)
    >>> stand.U.ravel(), game.mixture(stand).experts.B.ravel(), stand.pi
    (array([ 8., -8.]), array([ 4., -4.]), array([0.5, 0.5]))
    """

    design: Design
    structure: str
    W: Array
    penalty: float
    floor: float
    symmetric: bool

    def standing(self, B: Array, pi: Array, sigma2: float) -> Stand:
        """Return the initial state for coefficients ``B (K, p)``: the reference and the critic equal the mixture."""
        whitened = solve_symmetric(self.W.T @ self.W, self.W.T @ B.T)[0].T
        U, shares = (odd(whitened), np.full(2, 0.5)) if self.symmetric else (whitened, pi)
        none = np.zeros_like(U)
        first = Stand(U, shares, max(sigma2, self.floor), none, none, none).refreshed()
        return first.facing(first.reference)

    def mixture(self, stand: Stand) -> Mixture:
        """Return the mixture, in the coordinates of the design."""
        return mixture_of_regressions(stand.pi, stand.U @ self.W.T, stand.sigma2, self.design, self.structure)

    def critic(self, stand: Stand) -> tuple[Array, Array]:
        """Return the critic's two sets of vectors ``(K, p)``, in the coordinates of the design."""
        sigma = np.sqrt(stand.sigma2)
        return sigma * stand.above @ self.W.T, sigma * stand.below @ self.W.T

    def stepped(self, stand: Stand, sums: MinimaxSums) -> Stand:
        r"""Take one gradient step for critic and mixture, and one EM step for weights and variance.

        .. math::
            \gamma \leftarrow \gamma + \alpha \{\sigma \nabla_\gamma - \lambda (\gamma - \tilde\gamma)\}, \qquad
            U \leftarrow U - \tfrac{\alpha}{10}\, \sigma^2 \nabla_U, \qquad \alpha = 1 / 2\lambda.
        """
        alpha, sigma = 1 / (2 * self.penalty), np.sqrt(stand.sigma2)
        scale = sums.weight * np.maximum(stand.pi, LEAST_SHARE)[:, None]
        above, below, U = (self._whitened(gradient) / scale for gradient in (sums.above, sums.below, sums.B))
        return Stand(
            stand.U - alpha / SLOWER * stand.sigma2 * U,
            stand.pi if self.symmetric else sums.shares / sums.shares.sum(),
            max(sums.squares / sums.weight, self.floor),
            stand.above + alpha * (sigma * above - self.penalty * (stand.above - stand.reference)),
            stand.below + alpha * (sigma * below - self.penalty * (stand.below - stand.reference)),
            stand.reference,
        )

    def _whitened(self, gradient: Array) -> Array:
        whitened = gradient @ self.W
        return odd(whitened) if self.symmetric else whitened


def odd(pair: Array) -> Array:
    """Project ``(K, r)`` onto pairs of opposite vectors.

    Examples
    --------
    >>> odd(np.array([[3.0], [1.0]])).ravel()
    array([ 1., -1.])
    """
    return 0.5 * (pair - pair[::-1])


def has_run_away(first: Stand, now: Stand) -> bool:
    """Whether the iteration has diverged: parameters are not finite or exceed the bound.

    Examples
    --------
    >>> at = Stand(np.ones((1, 1)), np.ones(1), 4.0, *np.zeros((3, 1, 1)))
    >>> has_run_away(at, at), has_run_away(at, replace(at, U=np.full((1, 1), np.nan)))
    (False, True)
    """
    sigma = np.sqrt(now.sigma2)
    sizes = np.abs([now.U / sigma, now.above, now.below])
    return not bool(np.all(sizes < FARTHEST) and sigma < FARTHEST * np.sqrt(first.sigma2))


def largest_move(before: Stand, after: Stand, weight: float) -> float:
    """Compute the largest change of an expert in a round, in standard errors for known labels.

    Lengths on whitened covariates do not depend on the coordinates.

    Examples
    --------
    >>> at = Stand(np.ones((1, 1)), np.ones(1), 4.0, *np.zeros((3, 1, 1)))
    >>> largest_move(at, replace(at, U=at.U + 0.5), weight=100.0)
    2.5
    """
    vectors = (
        (after.U - before.U) / np.sqrt(before.sigma2),
        after.above - before.above,
        after.below - before.below,
        after.reference - before.reference,
    )
    numbers = (
        (after.pi - before.pi) / np.maximum(before.pi, LEAST_SHARE),
        np.log(after.sigma2 / before.sigma2) / np.sqrt(2 * before.pi),
    )
    lengths = [*(np.linalg.norm(vector, axis=1) for vector in vectors), *map(np.abs, numbers)]  # (K,) each
    return float(np.max(np.sqrt(weight * before.pi) * np.array(lengths)))
