"""Checks of an answer against its question: the requested shapes, and nothing that no data can give."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.messages.questions import (
    Clients,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    Pairs,
    ProposeStart,
    Sample,
    StartCandidates,
    TotalWeight,
)
from consilience.model.clients import ClientMoments, PairSums
from consilience.model.cross_products import CrossProducts, products_of_summary
from consilience.model.information import complete_information, shape_slice
from consilience.model.mixture import Mixture, layout_of
from consilience.model.moments import Layout, Moments
from consilience.model.statistics import Statistics, StatisticsLayout
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, triangle_size, unpack
from consilience.numerics.linalg import SEMIDEFINITE, is_semidefinite


def summary_fits(summary: ColumnSummary, d: int, q: int) -> bool:
    """Whether a summary has ``d`` covariates and ``q`` responses."""
    covariates = summary.x_mean.shape == (d,) and summary.x_products.shape == (d, d)
    return covariates and summary.y_mean.shape == (q,) and summary.y_products.shape == (q, q)


def is_fit_of(question: FitSite, answer: LocalFit) -> bool:
    """Whether a site's fit has the requested columns, number of experts and kind of model."""
    summary, model = answer.summary, answer.model
    d, q = question.columns or (len(summary.x_mean), len(summary.y_mean))
    if not summary_fits(summary, d, q):
        return False
    if model is None:
        return True
    specification, K = question.specification, model.mixture.K
    wanted = question.describe and specification.needs_covariates and d > 0
    as_asked = K in question.orders and (model.covariates is not None) == wanted
    return as_asked and _same_layout(model.mixture, specification.with_order(K).blank(ColumnSummary.unit(d, q)).raw())


def has_layout(statistics: Statistics, layout: StatisticsLayout, information: bool) -> bool:
    """Whether statistics have the shapes of a layout, with the information if and only if ``information``."""
    parts = ((statistics.gate, layout.gate), (statistics.experts, layout.experts))
    J, P = statistics.information, layout.parameters
    fits = J is None if not information else J is not None and J.shape == (P, P)
    return fits and all(_moments_fit(moments, part) for moments, part in parts)


def _moments_fit(moments: Moments, layout: Layout) -> bool:
    return (
        moments.plain.shape == (layout.s,)
        and moments.first.shape == (layout.g, layout.p)
        and moments.second.shape == (layout.h, triangle_size(layout.p))
    )


def _same_layout(mixture: Mixture, blank: Mixture) -> bool:
    same_kind = type(mixture.gate) is type(blank.gate) and type(mixture.experts) is type(blank.experts)
    return same_kind and mixture.K == blank.K and _sizes(mixture) == _sizes(blank)


def _sizes(mixture: Mixture) -> tuple[int, int, int, int]:
    layout = layout_of(mixture)
    return layout.gate.size, layout.experts.size, layout.parameters, mixture.design.d


def direction_count(asked: Pairs | Clients) -> int:
    """Return the number of directions of a question: those of its basis, or all ``p``."""
    return asked.design.p if asked.basis is None else int(asked.basis.shape[1])


def are_start_candidates(asked: ProposeStart, given: StartCandidates) -> bool:
    """Whether the mixtures have the layout of the specification."""
    blank = asked.specification.blank(asked.summary)
    return all(_same_layout(mixture, blank) for mixture in given.mixtures)


# ---------------------------------------------------------------- what no data can give


ROUNDING = 1e-9
"""Rounding error relative to the size of the terms of a sum."""
MOST_ROWS = 1e15
"""Weight above which an answer is not about rows of a table."""
LARGEST_MEAN = 1e154
"""Mean above which squares overflow."""


def weight_problem(weight: float) -> str:
    """Return what is wrong with the weight of rows."""
    return "a negative weight" if weight < 0 else "more rows than any table has" if weight > MOST_ROWS else ""


def in_statistics(asked: Any, given: Statistics) -> str:
    """Check the statistics of a pass, or of a sample."""
    mixture = asked.question.mixture if isinstance(asked, Sample) else asked.mixture
    return weight_problem(given.weight) or impossible_statistics(mixture, given)


def in_summary(_: Any, given: ColumnSummary) -> str:
    """Check the weight and the means of the columns."""
    if any(bool(np.any(np.abs(mean) > LARGEST_MEAN)) for mean in (given.x_mean, given.y_mean)):
        return "means whose squares overflow: rescale those columns"
    return weight_problem(given.weight)


def in_fit(asked: Any, given: LocalFit) -> str:
    """Check the summary of a site's own fit."""
    return in_summary(asked, given.summary)


def in_likelihood(asked: LogLikelihood, given: Likelihood) -> str:
    """Check a log-likelihood: probabilities of discrete responses are at most 1."""
    if asked.mixture.experts.discrete and given.log_likelihood > ROUNDING * given.weight:
        return "a log-likelihood above its bound"
    return weight_problem(given.weight)


def in_identity(_: Any, given: TotalWeight) -> str:
    """Check the weight of the rows."""
    return weight_problem(given.weight)


def in_pairs(asked: Pairs, given: PairSums) -> str:
    """Check sums over pairs of rows."""
    if asked.basis is None and not _is_symmetric(given.product):
        return "products of pairs that are not symmetric"
    return weight_problem(given.pairs)


def in_clients(_: Any, given: ClientMoments) -> str:
    """Check the moments of each client: products of covariates and residuals are positive semidefinite."""
    joint = np.block([[unpack(given.S), given.b[:, :, None]], [given.b[:, None], given.c[:, None, None]]])
    if not is_semidefinite(joint):
        return "moments of a client that are not positive semidefinite"
    return weight_problem(float(given.n.sum()))


def products_of_fit(_: Any, given: LocalFit) -> CrossProducts:
    """Return what a site's own fit states about its rows."""
    products = products_of_summary(given.summary)
    labels = CrossProducts.counted(labels=np.nan if given.model is None else given.model.weight)
    return products.joined(labels)


def _is_symmetric(matrix: Array) -> bool:
    return bool(np.all(np.abs(matrix - matrix.T) <= ROUNDING * np.abs(matrix).max(initial=0.0)))


# ---------------------------------------------------------------- what must be true of the statistics of any rows, wha


SHARP = 1e-6
"""Information per label below which that of a parameter has few correct digits, as with a nearly separated gate."""
SURPRISED = 1e3
"""Log-likelihood per label beyond which the mixture is so far from the rows that rounding hides the information."""


def impossible_statistics(mixture: Mixture, statistics: Statistics) -> str:
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
    >>> impossible_statistics(data.truth, statistics)
    ''
    >>> impossible_statistics(data.truth, replace(statistics, log_likelihood=0.0))
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
