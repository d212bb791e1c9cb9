"""The data dictionary: each column's name, kind and rule, and the levels of categories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInputError

Missing = Literal["refuse", "drop", "fill"]
"""What is done with rows in which a value is missing."""

TRANSFORMS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = MappingProxyType(
    {"none": np.asarray, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt}
)
"""The closed list of transforms: a study names one of these and can never name code."""
INVERSES: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = MappingProxyType(
    {"none": np.asarray, "log": np.exp, "log1p": np.expm1, "sqrt": lambda roots: np.square(np.maximum(roots, 0.0))}
)
"""What undoes each transform; a number below 0 is no square root, and stands for 0."""
SMALLEST_SCALE = 1e-30
"""Smallest scale of a column: the square of a value divided by a smaller one can overflow."""
LOWEST: Mapping[str, float] = MappingProxyType({"none": -np.inf, "log": 0.0, "log1p": -1.0, "sqrt": 0.0})
"""Lower end of the domain of each transform; that of a logarithm does not belong to it."""


@dataclass(frozen=True)
class Rule:
    """How a column of numbers becomes a covariate, ``(transform(x) - centre) / scale``.

    Parameters
    ----------
    unit : str
        Unit of the values, for people; ``"mmHg"``.
    low, high : float, optional
        Range of the values, both ends included. A value outside is an error and never selects rows.
    missing : {"refuse", "drop", "fill"}
        What is done with missing values: an error, the row is left out, or ``fill`` takes their place.
    fill : float, optional
        Value that takes the place of missing ones, before the transform.
    transform : {"none", "log", "log1p", "sqrt"}
    centre, scale : float
        Public constants, the same at every site.
    """

    unit: str = ""
    low: float | None = None
    high: float | None = None
    missing: Missing = "refuse"
    fill: float | None = None
    transform: str = "none"
    centre: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.transform not in TRANSFORMS:
            raise InvalidInputError(f"transform={self.transform!r}: expected one of {', '.join(TRANSFORMS)}")
        if self.missing not in get_args(Missing):
            raise InvalidInputError(f"missing={self.missing!r}: expected one of {', '.join(get_args(Missing))}")
        if not (np.isfinite(self.centre) and SMALLEST_SCALE <= self.scale <= 1 / SMALLEST_SCALE):
            ends = f"{SMALLEST_SCALE:g} to {1 / SMALLEST_SCALE:g}"
            raise InvalidInputError(f"centre must be a finite number, and scale a positive one from {ends}")
        self._check_range()
        if (self.missing == "fill") != (self.fill is not None):
            raise InvalidInputError("missing='fill' and a value of fill belong together: give both or none")
        if self.fill is not None and not self.contains(np.array([self.fill]))[0]:
            raise InvalidInputError(f"fill={self.fill:g} is outside the range of the column")

    def _check_range(self) -> None:
        ends = [end for end in (self.low, self.high) if end is not None]
        if not np.all(np.isfinite(ends)):
            raise InvalidInputError("low and high must be finite numbers; leave one out if there is no limit")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidInputError(f"low={self.low:g} is not below high={self.high:g}")
        lowest = LOWEST[self.transform]
        open_end = self.transform.startswith("log")
        if np.isfinite(lowest) and (self.low is None or self.low < lowest or (open_end and self.low == lowest)):
            said = "above" if open_end else "at least"
            raise InvalidInputError(f"transform={self.transform!r} needs low, and {said} {lowest:g}")

    @cached_property
    def is_plain(self) -> bool:
        """Whether values are read as they are, and all are allowed."""
        return self == Rule(unit=self.unit)

    @property
    def is_positive(self) -> bool:
        """Whether values are read as they are, and none is below 0."""
        return self.transform == "none" and self.low is not None and self.low >= 0

    def term(self, name: str) -> str:
        """Return the name of the covariate: that of the column, with what is done to it."""
        inner = name if self.transform == "none" else f"{self.transform}({name})"
        if self.centre:
            inner = f"{inner} {'-' if self.centre > 0 else '+'} {abs(self.centre):g}"
            inner = f"({inner})" if self.scale != 1 else inner
        return inner if self.scale == 1 else f"{inner}/{self.scale:g}"

    def contains(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether each value lies in the range; missing ones do."""
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        return ~((values < low) | (values > high))

    def values(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the covariate of values in the range; missing ones are filled, or stay NaN."""
        filled = values if self.fill is None else np.where(np.isnan(values), self.fill, values)
        return (TRANSFORMS[self.transform](filled) - self.centre) / self.scale

    def original(self, covariates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values that have these covariates: the inverse of :meth:`values`."""
        return np.asarray(INVERSES[self.transform](self.centre + self.scale * covariates))

    @property
    def range_text(self) -> str:
        """Range with its unit, in words."""
        unit = f" {self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}{unit}"
        if self.low is not None:
            return f"at least {self.low:g}{unit}"
        return "any number" if self.high is None else f"at most {self.high:g}{unit}"


PLAIN = Rule()


# ---------------------------------------------------------------- dictionary

Level = str | bool | int | float

FROM_DTYPE = "from_dtype"
"""Value of ``categorical_features`` by which the types of the columns decide."""
MOST_LEVELS = 255
"""Maximum number of levels of a category; a column with more is an identifier, or free text."""


@dataclass(frozen=True)
class Column:
    """A column of covariates: a number, or a category with its levels.

    A category is coded by one indicator for each level but the reference (treatment coding), ``1[x = level]``.

    Parameters
    ----------
    name : str
    levels : tuple of str, bool, int or float
        Levels of a category, in order; empty for a number.
    reference : level, optional
        Level against which the others are coded; the first by default.
    rule : Rule
        Range, missing values, transform and scaling of a number; a category may have a unit and a rule for missing
        values ("refuse" or "drop"; a level of its own, such as "unknown", stands for values that are missing).
    """

    name: str
    levels: tuple[Level, ...] = ()
    reference: Level | None = None
    rule: Rule = PLAIN

    def __post_init__(self) -> None:
        if len(set(self.levels)) < len(self.levels):
            raise InvalidInputError(f"{self.name}: a level is listed twice; list each level once")
        if len(self.levels) > MOST_LEVELS:
            raise InvalidInputError(
                f"{self.name} has {len(self.levels):,} levels; a category has at most {MOST_LEVELS}: leave the column "
                "out, or merge its rare levels"
            )
        if self.reference is not None and self.reference not in self.levels:
            known = ", ".join(map(str, self.levels)) if self.levels else "none: it is a column of numbers"
            raise InvalidInputError(f"{self.name} has no level {self.reference!r} to be the reference; it has {known}")
        if self.levels and not replace(self.rule, missing="refuse", fill=None).is_plain:
            raise InvalidInputError(f"{self.name} is a category: it has no range, transform, centre or scale")

    @property
    def is_category(self) -> bool:
        """Whether the column is a category."""
        return bool(self.levels)

    @property
    def coded(self) -> tuple[int, ...]:
        """Places of the levels that have an indicator: all but the reference."""
        base = 0 if self.reference is None else self.levels.index(self.reference)
        return tuple(i for i in range(len(self.levels)) if i != base)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the covariates of the column: its own, or one for each indicator."""
        if self.is_category:
            return tuple(f"{self.name}[{self.levels[i]}]" for i in self.coded)
        return (self.rule.term(self.name),)

    def indicators(self, codes: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the indicators ``(n, L - 1)`` of levels given by their places ``codes (n,)``."""
        return np.asarray((codes[:, None] == np.asarray(self.coded, dtype=np.intp)).astype(np.float64))


@dataclass(frozen=True)
class Dictionary:
    """The columns of the covariates, in order."""

    columns: tuple[Column, ...]

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Dictionary:
        """Return the dictionary of columns that are all numbers."""
        return cls(tuple(Column(name) for name in names))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """Names of the covariates."""
        return tuple(term for column in self.columns for term in column.terms)

    def category_of(self, term: str) -> tuple[str, Level, Level] | None:
        """Return column, level and reference level of a term of a category; None for a number."""
        for column in self.columns:
            if column.is_category and term in column.terms:
                level = column.levels[column.coded[column.terms.index(term)]]
                reference = column.levels[0] if column.reference is None else column.reference
                return column.name, level, reference
        return None

    @property
    def has_categories(self) -> bool:
        """Whether any column is a category."""
        return any(column.is_category for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers that are read as they are."""
        return not self.has_categories and all(column.rule.is_plain for column in self.columns)


def check_chosen(typed: Iterable[str], chosen: Iterable[str]) -> None:
    """Raise an error if a column that is not of numbers is not among the chosen categories."""
    for name in typed:
        if name not in chosen:
            raise InvalidInputError(
                f"column {name!r} is text, a category or boolean and is not in categorical_features: add it, or leave "
                "the column out"
            )


def check_references(references: Mapping[str, Level], names: Sequence[str]) -> None:
    """Raise an error if a reference level is of a column that does not exist."""
    unknown = [name for name in references if name not in names]
    if unknown:
        raise InvalidInputError(f"reference_levels: X has no column {', '.join(unknown)}; it has {', '.join(names)}")


def chosen_categories(categorical_features: object, names: Sequence[str]) -> set[str] | None:
    """Return the names of the chosen categories; None if the types of the columns decide."""
    if isinstance(categorical_features, str) and categorical_features == FROM_DTYPE:
        return None
    return chosen_names(categorical_features, names, "categorical_features", f"{FROM_DTYPE!r}, or ")


def chosen_names(chosen: object, names: Sequence[str], parameter: str, alternative: str = "") -> set[str]:
    """Return the names of columns that were chosen by name or index.

    Parameters
    ----------
    chosen : sequence of str or int
    names : sequence of str
        Names of all columns.
    parameter, alternative : str
        Name of the parameter, and what else it may be, for the error.
    """
    if not isinstance(chosen, Iterable) or isinstance(chosen, str):
        raise InvalidInputError(f"{parameter}={chosen!r}: expected {alternative}a list of names or indices of columns")
    found = set()
    for each in chosen:
        if isinstance(each, int | np.integer) and not isinstance(each, bool) and 0 <= each < len(names):
            found.add(names[int(each)])
        elif each in names:
            found.add(str(each))
        else:
            raise InvalidInputError(f"{parameter}: X has no column {each!r}; it has {', '.join(names)}")
    return found
