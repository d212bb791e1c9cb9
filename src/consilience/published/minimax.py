r"""Minimax regression: a mixture of regressions by gradient descent-ascent of the mixture and a critic.

This is the minimax form of Wasserstein mixed linear regression (WMLR; over sites F-WMLR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit import Ascent, Expect, Fit, InferredFit, Problem, Specification, StartEnds, StopReason
from consilience.fit.fitting import finish_fit
from consilience.fit.specification import check_no_ridge, check_start
from consilience.messages import Dialogue, Total, together
from consilience.methods import Method, Task
from consilience.methods.federated_em import starting_points, survey_columns
from consilience.methods.task import check_whole
from consilience.model import Design, Mixture, Penalty, Statistics, mixture_of_regressions
from consilience.model.families.registry import Regressions, Requirement, standard_regression
from consilience.model.information import is_informable
from consilience.numerics.arrays import Array, unpack
from consilience.numerics.linalg import solve_symmetric, whitening
from consilience.published.critic import CriticSums, MinimaxSums
from consilience.published.spectral import spectral_start

SETTLED = 1e-3
"""Largest change in a round, in standard errors for known labels, at convergence."""
REQUIRED = Requirement("MinimaxRegression", one_response=True, constant_gate=True)


@dataclass(frozen=True)
class MinimaxRegression(Method):
    r"""Mixture of regressions with one variance, by gradient descent-ascent on a minimax objective.

    .. math::
        \min_B \max_{\gamma, \gamma'} \; \frac1n \sum_i \{\psi(x_i, y_i) - E_B\,\psi(x_i, Y)\}
        - \frac\lambda2 \sum_j \pi_j \left(\|\gamma_j - \tilde\gamma_j\|^2 + \|\gamma_j' - \tilde\gamma_j\|^2\right)

    with the critic :math:`\psi` of :func:`~consilience.published.critic.minimax_sums`, whitened covariates and
    coefficients in units of :math:`\sigma`. Critic and mixture step simultaneously, the critic with step length
    :math:`\alpha = 1/2\lambda`, the mixture with a tenth of it; weights and variance are updated by EM. At convergence
    :math:`\gamma = \gamma' = \tilde\gamma`, and the mixture solves moment equations with instruments
    :math:`\tilde\gamma`. If the reference :math:`\tilde\gamma` equals the mixture, these are the likelihood equations;
    the reference is therefore reset to the mixture repeatedly.

    After the start a site sends ``3 K p + K + 4`` numbers per round. :class:`FederatedEM` converges to the same point
    in fewer rounds; this method is provided for comparison. Standard errors are those of the likelihood, if the fit is
    its maximum: with refreshed references and ``covariance_type="tied"``.

    Parameters
    ----------
    symmetric : bool
        Whether to fit two regressions with opposite coefficients and equal weights, from
        :func:`~consilience.published.spectral.spectral_start`.
    penalty : float
        :math:`\lambda`, by default the paper's. Below about 0.35 the steps may not converge; from 0.5 to 1 they often
        converge sooner.
    refresh : int or None
        Maximum number of rounds after which the reference is reset to the mixture. None keeps the first reference: the
        start's coefficients, or for a symmetric pair a vector of length :math:`\sigma` along them.
    rounds : int
        Maximum number of rounds after the start.

    References
    ----------
    T. Diamandis, Y. Eldar, A. Fallah, F. Farnia and A. Ozdaglar, "A Wasserstein minimax framework for mixed linear
    regression", ICML 2021. Expectations are computed by quadrature here, by sampling in the paper.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, MinimaxRegression, MixtureOfRegressions
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2))
    >>> y = rng.choice([-1, 1], 600) * (X @ [1.0, 2.0]) + 0.5 * rng.normal(size=600)
    >>> sites = Federation({"north": (X[:200], y[:200]), "south": (X[200:], y[200:])})
    >>> fit = sites.fit(MixtureOfRegressions(2, fit_intercept=False), method=MinimaxRegression(symmetric=True))
    >>> abs(fit.model.coef_[0]).round(1), fit.model.converged_
    (array([1., 2.]), True)
    """

    symmetric: bool = False
    penalty: float = 0.41
    refresh: int | None = 10
    rounds: int = 500

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds)
        if self.refresh is not None:
            check_whole("refresh", self.refresh)
        if not 0 < self.penalty < np.inf:
            raise InvalidInputError(f"penalty={self.penalty!r}: expected a positive number")

    def dialogue(self, task: Task) -> Dialogue[tuple[Fit]]:
        """Return one fit; ``tol`` and ``max_iter`` of the task are not used."""
        specification = task.only("MinimaxRegression")
        self._check(specification, task.q)
        summary, starters, survey = yield from survey_columns(task)
        problem = Problem(specification, summary)
        problem.check()
        if self.symmetric:
            game, stand = yield from self._pair(problem, task.start)
        else:
            game, stand = yield from self._mixture(problem, task, starters)
        mixture, number, stop = yield from self._rounds(game, stand)
        reason = self._without_errors(specification)
        found = yield from end_minimax(mixture, problem.penalty, number, stop, information=not reason)
        fit = replace(found, survey=survey)
        return (InferredFit.without(fit, reason) if reason else fit,)

    def _check(self, specification: Specification, q: int) -> None:
        REQUIRED.check(specification.family, specification.gate, q)
        check_no_ridge(specification, "MinimaxRegression", REQUIRED.instead)
        if self.symmetric and specification.K != 2:
            raise InvalidInputError(f"symmetric=True is for two regressions, got {specification.K}")

    def _without_errors(self, specification: Specification) -> str:
        """Return why there are no standard errors; empty if the fit maximises its model's likelihood."""
        if self.refresh is None:
            return "with a fixed reference the fit does not maximise the likelihood"
        if self.symmetric:
            return "the information of two unrestricted regressions does not apply to a pair with opposite coefficients"
        if specification.structure != "tied" and specification.K > 1:
            return "the fit has one variance and the model one per expert: fit with covariance_type='tied'"
        return ""

    def _pair(self, problem: Problem, start: Mixture | None) -> Dialogue[tuple[Game, Stand]]:
        """Start two regressions with opposite coefficients: spectral start, or the odd part of a given start."""
        specification, design = problem.specification, problem.design
        if start is not None:
            check_start(start, specification.blank(problem.summary))
        found = yield from spectral_start(design, specification.structure)
        game = self._game(problem, found.Sxx / found.weight)
        stand = game.standing(*regression_parts(found.mixture if start is None else start.in_coordinates(design)))
        length = np.linalg.norm(stand.U, axis=1, keepdims=True)
        return game, stand.facing(stand.U / np.maximum(length, np.finfo(float).tiny))

    def _mixture(self, problem: Problem, task: Task, starters: tuple[str, ...]) -> Dialogue[tuple[Game, Stand]]:
        """Start K regressions: the given start, or the best that sites propose, as for :class:`FederatedEM`."""
        asked: Sequence[Dialogue[Any]] = (
            starting_points(problem, task, starters, 1),
            mean_products(problem.design),
        )
        found, second = yield from together(asked)
        game = self._game(problem, second)
        return game, game.standing(*regression_parts(found.mixtures[0]))

    def _game(self, problem: Problem, second: Array) -> Game:
        specification = problem.specification
        design, floor = problem.design, float(problem.penalty.floor[0, 0])
        return Game(design, specification.structure, whitening(second), self.penalty, floor, self.symmetric)

    def _rounds(self, game: Game, stand: Stand) -> Dialogue[tuple[Mixture, int, StopReason]]:
        """Run the rounds; return the final mixture, the number of rounds and the stop reason."""
        first = stand
        for number in range(1, self.rounds + 1):
            sums: MinimaxSums = yield Total(CriticSums(game.mixture(stand), *game.critic(stand)))
            before, stand = stand, game.stepped(stand, sums)
            if has_run_away(first, stand):
                raise InvalidInputError(f"penalty={self.penalty!r}: the steps diverge; raise it, or use FederatedEM")
            small = largest_move(before, stand, sums.weight) <= SETTLED
            if self.refresh is not None and (small or number % self.refresh == 0):
                before, stand = stand, stand.refreshed()
                small = small and largest_move(before, stand, sums.weight) <= SETTLED
            if small:
                return game.mixture(stand), number, StopReason.SETTLED
        return game.mixture(stand), self.rounds, StopReason.ROUNDS


def mean_products(design: Design) -> Dialogue[Array]:
    """Ask for ``Σ w x̃ x̃ᵀ / Σ w`` over all rows, ``(p, p)``."""
    statistics: Statistics = yield Total(Expect(standard_regression(design)))
    return np.asarray(unpack(statistics.experts.second)[0] / statistics.experts.plain[0])


def regression_parts(mixture: Mixture) -> tuple[Array, Array, float]:
    """Return coefficients ``(K, p)``, weights ``(K,)`` and mean variance of a mixture of regressions."""
    found = Regressions.of(mixture)
    return found.B, found.pi, float(found.pi @ found.variances)


def end_minimax(
    mixture: Mixture, penalty: Penalty, rounds: int, stop: StopReason, *, information: bool
) -> Dialogue[Fit]:
    """Ask for the likelihood at a mixture, and its information if available; return the fit."""
    informed = information and is_informable(mixture)
    statistics: Statistics = yield Total(Expect(mixture, information=informed))
    value = mixture.penalised(statistics, penalty)
    return finish_fit(Ascent(mixture, statistics, (value,), rounds + 1, int(informed), 0, stop), penalty, StartEnds())


# ---------------------------------------------------------------- simultaneous steps of critic and mixture
#
# Covariates are whitened, W with W'(X'X / n) W = I, and the steps of expert j are divided by its weight: the
# complete-data information is then the identity, for any covariates and weights.


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
    """Project ``(K, r)`` onto pairs of opposite vectors."""
    return 0.5 * (pair - pair[::-1])


def has_run_away(first: Stand, now: Stand) -> bool:
    """Whether the iteration has diverged: parameters are not finite or exceed the bound."""
    sigma = np.sqrt(now.sigma2)
    sizes = np.abs([now.U / sigma, now.above, now.below])
    return not bool(np.all(sizes < FARTHEST) and sigma < FARTHEST * np.sqrt(first.sigma2))


def largest_move(before: Stand, after: Stand, weight: float) -> float:
    """Compute the largest change of an expert in a round, in standard errors for known labels.

    Lengths on whitened covariates do not depend on the coordinates.
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
