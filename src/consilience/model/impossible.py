"""What must be true of the statistics of any rows, whatever they are: the rest is an error or a lie."""

from __future__ import annotations

import numpy as np

from consilience.model.information import complete_information, shape_slice
from consilience.model.mixture import Mixture
from consilience.model.statistics import Statistics
from consilience.numerics.linalg import SEMIDEFINITE, is_semidefinite

ROUNDING = 1e-9
"""Rounding error relative to the size of the terms of a sum."""
SHARP = 1e-6
"""Information per label below which that of a parameter has few correct digits, as with a nearly separated gate."""
SURPRISED = 1e3
"""Log-likelihood per label beyond which the mixture is so far from the rows that rounding hides the information."""


def impossible(mixture: Mixture, statistics: Statistics) -> str:
    """Return what no rows can give at ``mixture``; empty if there is nothing.

    Masses are not negative and add up, second moments and the missing information are positive semidefinite, and

    ``Σ_k τ_k log π_k + Σ_k τ_k log f_k ≤ Σ log p(y | x) ≤ Σ_k τ_k log f_k``.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from consilience.datasets import soft
    >>> from consilience.model import Rows, expect
    >>> data = soft(500, random_state=0)
    >>> statistics = expect(data.truth, Rows(data.X, data.y[:, None]))
    >>> impossible(data.truth, statistics)
    ''
    >>> impossible(data.truth, replace(statistics, log_likelihood=0.0))
    'a log-likelihood above its bound'
    """
    gate, experts, intercept = mixture.gate, mixture.experts, mixture.design.intercept
    return (
        _miscounted(mixture, statistics)
        or gate.impossible(statistics.gate, intercept=intercept)
        or experts.impossible(statistics.experts, intercept=intercept)
        or _unlikely(mixture, statistics)
        or _uninformed(mixture, statistics)
    )


def _miscounted(mixture: Mixture, statistics: Statistics) -> str:
    labels = statistics.gate.plain[: mixture.K].sum()
    if statistics.weight < 0 or abs(labels - statistics.weight) > ROUNDING * statistics.weight:
        return "masses that do not add up to the number of labels"
    if (labels > 0) != (statistics.experts.plain[: mixture.K].sum() > 0):
        return "labels without rows, or rows without labels"
    if abs(statistics.log_likelihood) > statistics.absolute * (1 + ROUNDING):
        return "a log-likelihood larger than the sum of its terms"
    return ""


def _unlikely(mixture: Mixture, statistics: Statistics) -> str:
    """Compare the log-likelihood with its bounds, as far as the statistics state them."""
    highest = mixture.experts.expected_log_density(statistics.experts)
    if highest is None:
        return ""
    slack = ROUNDING * (abs(highest) + statistics.scale)
    if statistics.log_likelihood > highest + slack:
        return "a log-likelihood above its bound"
    lowest = mixture.gate.expected_log_weight(statistics.gate)
    if mixture.experts.discrete or lowest is None:
        return ""
    return "a log-likelihood below its bound" if statistics.log_likelihood < highest + lowest - slack else ""


def _uninformed(mixture: Mixture, statistics: Statistics) -> str:
    """Whether the missing information is positive semidefinite, relative to it and to the complete-data information."""
    surprise = statistics.absolute / max(statistics.weight, 1.0)
    if statistics.information is None or surprise > SURPRISED:
        return ""
    complete = complete_information(mixture, statistics)
    slopes = np.diagonal(complete)[: shape_slice(mixture).start]
    if np.any(np.abs(slopes) < SHARP * statistics.weight):
        return ""
    missing = complete - statistics.information
    scale = np.sqrt(np.maximum(np.diagonal(complete), 0.0) + np.maximum(np.diagonal(missing), 0.0))
    slack = SEMIDEFINITE * (1 + surprise**2)  # squared scores cancel in the missing information
    return "" if is_semidefinite(missing, scale, slack) else "more information than complete data have"
