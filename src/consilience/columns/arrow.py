"""Levels and codes of categories in arrow arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from consilience.columns.dictionary import Level

TEXT = ("string", "large_string", "string_view")  # arrow's names of its kinds of text


def is_category(kind: pa.DataType) -> bool:
    """Whether a column of this type is a category unless something else is said: text, dictionary or boolean."""
    return str(kind) in TEXT or pa.types.is_dictionary(kind) or pa.types.is_boolean(kind)


def decode_dictionary(column: pa.Array) -> pa.Array:
    """Return a column without dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def levels_of(parts: Iterable[pa.Array]) -> tuple[Level, ...]:
    """Return the levels that occur in the parts of a column: in the order of its dictionary, else sorted."""
    seen: set[Any] = set()
    orders: set[tuple[Any, ...]] = set()
    for part in parts:
        values = pc.unique(decode_dictionary(part))
        seen.update(values.filter(pc.invert(values.is_null(nan_is_null=True))).to_pylist())
        orders.add(tuple(part.dictionary.to_pylist()) if pa.types.is_dictionary(part.type) else ())
    order = orders.pop() if len(orders) == 1 else ()
    return tuple(value for value in order if value in seen) if order else tuple(sorted(seen))


def codes_of(column: pa.Array, levels: Sequence[Level]) -> NDArray[np.int64]:
    """Return the place of each value among the levels; -1 for a missing value, -2 for an unknown one."""
    values = decode_dictionary(column)
    wanted = pa.large_string() if isinstance(levels[0], str) else pa.float64()
    if (str(values.type) in TEXT) != isinstance(levels[0], str):
        return np.where(values.is_null().to_numpy(zero_copy_only=False), -1, -2)
    known = pa.array([level if isinstance(level, str) else float(level) for level in levels], wanted)
    if pa.types.is_boolean(values.type) or pa.types.is_decimal(values.type):
        values = values.cast(pa.int8() if pa.types.is_boolean(values.type) else pa.float64())
    found = pc.index_in(values.cast(wanted), value_set=known)
    places: NDArray[np.int64] = pc.fill_null(found, -2).to_numpy(zero_copy_only=False).astype(np.int64)
    places[values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)] = -1
    return places


def unknown_in(column: pa.Array, codes: NDArray[np.int64]) -> list[Any]:
    """Return the sorted unknown values of a column with these codes, each once."""
    found: list[Any] = pc.unique(decode_dictionary(column).filter(pa.array(codes == -2))).to_pylist()
    return sorted(found, key=str)
