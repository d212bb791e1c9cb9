"""Data frames with categories as numbers: the data dictionary of a frame, and the coding of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from consilience.columns import Column, Dictionary
from consilience.columns.arrow import codes_of, levels_of, plain, unknown_in
from consilience.columns.dictionary import FROM_DTYPE, check_chosen, check_references, chosen_categories
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
    chosen = chosen_categories(categorical_features, names)
    typed = _of_kind({"text", "boolean"}, parts, names)
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
    for name in _of_kind({"text"}, parts, names):
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
        _indicators(_arrow(X, j, column.name), column) if column.is_category else _ruled(X, j, column)
        for j, column in enumerate(dictionary.columns)
    ]
    return np.column_stack(parts) if parts else np.empty((len(X), 0))


def _names(X: Any) -> list[str]:
    names = column_names(X)
    return [f"x{j}" for j in range(np.shape(X)[1])] if names is None else [*names]


def kinds_of(X: Any) -> list[str]:
    """Return the kind of each column: "text" (categories included), "boolean" or "number".

    Examples
    --------
    >>> kinds_of(pa.table({"fuel": ["gas"], "new": [True], "age": [3]}))
    ['text', 'boolean', 'number']
    """
    if is_frame(X):
        return [_kind(dtype) for dtype in nw.from_native(X, eager_only=True).schema.values()]
    X = np.asarray(X)
    if X.dtype == object:
        return ["text" if any(isinstance(value, str) for value in column) else "number" for column in X.T]
    return ["text" if X.dtype.kind in "US" else "number"] * X.shape[1]


def _of_kind(wanted: set[str], parts: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Return the names of the columns that are of a wanted kind in any of the frames."""
    kinds = [kinds_of(part) for part in parts if is_frame(part)]
    return [name for j, name in enumerate(names) if any(each[j] in wanted for each in kinds)]


def _kind(dtype: Any) -> str:
    if isinstance(dtype, nw.Boolean):
        return "boolean"
    return "text" if isinstance(dtype, nw.String | nw.Categorical | nw.Enum | nw.Object) else "number"


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
    if not is_frame(X):
        return False
    frame = nw.from_native(X, eager_only=True)
    return frame.implementation.is_polars() and isinstance(frame[:, j].dtype, nw.Categorical)


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


def _ruled(X: Any, j: int, column: Column) -> Array:
    """Return the covariate ``(n, 1)`` of a column of numbers, by its rule."""
    values = _numbers(X, j, column.name)
    if outside := int(np.sum(~column.rule.contains(values))):
        raise InvalidInputError(
            f"column {column.name!r} has {outside} values outside its range, {column.rule.range_text}: correct them, "
            "or leave those rows out"
        )
    return values if column.rule.is_plain else column.rule.values(values)


def _numbers(X: Any, j: int, name: str) -> Array:
    values = nw.from_native(X, eager_only=True)[:, j].to_numpy() if is_frame(X) else np.asarray(X)[:, j]
    try:
        return np.asarray(values, dtype=np.float64)[:, None]
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"column {name!r} has values that are not numbers: expected numbers, text, categories or booleans"
        ) from error
