"""A start that is found privately, for two Gaussian experts.

It is found by one regression, its squared residuals, steps of EM from two candidates, and a comparison of their
likelihoods. All of these are private sums as in the steps that follow, from the same budget. For three and more experts
no private start was found that is reliable: those begin from a model that the study names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit import Problem
from consilience.fit.private_squares import WITHIN, PublicSquares
from consilience.fit.private_step import PublicStep
from consilience.messages import MOST_COMPARED, Dialogue, PrivateLikelihoods, PrivateScores, PrivateSquares
from consilience.methods.private_sums import Purse
from consilience.model import Mixture
from consilience.model.contributions import COUNTED, GRID
from consilience.numerics.arrays import Array

REGRESSIONS, SQUARES, CLIMBS, COMPARED, LATER = 4, 2, 4, 2, 5
"""Parts of the budget: one for each step of one regression, for the squared residuals, one for each step of EM from
each of two candidates, for the comparison, and one for each further step from the best."""
DAMPED = 0.5
"""Share of EM in the further steps: steps of EM are short where it is hardly known which expert a row belongs to."""
START_PARTS = REGRESSIONS + SQUARES + 2 * CLIMBS + COMPARED + LATER
WIDEST, NOISE = 8.0, 0.05
"""Largest clip of a step in units of ``√P``, and the noise in a standardised coordinate of a step up to which the clip
is widened. Far from the maximum, a narrow clip makes steps short, and they may settle where the likelihood has no
maximum."""
APART = 0.5
"""Shift of the constants of two experts against each other, in standard deviations of the residuals of one: squared
residuals do not show it, because one regression takes up the part of it that goes with the gate."""
COMPARISON = 2.0
"""Clip of the log densities in a comparison, in units of the root of the number of mixtures."""
FURTHER, LONG = 2.0, 1.0
"""Longest step of one regression, and of EM, in the metric of the complete-data information."""
LOWEST, HIGHEST = np.exp(-3.5), np.exp(0.7)
"""Range of the variances of two experts in units of that of one."""
SIXTH = 6.0
"""Standard deviations in the range of the response."""
MANY = (
    "start='private' is for two experts, not for {K}: no start that is found privately was reliable for three and "
    "more. Pass start=a model: one that the study names, or the fit of a site that may release it"
)
ONLY_GAUSSIAN = "start='private' is for Gaussian experts with one response: pass start=a model for other families"
NO_RANGE = "start='private' needs to know the range of the response without asking for it: pass response=(low, high)"


def responses_within(response: tuple[float, float], m: int, q: int) -> Array:
    """Return numbers ``(m, q)`` with the mean and the standard deviation that a range suggests."""
    low, high = response
    signs = np.where(np.arange(m) % 2, 1.0, -1.0)[:, None]
    return np.asarray((low + high) / 2 + (high - low) / SIXTH * np.repeat(signs, q, axis=1))


def check_served(problem: Problem) -> None:
    """Raise an error for models that have no private start."""
    if problem.specification.K != 2:
        raise InvalidInputError(MANY.format(K=problem.specification.K))
    if not problem.blank.experts.squares_tell or problem.blank.experts.q != 1:
        raise InvalidInputError(ONLY_GAUSSIAN)


def private_start(problem: Problem, X: Array, response: tuple[float, float], purse: Purse) -> Dialogue[Mixture]:
    """Find a start of two experts.

    Parameters
    ----------
    problem : Problem
    X : (m, d) array
        Public covariates.
    response : (float, float)
        Public range of the response.
    purse : Purse
    """
    check_served(problem)
    one, precision = yield from one_regression(problem, X, response, purse)
    asked = PublicSquares.at(one, X)
    sums = yield from purse.insist(PrivateSquares(one, asked.factor, asked.clip, 0), SQUARES)
    values = np.array(sums.values, dtype=np.float64)
    variance = float(one.experts.shape_values().ravel()[0])
    climb = Climb(X, purse, variance, precision)
    found = []
    for coefficients in shifted_apart(problem, asked.ends(values[:-1], values[-1] / COUNTED), np.sqrt(variance)):
        begin = two_experts(problem.blank, coefficients, WITHIN * variance)
        found.append((yield from climb.up(begin, CLIMBS, 1.0)))
    found += [other for here in found for other in exchanged(here, X)]
    return (yield from climb.up((yield from best_of(found[:MOST_COMPARED], purse)), LATER, DAMPED))


def one_regression(
    problem: Problem, X: Array, response: tuple[float, float], purse: Purse
) -> Dialogue[tuple[Mixture, float]]:
    """Fit one expert by private scoring, from a constant in the middle of the range of the response.

    Returns
    -------
    Mixture
    float
        Precision of the last total, as of :func:`moved`.
    """
    low, high = response
    blank = replace(problem.specification, K=1).blank(problem.summary)
    coefficients = np.zeros(blank.experts.free_coefficients().size)
    coefficients[0] = (low + high) / 2 if blank.design.intercept else 0.0
    here, precision = blank.with_vector(np.append(coefficients, ((high - low) / SIXTH) ** 2)), 0.0
    for _ in range(REGRESSIONS):
        step = PublicStep.at(here, X, 0.0, width(precision, here.parameter_count))
        here, precision = yield from moved(step, purse, FURTHER)
    return here, precision


@dataclass(frozen=True, eq=False)
class Climb:
    """Steps of EM for two experts, with variances in a range and clips as wide as the noise allows.

    Parameters
    ----------
    X : (m, d) array
        Public covariates.
    purse : Purse
    variance : float
        That of one expert.
    precision : float
        Of a total, as of :func:`moved`.
    """

    X: Array
    purse: Purse
    variance: float
    precision: float

    def up(self, here: Mixture, steps: int, damping: float) -> Dialogue[Mixture]:
        """Take some steps with this share of EM."""
        for _ in range(steps):
            step = PublicStep.at(here, self.X, damping, width(self.precision, here.parameter_count))
            moving, _ = yield from moved(step, self.purse, LONG)
            here = bounded(moving, self.variance)
        return here


def width(precision: float, P: int) -> float:
    """Return the clip in units of ``√P`` that a noise of :data:`NOISE` in each coordinate of a step allows."""
    return float(np.clip(NOISE * precision / np.sqrt(P), 1.0, WIDEST))


def moved(step: PublicStep, purse: Purse, longest: float) -> Dialogue[tuple[Mixture, float]]:
    """Take one step.

    Returns
    -------
    Mixture
    float
        Precision of the total: number of rows over the standard deviation of the noise, with a clip of 1.
    """
    sums = yield from purse.insist(PrivateScores(step.mixture, step.factor, step.clip, 0), 1)
    values = np.array(sums.values, dtype=np.float64)
    n = max(float(values[-1]) / COUNTED, 1.0)
    return step.move(values[:-1] * step.unit, n, longest), n * GRID / float(np.sqrt(sums.variance))


def shifted_apart(problem: Problem, ends: Array, spread: float) -> list[Array]:
    """Return coefficients of two experts, ``(2, p)`` each, with their constants shifted apart in both directions."""
    if not problem.blank.design.intercept:
        return [ends]
    apart = np.zeros(ends.shape)
    apart[:, 0] = APART * spread * np.array([1.0, -1.0])
    return [ends + apart, ends - apart]


def exchanged(mixture: Mixture, X: Array) -> list[Mixture]:
    """Return for each covariate the mixture with its two experts exchanged where that covariate is high.

    Where a covariate has two values, climbs may end in a local maximum that has the right experts for the rows with one
    value, and has them exchanged for the others. Half of the difference of the experts, and that of the logits of the
    gate, keeps its value where the covariate is low, and changes its sign where it is high.
    """
    gate, B = mixture.gate.contrasts(), mixture.experts.free_coefficients().reshape(2, -1)
    if not mixture.design.intercept or gate.shape[1] != B.shape[1]:
        return []
    panel = mixture.design.panel(X)
    centre, half = B.mean(axis=0), (B[0] - B[1]) / 2
    found = []
    for j in map(int, 1 + np.flatnonzero(np.ptp(panel[1:], axis=1) > 0)):
        half_there, gate_there = (turned(each, panel, j) for each in (half, gate[0]))
        vector = mixture.to_vector()
        vector[: B.size + gate.size] = np.concatenate([gate_there, centre + half_there, centre - half_there])
        found.append(mixture.with_vector(vector))
    return found


def turned(line: Array, panel: Array, j: int) -> Array:
    """Return coefficients ``(p,)`` with the same value where covariate j is low, and the opposite where it is high.

    Other covariates are at their means.
    """
    low, high = ends_of(panel[j])
    elsewhere = panel.mean(axis=1)
    elsewhere[j] = 0.0
    constant = line @ elsewhere
    slope = -(2 * constant + (low + high) * line[j]) / (high - low)
    there = line.copy()
    there[j], there[0] = slope, line[0] + low * (line[j] - slope)
    return there


def ends_of(x: Array) -> tuple[float, float]:
    """Return the two values of a covariate, or the mean less and plus its standard deviation if it has more."""
    if len(np.unique(x)) == 2:
        return float(x.min()), float(x.max())
    return float(x.mean() - x.std()), float(x.mean() + x.std())


def best_of(found: Sequence[Mixture], purse: Purse) -> Dialogue[Mixture]:
    """Return the mixture with the largest clipped likelihood."""
    if len(found) == 1:
        return found[0]
    clip = COMPARISON * float(np.sqrt(len(found)))
    sums = yield from purse.insist(PrivateLikelihoods(tuple(found), clip, 0), COMPARED)
    return found[int(np.argmax(sums.values[:-1]))]


def two_experts(blank: Mixture, coefficients: Array, variance: float) -> Mixture:
    """Return two experts with these coefficients, equal variances and a gate that says nothing."""
    gate = np.zeros(blank.gate.contrasts().size)
    return blank.with_vector(np.concatenate([gate, coefficients.ravel(), np.full(blank.K, variance)]))


def bounded(mixture: Mixture, variance: float) -> Mixture:
    """Return the mixture with variances in their range."""
    vector, K = mixture.to_vector(), mixture.K
    vector[-K:] = np.clip(vector[-K:], LOWEST * variance, HIGHEST * variance)
    return mixture.with_vector(vector)
