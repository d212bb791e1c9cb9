"""What a message must say to be believed: parts that fit together, finite numbers, counts that agree."""

from __future__ import annotations

import numpy as np

from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.combine.support import CovariateSummary
from consilience.errors import InvalidInputError, MessageError
from consilience.fit.specification import Specification
from consilience.messages.anchor_questions import Anchors, LocalSteps
from consilience.messages.client_questions import Clients, Pairs
from consilience.messages.questions import Bundle, CriticSums, FitSite, LocalFit, ProposeStart, Sample, SquaredResponses
from consilience.model.clients.anchors import ClientSizes
from consilience.model.clients.local_steps import ClusterSums
from consilience.model.clients.moments import ClientMoments
from consilience.model.design import Design
from consilience.model.families.base import MomentExperts
from consilience.model.families.requirement import Regressions
from consilience.model.mixture import Mixture
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import Array, triangle_size, unpack

LARGEST = 1e100
"""Of parameters and moments: their squares do not overflow."""
SLACK = 1e-8
SAME_COUNT = 1e-6
EARNED_SLACK = 1e-3
"""Of a precision: where covariates are nearly collinear its digits are few."""
MOST_PARAMETERS = 10**7
"""Of one mixture: what a local fit may be asked to allocate."""


def check_mixture(mixture: Mixture) -> None:
    """Refuse a mixture whose parts do not fit together, or are not proper, before it meets data."""
    design, gate, experts = mixture.design, mixture.gate, mixture.experts
    fits = gate.K == experts.K >= 1 and experts.p == design.p and design.centre.shape == design.scale.shape
    if not (fits and bool(np.all(design.scale > 0))):
        raise MessageError("the parts of a mixture do not fit together")
    if not (np.all(np.isfinite(design.centre)) and np.all(np.isfinite(design.scale))):
        raise MessageError("the design of a mixture has numbers that are not finite")
    problem = gate.invalid(design.p) or experts.invalid()
    if problem:
        raise MessageError(f"not a proper mixture: {problem}")


def check_directions(question: Pairs | Clients) -> None:
    """Coefficients and directions that are not those of the design, or not finite, are refused."""
    design, basis = question.design, question.basis
    _check_design(design)
    fits = question.theta.shape == (design.p,) and (basis is None or (len(basis) == design.p and basis.shape[1] >= 1))
    if not fits:
        raise MessageError("directions that are not those of the design")
    if not (_is_moderate(question.theta) and (basis is None or _is_moderate(basis))):
        raise MessageError("coefficients or directions that are not finite")


def check_design(question: SquaredResponses) -> None:
    """A design whose parts do not fit together, or are not finite, is refused."""
    _check_design(question.design)


def _check_design(design: Design) -> None:
    if not (design.centre.shape == design.scale.shape and np.all(design.scale > 0) and _is_moderate(design.centre)):
        raise MessageError("the parts of a design do not fit together")


def check_comparison(question: CriticSums) -> None:
    """Critics that are not of a mixture of regressions with constant shares and one variance are refused."""
    found, parts = _regressions(question.mixture), (question.above, question.below)
    if not all(part.shape == found.B.shape for part in parts):
        raise MessageError("the parts of a comparison do not fit together")
    if not (len(np.unique(found.variances)) == 1 and all(_is_moderate(part) for part in parts)):
        raise MessageError("a comparison with several variances, or with numbers that are not finite")


def _regressions(mixture: Mixture) -> Regressions:
    """The numbers of a mixture of regressions with one response and constant shares; others are refused."""
    try:
        return Regressions.of(mixture)
    except InvalidInputError as error:
        raise MessageError(str(error)) from error


def check_clients(moments: ClientMoments) -> None:
    """Moments of clients that do not fit together, or are of no rows, are refused."""
    G, f = moments.b.shape
    fits = moments.n.shape == moments.c.shape == (G,) and moments.S.shape == (G, triangle_size(f))
    if not (fits and np.all(moments.n >= 0) and np.all(moments.c >= 0)):
        raise MessageError("the moments of clients do not fit together")
    if not all(_is_moderate(part) for part in (moments.n, moments.S, moments.b, moments.c)):
        raise MessageError("clients have moments that are not finite")


def check_client_sizes(sizes: ClientSizes) -> None:
    """Sizes that are negative are refused."""
    if not (np.all(sizes.n >= 0) and _is_moderate(sizes.n)):
        raise MessageError("clients have sizes that are none")


def check_anchors(question: Anchors) -> None:
    """Coefficients and bases that are not one for each anchor on the design, or not finite, are refused."""
    A, p = len(question.places), question.design.p
    _check_design(question.design)
    fits = question.theta.shape == (A, p) and question.basis.shape[:2] == (A, p) and question.basis.shape[2] >= 1
    if not fits:
        raise MessageError("the parts of a question to anchors do not fit together")
    if not (_is_moderate(question.theta) and _is_moderate(question.basis)):
        raise MessageError("anchors with coefficients or directions that are not finite")


def check_local_steps(question: LocalSteps) -> None:
    """Steps on anything but regressions with constant shares and one response, or of no length, are refused."""
    _regressions(question.mixture)
    if not (question.rate > 0 and np.isfinite(question.rate)):
        raise MessageError("the rate of local steps must be positive and finite")


def check_cluster_sums(sums: ClusterSums) -> None:
    """Sums whose parts do not fit together, or are of a negative number of rows, are refused."""
    parts = (sums.rows, sums.clients, sums.squares)
    if not all(part.shape == (len(sums.moved),) and np.all(part >= 0) for part in parts):
        raise MessageError("the parts of sums over clusters do not fit together")
    if not all(_is_moderate(part) for part in (*parts, sums.moved)):
        raise MessageError("sums over clusters that are not finite")


def check_sample(question: Sample) -> None:
    """A share that is none is refused."""
    if not 0 < question.share <= 1:
        raise MessageError("a share that is not above 0 and at most 1")


def check_local_fit(question: ProposeStart) -> None:
    """A fit so large that it would exhaust a machine, or a summary whose parts do not fit together, is refused."""
    specification, summary = question.specification, question.summary
    d, q = len(summary.x_mean), len(summary.y_mean)
    if not (summary.x_squares.shape == (d,) and summary.y_products.shape == (q, q)):
        raise MessageError("the parts of a summary do not fit together")
    if _is_large(specification, specification.K, d, q):
        raise MessageError("a local fit with too many parameters")


def _is_large(specification: Specification, K: int, d: int, q: int) -> bool:
    """Whether a mixture of K experts has more numbers than a fit may be asked to allocate."""
    return K * (d + 1 + specification.experts.numbers(d + 1, q, specification.options)) > MOST_PARAMETERS


def check_covariates(summary: CovariateSummary) -> None:
    """A description of covariates that no points can be drawn from is refused."""
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
        raise MessageError("the parts of a description of covariates do not fit together")
    if not (_are_covariances(summary.covariances) and _is_moderate(summary.means)):
        raise MessageError("a description of covariates has means or covariances that are none")


def _are_covariances(packed: Array) -> bool:
    """Whether packed matrices are positive semi-definite, up to rounding."""
    matrices = unpack(packed)
    variances = np.diagonal(matrices, axis1=1, axis2=2)
    if not (np.all(variances >= 0) and _is_moderate(variances)):
        return False
    scale = 1 / np.sqrt(np.where(variances > 0, variances, 1.0))
    try:
        np.linalg.cholesky(matrices * scale[:, :, None] * scale[:, None] + SLACK * np.eye(matrices.shape[1]))
    except np.linalg.LinAlgError:
        return False
    return True


def _is_moderate(values: Array) -> bool:
    """Whether the squares of values are finite, and their sums over many sites."""
    return bool(np.all(np.abs(values) < LARGEST))


def _is_distribution(values: Array, share: Array) -> bool:
    """Whether values are in order and each has a positive share."""
    return bool(np.all(np.diff(values) > 0) and np.all(share > 0) and np.all(abs(share.sum(axis=1) - 1) < SAME_COUNT))


def check_site_model(model: SiteModel) -> None:
    """Moments that do not belong to the mixture, or weights that are none, are refused."""
    mixture, K, p = model.mixture, model.mixture.K, model.mixture.design.p
    f = len(mixture.experts.free_coefficients()) // K
    experts = mixture.experts
    second = (K, triangle_size(p)) if isinstance(experts, MomentExperts) else (0, 0)
    fits = model.label_counts.shape == model.mass.shape == (K,) and model.second.shape == second
    fits = fits and model.precision.shape in ((0, 0), (K, triangle_size(f)))
    fits = fits and (model.covariates is None or model.covariates.d == mixture.design.d)
    counted = model.weight > 0 and bool(np.all(model.label_counts >= 0) and np.all(model.mass >= 0))
    if not (fits and counted and model.exposure > 0 and _is_close(float(model.label_counts.sum()), model.weight)):
        raise MessageError("the parts of a site's model do not fit together")
    numbers = np.array([model.weight, model.exposure, model.log_likelihood])
    moderate = all(_is_moderate(part) for part in (experts.free_coefficients(), mixture.gate.read(), numbers))
    if not (moderate and _are_covariances(model.second) and _are_covariances(model.precision)):
        raise MessageError("a site's model has moments or parameters that are none")
    if isinstance(experts, MomentExperts) and not _is_earned(model.precision, model.second, experts):
        raise MessageError("a site's model is surer of its coefficients than its rows allow")


def _is_earned(precision: Array, second: Array, experts: MomentExperts) -> bool:
    """Whether a precision is at most what known labels would give, on the diagonal."""
    if not len(precision):
        return True
    own, most = np.diagonal(unpack(precision), axis1=1, axis2=2), experts.largest_precision(unpack(second))
    return bool(np.all(own <= most * (1 + EARNED_SLACK) + np.finfo(float).tiny))


def check_fit(fit: LocalFit) -> None:
    """A model of more rows than its site has is refused."""
    if fit.model is None:
        return
    rows = fit.summary.weight
    if not (_is_close(float(fit.model.mass.sum()), rows) and fit.model.weight <= rows * (1 + SAME_COUNT)):
        raise MessageError("a site's model is of another number of rows, or of more groups, than its summary")


def _is_close(a: float, b: float) -> bool:
    return abs(a - b) <= SAME_COUNT * abs(b)


def check_bundle(bundle: Bundle) -> None:
    """Places that are not one for each question, in their order, are refused."""
    if len(bundle.places) != len(bundle.questions) or np.any(np.diff(bundle.places) <= 0):
        raise MessageError("the parts of a bundle of questions do not fit together")


def check_summary(summary: ColumnSummary) -> None:
    """Negative weights and sums of squares are refused."""
    squares = (summary.x_squares, np.diagonal(summary.y_products))
    if summary.weight < 0 or any(bool(np.any(part < 0)) for part in squares):
        raise MessageError("a summary has a negative weight or negative squares")


def check_fit_site(question: FitSite) -> None:
    """A fit so large that it would exhaust a machine is refused."""
    if question.columns is not None and len(question.columns) != 2:
        raise MessageError("a local fit of columns that are not two numbers")
    if not question.orders or _is_large(question.specification, max(question.orders), *(question.columns or (0, 1))):
        raise MessageError("a local fit with too many parameters, or of no order")
