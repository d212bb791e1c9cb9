"""Messages: every value of the table survives the trip bit by bit; nothing else is read, however it was made."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import MessageError
from consilience.fit import Expect, Specification
from consilience.fit.summary import ColumnSummary, column_summary
from consilience.model import expect
from consilience.protocols import (
    Answers,
    Candidates,
    Failure,
    FitLocally,
    Likelihood,
    LogLikelihood,
    Several,
    Summarise,
    Trouble,
    decode,
    encode,
)
from consilience.protocols.codec import HEADER, MARK, Message
from consilience.protocols.table import KINDS, received
from strategies import Shape, shapes

RANDOM_SPECIFICATION = Specification(K=3, family="poisson", gate="constant", structure="tied", intercept=False)


def values(shape: Shape) -> list[object]:
    """A value of every kind."""
    mixture, rows = shape.problem()
    summary = column_summary(rows)
    questions = (
        Summarise(shape.d, shape.q),
        Expect(mixture, information=True),
        LogLikelihood(mixture),
        FitLocally(RANDOM_SPECIFICATION, summary, seed=2**40, n_init=3),
    )
    answers = (summary, expect(mixture, rows, information=True), Likelihood(-3.5, 2.0), Candidates((mixture,)))
    return [
        *questions,
        Several(questions),
        *answers,
        Answers(answers),
        Failure(Trouble.NOT_COUNTS, 5),
    ]


@given(shapes())
def test_every_kind_of_message_survives_the_trip(shape: Shape) -> None:
    sent = values(shape)
    assert [type(value) for value in sent] == [record.type for record in KINDS]
    for value in sent:
        data = encode(value)
        assert encode(decode(data)) == data
        assert type(decode(data)) is type(value)


@given(shapes())
def test_statistics_keep_their_bits(shape: Shape) -> None:
    mixture, rows = shape.problem()
    for information in (False, True):
        statistics = expect(mixture, rows, information=information)
        np.testing.assert_array_equal(decode(encode(statistics)).to_array(), statistics.to_array())


def test_a_mixture_keeps_its_bits_and_its_answers_are_the_same() -> None:
    mixture, rows = Shape(K=3, q=2, n=40).problem()
    again = decode(encode(LogLikelihood(mixture))).mixture
    np.testing.assert_array_equal(again.log_density(rows), mixture.log_density(rows))


@pytest.mark.parametrize("value", ["text", 3, None, object(), {"a": 1}, np.zeros(3), lambda: 0])
def test_what_is_not_in_the_table_cannot_be_sent(value: object) -> None:
    with pytest.raises(MessageError, match="not in the table"):
        encode(value)


def test_an_unknown_part_of_a_bundle_cannot_be_sent() -> None:
    with pytest.raises(MessageError, match="cannot be sent"):
        encode(Several(("text",)))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- bytes from elsewhere


@given(st.binary(max_size=200))
def test_noise_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data)


@given(st.integers(0, len(KINDS) + 3), st.lists(st.integers(-3, 2**62), max_size=12), st.integers(0, 30))
def test_made_up_numbers_are_a_message_or_refused_by_name(kind: int, head: list[int], floats: int) -> None:
    data = Message(kind, tuple(head), np.ones(floats)).to_bytes()
    with contextlib.suppress(MessageError):
        decode(data)


@given(shapes(), st.data())
def test_damaged_messages_are_a_message_or_refused_by_name(shape: Shape, data: st.DataObject) -> None:
    sent = bytearray(encode(data.draw(st.sampled_from(values(shape)))))
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MessageError):
        decode(bytes(sent))


@given(shapes(), st.integers(1, 50))
def test_a_message_cut_short_or_lengthened_is_refused(shape: Shape, cut: int) -> None:
    data = encode(LogLikelihood(shape.problem()[0]))
    for other in (data[:-cut], data + b"\0" * cut):
        with pytest.raises(MessageError):
            decode(other)


def test_a_huge_length_is_refused_before_anything_is_allocated() -> None:
    for heads, floats in ((2**32 - 1, 0), (0, 2**61), (1, 2**60)):
        with pytest.raises(MessageError, match="says that it has"):
            decode(HEADER.pack(MARK, 1, 0, heads, floats) + b"\0" * 64)


def test_a_huge_shape_is_refused_before_anything_is_allocated() -> None:
    kind = next(i for i, record in enumerate(KINDS) if record.type.__name__ == "ColumnSummary")
    with pytest.raises(MessageError, match="ends early"):
        decode(Message(kind, (2**31 - 1, 1, 1, 2**30, 2**30), np.ones(3)).to_bytes())


def test_a_message_larger_than_the_cap_is_refused() -> None:
    data = encode(Likelihood(0.0, 1.0))
    with pytest.raises(MessageError, match="at most"):
        Message.from_bytes(data, most=len(data) - 1)


def test_an_axis_of_length_zero_does_not_hide_the_others() -> None:
    kind = next(i for i, record in enumerate(KINDS) if record.type.__name__ == "Candidates")
    head = (1, 1, 1, 1, 0, 1, 0, 0, 0, 2**31 - 1, 2**31 - 1, 3, 0, 1, 1, 0)
    data = Message(kind, head, np.zeros(2)).to_bytes()
    with pytest.raises(MessageError):
        decode(data)
    assert received(data, values(Shape())[3]) == Failure(Trouble.UNREADABLE_ANSWER)


@pytest.mark.parametrize(
    "size", [{"K": 10**6}, {"n_classes": 10**9}, {"K": 1000, "n_classes": 10**4, "family": "categorical"}]
)
def test_a_fit_that_would_exhaust_a_site_is_not_read(size: dict[str, int | str]) -> None:
    summary = ColumnSummary(1.0, np.zeros(1000), np.ones(1000), np.zeros(1), np.eye(1))
    with pytest.raises(MessageError):
        decode(encode(FitLocally(Specification(**{"K": 2, **size}), summary, seed=0, n_init=1)))


def test_a_summary_whose_parts_do_not_fit_is_refused() -> None:
    summary = ColumnSummary(1.0, np.zeros(2), np.ones(2), np.zeros(3), np.eye(2))
    with pytest.raises(MessageError, match="do not fit together"):
        decode(encode(FitLocally(Specification(K=2), summary, seed=0, n_init=1)))
    assert received(encode(summary), Summarise(2, 2)) == Failure(Trouble.WRONG_SHAPE)


def test_a_mixture_that_is_not_finite_is_refused_before_it_is_asked_about() -> None:
    mixture, _ = Shape().problem()
    experts = mixture.experts.moved(np.full(6, np.nan), np.zeros(2))
    with pytest.raises(MessageError, match="not finite"):
        decode(encode(LogLikelihood(replace(mixture, experts=experts))))


def test_parts_of_a_mixture_that_do_not_fit_are_refused() -> None:
    mixture, _ = Shape(K=3).problem()
    other, _ = Shape(K=2).problem()
    with pytest.raises(MessageError, match="do not fit together"):
        decode(encode(LogLikelihood(replace(mixture, gate=other.gate))))


# ---------------------------------------------------------------------- answers as the coordinator receives them


def test_another_format_is_told_apart_from_noise() -> None:
    old = bytearray(encode(Likelihood(0.0, 1.0)))
    struct.pack_into("<H", old, 4, 0)
    question = LogLikelihood(Shape().problem()[0])
    assert received(bytes(old), question) == Failure(Trouble.OTHER_FORMAT)
    assert received(b"\0" * 50, question) == Failure(Trouble.UNREADABLE_ANSWER)


@given(shapes(), shapes())
def test_an_answer_of_another_shape_is_a_failure(shape: Shape, other: Shape) -> None:
    mixture, rows = shape.problem()
    stranger, strange_rows = other.problem()
    question = Expect(mixture)
    mine, theirs = expect(mixture, rows), expect(stranger, strange_rows)
    same = [a.shape for a in (mine.gate.plain, mine.gate.first, mine.gate.second)] == [
        a.shape for a in (theirs.gate.plain, theirs.gate.first, theirs.gate.second)
    ] and [a.shape for a in (mine.experts.plain, mine.experts.first, mine.experts.second)] == [
        a.shape for a in (theirs.experts.plain, theirs.experts.first, theirs.experts.second)
    ]
    assert (received(encode(theirs), question) == Failure(Trouble.WRONG_SHAPE)) is not same
    assert received(encode(expect(mixture, rows, information=True)), question) == Failure(Trouble.WRONG_SHAPE)


def test_an_answer_of_another_kind_is_a_failure() -> None:
    mixture, rows = Shape().problem()
    questions = values(Shape())[:5]
    answers = {0: column_summary(rows), 2: Likelihood(0.0, 1.0), 3: Candidates(())}  # each fits one question only
    for asked, question in enumerate(questions):
        for fits, answer in answers.items():
            outcome = received(encode(answer), question)
            assert type(outcome) is type(answer) if asked == fits else outcome == Failure(Trouble.WRONG_SHAPE)
    assert received(encode(Answers(())), questions[4]) == Failure(Trouble.WRONG_SHAPE)
    assert received(encode(Candidates((mixture,))), questions[3]) == Failure(Trouble.WRONG_SHAPE)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_a_failure(bad: float) -> None:
    question = LogLikelihood(Shape().problem()[0])
    assert received(encode(Likelihood(bad, 1.0)), question) == Failure(Trouble.NOT_FINITE)
