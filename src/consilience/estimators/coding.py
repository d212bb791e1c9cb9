"""Data frames with categories as numbers: the data dictionary of a frame, and the coding of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from consilience.columns import Column, Dictionary
from consilience.columns.arrow import codes_of, levels_of, plain, unknown_in
from consilience.columns.dictionary import FROM_DTYPE, check_chosen, check_references, chosen_names
from consilience.errors import InvalidInputError
from consilience.estimators.frames import column_names, is_frame
from consilience.numerics.arrays import Array

SHOWN = 5
"""Maximum number of unknown levels that an error lists."""


def dictionary_of(
    parts: Sequence[Any], categorical_features: Any = FROM_DTYPE, reference_levels: Mapping[str, Any] | None = None
) -> Dictionary:
    """Return the data dictionary of a frame or array, or of several with the same columns.

    Parameters
    ----------
    parts : sequence of (n, d) arrays or frames
    categorical_features : "from_dtype" or sequence of str or int
        Names or indices of the categories; by default those of type text, category or boolean.
    reference_levels : mapping of str to level, optional
        Level against which the others are coded, for some of the categories; the first by default.

    Examples
    --------
    >>> table = pa.table({"age": [40, 60, 50], "fuel": ["gas", "diesel", "gas"]})
    >>> dictionary_of([table], reference_levels={"fuel": "gas"}).terms
    ('age', 'fuel[diesel]')
    """
    names, references = _names(parts[0]), reference_levels or {}
    chosen = chosen_names(categorical_features, names)
    typed = [name for j, name in enumerate(names) if any(_is_category(part, j) for part in parts)]
    if chosen is not None:
        check_chosen(typed, chosen)
    check_references(references, names)
    found = []
    for j, name in enumerate(names):
        is_category = name in (typed if chosen is None else chosen)
        levels = levels_of([_arrow(part, j, name) for part in parts]) if is_category else ()
        found.append(Column(name, levels, references.get(name)))
    return Dictionary(tuple(found))


def numbers_of(parts: Sequence[Any]) -> Dictionary:
    """Return the data dictionary of frames or arrays that must have numbers only.

    Examples
    --------
    >>> numbers_of([pa.table({"age": [40, 60], "fuel": ["gas", "diesel"]})])
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: column 'fuel' is not of numbers: leave it out, or encode it as numbers
    """
    names = _names(parts[0])
    for j, name in enumerate(names):
        if any(_is_category(part, j) and not _is_boolean(part, j) for part in parts):
            raise InvalidInputError(f"column {name!r} is not of numbers: leave it out, or encode it as numbers")
    return Dictionary.of_numbers(names)


def coded(X: Any, dictionary: Dictionary) -> Array:
    """Return the covariates ``(n, terms)`` of a frame or array; NaN where a value is missing.

    Raises
    ------
    InvalidInputError
        If a category has a level that is not in the dictionary, which is named.

    Examples
    --------
    >>> fuel = Dictionary((Column("fuel", ("diesel", "gas")),))
    >>> coded(pa.table({"fuel": ["gas", "diesel", None]}), fuel).ravel()
    array([ 1.,  0., nan])
    """
    parts = [
        _indicators(_arrow(X, j, column.name), column) if column.is_category else _numbers(X, j, column.name)
        for j, column in enumerate(dictionary.columns)
    ]
    return np.column_stack(parts) if parts else np.empty((len(X), 0))


def _names(X: Any) -> list[str]:
    names = column_names(X)
    return [f"x{j}" for j in range(np.shape(X)[1])] if names is None else [*names]


def _is_category(X: Any, j: int) -> bool:
    return isinstance(_kind(X, j), nw.String | nw.Categorical | nw.Enum | nw.Boolean | nw.Object)


def _is_boolean(X: Any, j: int) -> bool:
    return isinstance(_kind(X, j), nw.Boolean)


def _kind(X: Any, j: int) -> Any:
    """Return the type of a column of a frame; None for an array."""
    return nw.from_native(X, eager_only=True)[:, j].dtype if is_frame(X) else None


def _arrow(X: Any, j: int, name: str) -> pa.Array:
    try:
        values = nw.from_native(X, eager_only=True)[:, j].to_arrow() if is_frame(X) else pa.array(np.asarray(X)[:, j])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInputError(
            f"column {name!r} has values of several types: convert it to text, or to a categorical type"
        ) from error
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return plain(whole) if _in_order_of_appearance(X, j) else whole


def _in_order_of_appearance(X: Any, j: int) -> bool:
    """Whether a column is a polars Categorical, whose dictionary has no order of its own; an Enum has one."""
    return isinstance(_kind(X, j), nw.Categorical) and nw.from_native(X, eager_only=True).implementation.is_polars()


def _indicators(values: pa.Array, column: Column) -> Array:
    codes = codes_of(values, column.levels)
    if np.any(codes == -2):
        unknown = unknown_in(values, codes)
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        raise InvalidInputError(
            f"column {column.name!r} has levels that were not in the fit: {', '.join(map(repr, unknown[:SHOWN]))}{more}"
            f"; expected {', '.join(map(repr, column.levels))}"
        )
    found: Array = column.indicators(codes)
    found[codes == -1] = np.nan
    return found


def _numbers(X: Any, j: int, name: str) -> Array:
    values = nw.from_native(X, eager_only=True)[:, j].to_numpy() if is_frame(X) else np.asarray(X)[:, j]
    try:
        return np.asarray(values, dtype=np.float64)[:, None]
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"column {name!r} has values that are not numbers: expected numbers, text, categories or booleans"
        ) from error
