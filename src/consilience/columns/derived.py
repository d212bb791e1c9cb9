"""Columns that the terms of a formula derive from a table: functions, splines and products, with names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import NDArray

from consilience.columns import Column, Dictionary
from consilience.columns.column_kinds import check_kinds, column_kinds
from consilience.columns.dictionary import TRANSFORMS
from consilience.columns.formula import Formula, Term, TermFactor, parse_formula
from consilience.columns.frames import encode_columns, frame_dictionary, is_frame
from consilience.errors import InvalidInputError

Array = NDArray[np.float64]
MOST_COLUMNS = 10_000
"""Maximum number of columns that a formula derives."""
NEEDS_FRAME = "the model has a formula, which reads columns by name: pass a data frame"


@dataclass(frozen=True)
class Derivation:
    """The columns that a formula derives, with what was learned of the data: levels of categories, and knots.

    Parameters
    ----------
    text : str
        The formula.
    names : tuple of str
        Columns of the data of the fit.
    factors : tuple of Column
        Columns of the data that have levels, or a rule, and are a factor of a term, by their label.
    knots : mapping of str to tuple of float
        Knots of each spline, by its label.
    """

    text: str
    names: tuple[str, ...]
    factors: tuple[Column, ...]
    knots: Mapping[str, tuple[float, ...]] = field(hash=False)

    @classmethod
    def learn(cls, text: str, parts: Sequence[Any], references: Mapping[str, Any] | None = None) -> Derivation:
        """Return the derivation of a formula from one table, or from those of several sites.

        Parameters
        ----------
        text : str
        parts : sequence of frames
        references : mapping of str to level, optional
            Reference levels of categories.
        """
        for part in parts:
            if not is_frame(part):
                raise InvalidInputError("a formula reads columns by name: pass a data frame of pandas, polars or Arrow")
        names = tuple(nw.from_native(parts[0], eager_only=True).columns)
        formula = parse_formula(text, names)
        if not formula.terms:
            raise InvalidInputError(f"formula: {text!r} has no term but the intercept: name a column on its right side")
        factors = dict.fromkeys(factor for term in formula.terms for factor in term)
        knots = {factor.label: _knots(factor, parts) for factor in factors if factor.function == "spline"}
        multiplied = dict.fromkeys(factor for term in formula.terms if len(term) > 1 for factor in term)
        texts = [factor for factor in multiplied if _is_text(factor, parts)]
        categories = tuple(_category(factor, parts, references or {}) for factor in texts)
        for side in (formula.experts, formula.gate or ()):
            check_main_effects(side, {factor.label for factor in texts})
        return cls(text, names, categories, knots)

    @cached_property
    def formula(self) -> Formula:
        """The formula, parsed."""
        return parse_formula(self.text, self.names)

    def checked(self) -> Derivation:
        """Return this derivation; raise an error if its knots are not those of its splines."""
        factors = {factor for term in self.formula.terms for factor in term if factor.function == "spline"}
        if {factor.label for factor in factors} != self.knots.keys():
            raise InvalidInputError("the knots are not those of the splines of the formula")
        for spline in factors:
            knots = self.knots[spline.label]
            if len(knots) != spline.df + 1 or np.any(np.diff(knots) <= 0):
                raise InvalidInputError(f"{spline.label}: expected {spline.df + 1} knots in increasing order")
        return self

    @cached_property
    def width(self) -> int:
        """Number of the derived columns."""
        factors = {factor: len(self._names_of(factor)) for term in self.formula.terms for factor in term}
        whole = (len(term) == 1 and term[0].function != "spline" for term in self.formula.terms)
        return sum(
            1 if single else prod(factors[factor] for factor in term)
            for term, single in zip(self.formula.terms, whole, strict=True)
        )

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the derived columns, in order."""
        if self.width > MOST_COLUMNS:
            raise InvalidInputError(f"formula: more than {MOST_COLUMNS:,} columns: leave out products of categories")
        return tuple(name for term in self.formula.terms for name in self.columns_of(term))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Names of the columns of the data that the formula reads."""
        return tuple(dict.fromkeys(factor.name for term in self.formula.terms for factor in term))

    def derived_from(self, source: str) -> tuple[str, ...]:
        """Return the names of all derived columns that one column of the data enters."""
        terms = (term for term in self.formula.terms if any(factor.name == source for factor in term))
        return tuple(name for term in terms for name in self.columns_of(term))

    def named(self, names: Iterable[Any]) -> list[Any]:
        """Return names of terms as those of their columns; ``a:b`` is ``b:a``, and other names are left as they are."""
        found = {frozenset(factor.label for factor in term): self.columns_of(term) for term in self.formula.terms}
        return [column for name in names for column in found.get(frozenset(str(name).split(":")), (name,))]

    def columns_of(self, term: Term) -> tuple[str, ...]:
        """Return the names of the columns of a term."""
        if len(term) == 1 and term[0].function != "spline":
            return (term[0].label,)
        return tuple(":".join(each) for each in product(*map(self._names_of, term)))

    def read_by(self, side: Sequence[Term]) -> list[str]:
        """Return the names of the columns that the gate or the experts read."""
        own = [frozenset(term) for term in side]
        return [name for term in self.formula.terms if frozenset(term) in own for name in self.columns_of(term)]

    def apply(self, X: Any, unknown: Mapping[str, float] | None = None) -> Any:
        """Return the frame of the derived columns; a frame that has just these is returned unchanged.

        Parameters
        ----------
        X : frame
            With the columns that the formula names.
        unknown : mapping of str to float, optional
            Value of each indicator of a level that was not in the fit.
        """
        if not is_frame(X):
            raise InvalidInputError(NEEDS_FRAME)
        frame = nw.from_native(X, eager_only=True)
        if tuple(frame.columns) == self.columns:
            return X
        for name in self.sources:
            if name not in frame.columns:
                raise InvalidInputError(f"X has no column {name!r}, which the formula of the model names")
        check_kinds("X", frame.select(*self.sources).to_native())

        def read(factor: TermFactor, column: Column) -> Array:
            stand_in = None if unknown is None else np.array([unknown.get(name, 0.0) for name in column.terms])
            return encode_columns(_factor_frame(frame, factor), Dictionary((column,)), stand_in)

        texts = [(factor.label, texts_of(frame[factor.name].to_list())) for factor in self.categories]
        namespace = nw.get_native_namespace(frame)
        found = [nw.new_series(*each, native_namespace=namespace) for each in (*texts, *self.computed(read))]
        return frame.with_columns(*found).select(*self.columns).to_native()

    @property
    def categories(self) -> list[TermFactor]:
        """Terms that are a column of numbers, read as a category."""
        single = (term[0] for term in self.formula.terms if len(term) == 1)
        return [factor for factor in single if factor.function == "category"]

    def computed(self, read: Callable[[TermFactor, Column], Array]) -> list[tuple[str, Array]]:
        """Return names and values ``(n,)`` of the columns that are neither a column of the data nor a category.

        Parameters
        ----------
        read : function
            Returns the covariates ``(n, terms)`` of a factor, whose column it is given with its levels or rule.
        """
        found: list[tuple[str, Array]] = []
        for term in self.formula.terms:
            if len(term) > 1 or term[0].function not in ("", "category"):
                values = [self._values(factor, read) for factor in term]  # (n, terms of the factor) each
                columns = [reduce(np.multiply, each) for each in product(*(part.T for part in values))]
                found += zip(self.columns_of(term), columns, strict=True)
        return found

    def response(self, X: Any) -> Any:
        """Return the column of the response."""
        if not is_frame(X):
            raise InvalidInputError(NEEDS_FRAME)
        frame = nw.from_native(X, eager_only=True)
        if self.formula.response not in frame.columns:
            raise InvalidInputError(f"X has no column {self.formula.response!r}, the response of the formula: pass y")
        return frame[self.formula.response].to_native()

    def _names_of(self, factor: TermFactor) -> tuple[str, ...]:
        if factor.function == "spline":
            return tuple(f"{factor.label}[{i + 1}]" for i in range(factor.df))
        return self._column(factor.label).terms

    def _column(self, label: str) -> Column:
        """Return the column of a factor; plain numbers unless more is known."""
        return next((column for column in self.factors if column.name == label), Column(label))

    def _values(self, factor: TermFactor, read: Callable[[TermFactor, Column], Array]) -> Array:
        """Return the numbers of a factor: of a column, of the indicators of a category, or of a function."""
        if factor.function in ("", "category"):
            return read(factor, self._column(factor.label))
        own = self._column(factor.name)
        values = read(factor, Column(factor.name) if own.is_category else own)
        if factor.function == "spline":
            return spline_terms(values[:, 0], np.array(self.knots[factor.label]))
        with np.errstate(all="ignore"):  # of a logarithm of 0, the row is named later
            return np.asarray(TRANSFORMS[factor.function](values))


def spline_terms(x: Array, knots: Array) -> Array:
    """Return the terms ``(n, m - 1)`` of a natural cubic spline with ``m`` knots: x itself, and its bends.

    Parameters
    ----------
    x : (n,) array
    knots : (m,) array
        In increasing order. The spline is linear below the first and above the last.
    """
    above = np.maximum(x[:, None] - knots, 0.0) ** 3  # (n, m)
    slopes = (above[:, :-1] - above[:, -1:]) / (knots[-1] - knots[:-1])
    return np.column_stack([x, (slopes[:, :-1] - slopes[:, -1:]) / (knots[-1] - knots[0])])


def _knots(factor: TermFactor, parts: Sequence[Any]) -> tuple[float, ...]:
    """Return the knots of a spline: quantiles of the column, the smallest and largest value included."""
    own = Dictionary.of_numbers([factor.name])
    for part in parts:
        check_kinds("X", nw.from_native(part, eager_only=True).select(factor.name).to_native())
    tables = [nw.from_native(part, eager_only=True).select(factor.name).to_native() for part in parts]
    x = np.concatenate([encode_columns(table, own)[:, 0] for table in tables])
    x = x[np.isfinite(x)]
    knots = np.quantile(x, np.linspace(0, 1, factor.df + 1)) if len(x) else np.zeros(2)
    if np.any(np.diff(knots) <= 0):
        raise InvalidInputError(
            f"formula: {factor.name!r} has too few different values for {factor.df} terms of a spline: choose a "
            f"smaller df, as in spline({factor.name}, df=2), or leave spline out"
        )
    return tuple(map(float, knots))


def _is_text(factor: TermFactor, parts: Sequence[Any]) -> bool:
    """Whether a factor is a category in any of the tables."""
    if factor.function:
        return factor.function == "category"
    frames = [nw.from_native(part, eager_only=True).select(factor.name).to_native() for part in parts]
    return any(column_kinds(frame)[0] in ("text", "boolean") for frame in frames)


def _category(factor: TermFactor, parts: Sequence[Any], references: Mapping[str, Any]) -> Column:
    tables = [_factor_frame(nw.from_native(part, eager_only=True), factor) for part in parts]
    chosen = {name: level for name, level in references.items() if name == factor.label}
    return frame_dictionary(tables, reference_levels=chosen).columns[0]


def _factor_frame(frame: nw.DataFrame[Any], factor: TermFactor) -> Any:
    """Return the frame of the column of one factor; that of ``category(...)`` as text, under its label."""
    if factor.function != "category":
        return frame.select(factor.name).to_native()
    namespace = nw.get_native_namespace(frame)
    text = nw.new_series(factor.label, texts_of(frame[factor.name].to_list()), native_namespace=namespace)
    return frame.select(factor.name).with_columns(text).select(factor.label).to_native()


def texts_of(values: Sequence[Any]) -> list[str | None]:
    """Return the values of a column as text: whole numbers without a point, missing values as None."""
    gone = [value is None or value != value for value in values]  # noqa: PLR0124 - NaN
    return [None if missing else _text_of(value) for value, missing in zip(values, gone, strict=True)]


def _text_of(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def check_main_effects(side: Sequence[Term], categories: set[str]) -> None:
    """Raise an error for a product of a category without the terms that it extends."""
    known = {frozenset(term) for term in side}
    for term in side:
        if len(term) == 1 or not any(factor.label in categories for factor in term):
            continue
        for factor in term:
            if frozenset(term) - {factor} not in known:
                labels = [each.label for each in term]
                raise InvalidInputError(
                    f"formula: {':'.join(labels)} has a category, whose levels are compared with a reference: name its "
                    f"parts too, as in {' * '.join(labels)}"
                )
