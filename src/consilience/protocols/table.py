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
from consilience.numerics.arrays import triangle_size
from consilience.protocols.checks import (
    check_bundle,
    check_covariates,
    check_fit,
    check_fit_site,
    check_local_fit,
    check_mixture,
    check_site_model,
    check_summary,
)
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
    Bundle,
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
MOST_SITES = 10**6
MOST_STARTS = 10**6
VECTOR, MATRIX, NUMBER, FLAG = Floats((1,)), Floats((2,)), Number(), Flag()
DESIGN = Record(Design, (VECTOR, VECTOR, FLAG))
GATE = OneOf(Record(SoftmaxGate, (MATRIX,)), Record(ConstantGate, (VECTOR,)))
EXPERTS = OneOf(
    Record(GaussianExperts, (Floats((3,)), Floats((1, 2, 3)), Choice(STRUCTURES))),
    Record(CategoricalExperts, (Floats((3,)),)),
    Record(PoissonExperts, (MATRIX,)),
)
MIXTURE = Record(Mixture, (DESIGN, GATE, EXPERTS), check_mixture)
SUMMARY = Record(ColumnSummary, (NUMBER, VECTOR, VECTOR, VECTOR, MATRIX), check_summary)
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
    check_covariates,
)
SITE_MODEL = Record(
    SiteModel,
    (MIXTURE, NUMBER, VECTOR, VECTOR, MATRIX, NUMBER, MATRIX, Maybe(COVARIATES), NUMBER),
    check_site_model,
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
        FLAG,
    ),
    check_fit_site,
)
LOCAL_FIT = Record(LocalFit, (SUMMARY, Maybe(SITE_MODEL), Maybe(Choice(tuple(StopReason)))), check_fit)

SIMPLE_QUESTIONS = (
    Record(Summarise, (Whole(0, MOST_COLUMNS), Whole(1, MOST_COLUMNS))),
    Record(Expect, (MIXTURE, FLAG)),
    Record(LogLikelihood, (MIXTURE,)),
    Record(FitLocally, (SPECIFICATION, SUMMARY, Whole(0, 2**62), Whole(1, MOST_STARTS)), check_local_fit),
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
    Record(
        Bundle, (Tuple(Whole(0, MOST_SITES), MOST_SITES), Tuple(OneOf(*SIMPLE_QUESTIONS), MOST_SITES)), check_bundle
    ),
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
    wanted = question.describe and specification.needs_covariates and d > 0
    as_asked = K in question.orders and (model.covariates is not None) == wanted
    return as_asked and _same_layout(model.mixture, specification.with_order(K).blank(summary))


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
