"""Steps of private scoring: all that is public, computed from simulated covariates and no row.

At a mixture θ with observed information I and complete-data information C per row, ``D = (1 - λ) I + λ C`` whitens the
scores, ``W Wᵀ = D⁻¹``; contributions of rows are clipped at ``c = √P``
(:mod:`consilience.model.contributions`). If ``g`` is the score and ``u = ω Wᵀ(g - a(x))`` its contribution, the total
over n rows of a mixture that is δ away has the mean ``n H W⁻¹ δ``, with

    H = E[u gᵀ] W = Wᵀ E[ω (g - a)(g - a)ᵀ] W,    V = Cov u = Wᵀ E[ω² (g - a)(g - a)ᵀ] W,

because ``E[ω (g - a) | x] = 0``. Both are sums over the nodes of the responses: a simulated Jacobian is singular by
chance. A noisy total T then gives the step ``δ = W H⁻¹ T / n``, with λ for the share of EM in it, no longer than
:data:`RADIUS` in the metric of C, and the estimate has the covariance ``W H⁻¹ (V / n + v / n²) H⁻ᵀ Wᵀ`` where v is the
variance of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit.group_step import group_clipped, group_informations
from consilience.model import Mixture
from consilience.model.contributions import GRID, Frame, ScoredRows, simulated, tied, total_sensitivity
from consilience.model.group_contributions import GroupedCovariates
from consilience.model.information import LARGEST, coefficient_slice, move_parameters
from consilience.model.kernels.clipping import clipping_for
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import symmetrise

RADIUS = 0.5
"""Longest step in the metric of the complete-data information; in that of the observed one runs leave."""
SIMULATED, PER_PARAMETER = 1500, 30
"""Least number of simulated rows, and for each parameter."""
ROWS_FOR_A_GROUP = 2
"""Number of simulated rows in whose place one group is simulated: it has several rows, and more sets of responses."""
RIDGE = 1e-4
"""Share of its diagonal that is added to the information: otherwise a weak coefficient takes the whole noise."""
SMALLEST = 0.01
"""Singular values of H are raised to this."""
STEEPEST = 3.0
"""Largest slope of the gate for a standardised covariate."""
UNSETTLED = 1.5
"""Square of the last total in units of its covariance, for each parameter, above which a run has not settled."""
DAMPING = (0.6, 0.3, 0.1, 0.0, 0.0)
"""λ of the rounds; the last ones have none."""
SHARES = (1, 1, 1, 2, 3)
"""Shares of the budget of the rounds."""
AVERAGED = 2
"""Number of last steps whose ends are averaged by their shares."""
PORTION = 500
Units = Array | GroupedCovariates
"""Public covariates of the units that a total is over: of rows, ``(m, d)``, or of whole groups."""


def schedule(rounds: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return λ and the shares of the budget of each round: those of five, shortened, or with more rounds at the start.

    Examples
    --------
    >>> schedule(3)
    ((0.3, 0.1, 0.0), (1, 2, 3))
    >>> schedule(6)[1]
    (1, 1, 1, 1, 2, 3)
    """
    more = rounds - len(DAMPING)
    shares = (1,) * more + SHARES if more > 0 else SHARES[-more:]
    if more > 0:
        return DAMPING[:1] * more + DAMPING, shares
    return DAMPING[1:rounds] + DAMPING[-1:] if rounds < len(DAMPING) else DAMPING, shares


@dataclass(frozen=True, eq=False)
class PublicStep:
    """What a round asks at a mixture, and what its total means.

    Parameters
    ----------
    mixture : Mixture
    factor : (P, P) array
        ``W``, lower triangular.
    clip : float
    information, complete : (P, P) array
        I and C per row.
    slope, spread : (P, P) array
        H without the part of EM, and V.
    damping : float
        λ.
    reach : (P,) array
        Largest change of each parameter in a step: where rows say nothing of it, the metric does not bound it.
    """

    mixture: Mixture
    factor: Array
    clip: float
    information: Array
    complete: Array
    slope: Array
    spread: Array
    damping: float
    reach: Array

    @classmethod
    def at(cls, mixture: Mixture, X: Units, damping: float = 0.0, width: float = 1.0) -> PublicStep:
        """Compute the step at a mixture from simulated covariates ``X`` of units, with a clip of ``width √P``."""
        P = mixture.parameter_count
        if P > LARGEST:
            raise InvalidInputError(f"the mixture has {P} parameters: private scoring is for at most {LARGEST}")
        frame, clip = Frame(mixture, clipping_for(len(X))), width * float(np.sqrt(P))
        parts = [X[i : i + PORTION] for i in range(0, len(X), PORTION)]
        with np.errstate(all="ignore"):
            found = [informations(frame, part) for part in parts]
            I, C = (symmetrise(sum(each) / len(X)) for each in zip(*found, strict=True))
            W = score_factor((1 - damping) * I + damping * C)
            if isinstance(X, GroupedCovariates):
                H, V = (each / len(X) for each in group_clipped(frame, X, W, clip))
            else:
                M = W @ W.T
                clipped = [_clipped(frame, X[i : i + PORTION], M, clip) for i in range(0, len(X), PORTION)]
                H, V = (W.T @ symmetrise(sum(each) / len(X)) @ W for each in zip(*clipped, strict=True))
        return cls(mixture, W, clip, I, C, H, V, damping, reach_of(mixture, X))

    @property
    def unit(self) -> float:
        """Length of a grid unit of the integers."""
        return self.clip / GRID

    def noise(self, variance: int) -> float:
        """Return the variance of noise of this variance in grid units."""
        return float(variance) * self.unit**2

    @property
    def jacobian(self) -> Array:
        """H with the part of EM: ``H₀ + λ κ Wᵀ (C - I) W``, ``κ = tr H₀ / tr(Wᵀ I W)``."""
        W = self.factor
        kept = np.trace(self.slope) / max(float(np.trace(W.T @ self.information @ W)), 1e-9)
        jacobian: Array = self.slope + self.damping * kept * (W.T @ (self.complete - self.information) @ W)
        return jacobian

    def move(self, total: Array, n: float, radius: float = RADIUS) -> Mixture:
        """Return the mixture after the step of a total ``(P,)`` over n rows, within the trust region and the box."""
        left, values, right = np.linalg.svd(self.jacobian)
        delta = self.factor @ (right.T @ ((left.T @ (total / n)) / np.maximum(values, SMALLEST)))
        length = float(np.sqrt(max(delta @ self.complete @ delta, 0.0)))
        longest = float(np.max(np.abs(delta) / self.reach))
        shorter = min(1.0, radius / max(length, 1e-300), 1 / max(longest, 1e-300))
        return within_box(move_parameters(self.mixture, shorter * delta))

    def covariance(self, n: float, noise: float) -> Array:
        """Return the covariance ``(P, P)`` of the free parameters after the step: of rows, and of the noise."""
        inverse = self.factor @ np.linalg.pinv(self.slope, rcond=1e-3)
        return symmetrise(inverse @ (self.spread / n + np.eye(len(inverse)) * noise / n**2) @ inverse.T)

    def surprise(self, total: Array, n: float, noise: float) -> float:
        """Return ``q = Tᵀ (n V + v)⁻¹ T / P``: about 1 at the truth, 0 to 1 at a maximum, large far from both."""
        spread = n * self.spread + noise * np.eye(len(total))
        return float(total @ np.linalg.solve(spread, total)) / len(total)


def score_factor(D: Array) -> Array:
    """Return ``W`` with ``W Wᵀ = D⁻¹``, of ``D`` with a small ridge; parameters without information keep their unit."""
    diagonal = np.diagonal(D).copy()
    diagonal[diagonal <= 0] = 1.0
    scale = 1 / np.sqrt(diagonal)
    correlation = symmetrise(D * scale[:, None] * scale)
    values, vectors = np.linalg.eigh(
        correlation + RIDGE * np.eye(len(D)) + np.diag((np.diagonal(D) <= 0).astype(float))
    )
    inverse = (vectors / np.maximum(values, RIDGE)) @ vectors.T
    return np.asarray(scale[:, None] * np.linalg.cholesky(symmetrise(inverse)))


def reach_of(mixture: Mixture, X: Units) -> Array:
    """Return the largest change of each parameter in a step, ``(P,)``: 1, and for means without a link their own scale.

    A coefficient of such a mean may move it by the standard deviation of the response where its covariate has its root
    mean square.
    """
    reach = np.ones(mixture.parameter_count)
    if mixture.experts.link == "identity":
        of_rows = X.X if isinstance(X, GroupedCovariates) else X
        Y, _ = mixture.sample(of_rows, np.random.default_rng(0))
        size = np.sqrt(np.mean(mixture.design.panel(of_rows) ** 2, axis=1))
        one = Y.std(axis=0)[:, None] / np.where(size > 0, size, 1.0)
        reach[coefficient_slice(mixture)] = np.tile(one.ravel(), mixture.K)
    return np.maximum(reach, np.finfo(float).tiny)


def within_box(mixture: Mixture) -> Mixture:
    """Return the mixture with the slopes of a softmax gate, for standardised covariates, between -3 and 3."""
    if not mixture.gate.reads_covariates:
        return mixture
    contrasts, first = mixture.gate.contrasts(), int(mixture.reads.intercept)
    inside = contrasts.copy()
    inside[:, first:] = np.clip(contrasts[:, first:], -STEEPEST, STEEPEST)
    return replace(mixture, gate=mixture.gate.moved((inside - contrasts).ravel()))


def simulated_rows(P: int) -> int:
    """Return the number of covariates to simulate for P parameters."""
    return max(SIMULATED, PER_PARAMETER * P)


def simulated_groups(P: int) -> int:
    """Return the number of groups to simulate for P parameters."""
    return simulated_rows(P) // ROWS_FOR_A_GROUP


# ---------------------------------------------------------------- sums over nodes


def informations(frame: Frame, X: Units) -> tuple[Array, Array]:
    """Sum the observed and the complete-data information over covariates ``X`` of units and the nodes at each."""
    if isinstance(X, GroupedCovariates):
        return group_informations(frame, X)
    rows = frame.points(simulated(X, frame.mixture.experts.q))
    return _assembled(_products(rows.numbers, rows.weights), rows), _assembled(_complete(frame.mixture, rows), rows)


def _clipped(frame: Frame, X: Array, M: Array, clip: float) -> tuple[Array, Array]:
    """Sum ``ω b bᵀ`` and ``ω² b bᵀ`` over covariates and nodes."""
    rows = frame.points(simulated(X, frame.mixture.experts.q))
    b, omega = rows.spread(frame.products(rows, M), clip)
    weights = rows.weights * omega
    more = 1 + 1 / len(omega) if rows.drawn else 1.0
    return _assembled(_products(b, weights), rows), _assembled(_products(b, more * weights * omega), rows)


def _products(numbers: Array, weights: Array) -> Array:
    """Compute ``Σ_j w_j a_j a_jᵀ``, ``(R, R, n)``, of numbers ``(R, N, n)``."""
    stack = np.moveaxis(numbers, 2, 0)  # (n, R, N)
    return np.moveaxis((stack * weights.T[:, None]) @ stack.transpose(0, 2, 1), 0, 2)


def _complete(mixture: Mixture, rows: ScoredRows) -> Array:
    """Compute the complete-data information in the numbers of the score, ``(R, R, n)``."""
    R, _, n = rows.numbers.shape
    S, c, K, T = np.zeros((R, R, n)), mixture.experts.channels, mixture.K, mixture.experts.tie()
    softmax, m, s = mixture.gate.reads_covariates, mixture.experts.shape_parameters, mixture.experts.shapes
    gate = slice(0, K - 1) if softmax else slice(K * c, K * c + K - 1)
    first = K - 1 if softmax else 0
    pi = rows.pi[: K - 1]
    S[gate, gate] = np.eye(K - 1)[:, :, None] * pi - pi[:, None] * pi
    for k in range(K):
        shapes = tied(rows.complete[k, c:], T[k * s : (k + 1) * s])
        one = np.concatenate([rows.complete[k, :c], shapes])
        place = [*range(first + k * c, first + (k + 1) * c), *range(R - m, R)]
        S[np.ix_(place, place)] += _products(one, rows.weights * rows.tau[k])
    return S


def _assembled(S: Array, rows: ScoredRows) -> Array:
    """Sum ``S_rs x_r x_sᵀ`` over rows, ``(P, P)``, for ``S (R, R, n)``."""
    panels = rows.panels
    return np.block([[(panels[r] * S[r, s]) @ panels[s].T for s in range(len(panels))] for r in range(len(panels))])


# ---------------------------------------------------------------- forecast


@dataclass(frozen=True, eq=False)
class Forecast:
    """Standard errors that a run will have, if its start is right and the run settles.

    Parameters
    ----------
    standard_errors : (P,) array
        Of the free parameters, with the noise.
    pooled : (P,) array
        Of the maximum of the likelihood over all rows, without noise.
    """

    standard_errors: Array
    pooled: Array

    @classmethod
    def at(cls, step: PublicStep, n: float, noise: float) -> Forecast:
        """Return the forecast at a step without damping, over n rows and with this variance of the noise."""
        pooled = np.diagonal(step.factor @ step.factor.T) / n
        return cls(np.sqrt(np.diagonal(step.covariance(n, noise))), np.sqrt(pooled))

    @property
    def ratio(self) -> float:
        """Root mean square of the standard errors in units of the pooled ones."""
        return float(np.sqrt(np.mean((self.standard_errors / self.pooled) ** 2)))


def averaged_noise(variances: Sequence[float], weights: Sequence[float]) -> float:
    """Return the variance of the noise in a mean of steps with these weights, each with noise of its own."""
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    return float(np.sum(shares**2 * np.asarray(variances)))


def forecast(mixture: Mixture, X: Units, n: float, rhos: Sequence[float], sites: int = 1) -> Forecast:
    """Forecast standard errors over n rows of several sites, from the budgets ρ of the rounds at each site.

    Parameters
    ----------
    mixture : Mixture
        The start.
    X : (m, d) array
        Simulated covariates.
    n : float
    rhos : sequence of float
    sites : int
        Number of sites that each add noise.
    """
    step = PublicStep.at(mixture, X)
    return Forecast.at(step, n, planned_noise(step, rhos, sites))


def planned_noise(step: PublicStep, rhos: Sequence[float], sites: int = 1, rows_each: int = 1) -> float:
    """Return the variance of the noise in the mean of the last steps, from the budgets ρ of the rounds at each site.

    ``rows_each`` is the number of rows of a person that count.
    """
    last = list(rhos[-AVERAGED:])
    Delta = rows_each * total_sensitivity(step.mixture.parameter_count)
    return averaged_noise([sites * (Delta * step.unit) ** 2 / (2 * rho) for rho in last], last)
