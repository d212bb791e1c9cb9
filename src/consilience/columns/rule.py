"""What a study asks of a column of numbers: unit, range, missing values, and a transform with public constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

    Examples
    --------
    >>> Rule(low=18, high=110, centre=60, scale=15).term("age")
    '(age - 60)/15'
    >>> Rule(low=0.1, transform="log").values(np.array([1.0, np.e]))
    array([0., 1.])
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
        if not (np.isfinite(self.centre) and np.isfinite(self.scale) and self.scale > 0):
            raise InvalidInputError("centre must be a finite number, and scale a positive finite one")
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
        found: NDArray[np.bool_] = ~((values < low) | (values > high))
        return found

    def values(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the covariate of values in the range; missing ones are filled, or stay NaN."""
        filled = values if self.fill is None else np.where(np.isnan(values), self.fill, values)
        found: NDArray[np.float64] = (TRANSFORMS[self.transform](filled) - self.centre) / self.scale
        return found

    @property
    def range_text(self) -> str:
        """Range with its unit, in words.

        Examples
        --------
        >>> Rule(unit="years", low=18, high=110).range_text, Rule(low=0).range_text
        ('18 to 110 years', 'at least 0')
        """
        unit = f" {self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}{unit}"
        if self.low is not None:
            return f"at least {self.low:g}{unit}"
        return "any number" if self.high is None else f"at most {self.high:g}{unit}"


PLAIN = Rule()
