"""Kinds of columns of frames and arrays, and what to do with those that are no covariates, such as dates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from consilience.errors import InvalidInputError

REMEDIES = MappingProxyType(
    {
        "dates": "pass numbers in a unit, such as the days since a fixed date, or a part of the date, such as "
        "the month, as text",
        "durations": "divide by a unit, such as one day, and pass the numbers",
        "times of day": "pass numbers in a unit, such as the hours since midnight",
        "values of other types": "pass numbers, text, categories or booleans",
    }
)
"""Kinds of columns that are neither numbers nor categories, and what to pass instead."""
TYPES = MappingProxyType(
    {
        nw.Boolean: "boolean",
        nw.String: "text",
        nw.Categorical: "text",
        nw.Enum: "text",
        nw.Date: "dates",
        nw.Datetime: "dates",
        nw.Duration: "durations",
        nw.Time: "times of day",
        nw.Binary: "values of other types",
        nw.List: "values of other types",
        nw.Array: "values of other types",
        nw.Struct: "values of other types",
    }
)
"""Kinds of the types of frames; other types are numbers, or depend on the values."""
VALUES: Sequence[tuple[tuple[type, ...], str]] = (
    ((str,), "text"),
    ((bool, np.bool_), "boolean"),
    ((Real, Decimal, np.number), "number"),
    ((dt.date, np.datetime64), "dates"),
    ((dt.timedelta, np.timedelta64), "durations"),
    ((dt.time,), "times of day"),
)
"""Kinds of single values; what comes first decides."""
MISSING = ("NoneType", "NAType", "NaTType")
"""Types of values that are missing, of which pandas has its own."""


def column_kinds(X: Any) -> list[str]:
    """Return the kind of each column: "text" (categories included), "boolean", "number", or a key of REMEDIES."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return [_kind(dtype, frame, j) for j, dtype in enumerate(frame.schema.values())]
    X = np.asarray(X)
    if X.dtype == object:
        return [_kind_of_values(column) for column in X.T]
    return [_kind_of_array(X)] * X.shape[1]


def arrow_kind(kind: pa.DataType) -> str:
    """Return the kind of a column of this arrow type."""
    return column_kinds(pa.schema([("x", kind)]).empty_table())[0]


def check_kinds(name: str, data: Any) -> bool:
    """Raise an error for dates and other columns that are neither numbers nor categories, with what to do.

    Return whether a column of a frame holds Python objects, such as numbers of several types.

    Parameters
    ----------
    name : str
        Name of the argument.
    data : array or frame ``(n,)`` or ``(n, d)``
    """
    frame = nw.from_native(data, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        schema = frame.schema
        for j, (column, dtype) in enumerate(schema.items()):
            if (kind := _kind(dtype, frame, j)) in REMEDIES:
                raise InvalidInputError(say_kind(f"column {column!r} of {name}", kind))
        return nw.Object in schema.values()
    for what, kind in _kinds_of_array(name, data):
        if kind in REMEDIES:
            raise InvalidInputError(say_kind(what, kind))
    return False


def _kinds_of_array(name: str, data: Any) -> Iterable[tuple[str, str]]:
    """Return what each column is called in a sentence, and its kind."""
    try:
        array = np.asarray(data)
    except ValueError:  # rows of different lengths, of which later checks say so
        return ()
    if array.ndim == 1:
        return [(name, column_kinds(array[:, None])[0])]
    return ((f"column {j} of {name}", kind) for j, kind in enumerate(column_kinds(array) if array.ndim == 2 else ()))


def say_kind(what: str, kind: str) -> str:
    """Say that a column of a kind of REMEDIES is no covariate, and what to do."""
    return f"{what} holds {kind}, expected numbers: {REMEDIES[kind]}"


def _kind(dtype: Any, frame: nw.DataFrame[Any], j: int) -> str:
    if dtype.is_numeric():
        return "number"
    known = next((kind for each, kind in TYPES.items() if isinstance(dtype, each)), None)
    if known is not None:
        return known
    if not isinstance(dtype, nw.Object | nw.Unknown):
        return "number"
    values = frame[:, j].to_numpy()
    return _kind_of_values(values) if values.dtype == object else _kind_of_array(values)


def _kind_of_array(X: np.ndarray[Any, Any]) -> str:
    return {
        "U": "text",
        "S": "values of other types",
        "M": "dates",
        "m": "durations",
        "V": "values of other types",
    }.get(X.dtype.kind, "number")


def _kind_of_values(values: np.ndarray[Any, Any]) -> str:
    """Return the kind of Python objects: what their types have in common; text if any of them is text."""
    types = [each for each in set(map(type, values)) if each.__name__ not in MISSING]
    kinds = {
        next((kind for known, kind in VALUES if issubclass(each, known)), "values of other types") for each in types
    }
    if "text" in kinds or not kinds:
        return "text" if kinds else "number"
    if len(kinds) == 1:
        return kinds.pop()
    refused = kinds & REMEDIES.keys() - {"values of other types"}  # one dict among numbers is named by their conversion
    return min(refused) if refused else "number"


def is_missing(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which Python objects are missing values."""
    found = [type(value).__name__ in MISSING or bool(value != value) for value in values.ravel()]  # noqa: PLR0124 - NaN
    return np.array(found, dtype=bool).reshape(values.shape)
