"""Checks of received messages: consistent shapes, finite numbers, consistent counts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from consilience.aggregate import CovariateSummary, SiteModel
from consilience.aggregate.combine.site_model import COMPONENTS, FEW_VALUES
from consilience.errors import InvalidInputError, MessageError
from consilience.fit import Specification
from consilience.fit.starts import CONTENDERS
from consilience.messages import questions
from consilience.messages.failures import FailureCode, SiteError
from consilience.model import ColumnSummary, Layout, Mixture, Moments, Rows, Statistics, layout_of
from consilience.model.clients import ClientMoments, PairSums
from consilience.model.contributions import LARGEST_CHUNK, Frame, refusal
from consilience.model.expectation import Meat
from consilience.model.families.base import MomentExperts
from consilience.model.families.registry import Regressions
from consilience.model.information import LARGEST, complete_information, is_informable, shape_slice
from consilience.model.received import CrossProducts, is_moderate, products_of_summary
from consilience.model.statistics import StatisticsLayout
from consilience.model.tails import TailCounts
from consilience.numerics.arrays import Array, triangle_size, unpack
from consilience.numerics.linalg import SEMIDEFINITE, is_semidefinite

SLACK = 1e-8
SAME_COUNT = 1e-6
EARNED_SLACK = 1e-3
"""Relative tolerance of a precision, which has few correct digits if covariates are nearly collinear."""
LARGEST_PENALTY = 1e12


def check_directions(question: questions.Pairs | questions.Clients) -> None:
    """Raise an error if coefficients or directions do not have the shapes of the design, or are not finite."""
    design, basis = question.design, question.basis
    p = design.p
    fits = question.theta.shape == (p,) and (basis is None or (len(basis) == p and 1 <= basis.shape[1] <= p))
    if not fits:
        raise MessageError("coefficients or directions do not have the shapes of the design")
    if not (is_moderate(question.theta) and (basis is None or is_moderate(basis))):
        raise MessageError("coefficients or directions are not finite")


def regressions_of(mixture: Mixture) -> Regressions:
    """Return the parameters of a mixture of regressions with one response and constant gate, or raise an error."""
    try:
        return Regressions.of(mixture)
    except InvalidInputError as error:
        raise MessageError(str(error)) from error


def check_clients(moments: ClientMoments) -> None:
    """Raise an error if moments of clients have inconsistent shapes, negative counts, or values that are not finite."""
    G, f = moments.b.shape
    fits = moments.n.shape == moments.c.shape == (G,) and moments.S.shape == (G, triangle_size(f))
    if not (fits and np.all(moments.n >= 0) and np.all(moments.c >= 0)):
        raise MessageError("the moments of clients have inconsistent shapes or negative counts")
    if not all(is_moderate(part) for part in (moments.n, moments.S, moments.b, moments.c)):
        raise MessageError("the moments of clients are not finite")


def check_sample(question: questions.Sample) -> None:
    """Raise an error unless the share is above 0 and at most 1."""
    if not 0 < question.share <= 1:
        raise MessageError("the share of a sample must be above 0 and at most 1")


def check_score_products(question: questions.ScoreProducts) -> None:
    """Raise an error unless the information of the mixture can be computed and second moments are those of rows."""
    mixture, second = question.mixture, question.second
    if not is_informable(mixture) or second.shape != (layout_of(mixture).experts.h, triangle_size(mixture.design.p)):
        raise MessageError("products of scores need a mixture with an information, and its second moments")
    if not (is_moderate(second) and is_semidefinite(unpack(second[mixture.experts.curvature_rows()]))):
        raise MessageError("second moments are not finite, or not positive semidefinite")


def check_ordered(question: questions.CountTails) -> None:
    """Refuse a mixture without one ordered response."""
    experts = question.mixture.experts
    if experts.classes or experts.q != 1:
        raise MessageError("tails are of one response that is a number")


def check_local_fit(question: questions.ProposeStart) -> None:
    """Raise an error if the fit has too many parameters, or if the summary has inconsistent shapes."""
    specification, summary = question.specification, question.summary
    d, q = len(summary.x_mean), len(summary.y_mean)
    if not (summary.x_products.shape == (d, d) and summary.y_products.shape == (q, q)):
        raise MessageError("the parts of a summary have inconsistent shapes")
    if any(j >= d for part in _columns_of(specification) for j in part):
        raise MessageError("the specification reads columns that the summary does not have")
    check_work(question, (specification.K,), d, q)


def check_specification(specification: Specification) -> None:
    """Raise an error unless the penalties of a specification are finite and not negative."""
    ridges = (specification.gate_ridge, specification.expert_ridge or 0.0, specification.reg_covar)
    if not all(0 <= value <= LARGEST_PENALTY for value in ridges):
        raise MessageError(f"a penalty is not a number from 0 to {LARGEST_PENALTY:g}")
    if not 1 <= specification.shape_ratio <= LARGEST_PENALTY:
        raise MessageError(f"the ratio of shapes is not a number from 1 to {LARGEST_PENALTY:g}")
    for columns in _columns_of(specification):
        if not all(a < b for a, b in pairwise((-1, *columns))):
            raise MessageError("the columns of a specification are not in increasing order")


def _columns_of(specification: Specification) -> tuple[tuple[int, ...], ...]:
    """Return the lists of covariates that a specification names."""
    return specification.expert_columns or (), specification.gate_columns or (), specification.shared


def check_covariates(summary: CovariateSummary) -> None:
    """Raise an error unless the summary of covariates is a valid distribution to sample from."""
    G, c = summary.means.shape
    columns = list(zip(summary.levels, summary.shares, strict=False))
    few = [(values, share) for values, share in columns if len(values)]
    fits = (
        G >= 1
        and summary.weights.shape == (G,)
        and summary.covariances.shape == (G, triangle_size(c))
        and len(summary.levels) == len(summary.shares) == c + len(few)
        and all(share.shape == (G, len(values)) for values, share in columns)
    )
    weights = fits and bool(np.all(summary.weights > 0)) and abs(summary.weights.sum() - 1) < SAME_COUNT
    if not (weights and all(_is_distribution(*column) for column in few)):
        raise MessageError(
            "a summary of covariates has inconsistent shapes, or weights that are not positive or do not sum to 1"
        )
    if not (_are_covariances(summary.covariances) and is_moderate(summary.means)):
        raise MessageError(
            "a summary of covariates has means that are not finite, or covariances that are not positive semidefinite"
        )


def _are_covariances(packed: Array) -> bool:
    """Whether packed matrices are positive semidefinite, up to rounding."""
    matrices = unpack(packed)
    return is_moderate(np.diagonal(matrices, axis1=1, axis2=2)) and is_semidefinite(matrices)


def _is_covariance(matrix: Array) -> bool:
    """Whether a matrix is symmetric and positive semidefinite, up to rounding."""
    spread = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    symmetric = bool(np.all(np.abs(matrix - matrix.T) <= SLACK * np.outer(spread, spread)))
    return symmetric and is_semidefinite(matrix)


def _is_distribution(values: Array, share: Array) -> bool:
    """Whether values increase strictly, and their shares are positive and sum to 1."""
    return bool(np.all(np.diff(values) > 0) and np.all(share > 0) and np.all(abs(share.sum(axis=1) - 1) < SAME_COUNT))


def check_site_model(model: SiteModel) -> None:
    """Raise an error if the counts and moments of a site's model are invalid or inconsistent with its mixture."""
    mixture, K, p = model.mixture, model.mixture.K, model.mixture.design.p
    f = len(mixture.experts.free_coefficients()) // K
    experts = mixture.experts
    second = (K, triangle_size(p)) if isinstance(experts, MomentExperts) else (0, 0)
    fits = model.label_counts.shape == model.mass.shape == (K,) and model.second.shape == second
    fits = fits and model.precision.shape in ((0, 0), (K, triangle_size(f)))
    fits = fits and (model.covariates is None or model.covariates.d == mixture.design.d)
    counted = model.weight > 0 and bool(np.all(model.label_counts >= 0) and np.all(model.mass >= 0))
    if not (fits and counted and model.exposure > 0 and _is_close(float(model.label_counts.sum()), model.weight)):
        raise MessageError("the parts of a site's model have inconsistent shapes or invalid counts")
    numbers = np.array([model.weight, model.exposure, model.log_likelihood])
    moderate = all(is_moderate(part) for part in (experts.free_coefficients(), mixture.gate.read(), numbers))
    if not (moderate and _are_covariances(model.second) and _are_covariances(model.precision)):
        raise MessageError(
            "a site's model has parameters that are too large, or moments that are not positive semidefinite"
        )
    if isinstance(experts, MomentExperts) and not _is_earned(model.precision, model.second, experts):
        raise MessageError("a site's model claims a higher precision of its coefficients than its rows allow")


def _is_earned(precision: Array, second: Array, experts: MomentExperts) -> bool:
    """Whether the diagonal of a precision is at most that for known labels."""
    if not len(precision):
        return True
    own, most = np.diagonal(unpack(precision), axis1=1, axis2=2), experts.largest_precision(unpack(second))
    return bool(np.all(own <= most * (1 + EARNED_SLACK) + np.finfo(float).tiny))


def check_fit(fit: questions.LocalFit) -> None:
    """Raise an error if a site's model and its summary have inconsistent numbers of rows."""
    if fit.model is None:
        return
    rows = fit.summary.weight
    if not (_is_close(float(fit.model.mass.sum()), rows) and fit.model.weight <= rows * (1 + SAME_COUNT)):
        raise MessageError("a site's model has another number of rows than its summary, or more groups than rows")


def _is_close(a: float, b: float) -> bool:
    return abs(a - b) <= SAME_COUNT * abs(b)


def check_bundle(bundle: questions.Bundle) -> None:
    """Raise an error unless each question has one place, and places increase."""
    if len(bundle.places) != len(bundle.questions) or np.any(np.diff(bundle.places) <= 0):
        raise MessageError("a bundle must have one place for each question, in increasing order")


def check_summary(summary: ColumnSummary) -> None:
    """Raise an error unless weight, means and products are those that rows can have."""
    products = (summary.x_products, summary.y_products)
    if summary.weight < 0 or any(each.shape[0] != each.shape[-1] for each in products):
        raise MessageError("a summary has a negative weight, or products that are not square")
    if not all(_is_covariance(each) for each in products if np.all(np.isfinite(each))):  # sums over sites may overflow
        raise MessageError("a summary has products that are not symmetric and positive semidefinite")


def check_fit_site(question: questions.FitSite) -> None:
    """Raise an error if a local fit takes too much work, or has invalid columns, orders or tolerance."""
    if question.columns is not None and len(question.columns) != 2:
        raise MessageError("columns must be two numbers: of covariates and of responses")
    if not question.orders or not question.tol >= 0:
        raise MessageError("a local fit has no number of experts to try, or a tolerance that is not a number")
    check_work(question, question.orders, *(question.columns or (0, 1)))


def check_masked(question: questions.Masked) -> None:
    """Raise an error unless the sites of a masked sum are at least two, in order and each once."""
    if len(question.sites) < 2 or not all(a < b for a, b in pairwise(question.sites)):
        raise MessageError("a masked sum needs the names of at least two sites, in order")


def check_private_scores(question: questions.PrivateScores) -> None:
    """Raise an error if factor and clip do not fit the mixture, or if a row takes too much memory."""
    mixture, P = question.mixture, question.mixture.parameter_count
    if question.factor.shape != (P, P) or not 0 < question.clip < np.inf:
        raise MessageError("a private sum needs a factor with one row for each parameter, and a positive clip")
    if P > LARGEST or Frame(mixture).size > LARGEST_CHUNK:
        raise TooCostlyError(
            f"the private sum has {P} parameters; at most {LARGEST}, and {LARGEST_CHUNK} numbers a row"
        )


def check_private_squares(question: questions.PrivateSquares) -> None:
    """Raise an error if factor and clip do not fit the mixture, or if a row takes too much memory."""
    mixture, p = question.mixture, question.mixture.design.p
    if not (mixture.K == 1 and mixture.experts.squares_tell and mixture.experts.q == 1):
        raise MessageError("squared residuals are those of one Gaussian expert with one response")
    if len(question.factor) != triangle_size(p) or not question.size or not 0 < question.clip < np.inf:
        raise MessageError("squared residuals need a factor with one row for each product, and a positive clip")
    if max(question.factor.shape) > LARGEST:
        raise TooCostlyError(f"the private sum has {len(question.factor)} products of covariates; at most {LARGEST}")


def check_private_likelihoods(question: questions.PrivateLikelihoods) -> None:
    """Raise an error unless the mixtures are at least two of one layout, or if a row takes too much memory."""
    first, *others = question.mixtures or (None,)
    if first is None or not others or not all(_same_layout(first, each) for each in others):
        raise MessageError("likelihoods are compared between at least two mixtures of one layout")
    if not 0 < question.clip < np.inf:
        raise MessageError("likelihoods need a positive clip")
    if Frame(first).size > LARGEST_CHUNK:
        raise TooCostlyError(f"the private sum takes more than {LARGEST_CHUNK} numbers a row")


def check_private_steps(question: questions.PrivateSteps) -> None:
    """Raise an error if covariates do not fit the start, or if steps take too much memory or time."""
    m, d = question.covariates.shape
    if d != question.start.design.d or m < 2 or not np.all(np.isfinite(question.covariates)):
        raise MessageError("steps with noise need finite rows of the covariates of their start")
    P = question.start.parameter_count
    if m > MOST_SIMULATED or P > LARGEST or Frame(question.start).size > LARGEST_CHUNK:
        raise TooCostlyError(f"steps from {m} rows and {P} parameters; at most {MOST_SIMULATED} and {LARGEST}")


# ---------------------------------------------------------------- work, memory and size of a local fit


MOST_STEPS, MOST_SIMULATED = 100, 50_000
"""Maximum number of steps that a site takes alone, and of simulated rows from which it computes them."""
MOST_WORK = 10**10
"""Maximum of starts × iterations × experts × products of covariates of a local fit, for each row."""
ITERATIONS = 500
"""Iterations of a start, where the question does not limit them."""
MOST_NUMBERS = 2**27
"""Maximum of numbers that the parameters of a local fit may take: 1 GB."""
MOST_ORDERS = 100
HEADS = 64
"""Upper bound of the integers of a record: shapes, choices and flags."""


class TooCostlyError(MessageError):
    """Error: a question asks for more work or memory than a site allows."""


def check_work(question: questions.FitSite | questions.ProposeStart, orders: tuple[int, ...], d: int, q: int) -> None:
    """Raise an error if a local fit of the given orders takes too much work or memory."""
    if len(orders) > MOST_ORDERS or len(set(orders)) < len(orders):
        raise TooCostlyError(f"a local fit has at most {MOST_ORDERS} numbers of experts, each once")
    specification, p = question.specification, d + 1
    numbers = max(orders, default=1) * (p + specification.experts.numbers(p, q, specification.options))
    if numbers > MOST_NUMBERS:
        raise TooCostlyError(f"the local fit has {numbers} parameters; at most {MOST_NUMBERS}")
    iterations = question.max_iter if isinstance(question, questions.FitSite) else ITERATIONS
    work = question.n_init * iterations * sum(orders) * triangle_size(p)
    if work > MOST_WORK:
        raise TooCostlyError(f"the local fit takes {work:.0e} operations for each row; at most {MOST_WORK:.0e}")


def numbers_of_mixture(specification: Specification, K: int, d: int, q: int) -> int:
    """Return an upper bound on the numbers of an encoded mixture."""
    p = d + 1
    design = 3 * d + p * p  # some columns may be functions of the others, for experts and for the gate
    return HEADS + 2 * design + K * (p + 1 + specification.experts.numbers(p, q, specification.options))


def numbers_of_candidates(question: questions.ProposeStart) -> int:
    """Return an upper bound on the numbers of the proposed starts."""
    d, q = len(question.summary.x_mean), len(question.summary.y_mean)
    return HEADS + CONTENDERS * numbers_of_mixture(question.specification, question.specification.K, d, q)


def numbers_of_fit(question: questions.FitSite) -> int | None:
    """Return an upper bound on the numbers of a site's own fit; None if its columns are not known."""
    if question.columns is None:
        return None
    (d, q), K, specification = question.columns, max(question.orders), question.specification
    p = d + 1
    coefficients = specification.experts.numbers(p, q, specification.options)
    model = numbers_of_mixture(specification, K, d, q) + K * (2 + triangle_size(p) + triangle_size(coefficients))
    covariates = COMPONENTS * (1 + d + triangle_size(d)) + (COMPONENTS + 1) * FEW_VALUES * d + 3 * d
    return HEADS + d + triangle_size(d) + q + q * q + model + covariates


# ---------------------------------------------------------------- rows of a site, before an answer is computed


def check_column_counts(rows: Rows, d: int, q: int) -> None:
    """Raise a :class:`SiteError` if rows have other numbers of covariates or responses."""
    if rows.X.shape[1] != d or rows.Y.shape[1] != q:
        raise SiteError(FailureCode.OTHER_COLUMNS, f"{rows.X.shape[1]} covariates, {rows.Y.shape[1]} responses")


def check_rows(rows: Rows, mixture: Mixture) -> None:
    """Raise a :class:`SiteError` if rows have other columns than a mixture, or responses outside its range."""
    experts = mixture.experts
    check_column_counts(rows, mixture.design.d, experts.q)
    if not experts.in_range(rows):
        raise SiteError(FailureCode.OUT_OF_RANGE, experts.range_sentence)


def reads_columns(asked: Any, rows: Rows) -> None:
    """Check rows against the ``d`` and ``q`` of a question."""
    check_column_counts(rows, asked.d, asked.q)


def reads_mixture(asked: Any, rows: Rows) -> None:
    """Check rows against the mixture of a question."""
    check_rows(rows, asked.mixture)


def reads_design(asked: Any, rows: Rows) -> None:
    """Check rows against the design of a question about one response."""
    check_column_counts(rows, asked.design.d, 1)


def reads_ungrouped(asked: Any, rows: Rows) -> None:
    """Check rows against the mixture of a question; rows must have no groups."""
    check_rows(rows, asked.mixture)
    if rows.groups is not None:
        raise SiteError(FailureCode.GROUPED)


def reads_scored(asked: Any, rows: Rows) -> None:
    """Check the columns of rows or whole groups against a mixture; nothing that their values decide."""
    check_column_counts(rows, asked.mixture.design.d, asked.mixture.experts.q)
    if reason := refusal(rows, of_groups=rows.groups is not None):
        raise SiteError(FailureCode.REFUSED, reason)


def reads_single_rows(asked: Any, rows: Rows) -> None:
    """Check the columns of rows against a mixture, and that they are single rows; nothing that their values decide."""
    check_column_counts(rows, asked.mixture.design.d, asked.mixture.experts.q)
    if rows.groups is not None:
        raise SiteError(FailureCode.GROUPED)
    if reason := refusal(rows):
        raise SiteError(FailureCode.REFUSED, reason)


# ---------------------------------------------------------------- answer checks


def summary_fits(summary: ColumnSummary, d: int, q: int) -> bool:
    """Whether a summary has ``d`` covariates and ``q`` responses."""
    covariates = summary.x_mean.shape == (d,) and summary.x_products.shape == (d, d)
    return covariates and summary.y_mean.shape == (q,) and summary.y_products.shape == (q, q)


def is_fit_of(question: questions.FitSite, answer: questions.LocalFit) -> bool:
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


def direction_count(asked: questions.Pairs | questions.Clients) -> int:
    """Return the number of directions of a question: those of its basis, or all ``p``."""
    return asked.design.p if asked.basis is None else int(asked.basis.shape[1])


def are_start_candidates(asked: questions.ProposeStart, given: questions.StartCandidates) -> bool:
    """Whether the mixtures have the layout of the specification."""
    blank = asked.specification.blank(asked.summary)
    return all(_same_layout(mixture, blank) for mixture in given.mixtures)


def are_masked_sums(asked: questions.Masked, given: questions.MaskedSums) -> bool:
    """Whether masked sums have the values of the private sum that they are of, on its grid."""
    return len(given.values) == asked.question.size + 1 and given.clip == asked.question.clip


def are_noisy_sums(asked: questions.PrivateSum, given: questions.NoisySums) -> bool:
    """Whether noisy sums have their number of values and one for the rows, on the grid of the question."""
    return len(given.values) == asked.size + 1 and given.clip == asked.clip


def are_noisy_steps(asked: questions.PrivateSteps, given: questions.NoisySteps) -> bool:
    """Whether steps have mixtures of the layout of the start, and sums of its parameters at each."""
    start, T = asked.start, len(given.mixtures)
    clip, P = float(np.sqrt(start.parameter_count)), start.parameter_count
    return (
        T > 0
        and given.dampings.shape == (T,)
        and len(given.shares) == len(given.sums) == T
        and bool(np.all((given.dampings >= 0) & (given.dampings <= 1)))
        and all(_same_layout(mixture, start) for mixture in given.mixtures)
        and all(len(each.values) == P + 1 and each.clip == clip for each in given.sums)
    )


def numbers_of_steps(asked: questions.PrivateSteps) -> int:
    """Return the maximum of numbers in the answer of a site that takes steps alone."""
    P, (p, r) = asked.start.parameter_count, (asked.start.design.p, asked.start.reads.p)
    of_mixture = sum(_sizes(asked.start)[:2]) + 2 * (p * p + r * r) + asked.start.K * p * (p + r)
    return MOST_STEPS * (HEADS + 2 * P + of_mixture)


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
    mixture = asked.question.mixture if isinstance(asked, questions.Sample) else asked.mixture
    return weight_problem(given.weight) or impossible_statistics(mixture, given)


def in_summary(_: Any, given: ColumnSummary) -> str:
    """Check the weight and the means of the columns."""
    if any(bool(np.any(np.abs(mean) > LARGEST_MEAN)) for mean in (given.x_mean, given.y_mean)):
        return "means whose squares overflow: rescale those columns"
    return weight_problem(given.weight)


def in_likelihood(asked: questions.LogLikelihood, given: questions.Likelihood) -> str:
    """Check a log-likelihood: probabilities of discrete responses are at most 1."""
    if asked.mixture.experts.discrete and given.log_likelihood > ROUNDING * given.weight:
        return "a log-likelihood above its bound"
    return weight_problem(given.weight)


def in_tails(_: Any, given: TailCounts) -> str:
    """Check counts of rows by the tail probability of their response."""
    return "a negative weight" if np.any(given.counts < 0) else weight_problem(given.rows)


def in_meat(_: Any, given: Meat) -> str:
    """Check products of scores: they are positive semidefinite."""
    if given.clusters < 0 or not is_semidefinite(given.products):
        return "products of scores that are not positive semidefinite"
    return weight_problem(given.weight)


def in_pairs(asked: questions.Pairs, given: PairSums) -> str:
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


def products_of_fit(_: Any, given: questions.LocalFit) -> CrossProducts:
    """Return what a site's own fit states about its rows."""
    products = products_of_summary(given.summary)
    labels = CrossProducts.counted(labels=np.nan if given.model is None else given.model.weight)
    return products.joined(labels)


def _is_symmetric(matrix: Array) -> bool:
    return bool(np.all(np.abs(matrix - matrix.T) <= ROUNDING * np.abs(matrix).max(initial=0.0)))


# ---------------------------------------------------------------- what is true of the statistics of any rows


SHARP = 1e-6
"""Information per label below which that of a parameter has few correct digits, as with a nearly separated gate."""
SURPRISED = 1e3
"""Log-likelihood per label beyond which the mixture is so far from the rows that rounding hides the information."""


def impossible_statistics(mixture: Mixture, statistics: Statistics) -> str:
    """Return what no rows can give at ``mixture``; empty if there is nothing.

    Masses are not negative and add up, second moments and the missing information are positive semidefinite, and

    ``Σ_k τ_k log π_k + Σ_k τ_k log f_k ≤ Σ log p(y | x) ≤ Σ_k τ_k log f_k``.
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
    least = SHARP * statistics.weight  # an expert that fits its rows exactly has no information on its shape
    scale = np.sqrt(least + np.maximum(np.diagonal(complete), 0.0) + np.maximum(np.diagonal(missing), 0.0))
    slack = SEMIDEFINITE * (1 + surprise**2)  # squared scores cancel in the missing information
    return "" if is_semidefinite(missing, scale, slack) else "more information than complete data have"
