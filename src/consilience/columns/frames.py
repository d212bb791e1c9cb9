"""Data frames of pandas, polars and others, through narwhals: names, arrays, data dictionary and coding as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.columns import Column, Dictionary
from consilience.columns.arrow import codes_of, decode_dictionary, levels_of, unknown_in
from consilience.columns.column_kinds import column_kinds, is_missing
from consilience.columns.dictionary import FROM_DTYPE, check_chosen, check_references, chosen_categories
from consilience.errors import InvalidInputError


def is_frame(X: object) -> bool:
    """Whether ``X`` is a data frame that narwhals supports; an error if two of its columns have one name."""
    return _wrapped(X) is not None


def wrap_once(X: Any) -> Any:
    """Return a frame as narwhals has it, so that what reads it next does not wrap it again; else X itself."""
    frame = _wrapped(X)
    return X if frame is None else frame


def _wrapped(X: object) -> nw.DataFrame[Any] | None:
    """Return the frame as narwhals has it, or None for anything else; to wrap it costs a third of a millisecond."""
    if isinstance(X, np.ndarray | nw.DataFrame):
        return X if isinstance(X, nw.DataFrame) else None
    _check_names_differ(X)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def _check_names_differ(X: object) -> None:
    given = getattr(X, "column_names", getattr(X, "columns", ()))  # of arrow, of pandas
    names = [name for name in given if isinstance(name, str)] if isinstance(given, Iterable) else []
    if len(set(names)) < len(names):
        twice = ", ".join(sorted({repr(name) for name in names if names.count(name) > 1}))
        raise InvalidInputError(f"X has two columns of the name {twice}: give each column its own name")


def frame_names(X: object) -> np.ndarray | None:
    """Return the column names of a frame if all are strings, otherwise None."""
    if (frame := _wrapped(X)) is None:
        return None
    names = frame.columns
    return np.asarray(names, dtype=object) if all(isinstance(name, str) for name in names) else None


def response_labels(y: object, X: object) -> tuple[str, ...]:
    """Return the name of a series, or those of the columns of a frame; empty without names that are text.

    A name that is also that of a column of ``X`` is none: pandas passes it on, as from ``X.age`` to ``2 * X.age + e``.
    """
    names, others = frame_names(y), frame_names(X)
    if names is None:
        series = nw.from_native(y, allow_series=True, pass_through=True)
        name = series.name if isinstance(series, nw.Series) else None
        names = np.array([name] if isinstance(name, str) and name else [], dtype=object)
    return () if others is not None and set(others) & set(names) else tuple(map(str, names))


def as_array(X: object) -> Any:
    """Convert a frame to a numpy array ``(n, d)``; return anything else unchanged."""
    found = wrap_once(X)
    return found.to_numpy() if isinstance(found, nw.DataFrame) else X


def has_column(X: object, name: str | None) -> bool:
    """Whether ``X`` is a frame with a column of this name; no name is that of no column."""
    frame = None if name is None else _wrapped(X)
    return frame is not None and name in frame.columns


def take_columns(X: Any, names: Iterable[str]) -> tuple[Any, dict[str, Any]]:
    """Return a frame without these columns, and their values; raise an error if it does not have one of them."""
    known = frame_names(X)
    for name in names:
        if known is None or name not in known:
            has = "no names of columns" if known is None else ", ".join(known)
            raise InvalidInputError(f"X has no column {name!r}; it has {has}: pass its values, or a frame that has it")
    frame = nw.from_native(X, eager_only=True)
    return frame.drop(*names).to_native(), {name: frame[name].to_numpy() for name in names}


def backend_of(X: object) -> str | None:
    """Return the name of the module (``"pandas"``, ``"polars"``, …) of a frame, or None for an array."""
    if (frame := _wrapped(X)) is None:
        return None
    name: str = nw.get_native_namespace(frame).__name__
    return name


def to_frame(columns: Mapping[str, Sequence[Any]], backend: str | None = None) -> Any:
    """Build a frame from ``columns``: of the given backend, else pandas if installed, else ``pyarrow.Table``."""
    try:
        module = import_module(backend or "pandas")
    except ImportError:
        if backend is not None:
            raise
        return pa.table(dict(columns))
    return nw.from_dict(dict(columns), native_namespace=module).to_native()


Array = NDArray[np.float64]
LEVELS_SHOWN = 5
"""Maximum number of unknown levels that an error lists."""


def frame_dictionary(
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
    """
    names, references = column_names(parts[0]), reference_levels or {}
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


def number_dictionary(parts: Sequence[Any]) -> Dictionary:
    """Return the data dictionary of frames or arrays that must have numbers only."""
    names = column_names(parts[0])
    for name in _of_kind({"text"}, parts, names):
        raise InvalidInputError(f"column {name!r} is not of numbers: leave it out, or encode it as numbers")
    return Dictionary.of_numbers(names)


def encode_columns(X: Any, dictionary: Dictionary, unknown: Array | None = None) -> Array:
    """Return the covariates ``(n, terms)`` of a frame or array; NaN where a value is missing.

    Parameters
    ----------
    X : (n, d) array or frame
    dictionary : Dictionary
    unknown : (terms,) array, optional
        Values of the indicators of a level that is not in the dictionary.

    Raises
    ------
    InvalidInputError
        If a category has such a level, which is named, and ``unknown`` is not given.
    """
    X = wrap_once(X)  # not for each column
    numbers, parts, at = _numbers_together(X, dictionary), [], 0
    for j, column in enumerate(dictionary.columns):
        own = None if unknown is None else unknown[at : at + len(column.terms)]
        coded = column.is_category
        parts.append(
            _indicators(_arrow(X, j, column.name), column, own) if coded else _apply_rule(X, j, column, numbers.get(j))
        )
        at += len(column.terms)
    return np.column_stack(parts) if parts else np.empty((len(X), 0))


def column_names(X: Any) -> list[str]:
    """Return the names of the columns; ``x0``, ``x1``, … for an array."""
    names = frame_names(X)
    return [f"x{j}" for j in range(np.shape(X)[1])] if names is None else [*names]


def _of_kind(wanted: set[str], parts: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Return the names of the columns that are of a wanted kind in any of the frames."""
    kinds = [column_kinds(part) for part in parts if is_frame(part)]
    return [name for j, name in enumerate(names) if any(each[j] in wanted for each in kinds)]


def _arrow(X: Any, j: int, name: str) -> pa.Array:
    try:
        values = nw.from_native(X, eager_only=True)[:, j].to_arrow() if is_frame(X) else pa.array(np.asarray(X)[:, j])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInputError(
            f"column {name!r} has values of several types: convert it to text, or to a categorical type"
        ) from error
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return decode_dictionary(whole) if _in_order_of_appearance(X, j) else whole


def _in_order_of_appearance(X: Any, j: int) -> bool:
    """Whether a column is a polars Categorical, whose dictionary has no order of its own; an Enum has one."""
    if not is_frame(X):
        return False
    frame = nw.from_native(X, eager_only=True)
    return frame.implementation.is_polars() and isinstance(frame[:, j].dtype, nw.Categorical)


def _indicators(values: pa.Array, column: Column, stand_in: Array | None) -> Array:
    codes = codes_of(values, column.levels)
    if np.any(codes == -2) and stand_in is None:
        unknown = unknown_in(values, codes)
        more = f" and {len(unknown) - LEVELS_SHOWN} more" if len(unknown) > LEVELS_SHOWN else ""
        raise InvalidInputError(
            f"column {column.name!r} has levels that were not in the fit: "
            f"{', '.join(map(repr, unknown[:LEVELS_SHOWN]))}{more}; expected {', '.join(map(repr, column.levels))}. "
            "Set unknown_levels to 'reference' or 'average' to predict for them all the same"
        )
    found: Array = column.indicators(codes)
    found[codes == -1] = np.nan
    if stand_in is not None:
        found[codes == -2] = stand_in
    return found


FEW = 1_000
"""Rows up to which columns of numbers are read together: it takes less time than one by one, and a copy of them."""


def _numbers_together(X: Any, dictionary: Dictionary) -> dict[int, Array]:
    """Return the values ``(n, 1)`` of the columns of numbers by their places; of long or mixed frames none."""
    places = [j for j, column in enumerate(dictionary.columns) if not column.is_category]
    if len(places) < 2 or len(X) > FEW or not isinstance(X, nw.DataFrame):
        return {}
    is_run = places[-1] - places[0] == len(places) - 1  # to cut it out takes less than to gather columns
    block = (X[:, places[0] : places[-1] + 1] if is_run else X[:, places]).to_numpy()
    if block.dtype.kind not in "iuf":
        return {}
    numbers = block.astype(np.float64)
    return {j: numbers[:, i : i + 1] for i, j in enumerate(places)}


def _apply_rule(X: Any, j: int, column: Column, known: Array | None) -> Array:
    """Return the covariate ``(n, 1)`` of a column of numbers, by its rule; ``known`` are its values, if they are."""
    values = _number_values(X, j, column.name) if known is None else known
    if column.rule.is_plain:
        return values
    if outside := int(np.sum(~column.rule.contains(values))):
        raise InvalidInputError(
            f"column {column.name!r} has {outside} values outside its range, {column.rule.range_text}: correct them, "
            "or leave those rows out"
        )
    return column.rule.values(values)


def _number_values(X: Any, j: int, name: str) -> Array:
    values = nw.from_native(X, eager_only=True)[:, j].to_numpy() if is_frame(X) else np.asarray(X)[:, j]
    if values.dtype == object:
        values = np.where(is_missing(values), np.nan, values)
    try:
        return np.asarray(values, dtype=np.float64)[:, None]
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"column {name!r} has values that are not numbers: expected numbers, text, categories or booleans"
        ) from error


# ---------------------------------------------------------------- one column, replaced


def as_table(X: Any) -> Any:
    """Return a frame whose columns have names as it is, anything else as an array ``(n, d)``."""
    if frame_names(X) is not None:
        return X
    return nw.from_native(X, eager_only=True).to_numpy() if is_frame(X) else np.asarray(X)


def column_values(X: Any, j: int) -> np.ndarray:
    """Return column ``j`` of a table as it is, ``(n,)``."""
    return np.asarray(nw.from_native(X, eager_only=True)[:, j].to_numpy()) if is_frame(X) else np.asarray(X[:, j])


def with_column(X: Any, j: int, values: np.ndarray) -> Any:
    """Return the table with other values in column ``j``.

    Examples
    --------
    >>> with_column(np.array([[1, 2], [3, 4]]), 1, np.array([0.5, 0.5]))
    array([[1. , 0.5],
           [3. , 0.5]])
    """
    if not is_frame(X):
        found = X.astype(
            np.result_type(X, values) if X.dtype.kind == values.dtype.kind or X.dtype.kind in "biuf" else object
        )
        found[:, j] = values
        return found
    frame = nw.from_native(X, eager_only=True)
    name, space = frame.columns[j], nw.get_native_namespace(frame)
    return frame.with_columns(nw.new_series(name, values, native_namespace=space)).to_native()
