"""Encoding of messages as integers, floats and bytes: one codec for every type of message, from a closed table.

A message is a kind, a *head* of integers (choices, lengths, shapes) and a *body* of floats. As bytes::

    mark "CNSL" | format u16 | kind u16 | length of head u32 | length of body u64 | fingerprint u64
    | head i64 … | body f64 …

all little-endian. The fingerprint is that of the rows of an answer, and 0 otherwise. The reader's table
(:mod:`consilience.messages.table`) defines what a kind means, never the bytes. Lengths are checked against the number
of bytes before anything is allocated; arrays are views of the bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInputError, MessageError
from consilience.numerics.arrays import Array, pack, triangle_size, unpack

MARK = b"CNSL"
FORMAT = 3
HEADER = struct.Struct("<4sHHIQQ")
MOST_BYTES = 2**31
"""Maximum size of a message that is read."""
LONGEST_AXIS = 2**31 - 1
MODULUS = 2**64
"""Fingerprints are numbers below this; those of parts are added modulo it."""


@dataclass(frozen=True, eq=False)
class Message:
    """An encoded value: its kind, a head of integers and a body of floats."""

    kind: int
    head: Sequence[int] | NDArray[np.int64]
    body: Array
    fingerprint: int = 0

    def to_bytes(self) -> bytes:
        """Return the message as bytes."""
        header = HEADER.pack(MARK, FORMAT, self.kind, len(self.head), len(self.body), self.fingerprint)
        return b"".join([header, np.array(self.head, dtype="<i8").tobytes(), self.body.astype("<f8").tobytes()])

    @classmethod
    def from_bytes(cls, data: bytes, most: int = MOST_BYTES) -> Message:
        """Read the message in ``data``; raise a :class:`~consilience.errors.MessageError` if it is invalid."""
        if data[:4] != MARK or len(data) < HEADER.size:
            raise MessageError(f"not a message of this library: {len(data)} bytes without its mark and header")
        _, version, kind, heads, floats, fingerprint = HEADER.unpack_from(data)
        if version != FORMAT:
            raise OtherFormatError(f"message in format {version}; this version reads format {FORMAT}")
        if len(data) > most:
            raise MessageError(f"message of {len(data)} bytes; at most {most} are read")
        if len(data) != HEADER.size + 8 * (heads + floats):
            raise MessageError(f"message of {len(data)} bytes; its header states {HEADER.size + 8 * (heads + floats)}")
        head = np.frombuffer(data, "<i8", heads, HEADER.size)
        body = np.frombuffer(data, "<f8", floats, HEADER.size + 8 * heads)
        return cls(kind, head, body, fingerprint)


def message_fingerprint(data: bytes) -> int:
    """Return the fingerprint in an encoded answer."""
    return int(HEADER.unpack_from(data)[-1])


class OtherFormatError(MessageError):
    """Error: a message has another version of the format."""


# ---------------------------------------------------------------- writing and reading


class Writer:
    """Buffer for the head and the body of a message."""

    def __init__(self) -> None:
        self.head: list[int] = []
        self.body: list[Array] = []

    def message(self, kind: int, fingerprint: int) -> Message:
        """Return the message of this kind with the collected numbers."""
        body = np.concatenate(self.body) if self.body else np.empty(0)
        return Message(kind, tuple(self.head), body, fingerprint)


class Reader:
    """Sequential reader of the head and the body of a message."""

    def __init__(self, message: Message) -> None:
        self._head, self._body = message.head, message.body
        self._at = self._from = 0

    def whole(self, low: int, high: int) -> int:
        """Return the next integer; raise an error if it is out of bounds."""
        if self._at >= len(self._head):
            raise MessageError("message ends early: integers are missing")
        value = int(self._head[self._at])
        self._at += 1
        if not low <= value <= high:
            raise MessageError(f"message has {value}; expected an integer from {low} to {high}")
        return value

    def floats(self, size: int) -> Array:
        """Return a view of the next ``size`` floats."""
        if size > len(self._body) - self._from:
            raise MessageError(f"message ends early: expected {size} floats, {len(self._body) - self._from} left")
        part = self._body[self._from : self._from + size]
        self._from += size
        return part

    def finish(self) -> None:
        """Raise an error if numbers are left over."""
        if self._at < len(self._head) or self._from < len(self._body):
            raise MessageError("message has more numbers than its kind requires")


class Field(Protocol):
    """Codec of one field of a record."""

    def write(self, value: Any, to: Writer) -> None:
        """Write ``value``."""

    def read(self, source: Reader) -> Any:
        """Read the next value."""


# ---------------------------------------------------------------- fields


class Number:
    """Codec of a float."""

    def write(self, value: float, to: Writer) -> None:
        """Append the float to the body."""
        to.body.append(np.array([value], dtype=np.float64))

    def read(self, source: Reader) -> float:
        """Read the next float."""
        return float(source.floats(1)[0])


@dataclass(frozen=True)
class Whole:
    """Codec of an integer within bounds."""

    low: int
    high: int

    def write(self, value: int, to: Writer) -> None:
        """Append the integer to the head."""
        if not self.low <= value <= self.high:
            raise MessageError(f"{value} cannot be sent: expected an integer from {self.low} to {self.high}")
        to.head.append(int(value))

    def read(self, source: Reader) -> int:
        """Read the next integer."""
        return source.whole(self.low, self.high)


class Flag:
    """Codec of a bool."""

    def write(self, value: bool, to: Writer) -> None:
        """Append 0 or 1 to the head."""
        to.head.append(int(value))

    def read(self, source: Reader) -> bool:
        """Read 0 or 1."""
        return bool(source.whole(0, 1))


@dataclass(frozen=True)
class Choice:
    """Codec of one of a fixed list of strings or enumeration members, by its index."""

    options: tuple[str | Enum, ...]

    def write(self, value: str | Enum, to: Writer) -> None:
        """Append the index to the head."""
        to.head.append(self.options.index(value))

    def read(self, source: Reader) -> str | Enum:
        """Read an index."""
        return self.options[source.whole(0, len(self.options) - 1)]


@dataclass(frozen=True)
class Floats:
    """Codec of an array of floats with one of the given numbers of axes."""

    axes: tuple[int, ...]

    def write(self, value: Array, to: Writer) -> None:
        """Append the shape (after the number of axes, if several are allowed) to the head, the floats to the body."""
        if value.ndim not in self.axes:
            raise MessageError(f"an array of {value.ndim} axes cannot be sent: expected one of {self.axes}")
        if len(self.axes) > 1:
            to.head.append(value.ndim)
        to.head.extend(value.shape)
        to.body.append(np.asarray(value, dtype=np.float64).ravel())

    def read(self, source: Reader) -> Array:
        """Read a shape and its floats, as a read-only view."""
        axes = self.axes[0] if len(self.axes) == 1 else source.whole(min(self.axes), max(self.axes))
        if axes not in self.axes:
            raise MessageError(f"message has an array of {axes} axes; expected one of {self.axes}")
        shape = tuple(source.whole(0, LONGEST_AXIS) for _ in range(axes))
        if math.prod(max(axis, 1) for axis in shape) > MOST_BYTES:  # one axis of 0 hides how long the others are
            raise MessageError(f"message has an array of shape {shape}, which is too large")
        return source.floats(math.prod(shape)).reshape(shape)


class Symmetric:
    """Codec of a symmetric matrix, as its upper triangle."""

    def write(self, value: Array, to: Writer) -> None:
        """Append the dimension to the head and the triangle to the body."""
        to.head.append(len(value))
        to.body.append(pack(value))

    def read(self, source: Reader) -> Array:
        """Read a dimension and a triangle."""
        return unpack(source.floats(triangle_size(source.whole(0, LONGEST_AXIS))))


@dataclass(frozen=True)
class Maybe:
    """Codec of an optional field."""

    field: Field

    def write(self, value: Any, to: Writer) -> None:
        """Append 0, or 1 and the value."""
        to.head.append(int(value is not None))
        if value is not None:
            self.field.write(value, to)

    def read(self, source: Reader) -> Any:
        """Read a value or None."""
        return self.field.read(source) if source.whole(0, 1) else None


@dataclass(frozen=True)
class Tuple:
    """Codec of a tuple of at most ``most`` values of one field."""

    field: Field
    most: int

    def write(self, value: Sequence[Any], to: Writer) -> None:
        """Append the length, then the values."""
        Whole(0, self.most).write(len(value), to)
        for item in value:
            self.field.write(item, to)

    def read(self, source: Reader) -> tuple[Any, ...]:
        """Read a length and as many values."""
        return tuple(self.field.read(source) for _ in range(source.whole(0, self.most)))


def _nothing(value: Any) -> None:
    """Accept all values."""


@dataclass(frozen=True)
class Struct:
    """Codec of a dataclass from the codecs of its fields, in this order; ``check`` raises an error for invalid values.

    Fields that are not named are not sent; they must have defaults.
    """

    type: type
    fields: Mapping[str, Field]
    check: Callable[[Any], None] = _nothing

    def __post_init__(self) -> None:
        unknown = set(self.fields) - {field.name for field in fields(self.type)}
        if unknown:
            raise TypeError(f"{self.type.__name__} has no fields {sorted(unknown)}")

    def write(self, value: Any, to: Writer) -> None:
        """Write the fields."""
        for name, codec in self.fields.items():
            codec.write(getattr(value, name), to)

    def read(self, source: Reader) -> Any:
        """Read the fields, build the record and check it; what the record itself refuses is an invalid message."""
        values = {name: codec.read(source) for name, codec in self.fields.items()}
        try:
            value = self.type(**values)
        except InvalidInputError as error:
            raise MessageError(str(error)) from error
        self.check(value)
        return value


class OneOf:
    """Codec of one of several records, identified by its index in the list."""

    def __init__(self, *records: Struct) -> None:
        self.records = records
        self._place = {record.type: place for place, record in enumerate(records)}

    def write(self, value: Any, to: Writer) -> None:
        """Append the index to the head, then write the record."""
        if type(value) not in self._place:
            known = ", ".join(record.type.__name__ for record in self.records)
            raise MessageError(f"{type(value).__name__} cannot be sent: expected one of {known}")
        place = self._place[type(value)]
        to.head.append(place)
        self.records[place].write(value, to)

    def read(self, source: Reader) -> Any:
        """Read an index, then that record."""
        return self.records[source.whole(0, len(self.records) - 1)].read(source)


# ---------------------------------------------------------------- equal questions, up to rounding


SAME = 1e-9
"""Relative tolerance, per value, within which two questions are equal."""


def is_same_question(one: bytes, other: bytes) -> bool:
    """Whether two encoded questions agree in type and shape, and in every value to ``SAME``."""
    a, b = Message.from_bytes(one), Message.from_bytes(other)
    if a.kind != b.kind or not np.array_equal(a.head, b.head) or a.body.shape != b.body.shape:
        return False
    return bool(np.allclose(a.body, b.body, rtol=SAME, atol=SAME))
