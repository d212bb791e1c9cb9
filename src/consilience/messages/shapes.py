"""Checks that an answer has the shapes that a question requests."""

from __future__ import annotations

from consilience.messages.client_questions import Clients, Pairs
from consilience.messages.questions import CriticSums, FitSite, LocalFit, ProposeStart, StartCandidates
from consilience.model.critic import MinimaxSums
from consilience.model.mixture import Mixture, layout_of
from consilience.model.moments import Layout, Moments
from consilience.model.statistics import Statistics, StatisticsLayout
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import triangle_size


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


def directions(asked: Pairs | Clients) -> int:
    """Return the number of directions of a question: those of its basis, or all ``p``."""
    return asked.design.p if asked.basis is None else int(asked.basis.shape[1])


def are_start_candidates(asked: ProposeStart, given: StartCandidates) -> bool:
    """Whether the mixtures have the layout of the specification."""
    blank = asked.specification.blank(asked.summary)
    return all(_same_layout(mixture, blank) for mixture in given.mixtures)


def is_comparison(asked: CriticSums, given: MinimaxSums) -> bool:
    """Whether gradients and sums have the shapes of the critics."""
    gradients = given.above.shape == given.below.shape == given.B.shape == asked.above.shape
    return gradients and given.shares.shape == (asked.mixture.K,)
