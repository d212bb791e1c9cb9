"""Checks of received messages: consistent shapes, finite numbers, consistent counts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.combine.support import CovariateSummary
from consilience.errors import InvalidInputError, MessageError
from consilience.fit.specification import Specification
from consilience.messages.anchor_questions import Anchors, LocalSteps
from consilience.messages.client_questions import Clients, Pairs
from consilience.messages.limits import TooCostlyError, check_work
from consilience.messages.questions import Bundle, CriticSums, FitSite, LocalFit, ProposeStart, Sample
from consilience.model.clients.anchors import ClientSizes
from consilience.model.clients.local_steps import ClusterSums
from consilience.model.clients.moments import ClientMoments
from consilience.model.families.base import MomentExperts
from consilience.model.families.requirement import Regressions
from consilience.model.mixture import Mixture
from consilience.model.received import is_moderate
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, triangle_size, unpack
from consilience.numerics.linalg import is_semidefinite

SLACK = 1e-8
SAME_COUNT = 1e-6
EARNED_SLACK = 1e-3
"""Relative tolerance of a precision, which has few correct digits if covariates are nearly collinear."""
LARGEST_PENALTY = 1e12
MOST_CRITICS = 64
"""Maximum number of experts of a critic, whose memory grows with their square."""


def check_directions(question: Pairs | Clients) -> None:
    """Raise an error if coefficients or directions do not have the shapes of the design, or are not finite."""
    design, basis = question.design, question.basis
    p = design.p
    fits = question.theta.shape == (p,) and (basis is None or (len(basis) == p and 1 <= basis.shape[1] <= p))
    if not fits:
        raise MessageError("coefficients or directions do not have the shapes of the design")
    if not (is_moderate(question.theta) and (basis is None or is_moderate(basis))):
        raise MessageError("coefficients or directions are not finite")


def check_comparison(question: CriticSums) -> None:
    """Raise an error unless the critics are those of a mixture of regressions with constant gate and one variance."""
    found, parts = _regressions(question.mixture), (question.above, question.below)
    if question.mixture.K > MOST_CRITICS:
        raise TooCostlyError(f"a critic has {question.mixture.K} experts; at most {MOST_CRITICS}")
    if not all(part.shape == found.B.shape for part in parts):
        raise MessageError("the critics do not have the shape of the mixture's coefficients")
    if not (len(np.unique(found.variances)) == 1 and all(is_moderate(part) for part in parts)):
        raise MessageError("the mixture has more than one variance, or a critic has values that are not finite")


def _regressions(mixture: Mixture) -> Regressions:
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


def check_client_sizes(sizes: ClientSizes) -> None:
    """Raise an error if sizes of clients are negative or not finite."""
    if not (np.all(sizes.n >= 0) and is_moderate(sizes.n)):
        raise MessageError("the sizes of clients must be non-negative and finite")


def check_anchors(question: Anchors) -> None:
    """Raise an error unless each anchor has finite coefficients and a finite basis of the design's dimension."""
    A, p = len(question.places), question.design.p
    fits = question.theta.shape == (A, p) and question.basis.shape[:2] == (A, p) and 1 <= question.basis.shape[2] <= p
    if not fits:
        raise MessageError("the coefficients or bases of anchors have inconsistent shapes")
    if not (is_moderate(question.theta) and is_moderate(question.basis)):
        raise MessageError("the coefficients or bases of anchors are not finite")


def check_local_steps(question: LocalSteps) -> None:
    """Raise an error unless the model is a mixture of regressions of one response and the rate is valid."""
    _regressions(question.mixture)
    if not (question.rate > 0 and np.isfinite(question.rate)):
        raise MessageError("the rate of local steps must be positive and finite")


def check_cluster_sums(sums: ClusterSums) -> None:
    """Raise an error if sums over clusters have inconsistent shapes, negative counts, or values that are not finite."""
    parts = (sums.rows, sums.clients, sums.squares)
    if not all(part.shape == (len(sums.moved),) and np.all(part >= 0) for part in parts):
        raise MessageError("the sums over clusters have inconsistent shapes or negative counts")
    if not all(is_moderate(part) for part in (*parts, sums.moved)):
        raise MessageError("the sums over clusters are not finite")


def check_sample(question: Sample) -> None:
    """Raise an error unless the share is above 0 and at most 1."""
    if not 0 < question.share <= 1:
        raise MessageError("the share of a sample must be above 0 and at most 1")


def check_local_fit(question: ProposeStart) -> None:
    """Raise an error if the fit has too many parameters, or if the summary has inconsistent shapes."""
    specification, summary = question.specification, question.summary
    d, q = len(summary.x_mean), len(summary.y_mean)
    if not (summary.x_products.shape == (d, d) and summary.y_products.shape == (q, q)):
        raise MessageError("the parts of a summary have inconsistent shapes")
    if any(j >= d for part in (specification.expert_columns, specification.gate_columns) for j in part or ()):
        raise MessageError("the specification reads columns that the summary does not have")
    check_work(question, (specification.K,), d, q)


def check_specification(specification: Specification) -> None:
    """Raise an error unless the penalties of a specification are finite and not negative."""
    ridges = (specification.gate_ridge, specification.expert_ridge or 0.0, specification.reg_covar)
    if not all(0 <= value <= LARGEST_PENALTY for value in ridges):
        raise MessageError(f"a penalty is not a number from 0 to {LARGEST_PENALTY:g}")
    for columns in (specification.expert_columns, specification.gate_columns):
        if columns is not None and not all(a < b for a, b in pairwise((-1, *columns))):
            raise MessageError("the columns of a specification are not in increasing order")


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


def check_fit(fit: LocalFit) -> None:
    """Raise an error if a site's model and its summary have inconsistent numbers of rows."""
    if fit.model is None:
        return
    rows = fit.summary.weight
    if not (_is_close(float(fit.model.mass.sum()), rows) and fit.model.weight <= rows * (1 + SAME_COUNT)):
        raise MessageError("a site's model has another number of rows than its summary, or more groups than rows")


def _is_close(a: float, b: float) -> bool:
    return abs(a - b) <= SAME_COUNT * abs(b)


def check_bundle(bundle: Bundle) -> None:
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


def check_fit_site(question: FitSite) -> None:
    """Raise an error if a local fit takes too much work, or has invalid columns, orders or tolerance."""
    if question.columns is not None and len(question.columns) != 2:
        raise MessageError("columns must be two numbers: of covariates and of responses")
    if not question.orders or not question.tol >= 0:
        raise MessageError("a local fit has no number of experts to try, or a tolerance that is not a number")
    check_work(question, question.orders, *(question.columns or (0, 1)))
