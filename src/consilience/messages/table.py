"""Closed table of messages, with one row for each question; encoding and decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.errors import MessageError
from consilience.fit.climb import Expect
from consilience.fit.criteria import label_count, log_likelihood
from consilience.fit.search import CONTENDERS
from consilience.fit.spectral import SquaredMoments, squared_moments
from consilience.fit.stop import StopReason
from consilience.messages.anchor_questions import Anchors, LocalSteps, Sizes
from consilience.messages.checks import (
    check_anchors,
    check_bundle,
    check_client_sizes,
    check_clients,
    check_cluster_sums,
    check_comparison,
    check_directions,
    check_fit,
    check_fit_site,
    check_local_fit,
    check_local_steps,
    check_sample,
)
from consilience.messages.client_questions import Clients, Pairs
from consilience.messages.codec import (
    HEADER,
    MARK,
    MOST_BYTES,
    Choice,
    Field,
    Maybe,
    Message,
    OneOf,
    OtherFormatError,
    Reader,
    Struct,
    Symmetric,
    Tuple,
    Whole,
    Writer,
)
from consilience.messages.failures import Failure, FailureCode, SiteError
from consilience.messages.limits import HEADS, numbers_of_candidates, numbers_of_fit
from consilience.messages.possible import (
    in_clients,
    in_critic,
    in_fit,
    in_identity,
    in_likelihood,
    in_pairs,
    in_squares,
    in_statistics,
    in_summary,
    products_of_fit,
)
from consilience.messages.questions import (
    Answers,
    Bundle,
    CriticSums,
    FitSite,
    Identify,
    Identity,
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
from consilience.messages.reading import reads_columns, reads_design, reads_mixture, reads_ungrouped
from consilience.messages.records import (
    CUBE,
    DESIGN,
    FLAG,
    MATRIX,
    MIXTURE,
    MOST_COLUMNS,
    MOST_EXPERTS,
    MOST_ITERATIONS,
    MOST_PARTS,
    MOST_STARTS,
    NUMBER,
    SEED,
    SITE_MODEL,
    SPECIFICATION,
    STATISTICS,
    SUMMARY,
    VECTOR,
)
from consilience.messages.row import Row
from consilience.messages.shapes import (
    are_start_candidates,
    directions,
    has_layout,
    is_comparison,
    is_fit_of,
    summary_fits,
)
from consilience.model.clients.anchors import AnchorSteps, ClientSizes, client_sizes
from consilience.model.clients.local_steps import ClusterSums, local_steps
from consilience.model.clients.moments import ClientMoments, client_moments
from consilience.model.clients.pairs import PairSums, pair_sums
from consilience.model.critic import MinimaxSums, minimax_sums
from consilience.model.cross_products import CrossProducts, products_of_statistics, products_of_summary
from consilience.model.expectation import expect, score_sums
from consilience.model.mixture import layout_of, score_layout
from consilience.model.summary import column_summary
from consilience.numerics.arrays import triangle_size

MOST_SITES = 10**6
MOST_CLIENTS = 10**9
MOST_STEPS = 1_000
MOST_QUESTIONS = 500
"""Maximum number of questions in one message."""
EXPECT = Struct(Expect, {"mixture": MIXTURE, "information": FLAG})
SCORE_SUMS = Struct(ScoreSums, {"mixture": MIXTURE})
DIRECTIONS: dict[str, Field] = {"design": DESIGN, "theta": VECTOR, "basis": Maybe(MATRIX)}

ROWS: tuple[Row, ...] = (
    Row(
        question=Struct(Summarise, {"d": Whole(0, MOST_COLUMNS), "q": Whole(1, MOST_COLUMNS)}),
        answer=SUMMARY,
        reads=reads_columns,
        contribution=lambda _, rows: column_summary(rows),
        fits=lambda asked, given: summary_fits(given, asked.d, asked.q),
        largest=lambda asked: HEADS + asked.d + triangle_size(asked.d) + asked.q * (asked.q + 1),
        impossible=in_summary,
        products=lambda _, given: products_of_summary(given),
    ),
    Row(
        question=EXPECT,
        answer=STATISTICS,
        reads=reads_mixture,
        contribution=lambda asked, rows: expect(asked.mixture, rows, information=asked.information),
        fits=lambda asked, given: has_layout(given, layout_of(asked.mixture), asked.information),
        largest=lambda asked: HEADS + layout_of(asked.mixture).size(information=asked.information),
        impossible=in_statistics,
        products=lambda asked, given: products_of_statistics(asked.mixture, given),
    ),
    Row(
        question=Struct(LogLikelihood, {"mixture": MIXTURE}),
        answer=Struct(Likelihood, {"log_likelihood": NUMBER, "weight": NUMBER}),
        reads=reads_mixture,
        contribution=lambda asked, rows: Likelihood(log_likelihood(asked.mixture, rows), label_count(rows)),
        largest=lambda _: HEADS,
        impossible=in_likelihood,
        products=lambda _, given: CrossProducts.counted(labels=given.weight),
    ),
    Row(
        question=Struct(
            ProposeStart,
            {"specification": SPECIFICATION, "summary": SUMMARY, "seed": SEED, "n_init": Whole(1, MOST_STARTS)},
            check_local_fit,
        ),
        answer=Struct(StartCandidates, {"mixtures": Tuple(MIXTURE, CONTENDERS)}),
        adds=False,
        largest=numbers_of_candidates,
        fits=are_start_candidates,
    ),
    Row(
        question=Struct(
            FitSite,
            {
                "specification": SPECIFICATION,
                "orders": Tuple(Whole(1, MOST_EXPERTS), MOST_PARTS),
                "seed": SEED,
                "n_init": Whole(1, MOST_STARTS),
                "tol": NUMBER,
                "max_iter": Whole(1, MOST_ITERATIONS),
                "start": Maybe(MIXTURE),
                "columns": Maybe(Tuple(Whole(0, MOST_COLUMNS), 2)),
                "describe": FLAG,
            },
            check_fit_site,
        ),
        answer=Struct(
            LocalFit,
            {"summary": SUMMARY, "model": Maybe(SITE_MODEL), "stop": Maybe(Choice(tuple(StopReason)))},
            check_fit,
        ),
        adds=False,
        fits=is_fit_of,
        largest=numbers_of_fit,
        impossible=in_fit,
        products=products_of_fit,
    ),
    Row(
        question=SCORE_SUMS,
        answer=STATISTICS,
        reads=reads_mixture,
        contribution=lambda asked, rows: score_sums(asked.mixture, rows),
        fits=lambda asked, given: has_layout(given, score_layout(asked.mixture), False),
        largest=lambda asked: HEADS + score_layout(asked.mixture).size(information=False),
        impossible=in_statistics,
        products=lambda asked, given: CrossProducts.counted(
            float(given.experts.plain[: asked.mixture.K].sum()), given.weight
        ),
    ),
    Row(
        question=Struct(Sample, {"question": OneOf(EXPECT, SCORE_SUMS), "share": NUMBER, "seed": SEED}, check_sample),
        answer=STATISTICS,
        fits=lambda asked, given: answers(asked.question, given),
        largest=lambda asked: ROW_OF[type(asked.question)].largest(asked.question),
        impossible=in_statistics,
    ),
    Row(
        question=Struct(Pairs, DIRECTIONS, check_directions),
        answer=Struct(PairSums, {"product": MATRIX, "pairs": NUMBER}),
        reads=reads_design,
        contribution=lambda asked, rows: pair_sums(rows, asked.design, asked.theta, asked.basis),
        fits=lambda asked, given: given.product.shape == (asked.design.p, directions(asked)),
        largest=lambda asked: HEADS + asked.design.p * directions(asked),
        impossible=in_pairs,
    ),
    Row(
        question=Struct(Clients, DIRECTIONS, check_directions),
        answer=Struct(ClientMoments, {"n": VECTOR, "S": MATRIX, "b": MATRIX, "c": VECTOR}, check_clients),
        adds=False,
        reads=reads_design,
        contribution=lambda asked, rows: client_moments(rows, asked.design, asked.theta, asked.basis),
        fits=lambda asked, given: given.f == directions(asked),
        impossible=in_clients,
        products=lambda _, given: CrossProducts.counted(float(given.n.sum()), float(np.sum(given.n > 0))),
    ),
    Row(
        question=Struct(SquaredResponses, {"design": DESIGN}),
        answer=Struct(SquaredMoments, {"second": Symmetric(), "weight": NUMBER}),
        reads=reads_design,
        contribution=lambda asked, rows: squared_moments(asked.design, rows),
        fits=lambda asked, given: given.second.shape == (asked.design.p, asked.design.p),
        largest=lambda asked: HEADS + triangle_size(asked.design.p),
        impossible=in_squares,
        products=lambda _, given: CrossProducts.counted(given.weight),
    ),
    Row(
        question=Struct(CriticSums, {"mixture": MIXTURE, "above": MATRIX, "below": MATRIX}, check_comparison),
        answer=Struct(
            MinimaxSums,
            {
                "above": MATRIX,
                "below": MATRIX,
                "B": MATRIX,
                "value": NUMBER,
                "shares": VECTOR,
                "squares": NUMBER,
                "log_likelihood": NUMBER,
                "weight": NUMBER,
            },
        ),
        reads=reads_ungrouped,
        contribution=lambda asked, rows: minimax_sums(asked.mixture, asked.above, asked.below, rows),
        fits=is_comparison,
        largest=lambda asked: HEADS + 3 * asked.above.size + asked.mixture.K,
        impossible=in_critic,
        products=lambda _, given: CrossProducts.counted(given.weight),
    ),
    Row(
        question=Struct(Sizes, {}),
        answer=Struct(ClientSizes, {"n": VECTOR}, check_client_sizes),
        adds=False,
        contribution=lambda _, rows: client_sizes(rows),
        products=lambda _, given: CrossProducts.counted(float(given.n.sum()), float(np.sum(given.n > 0))),
    ),
    Row(
        question=Struct(
            Anchors,
            {
                "design": DESIGN,
                "places": Tuple(Whole(0, MOST_CLIENTS), MOST_PARTS),
                "theta": MATRIX,
                "basis": CUBE,
            },
            check_anchors,
        ),
        answer=Struct(AnchorSteps, {"step": MATRIX}),
        adds=False,
        largest=lambda asked: HEADS + len(asked.places) * int(asked.basis.shape[2]),
        fits=lambda asked, given: given.step.shape == (len(asked.places), asked.basis.shape[2]),
    ),
    Row(
        question=Struct(
            LocalSteps,
            {"mixture": MIXTURE, "steps": Whole(1, MOST_STEPS), "rate": NUMBER, "prox": FLAG},
            check_local_steps,
        ),
        answer=Struct(
            ClusterSums,
            {"moved": MATRIX, "rows": VECTOR, "clients": VECTOR, "squares": VECTOR, "log_likelihood": NUMBER},
            check_cluster_sums,
        ),
        reads=reads_mixture,
        contribution=lambda asked, rows: local_steps(
            asked.mixture, rows, steps=asked.steps, rate=asked.rate, prox=asked.prox
        ),
        fits=lambda asked, given: given.moved.shape == asked.mixture.coefficients.shape,
        largest=lambda asked: HEADS + asked.mixture.coefficients.size + 3 * asked.mixture.K,
        products=lambda _, given: CrossProducts.counted(float(given.rows.sum())),
    ),
    Row(
        question=Struct(Identify, {}),
        answer=Struct(Identity, {"weight": NUMBER}),
        contribution=lambda _, rows: Identity(float(rows.n if rows.weight is None else rows.weight.sum())),
        largest=lambda _: HEADS,
        impossible=in_identity,
        products=lambda _, given: CrossProducts.counted(given.weight),
    ),
)
"""Rows of all questions. Add new rows at the end: the index determines the numbers that are sent."""
ROW_OF: dict[type, Row] = {row.question.type: row for row in ROWS}
"""Row of each question, by its type."""

_ANSWERS = {row.answer.type: row.answer for row in ROWS}
_ANY_QUESTION, _ANY_ANSWER = OneOf(*(row.question for row in ROWS)), OneOf(*_ANSWERS.values())
KINDS: tuple[Struct, ...] = (
    Struct(Failure, {"code": Choice(tuple(FailureCode)), "reference": Whole(0, 2**62)}),
    Struct(Several, {"questions": Tuple(_ANY_QUESTION, MOST_QUESTIONS)}),
    Struct(Answers, {"items": Tuple(_ANY_ANSWER, MOST_QUESTIONS)}),
    Struct(
        Bundle,
        {"places": Tuple(Whole(0, MOST_SITES), MOST_SITES), "questions": Tuple(_ANY_QUESTION, MOST_SITES)},
        check_bundle,
    ),
    *(row.question for row in ROWS),
    *_ANSWERS.values(),
)
"""Codecs of all kinds of message; the index is the number that is sent."""
_KIND_OF = {record.type: kind for kind, record in enumerate(KINDS)}


def encode(value: Any, fingerprint: int = 0) -> bytes:
    """Encode a question, an answer or a failure as bytes; an answer with the fingerprint of its rows.

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
    return writer.message(kind, fingerprint).to_bytes()


def decode(data: bytes) -> Any:
    """Decode a value, with arrays as read-only views; raise a :class:`~consilience.errors.MessageError` if invalid.

    Examples
    --------
    >>> decode(encode(Likelihood(-3.0, 2.0)))
    Likelihood(log_likelihood=-3.0, weight=2.0)
    """
    return _read(Message.from_bytes(data))


def _read(message: Message) -> Any:
    if message.kind >= len(KINDS):
        raise MessageError(f"message of kind {message.kind}; this version has {len(KINDS)} kinds")
    reader = Reader(message)
    value = KINDS[message.kind].read(reader)
    reader.finish()
    return value


def received(data: bytes, question: Question) -> Any:
    """Decode the answer to ``question``; return a :class:`Failure` if the site failed or the answer is invalid.

    Examples
    --------
    >>> print(received(b"", Summarise(1, 1)))
    the answer could not be read
    >>> print(received(encode(Likelihood(float("nan"), 1.0)), Summarise(1, 1)))
    the answer has values that are not finite
    """
    answer = _received(data, largest_answer(question))
    if isinstance(answer, Failure):
        return _explained(answer, question)
    if not answers(question, answer):
        return Failure(FailureCode.WRONG_SHAPE)
    reason = impossible_part(question, answer)
    return Failure(FailureCode.IMPOSSIBLE, detail=reason) if reason else answer


def _received(data: bytes, longest: int) -> Any:
    """Decode a message of at most ``longest`` bytes and of finite numbers; return a failure if it is none."""
    if data[:4] == MARK and len(data) > longest:
        return Failure(FailureCode.WRONG_SHAPE)
    try:
        message = Message.from_bytes(data)
        return _read(message) if np.all(np.isfinite(message.body)) else Failure(FailureCode.NOT_FINITE)
    except OtherFormatError:
        return Failure(FailureCode.OTHER_FORMAT)
    except MessageError:
        return Failure(FailureCode.UNREADABLE_ANSWER)


def answers(question: Question, answer: Any) -> bool:
    """Whether ``answer`` has the type and the shapes that ``question`` requests.

    Examples
    --------
    >>> answers(Summarise(d=1, q=1), Likelihood(-3.0, 2.0))
    False
    """
    if isinstance(question, Several):
        several = isinstance(answer, Answers) and len(question.questions) == len(answer.items)
        return several and all(map(answers, question.questions, answer.items))
    row = ROW_OF[type(question)]
    return isinstance(answer, row.answer.type) and row.fits(question, answer)


def largest_answer(question: Question) -> int:
    """Return the maximum length of an answer in bytes, which is checked before the answer is read.

    Examples
    --------
    >>> largest_answer(Summarise(d=2, q=1))
    1108
    """
    asked = question.questions if isinstance(question, Several) else (question,)
    numbers = [ROW_OF[type(part)].largest(part) for part in asked]
    known = [each for each in numbers if each is not None]
    return MOST_BYTES if len(known) < len(numbers) else min(HEADER.size + 8 * (sum(known) + HEADS), MOST_BYTES)


def decoded_question(data: bytes) -> Question:
    """Decode a question at a site; numbers that are not finite are refused.

    Examples
    --------
    >>> decoded_question(encode(Summarise(d=2, q=1)))
    Summarise(d=2, q=1)
    """
    message = Message.from_bytes(data)
    if not np.all(np.isfinite(message.body)):
        raise MessageError("the question has numbers that are not finite")
    question: Question = _read(message)
    if not isinstance(question, (Several, *ROW_OF)):
        raise SiteError(FailureCode.NO_ANSWER_TO_KIND, type(question).__name__)
    return question


def parts(question: Question, answer: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the single questions of a message, with their answers."""
    if isinstance(question, Several):
        for asked, given in zip(question.questions, answer.items, strict=True):
            yield from parts(asked, given)
    else:
        yield question, answer


def impossible_part(question: Question, answer: Any) -> str:
    """Return what no data can give in an answer of the requested shapes; empty if there is nothing.

    Examples
    --------
    >>> impossible_part(Identify(), Identity(-1.0))
    'a negative weight'
    """
    found = (ROW_OF[type(asked)].impossible(asked, given) for asked, given in parts(question, answer))
    return next(filter(None, found), "")


def stated_products(question: Question, answer: Any) -> Iterator[CrossProducts]:
    """Yield the sums over rows that an answer states, whatever mixture was asked about.

    Examples
    --------
    >>> [float(products.values[0, 0]) for products in stated_products(Identify(), Identity(5.0))]
    [5.0]
    """
    for asked, given in parts(question, answer):
        found = ROW_OF[type(asked)].products(asked, given)
        if found is not None:
            yield found


def is_additive(question: Question) -> bool:
    """Whether answers to a question add over rows, and so over sites.

    Examples
    --------
    >>> is_additive(Summarise(1, 1))
    True
    """
    if isinstance(question, Several):
        return all(is_additive(part) for part in question.questions)
    return ROW_OF[type(question)].adds


def _explained(failure: Failure, question: Question) -> Failure:
    """Return the failure with the expected range of the response, if its code is ``OUT_OF_RANGE``."""
    asked: Any = question.questions[0] if isinstance(question, Several) else question
    asked = asked.question if isinstance(asked, Sample) else asked
    source = getattr(asked, "mixture", None) or getattr(asked, "specification", None)
    if failure.code is not FailureCode.OUT_OF_RANGE or source is None:
        return failure
    experts: Any = source.experts
    return replace(failure, detail=experts.range_sentence)
