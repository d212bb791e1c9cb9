"""The closed table of what can be sent: every record of a message, its fields, and what an answer must look like."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from consilience.aggregate.site_model import SiteModel
from consilience.aggregate.support import CovariateSummary
from consilience.errors import MessageError
from consilience.fit.climb import Expect
from consilience.fit.specification import Family, GateKind, Specification
from consilience.fit.stop import StopReason
from consilience.fit.summary import ColumnSummary
from consilience.model.categorical import CategoricalExperts
from consilience.model.covariance import STRUCTURES
from consilience.model.design import Design
from consilience.model.gates import ConstantGate, SoftmaxGate
from consilience.model.gaussian import GaussianExperts
from consilience.model.mixture import Mixture, layout_of
from consilience.model.moments import Layout, Moments
from consilience.model.poisson import PoissonExperts
from consilience.model.statistics import Statistics
from consilience.numerics.arrays import Array, triangle_size, unpack
from consilience.numerics.linalg import cholesky_or_none
from consilience.protocols.codec import (
    Choice,
    Flag,
    Floats,
    Maybe,
    Message,
    Number,
    OneOf,
    OtherFormatError,
    Reader,
    Record,
    Symmetric,
    Tuple,
    Whole,
    Writer,
)
from consilience.protocols.failures import Failure, Trouble
from consilience.protocols.questions import (
    Answers,
    Candidates,
    FitLocally,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    Question,
    Several,
    Summarise,
)

MOST_EXPERTS = 1_000
MOST_CLASSES = 10_000
MOST_COLUMNS = 100_000
MOST_PARTS = 1_000
MOST_STARTS = 10**6
LARGEST = 1e100
"""Of parameters and moments: their squares do not overflow."""
SLACK = 1e-8
SAME_COUNT = 1e-6
MOST_PARAMETERS = 10**7
"""Of one mixture: what a local fit may be asked to allocate."""


def _check_mixture(mixture: Mixture) -> None:
    """A mixture whose parts do not fit together, or are not finite, is refused before it meets data."""
    design, experts = mixture.design, mixture.experts
    fits = mixture.gate.K == experts.K and experts.p == design.p and design.centre.shape == design.scale.shape
    if isinstance(mixture.gate, SoftmaxGate):
        fits = fits and mixture.gate.alpha.shape[1] == design.p
    if isinstance(experts, GaussianExperts):
        K, q = experts.K, experts.q
        expected = {"full": (K, q, q), "diag": (K, q), "spherical": (K,), "tied": (q, q)}[experts.structure]
        fits = fits and experts.covariance.shape == expected
    if not (fits and experts.K >= 1 and bool(np.all(design.scale > 0))):
        raise MessageError("the parts of a mixture do not fit together")
    gate = mixture.gate.alpha if isinstance(mixture.gate, SoftmaxGate) else mixture.gate.probabilities
    parts = (design.centre, design.scale, gate, experts.free_coefficients(), getattr(experts, "covariance", gate))
    if not all(np.all(np.isfinite(part)) for part in parts):
        raise MessageError("a mixture has parameters that are not finite")
    if isinstance(experts, GaussianExperts) and not _are_proper(experts):
        raise MessageError("a mixture has covariances that are not positive definite")
    if isinstance(mixture.gate, ConstantGate) and not (np.all(gate >= 0) and abs(gate.sum() - 1) < SAME_COUNT):
        raise MessageError("a mixture has shares that are none")


def _are_proper(experts: GaussianExperts) -> bool:
    """Whether covariances are symmetric and positive definite."""
    matrices = experts.matrices
    if not (np.all(experts.variances > 0) and np.allclose(matrices, matrices.transpose(0, 2, 1), rtol=1e-9, atol=0)):
        return False
    return all(cholesky_or_none(S) is not None for S in matrices)


def _check_local_fit(question: FitLocally) -> None:
    """A fit so large that it would exhaust a machine, or a summary whose parts do not fit together, is refused."""
    specification, summary = question.specification, question.summary
    d, q = len(summary.x_mean), len(summary.y_mean)
    if not (summary.x_squares.shape == (d,) and summary.y_products.shape == (q, q)):
        raise MessageError("the parts of a summary do not fit together")
    outputs = specification.n_classes if specification.family == "categorical" else q
    if specification.K * ((d + 1) * (outputs + 1) + q * q) > MOST_PARAMETERS:
        raise MessageError("a local fit with too many parameters")


def _check_covariates(summary: CovariateSummary) -> None:
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


def _check_site_model(model: SiteModel) -> None:
    """Moments that do not belong to the mixture, or weights that are none, are refused."""
    mixture, K, p = model.mixture, model.mixture.K, model.mixture.design.p
    f = len(mixture.experts.free_coefficients()) // K
    second = (K, triangle_size(p)) if isinstance(mixture.experts, GaussianExperts) else (0, 0)
    fits = model.labels.shape == model.mass.shape == (K,) and model.second.shape == second
    fits = fits and model.precision.shape in ((0, 0), (K, triangle_size(f)))
    fits = fits and (model.covariates is None or model.covariates.d == mixture.design.d)
    counted = model.weight > 0 and bool(np.all(model.labels >= 0) and np.all(model.mass >= 0))
    if not (fits and counted and model.exposure > 0 and _is_close(float(model.labels.sum()), model.weight)):
        raise MessageError("the parts of a site's model do not fit together")
    gate = mixture.gate.alpha if isinstance(mixture.gate, SoftmaxGate) else np.zeros(0)
    numbers = np.array([model.weight, model.exposure, model.log_likelihood])
    moderate = all(_is_moderate(part) for part in (mixture.experts.free_coefficients(), gate, numbers))
    if not (moderate and _are_covariances(model.second) and _are_covariances(model.precision)):
        raise MessageError("a site's model has moments or parameters that are none")


def _check_fit(fit: LocalFit) -> None:
    """A model of more rows than its site has is refused."""
    if fit.model is None:
        return
    rows = fit.summary.weight
    if not (_is_close(float(fit.model.mass.sum()), rows) and fit.model.weight <= rows * (1 + SAME_COUNT)):
        raise MessageError("a site's model is of another number of rows, or of more groups, than its summary")


def _is_close(a: float, b: float) -> bool:
    return abs(a - b) <= SAME_COUNT * abs(b)


def _check_summary(summary: ColumnSummary) -> None:
    """Negative weights and sums of squares are refused."""
    squares = (summary.x_squares, np.diagonal(summary.y_products))
    if summary.weight < 0 or any(bool(np.any(part < 0)) for part in squares):
        raise MessageError("a summary has a negative weight or negative squares")


def _check_fit_site(question: FitSite) -> None:
    """A fit so large that it would exhaust a machine is refused."""
    if question.columns is not None and len(question.columns) != 2:
        raise MessageError("a local fit of columns that are not two numbers")
    d, q = question.columns or (0, 1)
    specification = question.specification
    outputs = specification.n_classes if specification.family == "categorical" else q
    if not question.orders or max(question.orders) * ((d + 1) * (outputs + 1) + q * q) > MOST_PARAMETERS:
        raise MessageError("a local fit with too many parameters, or of no order")


VECTOR, MATRIX, NUMBER, FLAG = Floats((1,)), Floats((2,)), Number(), Flag()
DESIGN = Record(Design, (VECTOR, VECTOR, FLAG))
GATE = OneOf(Record(SoftmaxGate, (MATRIX,)), Record(ConstantGate, (VECTOR,)))
EXPERTS = OneOf(
    Record(GaussianExperts, (Floats((3,)), Floats((1, 2, 3)), Choice(STRUCTURES))),
    Record(CategoricalExperts, (Floats((3,)),)),
    Record(PoissonExperts, (MATRIX,)),
)
MIXTURE = Record(Mixture, (DESIGN, GATE, EXPERTS), _check_mixture)
SUMMARY = Record(ColumnSummary, (NUMBER, VECTOR, VECTOR, VECTOR, MATRIX), _check_summary)
MOMENTS = Record(Moments, (VECTOR, MATRIX, MATRIX))
SPECIFICATION = Record(
    Specification,
    (
        Whole(1, MOST_EXPERTS),
        Choice(get_args(Family)),
        Choice(get_args(GateKind)),
        Choice(STRUCTURES),
        Whole(1, MOST_CLASSES),
        FLAG,
        NUMBER,
        NUMBER,
        NUMBER,
    ),
)

COVARIATES = Record(
    CovariateSummary,
    (VECTOR, MATRIX, MATRIX, Tuple(VECTOR, MOST_COLUMNS), Tuple(MATRIX, MOST_COLUMNS)),
    _check_covariates,
)
SITE_MODEL = Record(
    SiteModel,
    (MIXTURE, NUMBER, VECTOR, VECTOR, MATRIX, NUMBER, MATRIX, Maybe(COVARIATES), NUMBER),
    _check_site_model,
)
FIT_SITE = Record(
    FitSite,
    (
        SPECIFICATION,
        Tuple(Whole(1, MOST_EXPERTS), MOST_PARTS),
        Whole(0, 2**62),
        Whole(1, MOST_STARTS),
        NUMBER,
        Whole(1, MOST_STARTS),
        Maybe(MIXTURE),
        Maybe(Tuple(Whole(0, MOST_COLUMNS), 2)),
    ),
    _check_fit_site,
)
LOCAL_FIT = Record(LocalFit, (SUMMARY, Maybe(SITE_MODEL), Maybe(Choice(tuple(StopReason)))), _check_fit)

SIMPLE_QUESTIONS = (
    Record(Summarise, (Whole(0, MOST_COLUMNS), Whole(1, MOST_COLUMNS))),
    Record(Expect, (MIXTURE, FLAG)),
    Record(LogLikelihood, (MIXTURE,)),
    Record(FitLocally, (SPECIFICATION, SUMMARY, Whole(0, 2**62), Whole(1, MOST_STARTS)), _check_local_fit),
)
SIMPLE_ANSWERS = (
    SUMMARY,
    Record(Statistics, (MOMENTS, MOMENTS, NUMBER, NUMBER, NUMBER, Maybe(Symmetric()))),
    Record(Likelihood, (NUMBER, NUMBER)),
    Record(Candidates, (Tuple(MIXTURE, 1),)),
)

KINDS: tuple[Record, ...] = (
    *SIMPLE_QUESTIONS,
    Record(Several, (Tuple(OneOf(*SIMPLE_QUESTIONS, FIT_SITE), MOST_PARTS),)),
    *SIMPLE_ANSWERS,
    Record(Answers, (Tuple(OneOf(*SIMPLE_ANSWERS, LOCAL_FIT), MOST_PARTS),)),
    Record(Failure, (Choice(tuple(Trouble)), Whole(0, 2**62))),
    FIT_SITE,
    LOCAL_FIT,
)
"""Every kind of message. New kinds go to the end: the place is the number that is sent."""
_KIND_OF = {record.type: kind for kind, record in enumerate(KINDS)}


def encode(value: Any) -> bytes:
    """A question, an answer or a failure as bytes.

    Examples
    --------
    >>> decode(encode(Summarise(d=2, q=1)))
    Summarise(d=2, q=1)
    >>> encode("anything else")
    Traceback (most recent call last):
    ...
    consilience.errors.MessageError: str is not in the table of messages
    """
    kind = _KIND_OF.get(type(value))
    if kind is None:
        raise MessageError(f"{type(value).__name__} is not in the table of messages")
    writer = Writer()
    KINDS[kind].write(value, writer)
    return writer.message(kind).to_bytes()


def decode(data: bytes) -> Any:
    """The value in ``data``, or a :class:`~consilience.errors.MessageError`; its arrays are read-only views.

    Examples
    --------
    >>> decode(encode(Likelihood(-3.0, 2.0)))
    Likelihood(log_likelihood=-3.0, weight=2.0)
    """
    return _read(Message.from_bytes(data))


def _read(message: Message) -> Any:
    if message.kind >= len(KINDS):
        raise MessageError(f"message of kind {message.kind}, this version knows {len(KINDS)} kinds")
    reader = Reader(message)
    value = KINDS[message.kind].read(reader)
    reader.finish()
    return value


def received(data: bytes, question: Question) -> Any:
    """The answer to ``question`` in ``data``, or a :class:`Failure`: what could not be used is a failure too.

    Examples
    --------
    >>> print(received(b"", Summarise(1, 1)))
    the answer could not be read
    >>> print(received(encode(Likelihood(float("nan"), 1.0)), Summarise(1, 1)))
    the answer has numbers that are not finite
    """
    try:
        message = Message.from_bytes(data)
        if not np.all(np.isfinite(message.body)):
            return Failure(Trouble.NOT_FINITE)
        answer = _read(message)
    except OtherFormatError:
        return Failure(Trouble.OTHER_FORMAT)
    except MessageError:
        return Failure(Trouble.UNREADABLE_ANSWER)
    if isinstance(answer, Failure) or answers(question, answer):
        return answer
    return Failure(Trouble.WRONG_SHAPE)


def answers(question: Question, answer: Any) -> bool:
    """Whether ``answer`` has the type and the shapes that ``question`` asks for.

    Examples
    --------
    >>> answers(Summarise(d=1, q=1), Likelihood(-3.0, 2.0))
    False
    """
    match question, answer:
        case Summarise(d, q), ColumnSummary():
            fits = _summary_fits(answer, d, q)
        case Expect(mixture, information), Statistics():
            fits = _has_layout(answer, mixture, information)
        case LogLikelihood(), Likelihood():
            fits = True
        case FitLocally(specification, summary), Candidates(mixtures):
            blank = specification.blank(summary)
            fits = all(_same_layout(mixture, blank) for mixture in mixtures)
        case FitSite(), LocalFit():
            fits = _is_fit_of(answer, question)
        case Several(questions), Answers(items):
            fits = len(questions) == len(items) and all(map(answers, questions, items))
        case _:
            fits = False
    return fits


def _summary_fits(summary: ColumnSummary, d: int, q: int) -> bool:
    covariates = summary.x_mean.shape == summary.x_squares.shape == (d,)
    return covariates and summary.y_mean.shape == (q,) and summary.y_products.shape == (q, q)


def _is_fit_of(answer: LocalFit, question: FitSite) -> bool:
    """Whether a site's model is of the kind that was asked for, on the columns of its summary."""
    summary, model = answer.summary, answer.model
    d, q = question.columns or (len(summary.x_mean), len(summary.y_mean))
    if not _summary_fits(summary, d, q):
        return False
    if model is None:
        return True
    specification, K = question.specification, model.mixture.K
    needed = specification.gate == "softmax" or specification.family != "gaussian"
    described = not needed or len(summary.x_mean) == 0 or model.covariates is not None
    return (
        described and K in question.orders and _same_layout(model.mixture, specification.with_order(K).blank(summary))
    )


def _has_layout(statistics: Statistics, mixture: Mixture, information: bool) -> bool:
    layout = layout_of(mixture)
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
