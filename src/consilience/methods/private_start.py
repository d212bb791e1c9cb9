"""A start that is found privately, for two Gaussian experts: one regression, its squared residuals, steps of EM.

All of it are private sums as in the steps that follow, from the same budget. For three and more experts no private
start was found that is reliable: those begin from a model that the study names.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.errors import InvalidInputError
from consilience.fit import Problem
from consilience.fit.private_squares import WITHIN, PublicSquares
from consilience.fit.private_step import PublicStep
from consilience.messages import Dialogue, PrivateScores, PrivateSquares
from consilience.methods.private_sums import Purse
from consilience.model import Mixture
from consilience.model.contributions import COUNTED
from consilience.numerics.arrays import Array

REGRESSIONS, SQUARES, CLIMBS = 3, 2, 6
"""Parts of the budget: one for each step of one regression, for the squared residuals, one for each step of EM."""
START_PARTS = REGRESSIONS + SQUARES + CLIMBS
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
    one = yield from one_regression(problem, X, response, purse)
    asked = PublicSquares.at(one, X)
    sums = yield from purse.insist(PrivateSquares(one, asked.factor, asked.clip, 0), SQUARES)
    values = np.array(sums.values, dtype=np.float64)
    variance = float(one.experts.shape_values().ravel()[0])
    here = two_experts(problem.blank, asked.ends(values[:-1], values[-1] / COUNTED), WITHIN * variance)
    for _ in range(CLIMBS):
        here = bounded((yield from moved(here, X, purse, damping=1.0, longest=LONG)), variance)
    return here


def one_regression(problem: Problem, X: Array, response: tuple[float, float], purse: Purse) -> Dialogue[Mixture]:
    """Fit one expert by private scoring, from a constant in the middle of the range of the response."""
    low, high = response
    blank = replace(problem.specification, K=1).blank(problem.summary)
    coefficients = np.zeros(blank.experts.free_coefficients().size)
    coefficients[0] = (low + high) / 2 if blank.design.intercept else 0.0
    here = blank.with_vector(np.append(coefficients, ((high - low) / SIXTH) ** 2))
    for _ in range(REGRESSIONS):
        here = yield from moved(here, X, purse, damping=0.0, longest=FURTHER)
    return here


def moved(here: Mixture, X: Array, purse: Purse, *, damping: float, longest: float) -> Dialogue[Mixture]:
    """Take one step."""
    step = PublicStep.at(here, X, damping)
    sums = yield from purse.insist(PrivateScores(step.mixture, step.factor, step.clip, 0), 1)
    values = np.array(sums.values, dtype=np.float64)
    return step.move(values[:-1] * step.unit, max(float(values[-1]) / COUNTED, 1.0), longest)


def two_experts(blank: Mixture, coefficients: Array, variance: float) -> Mixture:
    """Return two experts with these coefficients, equal variances and a gate that says nothing."""
    gate = np.zeros(blank.gate.contrasts().size)
    return blank.with_vector(np.concatenate([gate, coefficients.ravel(), np.full(blank.K, variance)]))


def bounded(mixture: Mixture, variance: float) -> Mixture:
    """Return the mixture with variances in their range."""
    vector, K = mixture.to_vector(), mixture.K
    vector[-K:] = np.clip(vector[-K:], LOWEST * variance, HIGHEST * variance)
    return mixture.with_vector(vector)
