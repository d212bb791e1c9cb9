"""Generalised least squares over noisy totals: the mixture under which totals that were asked at others are expected.

A total over n rows was asked at a mixture ``θ'`` (:mod:`consilience.fit.private_step`): it is a sum of contributions
``u'`` of rows, and noise of variance v. Under a mixture θ, and for covariates that are simulated, it has the mean
``n E u'`` and the covariance ``n Cov u' + v``; the derivative of the mean is ``n E[u' sᵀ]``, with the score s of θ. All
three are sums over the nodes of the responses at θ. Totals of several places, each at mixtures of its own, therefore
give one mixture by generalised least squares [1]_. What was measured is explained; ends of steps are not averaged,
whose errors are not normal where rows are few. The covariance per row is one for all places, that of the mixture which
is sought, and the estimate has the inverse of ``Σ n² Gᵀ (n C + v)⁻¹ G`` as its covariance.

References
----------
.. [1] L. P. Hansen, "Large sample properties of generalized method of moments estimators", Econometrica 50 (1982),
   1029-1054.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.fit.private_step import PORTION, RADIUS, RIDGE, PublicStep, informations, within_box
from consilience.model import Mixture
from consilience.model.contributions import COUNTED, Frame, simulated
from consilience.model.information import move_parameters
from consilience.numerics.arrays import Array
from consilience.numerics.linalg import symmetrise

MOST_PASSES = 25
"""Maximum number of passes of generalised least squares."""
STILL = 1e-2
"""Length of a pass, in standard errors, at which the estimate stands still."""


@dataclass(frozen=True, eq=False)
class NoisyTotal:
    """A total over rows, and what was asked.

    Parameters
    ----------
    step : PublicStep
        What was asked.
    total : (P,) array
    noise : float
        Variance of the noise of each number.
    share : int
        Parts of the budget that were spent on it.
    rows : float
        Number of rows, with noise.
    """

    step: PublicStep
    total: Array
    noise: float
    share: int
    rows: float

    @classmethod
    def of(cls, step: PublicStep, values: Sequence[int], variance: int, share: int) -> NoisyTotal:
        """Return the mean of ``share`` answers to a step, from the sum of their integers and of their variances."""
        mean = np.array(values, dtype=np.float64) / share
        return cls(
            step, mean[:-1] * step.unit, step.noise(variance) / share**2, share, max(float(mean[-1]) / COUNTED, 1.0)
        )


@dataclass(frozen=True, eq=False)
class Expected:
    """What totals per row are under a mixture.

    Parameters
    ----------
    means : (T, P) array
    slopes : (T, P, P) array
        Derivatives of the means in the free parameters of the mixture.
    covariance : (T P, T P) array
    """

    means: Array
    slopes: Array
    covariance: Array

    @classmethod
    def under(cls, mixture: Mixture, steps: Sequence[PublicStep], X: Array) -> Expected:
        """Compute the means, slopes and covariance of the totals of steps per row, from covariates ``X (m, d)``."""
        T, P = len(steps), mixture.parameter_count
        sums, products, squares = np.zeros(T * P), np.zeros((T * P, P)), np.zeros((T * P, T * P))
        frames = [Frame(step.mixture) for step in steps]
        here = Frame(mixture)
        with np.errstate(all="ignore"):
            for i in range(0, len(X), PORTION):
                part = X[i : i + PORTION]
                Y, weights = here.responses(simulated(part, mixture.experts.q))
                w = weights.ravel()
                U = np.concatenate([_contributed(*each, part, Y) for each in zip(frames, steps, strict=True)])
                s = _times_covariates(here, here.numbers_at(simulated(part, mixture.experts.q), Y), part)
                weighted = U * w
                sums += weighted.sum(axis=1)
                products += weighted @ s.T
                squares += weighted @ U.T
        means, m = sums / len(X), len(X)
        spread = symmetrise(squares / m - np.outer(means, means))
        return cls(means.reshape(T, P), (products / m).reshape(T, P, P), spread)


def _contributed(frame: Frame, step: PublicStep, X: Array, Y: Array) -> Array:
    """Compute the contributions ``u (P, N m)`` to a step of responses ``Y (N, m, q)`` at covariates ``X (m, d)``."""
    chunk = simulated(X, Y.shape[2])
    points = frame.points(chunk)
    W = step.factor
    b = points.clipped_at(frame.numbers_at(chunk, Y), frame.products(points, W @ W.T), step.clip)
    u: Array = W.T @ _times_covariates(frame, b, X)
    return u


def _times_covariates(frame: Frame, numbers: Array, X: Array) -> Array:
    """Compute ``a ⊗ x``, ``(P, N m)``, of numbers ``a (R, N, m)``."""
    panels = frame.panels_of(simulated(X, frame.mixture.experts.q))
    found = np.concatenate([panel[:, None] * number for panel, number in zip(panels, numbers, strict=True)])
    return found.reshape(len(found), -1)


# ---------------------------------------------------------------- generalised least squares


@dataclass(frozen=True, eq=False)
class Combined:
    """The mixture that explains totals.

    Parameters
    ----------
    mixture : Mixture
    covariance : (P, P) array
        Of its free parameters.
    misfit : float
        Squared differences between totals and their means in units of their covariance, for each degree of freedom:
        about 1 if the totals are of rows of this mixture, whatever the noise is.
    freedom : int
        Number of degrees of freedom.
    stands : bool
        Whether the passes came to an end.
    """

    mixture: Mixture
    covariance: Array
    misfit: float
    freedom: int
    stands: bool


def rows_of(totals: Sequence[NoisyTotal]) -> float:
    """Return the number of rows behind totals of the same rows: the mean of what each says, by its share."""
    return max(float(np.average([each.rows for each in totals], weights=[each.share for each in totals])), 1.0)


def explain_totals(
    start: Mixture, places: Sequence[Sequence[NoisyTotal]], X: Array, prior: Array | None = None
) -> Combined:
    """Find the mixture that explains totals of several places.

    Parameters
    ----------
    start : Mixture
    places : sequence of sequence of NoisyTotal
        Totals of each place, over the same rows.
    X : (m, d) array
        Simulated covariates.
    prior : (P,) array, optional
        Precisions with which the free parameters are drawn to the start.
    """
    P = start.parameter_count
    precision = np.zeros(P) if prior is None else prior
    here, gone, stands = start, np.zeros(P), False
    for _ in range(MOST_PASSES):
        curvature, gradient, squares = _equations(here, places, X)
        curvature = curvature + np.diag(precision)
        delta = solve_ridged(curvature, gradient - precision * gone)
        stands = float(delta @ curvature @ delta) < STILL**2 * P
        if stands:
            break
        delta *= min(1.0, RADIUS / max(float(np.sqrt(delta @ complete_per_row(here, X) @ delta)), 1e-300))
        here, gone = within_box(move_parameters(here, delta)), gone + delta
    freedom = max(sum(map(len, places)) * P - P, 1)
    return Combined(here, solve_ridged(curvature, np.eye(P)), squares / freedom, freedom, stands)


def _equations(mixture: Mixture, places: Sequence[Sequence[NoisyTotal]], X: Array) -> tuple[Array, Array, float]:
    """Return curvature and gradient of generalised least squares at a mixture, and the squares that are left."""
    P = mixture.parameter_count
    curvature, gradient, squares = np.zeros((P, P)), np.zeros(P), 0.0
    for totals in places:
        n = rows_of(totals)
        expected = Expected.under(mixture, [each.step for each in totals], X)
        spread = n * expected.covariance + np.diag(np.repeat([each.noise for each in totals], P))
        slope = n * expected.slopes.reshape(-1, P)
        left = np.concatenate([each.total for each in totals]) - n * expected.means.ravel()
        weighed = np.linalg.solve(spread, np.column_stack([slope, left]))
        curvature += slope.T @ weighed[:, :P]
        gradient += slope.T @ weighed[:, P]
        squares += float(left @ weighed[:, P])
    return symmetrise(curvature), gradient, squares


def solve_ridged(A: Array, b: Array) -> Array:
    """Solve ``A x = b`` of a positive semidefinite matrix in the units of its diagonal, with a small ridge."""
    diagonal = np.diagonal(A).copy()
    diagonal[diagonal <= 0] = 1.0
    scale = 1 / np.sqrt(diagonal)
    scaled = A * scale[:, None] * scale + RIDGE * np.eye(len(A))
    found: Array = scale.reshape(-1, *[1] * (b.ndim - 1)) * np.linalg.solve(scaled, (scale * b.T).T)
    return found


def complete_per_row(mixture: Mixture, X: Array) -> Array:
    """Return the complete-data information per row, ``(P, P)``, in whose metric steps are shortened."""
    frame, found = Frame(mixture), np.zeros((mixture.parameter_count,) * 2)
    for i in range(0, len(X), PORTION):
        found += informations(frame, X[i : i + PORTION])[1]
    return symmetrise(found / len(X))
