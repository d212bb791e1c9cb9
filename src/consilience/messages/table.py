"""Table of messages, with one row for each question; encoding and decoding.

The table is closed towards the wire: bytes name a kind by its number, and what the number means is said by the rows of
this installation. Another package adds questions by :func:`register`, in a module that it names in the entry point
group ``consilience.questions``; the modules of that group are imported when a message or a record is met that the table
does not have, so that a site knows the same questions as its coordinator if the same packages are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from consilience.errors import InvalidInputError, MessageError
from consilience.messages import codec
from consilience.messages.checks import HEADS, check_bundle
from consilience.messages.codec import Choice, Message, OtherFormatError, Reader, Struct, Tuple, Whole, Writer
from consilience.messages.failures import Failure, FailureCode, SiteError
from consilience.messages.questions import Answers, Bundle, Question, Sample, Several
from consilience.model import Rows
from consilience.model.received import CrossProducts

T = TypeVar("T")
MOST_SITES = 10**6
MOST_QUESTIONS = 500
"""Maximum number of questions in one message."""


def _always(*_: Any) -> bool:
    """Accept all shapes."""
    return True


def _any_rows(*_: Any) -> None:
    """Accept all rows."""


def _possible(*_: Any) -> str:
    """Accept all answers."""
    return ""


def _unknown(*_: Any) -> None:
    """State nothing."""


@dataclass(frozen=True)
class Row:
    """A type of question: its numbers and codecs, its checks, and how rows contribute to the answer.

    Parameters
    ----------
    kinds : tuple of int
        Numbers of the question and of its answer in messages. Those of this library are below 1,000.
    question, answer : Struct
        Codecs of the question and of its answer, with their checks.
    contribution : callable or None
        ``contribution(question, rows)`` returns the part of the answer from some rows of a site. None if the answer is
        no sum of such parts.
    whole : callable or None
        ``whole(question, chunks)`` returns the answer from all rows of a site, where ``chunks()`` iterates over them,
        if the answer is no sum. If both are None, :mod:`consilience.site.answer` has a function for the question.
    adds : bool
        Whether answers add over sites, so that their sum alone can be requested.
    reads : callable
        ``reads(question, rows)`` raises a :class:`SiteError` if the question cannot be answered from the rows.
    fits : callable
        ``fits(question, answer)`` returns whether the answer has the requested shapes.
    impossible : callable
        ``impossible(question, answer)`` returns what no data can give, in an answer of the requested shapes; empty if
        there is nothing.
    largest : callable
        ``largest(question)`` returns the maximum of numbers in an answer, with shapes and choices; None if it depends
        on the site.
    products : callable
        ``products(question, answer)`` returns the sums over rows that an answer states whatever was asked, by which
        answers of a site are compared; None if it states none.

    Examples
    --------
    >>> from consilience.messages.table import row_of
    >>> from consilience.messages import Summarise
    >>> row = row_of(Summarise(d=2, q=1))
    >>> row.adds, row.answer.type.__name__
    (True, 'ColumnSummary')
    """

    kinds: tuple[int, int]
    question: Struct
    answer: Struct
    contribution: Callable[[Any, Rows], Any] | None = None
    whole: Callable[[Any, Callable[[], Iterable[Rows]]], Any] | None = None
    adds: bool = True
    reads: Callable[[Any, Rows], None] = _any_rows
    fits: Callable[[Any, Any], bool] = _always
    impossible: Callable[[Any, Any], str] = _possible
    largest: Callable[[Any], int | None] = _unknown
    products: Callable[[Any, Any], CrossProducts | None] = _unknown


# ---------------------------------------------------------------- registration

LIBRARY = 1_000
"""Numbers of messages below this are the library's."""
MOST_KINDS = 2**16
GROUP = "consilience.questions"
"""Entry points that name modules which register questions."""
_ROW_OF: dict[type, Row] = {}
_RECORDS: dict[int, Struct] = {}
_KIND_OF: dict[type, int] = {}


def register(*rows: Row) -> None:
    """Add rows to the table; raise an error if a number or a record is in another row.

    Parameters
    ----------
    *rows : Row

    Examples
    --------
    >>> from consilience.messages import register
    >>> from consilience.messages.table import row_of
    >>> from consilience.messages import Summarise
    >>> register(row_of(Summarise(d=2, q=1)))  # a row that is there already is no error
    """
    for row in rows:
        pairs = tuple(zip(row.kinds, (row.question, row.answer), strict=True))
        for kind, record in pairs:
            if len(set(row.kinds)) < 2 or not _is_free(kind, record):
                raise InvalidInputError(
                    f"the number {kind} of {record.type.__name__}, or the record itself, is in the table already: "
                    f"choose another number, from {LIBRARY} to {MOST_KINDS - 1}"
                )
        _RECORDS.update(pairs)
        _KIND_OF.update((record.type, kind) for kind, record in pairs)
        _ROW_OF[row.question.type] = row


def _is_free(kind: int, record: Struct) -> bool:
    """Whether a number and a record are in no row, or stand together in one."""
    return _RECORDS.get(kind, record).type is record.type and _KIND_OF.get(record.type, kind) == kind


@cache
def load_extensions() -> None:
    """Import the modules of the entry point group, each of which registers its questions."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    for point in entry_points(group=GROUP):
        point.load()


def table() -> Mapping[type, Row]:
    """Return the rows of all questions that this installation knows, by the type of the question."""
    load_extensions()
    return dict(_ROW_OF)


def kinds() -> Mapping[int, Struct]:
    """Return the codecs of all messages that this installation knows, by their number."""
    load_extensions()
    return dict(sorted(_RECORDS.items()))


def row_of(question: Question) -> Row:
    """Return the row of a question; raise an error if the table does not have it."""
    return _of_type(_ROW_OF, question)


def _of_type(known: Mapping[type, T], value: object) -> T:
    if type(value) not in known:
        load_extensions()
    if type(value) not in known:
        raise MessageError(f"{type(value).__name__} is not in the table of messages")
    return known[type(value)]


def _record_of(kind: int) -> Struct:
    if kind not in _RECORDS:
        load_extensions()
    if kind not in _RECORDS:
        raise MessageError(
            f"message of kind {kind}, which is not in the table: install the same packages on both sides"
        )
    return _RECORDS[kind]


@dataclass(frozen=True)
class PartCodec:
    """Codec of a question or an answer within a message: its number, counted from the first of its sort.

    A part may be several questions, with the number ``MOST_KINDS``, only if ``several``.
    """

    first: int
    question: bool
    several: bool = False

    def write(self, value: Any, to: Writer) -> None:
        """Append the number to the head, then write the record."""
        kind = _KIND_OF.get(type(value))
        several = self.several and isinstance(value, Several)
        if kind is None or not (several or self._has(type(value))):
            raise MessageError(f"{type(value).__name__} cannot be sent: expected {self._expected}")
        to.head.append(MOST_KINDS if several else kind - self.first)
        _RECORDS[kind].write(value, to)

    def read(self, source: Reader) -> Any:
        """Read a number, then that record."""
        number = source.whole(0, MOST_KINDS)
        if self.several and number == MOST_KINDS:
            return WRAPPERS[Several].read(source)
        record = _record_of(self.first + number)
        if not self._has(record.type):
            raise MessageError(f"message has a part {record.type.__name__}; expected {self._expected}")
        return record.read(source)

    def _has(self, record: type) -> bool:
        return record not in WRAPPERS and (record in _ROW_OF) == self.question

    @property
    def _expected(self) -> str:
        return "a question of the table" if self.question else "an answer of the table"


ANY_QUESTION, ANY_ANSWER = PartCodec(4, question=True), PartCodec(19, question=False)
PER_SITE_QUESTION = PartCodec(4, question=True, several=True)
WRAPPERS: dict[type, Struct] = {
    record.type: record
    for record in (
        Struct(Failure, {"code": Choice(tuple(FailureCode)), "reference": Whole(0, 2**62)}),
        Struct(Several, {"questions": Tuple(ANY_QUESTION, MOST_QUESTIONS)}),
        Struct(Answers, {"items": Tuple(ANY_ANSWER, MOST_QUESTIONS)}),
        Struct(
            Bundle,
            {
                "places": Tuple(Whole(0, MOST_SITES), MOST_SITES),
                "questions": Tuple(PER_SITE_QUESTION, MOST_SITES),
            },
            check_bundle,
        ),
    )
}
"""Codecs of the messages that are no row's; their numbers are 0 to 3."""
_RECORDS.update(enumerate(WRAPPERS.values()))
_KIND_OF.update((record, kind) for kind, record in enumerate(WRAPPERS))

# ---------------------------------------------------------------- encoding and decoding


def encode(value: Any, fingerprint: int = 0) -> bytes:
    """Encode a question, an answer or a failure as bytes; an answer with the fingerprint of its rows.

    Examples
    --------
    >>> from consilience.messages import decode, encode
    >>> from consilience.messages import Summarise
    >>> decode(encode(Summarise(d=2, q=1)))
    Summarise(d=2, q=1)
    >>> encode("anything else")
    Traceback (most recent call last):
    ...
    consilience.errors.MessageError: str is not in the table of messages
    """
    kind, writer = _of_type(_KIND_OF, value), Writer()
    _RECORDS[kind].write(value, writer)
    return writer.message(kind, fingerprint).to_bytes()


def decode(data: bytes) -> Any:
    """Decode a value, with arrays as read-only views; raise a :class:`~consilience.errors.MessageError` if invalid.

    Examples
    --------
    >>> from consilience.messages import decode, encode
    >>> from consilience.messages import Likelihood
    >>> decode(encode(Likelihood(-3.0, 2.0)))
    Likelihood(log_likelihood=-3.0, weight=2.0)
    """
    return _read(Message.from_bytes(data))


def _read(message: Message) -> Any:
    reader = Reader(message)
    value = _record_of(message.kind).read(reader)
    reader.finish()
    return value


def receive(data: bytes, question: Question) -> Any:
    """Decode the answer to ``question``; return a :class:`Failure` if the site failed or the answer is invalid."""
    answer = _received(data, largest_answer(question))
    if isinstance(answer, Failure):
        return _explained(answer, question)
    if not answers(question, answer):
        return Failure(FailureCode.WRONG_SHAPE)
    reason = impossible_part(question, answer)
    return Failure(FailureCode.IMPOSSIBLE, detail=reason) if reason else answer


def _received(data: bytes, longest: int) -> Any:
    """Decode a message of at most ``longest`` bytes and of finite numbers; return a failure if it is none."""
    if data[:4] == codec.MARK and len(data) > longest:
        return Failure(FailureCode.WRONG_SHAPE)
    try:
        message = Message.from_bytes(data)
        return _read(message) if np.all(np.isfinite(message.body)) else Failure(FailureCode.NOT_FINITE)
    except OtherFormatError:
        return Failure(FailureCode.OTHER_FORMAT)
    except MessageError:
        return Failure(FailureCode.UNREADABLE_ANSWER)


def answers(question: Question, answer: Any) -> bool:
    """Whether ``answer`` has the type and the shapes that ``question`` requests."""
    if isinstance(question, Several):
        several = isinstance(answer, Answers) and len(question.questions) == len(answer.items)
        return several and all(map(answers, question.questions, answer.items))
    row = row_of(question)
    return isinstance(answer, row.answer.type) and row.fits(question, answer)


def largest_answer(question: Question) -> int:
    """Return the maximum length of an answer in bytes, which is checked before the answer is read."""
    asked = question.questions if isinstance(question, Several) else (question,)
    numbers = [row_of(part).largest(part) for part in asked]
    known = [each for each in numbers if each is not None]
    if len(known) < len(numbers):
        return codec.MOST_BYTES
    return min(codec.HEADER.size + 8 * (sum(known) + HEADS), codec.MOST_BYTES)


def decode_question(data: bytes) -> Question:
    """Decode a question at a site; numbers that are not finite are refused."""
    message = Message.from_bytes(data)
    if not np.all(np.isfinite(message.body)):
        raise MessageError("the question has numbers that are not finite")
    question: Question = _read(message)
    if not (isinstance(question, Several) or type(question) in _ROW_OF):
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
    """Return what no data can give in an answer of the requested shapes; empty if there is nothing."""
    found = (row_of(asked).impossible(asked, given) for asked, given in parts(question, answer))
    return next(filter(None, found), "")


def stated_products(question: Question, answer: Any) -> Iterator[CrossProducts]:
    """Yield the sums over rows that an answer states, whatever mixture was asked about."""
    for asked, given in parts(question, answer):
        found = row_of(asked).products(asked, given)
        if found is not None:
            yield found


def is_additive(question: Question) -> bool:
    """Whether answers to a question add over rows, and so over sites."""
    if isinstance(question, Several):
        return all(is_additive(part) for part in question.questions)
    return row_of(question).adds


def _explained(failure: Failure, question: Question) -> Failure:
    """Return the failure with the expected range of the response, if its code is ``OUT_OF_RANGE``."""
    asked: Any = question.questions[0] if isinstance(question, Several) else question
    asked = asked.question if isinstance(asked, Sample) else asked
    source = getattr(asked, "mixture", None) or getattr(asked, "specification", None)
    if failure.code is not FailureCode.OUT_OF_RANGE or source is None:
        return failure
    experts: Any = source.experts
    return replace(failure, detail=experts.range_sentence)
