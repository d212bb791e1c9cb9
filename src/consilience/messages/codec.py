"""Messages as whole numbers, floats and bytes: one codec for every question and answer, driven by a closed table.

A message is a kind, a *head* of whole numbers (choices, lengths, shapes) and a *body* of floats. As bytes::

    mark "CNSL" | format u16 | kind u16 | length of head u32 | length of body u64 | head i64 … | body f64 …

all little-endian. What a kind means is in the table of the reader (:mod:`consilience.messages.table`), never in the
bytes. Lengths are checked against the bytes at hand before anything is allocated, and arrays are views of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Protocol

import numpy as np

from consilience.errors import MessageError
from consilience.numerics.arrays import Array, pack, triangle_size, unpack

MARK = b"CNSL"
FORMAT = 1
HEADER = struct.Struct("<4sHHIQ")
MOST_BYTES = 2**31
"""Largest message that is read."""
LONGEST_AXIS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Message:
    """A value as numbers: its kind, a head of whole numbers, a body of floats.

    Examples
    --------
    >>> message = Message(3, (1, 2), np.array([0.5]))
    >>> Message.from_bytes(message.to_bytes()).head
    (1, 2)
    """

    kind: int
    head: tuple[int, ...]
    body: Array

    def to_bytes(self) -> bytes:
        """The message as bytes."""
        header = HEADER.pack(MARK, FORMAT, self.kind, len(self.head), len(self.body))
        return b"".join([header, np.array(self.head, dtype="<i8").tobytes(), self.body.astype("<f8").tobytes()])

    @classmethod
    def from_bytes(cls, data: bytes, most: int = MOST_BYTES) -> Message:
        """The message in ``data``, or a :class:`~consilience.errors.MessageError`."""
        if data[:4] != MARK or len(data) < HEADER.size:
            raise MessageError(f"not a message of this library: {len(data)} bytes that do not start with its mark")
        _, version, kind, heads, floats = HEADER.unpack_from(data)
        if version != FORMAT:
            raise OtherFormatError(f"message in format {version}, this version reads format {FORMAT}")
        if len(data) > most:
            raise MessageError(f"message of {len(data)} bytes, at most {most} are read")
        if len(data) != HEADER.size + 8 * (heads + floats):
            raise MessageError(f"message of {len(data)} bytes says that it has {HEADER.size + 8 * (heads + floats)}")
        head = np.frombuffer(data, "<i8", heads, HEADER.size)
        return cls(kind, tuple(head.tolist()), np.frombuffer(data, "<f8", floats, HEADER.size + 8 * heads))


class OtherFormatError(MessageError):
    """A message of another version of the format."""


# ---------------------------------------------------------------- writing and reading


class Writer:
    """Collects the head and the body of a message."""

    def __init__(self) -> None:
        self.head: list[int] = []
        self.body: list[Array] = []

    def message(self, kind: int) -> Message:
        """What was collected."""
        body = np.concatenate(self.body) if self.body else np.empty(0)
        return Message(kind, tuple(self.head), body)


class Reader:
    """Hands out the head and the body of a message, in order."""

    def __init__(self, message: Message) -> None:
        self._head, self._body = message.head, message.body
        self._at = self._from = 0

    def whole(self, low: int, high: int) -> int:
        """The next whole number, within bounds."""
        if self._at >= len(self._head):
            raise MessageError("message ends early: whole numbers are missing")
        value = self._head[self._at]
        self._at += 1
        if not low <= value <= high:
            raise MessageError(f"message has {value} where {low} to {high} is possible")
        return value

    def floats(self, size: int) -> Array:
        """The next ``size`` floats, a view."""
        if size > len(self._body) - self._from:
            raise MessageError(f"message ends early: {size} floats wanted, {len(self._body) - self._from} left")
        part = self._body[self._from : self._from + size]
        self._from += size
        return part

    def finish(self) -> None:
        """An error where something is left over."""
        if self._at < len(self._head) or self._from < len(self._body):
            raise MessageError("message is longer than its kind")


class Field(Protocol):
    """How one field of a record becomes numbers, and back."""

    def write(self, value: Any, to: Writer) -> None:
        """Append ``value``."""
        ...

    def read(self, source: Reader) -> Any:
        """Take the next value."""
        ...


# ---------------------------------------------------------------- fields


class Number:
    """A float."""

    def write(self, value: float, to: Writer) -> None:
        """Append it to the body."""
        to.body.append(np.array([value], dtype=np.float64))

    def read(self, source: Reader) -> float:
        """Take the next float."""
        return float(source.floats(1)[0])


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    low: int
    high: int

    def write(self, value: int, to: Writer) -> None:
        """Append it to the head."""
        if not self.low <= value <= self.high:
            raise MessageError(f"{value} cannot be sent where {self.low} to {self.high} is possible")
        to.head.append(int(value))

    def read(self, source: Reader) -> int:
        """Take the next whole number."""
        return source.whole(self.low, self.high)


class Flag:
    """True or False."""

    def write(self, value: bool, to: Writer) -> None:
        """Append 0 or 1 to the head."""
        to.head.append(int(value))

    def read(self, source: Reader) -> bool:
        """Take 0 or 1."""
        return bool(source.whole(0, 1))


@dataclass(frozen=True)
class Choice:
    """One of a fixed list of words or members of an enumeration, by its place."""

    options: tuple[str | Enum, ...]

    def write(self, value: str | Enum, to: Writer) -> None:
        """Append the place to the head."""
        to.head.append(self.options.index(value))

    def read(self, source: Reader) -> str | Enum:
        """Take a place."""
        return self.options[source.whole(0, len(self.options) - 1)]


@dataclass(frozen=True)
class Floats:
    """An array of floats with a given number of axes, or one of several numbers."""

    axes: tuple[int, ...]

    def write(self, value: Array, to: Writer) -> None:
        """Append the shape to the head (its length first where it is open), the numbers to the body."""
        if value.ndim not in self.axes:
            raise MessageError(f"an array of {value.ndim} axes cannot be sent where {self.axes} are possible")
        if len(self.axes) > 1:
            to.head.append(value.ndim)
        to.head.extend(value.shape)
        to.body.append(np.asarray(value, dtype=np.float64).ravel())

    def read(self, source: Reader) -> Array:
        """Take a shape and as many floats: a read-only view."""
        axes = self.axes[0] if len(self.axes) == 1 else source.whole(min(self.axes), max(self.axes))
        if axes not in self.axes:
            raise MessageError(f"message has an array of {axes} axes where {self.axes} are possible")
        shape = tuple(source.whole(0, LONGEST_AXIS) for _ in range(axes))
        if math.prod(max(axis, 1) for axis in shape) > MOST_BYTES:  # one axis of 0 hides how long the others are
            raise MessageError(f"message has an array of shape {shape}")
        return source.floats(math.prod(shape)).reshape(shape)


class Symmetric:
    """A symmetric matrix, as its upper triangle."""

    def write(self, value: Array, to: Writer) -> None:
        """Append its order to the head, the triangle to the body."""
        to.head.append(len(value))
        to.body.append(pack(value))

    def read(self, source: Reader) -> Array:
        """Take an order and a triangle."""
        return unpack(source.floats(triangle_size(source.whole(0, LONGEST_AXIS))))


@dataclass(frozen=True)
class Maybe:
    """A field or None."""

    field: Field

    def write(self, value: Any, to: Writer) -> None:
        """Append 0, or 1 and the value."""
        to.head.append(int(value is not None))
        if value is not None:
            self.field.write(value, to)

    def read(self, source: Reader) -> Any:
        """Take a value or None."""
        return self.field.read(source) if source.whole(0, 1) else None


@dataclass(frozen=True)
class Tuple:
    """Between 0 and ``most`` values of one field."""

    field: Field
    most: int

    def write(self, value: Sequence[Any], to: Writer) -> None:
        """Append the length, then the values."""
        Whole(0, self.most).write(len(value), to)
        for item in value:
            self.field.write(item, to)

    def read(self, source: Reader) -> tuple[Any, ...]:
        """Take a length and as many values."""
        return tuple(self.field.read(source) for _ in range(source.whole(0, self.most)))


def _nothing(value: Any) -> None:
    """No check."""


@dataclass(frozen=True)
class Struct:
    """A dataclass by the codecs of its fields, in this order; ``check`` may refuse what was read.

    Fields that are not named are not sent: they must have defaults.
    """

    type: type
    fields: Mapping[str, Field]
    check: Callable[[Any], None] = _nothing

    def __post_init__(self) -> None:
        unknown = set(self.fields) - {field.name for field in fields(self.type)}
        if unknown:
            raise TypeError(f"{self.type.__name__} has no fields {sorted(unknown)}")

    def write(self, value: Any, to: Writer) -> None:
        """Append the fields."""
        for name, codec in self.fields.items():
            codec.write(getattr(value, name), to)

    def read(self, source: Reader) -> Any:
        """Take the fields and make the record."""
        value = self.type(**{name: codec.read(source) for name, codec in self.fields.items()})
        self.check(value)
        return value


class OneOf:
    """One of several records, told apart by their place in the list."""

    def __init__(self, *records: Struct) -> None:
        self.records = records
        self._place = {record.type: place for place, record in enumerate(records)}

    def write(self, value: Any, to: Writer) -> None:
        """Append the place, then the record."""
        if type(value) not in self._place:
            known = ", ".join(record.type.__name__ for record in self.records)
            raise MessageError(f"{type(value).__name__} cannot be sent: one of {known} can")
        place = self._place[type(value)]
        to.head.append(place)
        self.records[place].write(value, to)

    def read(self, source: Reader) -> Any:
        """Take a place, then that record."""
        return self.records[source.whole(0, len(self.records) - 1)].read(source)
