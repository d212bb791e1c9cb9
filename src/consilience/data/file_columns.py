"""Columns of a file by their role in a model, and their conversion from arrow to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from consilience.columns import Column, Dictionary, Level, Rule
from consilience.columns.arrow import TEXT, codes_of, decode_dictionary
from consilience.columns.derived import Derivation, texts_of
from consilience.columns.formula import TermFactor
from consilience.errors import InvalidInputError
from consilience.messages import FailureCode, SiteError
from consilience.model import Groups, Rows
from consilience.numerics.arrays import Array, IntArray, Mask


@dataclass(frozen=True)
class Columns:
    """Names of columns by their role in the model.

    Parameters
    ----------
    features : tuple of str
        Covariates, in the order of the model; empty for a Gaussian mixture.
    target : tuple of str
        Responses: usually one column; all columns of a Gaussian mixture.
    weight, exposure, groups, clusters : str, optional
        Columns of case weights, of exposures of counts, and of labels of groups and of clusters.
    classes : tuple of str, int, float or bool, optional
        Sorted labels of a categorical response, which is read as codes 0, 1, ...
    dictionary : Dictionary, optional
        Kinds and levels of the features; by default all are numbers.
    others : tuple of Column
        Rules of columns that are no features: the range of a response, and what a missing value means.
    derivation : Derivation, optional
        Terms of a formula, which are the features and are computed from columns of the file.

    Examples
    --------
    >>> from consilience.data import Columns
    >>> columns = Columns(("age", "dose"), ("outcome",), weight="freq", classes=("dead", "well"))
    >>> columns.names
    ('age', 'dose', 'outcome', 'freq')
    """

    features: tuple[str, ...]
    target: tuple[str, ...]
    weight: str | None = None
    exposure: str | None = None
    groups: str | None = None
    classes: tuple[Level, ...] | None = None
    dictionary: Dictionary | None = None
    others: tuple[Column, ...] = ()
    clusters: str | None = None
    derivation: Derivation | None = None

    def __post_init__(self) -> None:
        if not (self.features or self.target):
            raise InvalidInputError("got no feature and no target, expected at least one column")
        for part in (self.features, self.target):
            if len(set(part)) < len(part):
                raise InvalidInputError(f"{', '.join(part)}: duplicate column name; name each column once")
        if self.classes is not None:
            _check_classes(self.classes, self.target)
        if self.dictionary is not None and self.dictionary.names != self.features:
            raise InvalidInputError("the dictionary has other columns than the features")

    @property
    def terms(self) -> int:
        """Number of covariates: of features, with the indicators of categories instead of these."""
        return len(self.features) if self.dictionary is None else len(self.dictionary.terms)

    def feature(self, name: str) -> Column:
        """Return the column of this name among the features; a plain number if there is no dictionary."""
        return next((column for column in self._known if column.name == name), Column(name))

    @property
    def _known(self) -> tuple[Column, ...]:
        """Columns with levels or a rule: features, and those that a formula reads."""
        read = () if self.derivation is None else self.derivation.factors
        return (*(() if self.dictionary is None else self.dictionary.columns), *read)

    def other(self, name: str) -> Column:
        """Return the column of this name that is no feature; a plain number if it has no rule."""
        return next((column for column in self.others if column.name == name), Column(name))

    @property
    def dropping(self) -> tuple[str, ...]:
        """Columns in which a missing value means that the row is left out."""
        ruled = (*self._known, *self.others)
        return tuple(dict.fromkeys(column.name for column in ruled if column.rule.missing == "drop"))

    @property
    def names(self) -> tuple[str, ...]:
        """All columns to read, in order, without repetition."""
        if self.derivation is None:
            return tuple(dict.fromkeys((*self.numeric, *self.labels)))
        others = self.numeric[len(self.features) :]
        return tuple(dict.fromkeys((*self.derivation.sources, *others, *self.labels)))

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns of labels: of groups and of clusters."""
        return tuple(name for name in (self.groups, self.clusters) if name is not None)

    @property
    def numeric(self) -> tuple[str, ...]:
        """Columns of numbers or codes, in the order of a chunk's rows: features, target, weight, exposure."""
        return tuple(name for name in (*self.features, *self.target, self.weight, self.exposure) if name is not None)


def _check_classes(classes: tuple[Level, ...], target: tuple[str, ...]) -> None:
    if len(target) != 1:
        raise InvalidInputError(f"classes: got {len(target)} target columns, expected the single column of the classes")
    text = {isinstance(label, str) for label in classes}
    if len(text) != 1 or not all(isinstance(label, str | int | float) for label in classes):
        raise InvalidInputError("classes: expected labels that are all text or all numbers")
    if not all(a < b for a, b in pairwise(classes)):  # type: ignore[operator]
        raise InvalidInputError("classes: expected sorted labels, each once; pass tuple(sorted(set(labels)))")


class Chunk:
    """Buffer of rows under construction: one buffer row per column of the file.

    Parameters
    ----------
    columns : Columns
    size : int
        Capacity in rows.
    """

    def __init__(self, columns: Columns, size: int) -> None:
        self.columns = columns
        self.n = 0
        self.buffer = np.empty((columns.terms + len(columns.numeric) - len(columns.features), size))
        self._index: dict[str, dict[Any, int]] = {name: {} for name in columns.labels}  # label -> its code
        self._codes: dict[str, list[IntArray]] = {name: [] for name in columns.labels}

    @property
    def is_full(self) -> bool:
        """Whether the buffer is full."""
        return self.n == self.buffer.shape[1]

    def fill(self, batch: pa.RecordBatch, start: int = 0) -> int:
        """Copy rows of ``batch`` from ``start`` on, up to the capacity; return their number."""
        length = int(min(batch.num_rows - start, self.buffer.shape[1] - self.n))
        rows = slice(self.n, self.n + length)
        batch = with_terms(batch.slice(start, length), self.columns.derivation)
        for name, part, read in self._readers():
            part[:, rows] = read(batch.column(name), name)
            _check_finite(part[:, rows], name)
        self._check_signs(rows)
        for name in self._index:
            self._add_labels(batch.column(name), name)
        self.n += length
        return length

    def rows(self) -> Rows:
        """Return the rows filled in; ``X.T`` and ``Y.T`` are C-contiguous."""
        columns, d, q = self.columns, self.columns.terms, len(self.columns.target)
        buffer = self.buffer if self.is_full else np.ascontiguousarray(self.buffer[:, : self.n])
        weight = None if columns.weight is None else buffer[d + q]
        exposure = None if columns.exposure is None else buffer[-1]
        labels = [None if name is None else Groups.of(self._ranks(name)) for name in (columns.groups, columns.clusters)]
        return Rows(buffer[:d].T, buffer[d : d + q].T, weight, exposure, *labels)

    def _readers(self) -> Iterator[tuple[str, Array, Any]]:
        """Yield each column with its part of the buffer, ``(rows, size)``, and the function that reads it."""
        classes, d, at = self.columns.classes, len(self.columns.features), 0
        for i, name in enumerate(self.columns.numeric):
            column = self.columns.feature(name) if i < d else self.columns.other(name)
            part, at = self.buffer[at : at + len(column.terms)], at + len(column.terms)
            if classes is not None and i == d:
                yield name, part, partial(_codes, classes=classes)
            elif column.is_category:
                yield name, part, partial(_indicators, category=column)
            elif not column.rule.is_plain:
                yield name, part, partial(_ruled, rule=column.rule)
            else:
                yield name, part, _numbers

    def _check_signs(self, rows: slice) -> None:
        q = self.columns.terms + len(self.columns.target)
        if self.columns.weight is not None and np.any(self.buffer[q, rows] < 0):
            raise SiteError(FailureCode.BAD_WEIGHTS, f"column {self.columns.weight!r}")
        if self.columns.exposure is not None and np.any(self.buffer[-1, rows] <= 0):
            raise SiteError(FailureCode.BAD_WEIGHTS, f"column {self.columns.exposure!r}")

    def _add_labels(self, column: pa.Array, name: str) -> None:
        values, codes = encode_labels(column, name)
        index = self._index[name]
        known = [index.setdefault(value, len(index)) for value in values]
        self._codes[name].append(np.asarray(known, dtype=np.intp)[codes])

    def _ranks(self, name: str) -> IntArray:
        """Return the label of each row, numbered in the sort order of the labels."""
        index = self._index[name]
        ranks = np.empty(len(index), dtype=np.intp)
        ranks[[index[value] for value in sorted(index)]] = np.arange(len(ranks))
        return ranks[np.concatenate(self._codes[name])]


def with_terms(batch: pa.RecordBatch, derivation: Derivation | None) -> pa.RecordBatch:
    """Return rows with the terms that a formula computes, as columns of their own."""
    if derivation is None:
        return batch
    texts = {each.label: pa.array(texts_of(batch.column(each.name).to_pylist())) for each in derivation.categories}

    def read(factor: TermFactor, column: Column) -> Array:
        values = batch.column(factor.name)
        if factor.function == "category":
            values = pa.array(texts_of(values.to_pylist()))
        return _indicators(values, column.name, column).T if column.is_category else _ruled_column(values, column)

    found = texts | {name: pa.array(values) for name, values in derivation.computed(read)}
    arrays, names = [*batch.columns, *found.values()], [*batch.schema.names, *found]
    return pa.RecordBatch.from_arrays(arrays, names)


def _ruled_column(values: pa.Array, column: Column) -> Array:
    return np.asarray(_ruled(values, column.name, column.rule), dtype=np.float64)[:, None]


def encode_labels(column: pa.Array, name: str) -> tuple[list[Any], IntArray]:
    """Return the distinct values of a column of labels, and for each row the index of its value.

    Parameters
    ----------
    column : pyarrow.Array
        Text, integers, or any other ordered type.
    name : str
        Name of the column, for the error.

    Returns
    -------
    values : list
        Values in order of appearance.
    codes : (n,) array
    """
    column = decode_dictionary(column)
    _check_nulls(column, name)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if pa.types.is_floating(column.type):
        _check_finite(np.asarray(values), name)
    return values, encoded.indices.to_numpy().astype(np.intp)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type is read as numbers."""
    types = pa.types
    tests = (types.is_floating, types.is_integer, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def _numbers(column: pa.Array, name: str) -> NDArray[Any]:
    """Return a numeric column as an array, a view if its type allows."""
    kind = column.type
    plain = pa.types.is_floating(kind) or pa.types.is_integer(kind)
    if not is_number(kind):
        raise SiteError(FailureCode.NOT_NUMBERS, f"column {name!r} is of type {kind}")
    _check_nulls(column, name)
    numbers: NDArray[Any] = (column if plain else column.cast(pa.float64())).to_numpy()
    return numbers


def _ruled(column: pa.Array, name: str, rule: Rule) -> NDArray[Any]:
    """Return the covariate of a numeric column, by its rule."""
    if rule.fill is not None:
        column = column.cast(pa.float64()).fill_null(rule.fill)
    values = np.asarray(_numbers(column, name), dtype=np.float64)
    if not np.all(rule.contains(values)):
        raise SiteError(FailureCode.VALUE_OUT_OF_RANGE, f"column {name!r}")
    return rule.values(values)


def _codes(column: pa.Array, name: str, classes: tuple[Level, ...]) -> NDArray[Any]:
    """Return the codes of a column of classes."""
    return _places(column, name, classes, FailureCode.UNKNOWN_CLASS)


def _indicators(column: pa.Array, name: str, category: Column) -> NDArray[Any]:
    """Return the indicators of a category, ``(terms, n)``."""
    return category.indicators(_places(column, name, category.levels, FailureCode.UNKNOWN_LEVEL)).T


def _places(column: pa.Array, name: str, levels: tuple[Level, ...], code: FailureCode) -> NDArray[np.int64]:
    """Return the place of each value among the levels; a failure with this code if a value is not among them."""
    if (str(decode_dictionary(column).type) in TEXT) != isinstance(levels[0], str):
        raise SiteError(code, f"column {name!r} is of type {decode_dictionary(column).type}")
    places = codes_of(column, levels)
    if np.any(places == -1):
        raise SiteError(FailureCode.MISSING_VALUES, f"column {name!r}")
    if np.any(places == -2):
        raise SiteError(code, f"column {name!r}")
    return places


def _check_nulls(column: pa.Array, name: str) -> None:
    if column.null_count:
        raise SiteError(FailureCode.MISSING_VALUES, f"column {name!r}")


def _check_finite(values: NDArray[Any], name: str) -> None:
    if not np.all(np.isfinite(values)):
        raise SiteError(FailureCode.MISSING_VALUES, f"column {name!r}")


# ---------------------------------------------------------------- single cells

WORDS: Mapping[str, float] = {"true": 1.0, "false": 0.0}
"""Numbers of words in a column of yes and no."""


def numbers_in(values: pa.Array, missing: Mask) -> Array:
    """Return the numbers of a column, each cell by itself: NaN where there is none, ``(n,)``."""
    if is_number(values.type):
        found: Array = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=float)
        return found
    if str(values.type) not in TEXT:
        return np.full(len(values), np.nan)
    return np.array(
        [np.nan if gone else _number_of(str(cell)) for cell, gone in zip(values.to_pylist(), missing, strict=True)]
    )


def _number_of(cell: str) -> float:
    text = cell.strip().lower()
    if text in WORDS:
        return WORDS[text]
    try:
        return float(text) if "_" not in text else float("nan")
    except ValueError:
        return float("nan")
