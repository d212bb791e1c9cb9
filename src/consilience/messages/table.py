"""The closed table of what can be sent: every record of a message, its fields, and what an answer must look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.combine.support import CovariateSummary
from consilience.errors import MessageError
from consilience.fit.climb import Expect
from consilience.fit.specification import Specification
from consilience.fit.spectral import SquaredMoments
from consilience.fit.stop import StopReason
from consilience.messages.anchor_questions import Anchors, LocalSteps, Sizes
from consilience.messages.checks import (
    check_anchors,
    check_bundle,
    check_client_sizes,
    check_clients,
    check_cluster_sums,
    check_comparison,
    check_covariates,
    check_design,
    check_directions,
    check_fit,
    check_fit_site,
    check_local_fit,
    check_local_steps,
    check_mixture,
    check_sample,
    check_site_model,
    check_summary,
)
from consilience.messages.client_questions import Clients, Pairs
from consilience.messages.codec import (
    Choice,
    Flag,
    Floats,
    Maybe,
    Message,
    Number,
    OneOf,
    OtherFormatError,
    Reader,
    Struct,
    Symmetric,
    Tuple,
    Whole,
    Writer,
)
from consilience.messages.failures import Failure, FailureCode
from consilience.messages.questions import (
    Answers,
    Bundle,
    CriticSums,
    FitSite,
    Likelihood,
    LocalFit,
    LogLikelihood,
    ProposeStart,
    Question,
    Sample,
    ScoreSums,
    Several,
    SquaredResponses,
    StartCandidates,
    Summarise,
)
from consilience.model.clients.anchors import AnchorSteps, ClientSizes
from consilience.model.clients.local_steps import ClusterSums
from consilience.model.clients.moments import ClientMoments
from consilience.model.clients.pairs import PairSums
from consilience.model.critic import MinimaxSums
from consilience.model.design import Design
from consilience.model.families.base import Experts
from consilience.model.families.covariance import STRUCTURES
from consilience.model.families.registry import FAMILIES
from consilience.model.gates import GATES, Gate
from consilience.model.mixture import Mixture, layout_of, score_layout
from consilience.model.moments import Layout, Moments
from consilience.model.statistics import Statistics, StatisticsLayout
from consilience.model.summary import ColumnSummary
from consilience.numerics.arrays import triangle_size

MOST_EXPERTS = 1_000
MOST_CLASSES = 10_000
MOST_COLUMNS = 100_000
MOST_PARTS = 1_000
MOST_SITES = 10**6
MOST_STARTS = 10**6
MOST_CLIENTS = 10**9
MOST_STEPS = 10**4


def _of_fields(kind: type[Experts] | type[Gate]) -> Struct:
    """The codec of a gate or a family, from the fields that it states."""
    return Struct(kind, tuple(_field(form) for form in kind.message_fields.values()))


def _field(form: tuple[int, ...] | tuple[str, ...]) -> Floats | Choice:
    axes = tuple(each for each in form if isinstance(each, int))
    return Floats(axes) if axes else Choice(tuple(each for each in form if isinstance(each, str)))


VECTOR, MATRIX, NUMBER, FLAG = Floats((1,)), Floats((2,)), Number(), Flag()
DESIGN = Struct(Design, (VECTOR, VECTOR, FLAG))
GATE = OneOf(*(_of_fields(gate) for gate in GATES.values()))
EXPERTS = OneOf(*(_of_fields(family) for family in FAMILIES.values()))
MIXTURE = Struct(Mixture, (DESIGN, GATE, EXPERTS), check_mixture)
SUMMARY = Struct(ColumnSummary, (NUMBER, VECTOR, VECTOR, VECTOR, MATRIX), check_summary)
MOMENTS = Struct(Moments, (VECTOR, MATRIX, MATRIX))
SPECIFICATION = Struct(
    Specification,
    (
        Whole(1, MOST_EXPERTS),
        Choice(tuple(FAMILIES)),
        Choice(tuple(GATES)),
        Choice(STRUCTURES),
        Whole(1, MOST_CLASSES),
        FLAG,
        NUMBER,
        NUMBER,
        NUMBER,
    ),
)

COVARIATES = Struct(
    CovariateSummary,
    (VECTOR, MATRIX, MATRIX, Tuple(VECTOR, MOST_COLUMNS), Tuple(MATRIX, MOST_COLUMNS)),
    check_covariates,
)
SITE_MODEL = Struct(
    SiteModel,
    (MIXTURE, NUMBER, VECTOR, VECTOR, MATRIX, NUMBER, MATRIX, Maybe(COVARIATES), NUMBER),
    check_site_model,
)
FIT_SITE = Struct(
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
LOCAL_FIT = Struct(LocalFit, (SUMMARY, Maybe(SITE_MODEL), Maybe(Choice(tuple(StopReason)))), check_fit)

EXPECT = Struct(Expect, (MIXTURE, FLAG))
SCORE_SUMS = Struct(ScoreSums, (MIXTURE,))
SAMPLE = Struct(Sample, (OneOf(EXPECT, SCORE_SUMS), NUMBER, Whole(0, 2**62)), check_sample)
DIRECTIONS = (DESIGN, VECTOR, Maybe(MATRIX))
PAIRS = Struct(Pairs, DIRECTIONS, check_directions)
CLIENTS = Struct(Clients, DIRECTIONS, check_directions)
PAIR_SUMS = Struct(PairSums, (MATRIX, NUMBER))
CLIENT_MOMENTS = Struct(ClientMoments, (VECTOR, MATRIX, MATRIX, VECTOR), check_clients)
SQUARED_RESPONSES = Struct(SquaredResponses, (DESIGN,), check_design)
SQUARED_MOMENTS = Struct(SquaredMoments, (Symmetric(), NUMBER))
CRITIC_SUMS = Struct(CriticSums, (MIXTURE, MATRIX, MATRIX), check_comparison)
MINIMAX_SUMS = Struct(MinimaxSums, (MATRIX, MATRIX, MATRIX, NUMBER, VECTOR, NUMBER, NUMBER, NUMBER))
SIZES = Struct(Sizes, ())
CLIENT_SIZES = Struct(ClientSizes, (VECTOR,), check_client_sizes)
ANCHORS = Struct(Anchors, (DESIGN, Tuple(Whole(0, MOST_CLIENTS), MOST_PARTS), MATRIX, Floats((3,))), check_anchors)
LOCAL_STEPS = Struct(LocalSteps, (MIXTURE, Whole(1, MOST_STEPS), NUMBER, FLAG), check_local_steps)

SIMPLE_QUESTIONS = (
    Struct(Summarise, (Whole(0, MOST_COLUMNS), Whole(1, MOST_COLUMNS))),
    EXPECT,
    Struct(LogLikelihood, (MIXTURE,)),
    Struct(ProposeStart, (SPECIFICATION, SUMMARY, Whole(0, 2**62), Whole(1, MOST_STARTS)), check_local_fit),
)
SIMPLE_ANSWERS = (
    SUMMARY,
    Struct(Statistics, (MOMENTS, MOMENTS, NUMBER, NUMBER, NUMBER, Maybe(Symmetric()))),
    Struct(Likelihood, (NUMBER, NUMBER)),
    Struct(StartCandidates, (Tuple(MIXTURE, 1),)),
)
PART_OF_QUESTION = OneOf(
    *SIMPLE_QUESTIONS, FIT_SITE, SCORE_SUMS, PAIRS, CLIENTS, SQUARED_RESPONSES, CRITIC_SUMS, SIZES, SAMPLE
)
PART_OF_ANSWER = OneOf(
    *SIMPLE_ANSWERS, LOCAL_FIT, PAIR_SUMS, CLIENT_MOMENTS, SQUARED_MOMENTS, MINIMAX_SUMS, CLIENT_SIZES
)

KINDS: tuple[Struct, ...] = (
    *SIMPLE_QUESTIONS,
    Struct(Several, (Tuple(PART_OF_QUESTION, MOST_PARTS),)),
    *SIMPLE_ANSWERS,
    Struct(Answers, (Tuple(PART_OF_ANSWER, MOST_PARTS),)),
    Struct(Failure, (Choice(tuple(FailureCode)), Whole(0, 2**62))),
    FIT_SITE,
    LOCAL_FIT,
    Struct(
        Bundle,
        (Tuple(Whole(0, MOST_SITES), MOST_SITES), Tuple(OneOf(*SIMPLE_QUESTIONS, ANCHORS), MOST_SITES)),
        check_bundle,
    ),
    SCORE_SUMS,
    PAIRS,
    CLIENTS,
    SAMPLE,
    PAIR_SUMS,
    CLIENT_MOMENTS,
    SQUARED_RESPONSES,
    SQUARED_MOMENTS,
    CRITIC_SUMS,
    MINIMAX_SUMS,
    SIZES,
    CLIENT_SIZES,
    ANCHORS,
    Struct(AnchorSteps, (MATRIX,)),
    LOCAL_STEPS,
    Struct(ClusterSums, (MATRIX, VECTOR, VECTOR, VECTOR, NUMBER), check_cluster_sums),
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
            return Failure(FailureCode.NOT_FINITE)
        answer = _read(message)
    except OtherFormatError:
        return Failure(FailureCode.OTHER_FORMAT)
    except MessageError:
        return Failure(FailureCode.UNREADABLE_ANSWER)
    if isinstance(answer, Failure) or answers(question, answer):
        return answer
    return Failure(FailureCode.WRONG_SHAPE)


def answers(question: Question, answer: Any) -> bool:
    """Whether ``answer`` has the type and the shapes that ``question`` asks for.

    Examples
    --------
    >>> answers(Summarise(d=1, q=1), Likelihood(-3.0, 2.0))
    False
    """
    kind, fits = FITS[type(question)]
    return isinstance(answer, kind) and fits(question, answer)


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


def _has_layout(statistics: Statistics, layout: StatisticsLayout, information: bool) -> bool:
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


def _directions(asked: Pairs | Clients) -> int:
    return asked.design.p if asked.basis is None else int(asked.basis.shape[1])


def _are_start_candidates(asked: ProposeStart, given: StartCandidates) -> bool:
    blank = asked.specification.blank(asked.summary)
    return all(_same_layout(mixture, blank) for mixture in given.mixtures)


def _is_comparison(asked: CriticSums, given: MinimaxSums) -> bool:
    gradients = given.above.shape == given.below.shape == given.B.shape == asked.above.shape
    return gradients and given.shares.shape == (asked.mixture.K,)


def _are_answers(asked: Several, given: Answers) -> bool:
    return len(asked.questions) == len(given.items) and all(map(answers, asked.questions, given.items))


FITS: dict[type, tuple[type, Callable[[Any, Any], bool]]] = {
    Summarise: (ColumnSummary, lambda asked, given: _summary_fits(given, asked.d, asked.q)),
    Expect: (Statistics, lambda asked, given: _has_layout(given, layout_of(asked.mixture), asked.information)),
    ScoreSums: (Statistics, lambda asked, given: _has_layout(given, score_layout(asked.mixture), False)),
    Sample: (Statistics, lambda asked, given: answers(asked.question, given)),
    LogLikelihood: (Likelihood, lambda *_: True),
    ProposeStart: (StartCandidates, _are_start_candidates),
    FitSite: (LocalFit, lambda asked, given: _is_fit_of(given, asked)),
    Pairs: (PairSums, lambda asked, given: given.product.shape == (asked.design.p, _directions(asked))),
    Clients: (ClientMoments, lambda asked, given: given.f == _directions(asked)),
    SquaredResponses: (SquaredMoments, lambda asked, given: given.second.shape == (asked.design.p, asked.design.p)),
    CriticSums: (MinimaxSums, _is_comparison),
    Sizes: (ClientSizes, lambda *_: True),
    Anchors: (AnchorSteps, lambda asked, given: given.step.shape == (len(asked.places), asked.basis.shape[2])),
    LocalSteps: (ClusterSums, lambda asked, given: given.moved.shape == asked.mixture.coefficients.shape),
    Several: (Answers, _are_answers),
}
"""For each question the type of its answer, and whether an answer of that type has the shapes that were asked for."""
