"""The scale on which people read effects: per cent, ratios or differences, for round steps of covariates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, floor, isfinite, log, log1p, log10, nan
from types import MappingProxyType

import numpy as np

from consilience.columns import Column
from consilience.columns.dictionary import INVERSES, TRANSFORMS
from consilience.fitted.effects import BINARY, is_standardised, supported_decimals
from consilience.fitted.protocols import FittedMixture, response_names, term_names, terms_read
from consilience.numerics.arrays import Array
from consilience.report.wording import Back, Change, Words

MANY_TIMES = 3.0
"""Ratio from which a change is said as a multiple, not as a percentage."""
UNDO: Mapping[Back, Callable[[Array], Array]] = MappingProxyType({
    "none": INVERSES["none"], "exp": INVERSES["log"], "expm1": INVERSES["log1p"], "square": INVERSES["sqrt"],
})  # fmt: skip
"""Responses as people read them, from those that were fitted."""


def write_minus(text: str) -> str:
    """Return a text with a minus sign in place of hyphens before digits."""
    return text.replace("-", "−")


def round_to(value: float, digits: int = 3) -> str:
    """Format a number with so many significant digits, with a minus sign; a dash if it is not known.

    Examples
    --------
    >>> round_to(1234.5), round_to(0.012345), round_to(-2.0)
    ('1,234', '0.0123', '−2.00')
    """
    if not isfinite(value):
        return "—"
    if value != 0 and not 1e-4 <= abs(value) < 1e9:
        return write_minus(f"{value:.{digits - 1}e}")
    return write_minus(f"{value:,.{_decimals(value, digits)}f}")


def _decimals(value: float, digits: int = 3) -> int:
    return max(0, digits - 1 - floor(log10(abs(value)))) if value else digits - 1


def spread_text(low: float, high: float) -> str:
    """Return two ends with as many decimals as their distance needs.

    Examples
    --------
    >>> spread_text(40.74, 64.8), spread_text(-0.483, 2.31)
    ('41 to 65', '−0.5 to 2.3')
    """
    digits = max(0, 1 - floor(log10(high - low))) if high > low else 2
    return write_minus(" to ".join(f"{round(end, digits) + 0.0:,.{digits}f}" for end in (low, high)))


def in_numbers(value: float) -> str:
    """Format a value of a column as people write it.

    Examples
    --------
    >>> in_numbers(10.0), in_numbers(0.25)
    ('10', '0.25')
    """
    return write_minus(f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}")


# ---------------------------------------------------------------------- steps of covariates


@dataclass(frozen=True)
class NaturalStep:
    """A step of a covariate that people understand.

    Parameters
    ----------
    place : int
        Place of its coefficient among the terms.
    column : str
    label, words : str
        ``"age"`` and ``"per 10 years"``.
    size : float
        The step in the term, with which its coefficient is multiplied.
    is_level : bool
        Whether it goes to a level of a category from its reference.
    """

    place: int
    column: str
    label: str
    words: str
    size: float
    is_level: bool = False

    @property
    def title(self) -> str:
        """The step at the beginning of a sentence."""
        return f"{capitalise(self.label)}, {self.words}"

    def __str__(self) -> str:
        return f"{self.label}, {self.words}"


def natural_steps(model: FittedMixture, words: Words) -> list[NaturalStep]:
    """Return the step of each covariate that the experts read."""
    found, place, read = [], int(model.mixture_.design.intercept), set(terms_read(model)[1])
    spreads = term_spreads(model)
    for column in model.columns_.columns if model.mixture_.design.d else ():
        for i, _ in enumerate(column.terms):
            if place in read:
                found.append(_step(column, i, place, spreads[place], words))
            place += 1
    return found


def term_spreads(model: FittedMixture) -> list[tuple[float, float]]:
    """Return mean and standard deviation of each term, the intercept included; NaN where they are not known."""
    spreads = [(nan, nan)] * len(term_names(model))
    for design in model.coordinates_:
        for i, j in enumerate(design.read if is_standardised(model) else ()):
            spreads[j + int(design.intercept)] = (float(design.centre[i]), float(design.scale[i]))
    return spreads


def _step(column: Column, i: int, place: int, spread: tuple[float, float], words: Words) -> NaturalStep:
    label = words.label(column.name)
    if column.is_category:
        level, base = column.levels[column.coded[i]], column.levels[0]
        base = base if column.reference is None else column.reference
        said = f"{words.level(column.name, level)} compared with {words.level(column.name, base)}"
        return NaturalStep(place, column.name, label, said, 1.0, is_level=True)
    return NaturalStep(place, column.name, label, *_number_step(column, spread, words))


def _number_step(column: Column, spread: tuple[float, float], words: Words) -> tuple[str, float]:
    """Return the words and the size of the step of a column of numbers."""
    rule, own = column.rule, words.column(column.name)
    unit, chosen = own.unit or rule.unit, own.compare
    if own.per == "doubling" and rule.transform == "log":
        return "per doubling", log(2) / rule.scale
    if chosen is None and rule.transform != "none" and isinstance(own.per, float | int | None):
        chosen = _usual_range(column, spread)
    if chosen is not None:
        low, high = (TRANSFORMS[rule.transform](np.asarray(value, dtype=float)) for value in chosen)
        said = f"{in_numbers(chosen[1])} compared with {in_numbers(chosen[0])} {unit}".strip()
        return said, float(high - low) / rule.scale
    if own.per is None and is_binary(*spread) and rule.is_plain:
        return "1 compared with 0", 1.0
    size = float(own.per) if isinstance(own.per, float | int) else _usual_step(column, spread)
    return f"per {_amount(size, unit)}", size / rule.scale


def _amount(size: float, unit: str) -> str:
    """Return a size with its unit; one of a unit without its number, and in the singular.

    Examples
    --------
    >>> _amount(10.0, "years"), _amount(1.0, "points"), _amount(1.0, "m/s"), _amount(0.5, "")
    ('10 years', 'point', 'm/s', '0.5')
    """
    if size != 1 or not unit:
        return f"{in_numbers(size)} {unit}".strip()
    return unit[:-1] if len(unit) > 3 and unit.isalpha() and unit.endswith("s") and not unit.endswith("ss") else unit


def is_binary(centre: float, scale: float) -> bool:
    """Whether a column with this mean and standard deviation has 0 and 1 only."""
    return 0 < centre < 1 and abs(scale**2 - centre * (1 - centre)) <= BINARY * scale**2


def _usual_step(column: Column, spread: tuple[float, float]) -> float:
    """Return a round number near the scale of the study, or the standard deviation."""
    scale = column.rule.scale if column.rule.scale != 1 else spread[1]
    return nearest_round(scale) if isfinite(scale) and scale > 0 else 1.0


def _usual_range(column: Column, spread: tuple[float, float]) -> tuple[float, float]:
    """Return round values of a transformed column, about one standard deviation below and above its mean."""
    mean, deviation = spread if isfinite(spread[1]) else (0.0, 1.0)
    low, high = column.rule.original(np.array([mean - deviation, mean + deviation])).tolist()
    return (nearest_round(low) if low > 0 else 0.0), nearest_round(max(high, 1e-9))


def nearest_round(value: float) -> float:
    """Return 1, 2 or 5 times a power of ten: that which is nearest in ratio.

    Examples
    --------
    >>> [nearest_round(v) for v in (15.0, 3.0, 0.8)]
    [20.0, 2.0, 1.0]
    """
    power = 10.0 ** floor(log10(value))
    return float(min((power * m for m in (1, 2, 5, 10)), key=lambda nice: abs(log(nice / value))))


def capitalise(text: str) -> str:
    """Return a text that begins with a capital letter; a first word with digits or underscores stays as it is.

    Examples
    --------
    >>> capitalise("age, per year"), capitalise("x0, per unit")
    ('Age, per year', 'x0, per unit')
    """
    first = text.split(" ", maxsplit=1)[0].rstrip(",:;")
    return text[:1].upper() + text[1:] if first.isalpha() else text


# ---------------------------------------------------------------------- changes of the response


@dataclass(frozen=True)
class ChangeScale:
    """How a change of the linear predictor is said.

    Parameters
    ----------
    kind : {"percent", "ratio", "odds", "difference"}
    unit : str
        Of a difference.
    less, more : str
        Adjectives of smaller and larger responses.
    """

    kind: Change
    unit: str
    less: str
    more: str

    @property
    def none(self) -> float:
        """The value of no effect."""
        return 1.0 if self.kind in ("ratio", "odds") else 0.0

    @property
    def heading(self) -> str:
        """What a column of effects has."""
        names = {"percent": "% change", "ratio": "ratio", "odds": "odds ratio"}
        return names.get(self.kind, self.unit or "difference")

    def value(self, change: float) -> float:
        """Return a change of the linear predictor on this scale."""
        if self.kind == "difference":
            return change
        ratio = exp(min(change, 700.0))
        return 100 * (ratio - 1) if self.kind == "percent" else ratio

    def predictor(self, value: float) -> float:
        """Return the change of the linear predictor of a value on this scale."""
        if self.kind == "difference":
            return value
        return log1p(value / 100) if self.kind == "percent" else log(value)

    def number(self, change: float, digits: int | None = None) -> str:
        """Return the value as text, with the sign of a difference or of a percentage."""
        value = self.value(change)
        if not isfinite(value):
            return "—"
        digits = self.digits(change) if digits is None else digits
        sign = "+" if self.kind in ("percent", "difference") and value > 0 else ""
        return sign + write_minus(f"{value:,.{digits}f}")

    def digits(self, *changes: float) -> int:
        """Return the number of decimals with which changes are said together."""
        values = [abs(self.value(each)) for each in changes if isfinite(each)]
        largest = max(values, default=1.0)
        if self.kind == "percent":
            return 0 if largest >= 9.5 else 1 if largest >= 0.95 else 2
        return min(_decimals(largest or 1.0, 3), 6)

    def interval(self, estimate: float, lower: float, upper: float, digits: int | None = None) -> str:
        """Return an estimate with its interval as numbers, with as many digits as the estimate needs by default."""
        digits = self.digits(estimate) if digits is None else digits
        if not isfinite(estimate):
            return "—"
        if not (isfinite(lower) and isfinite(upper)):
            return f"{self.number(estimate, digits)} (—)"
        ends = (write_minus(f"{self.value(each):,.{digits}f}") for each in (lower, upper))
        return f"{self.number(estimate, digits)} ({' to '.join(ends)})"

    def sentence(self, estimate: float, lower: float, upper: float) -> str:
        """Say an effect in words: its size, its direction and how sure it is.

        Examples
        --------
        >>> ChangeScale("percent", "", "shorter", "longer").sentence(0.379, 0.359, 0.398)
        '46 % longer (43 to 49 %)'
        >>> ChangeScale("percent", "", "shorter", "longer").sentence(-0.015, -0.044, 0.013)
        'no difference shown (−4.3 % to +1.3 %)'
        >>> ChangeScale("difference", "days", "shorter", "longer").sentence(1.25, 1.18, 1.32)
        '1.25 days longer (1.18 to 1.32)'
        >>> ChangeScale("difference", "days", "shorter", "longer").sentence(0.0206, 0.0102, 0.031)
        '0.021 days longer (0.010 to 0.031)'
        """
        known, mark = isfinite(lower) and isfinite(upper), " %" if self.kind == "percent" else ""
        if known and lower <= 0 <= upper:
            digits = self._digits_said(lower, upper, lower, upper)
            both = " to ".join(f"{self.number(each, digits)}{mark}" for each in (lower, upper))
            return f"no difference shown ({both}{'' if mark else self._unit})"
        if self.kind in ("ratio", "odds") or (mark and exp(min(estimate, 700.0)) >= MANY_TIMES):
            return self._multiple(estimate, lower, upper)
        digits = self._digits_said(lower, upper, estimate) if known else self.digits(estimate)
        size, *ends = (f"{abs(self.value(each)):,.{digits}f}" for each in (estimate, *sorted((lower, upper), key=abs)))
        interval = f"({' to '.join(ends)}{mark})" if known else "(no interval)"
        return f"{size}{mark or self._unit} {self.more if estimate > 0 else self.less} {interval}"

    def _digits_said(self, lower: float, upper: float, *said: float) -> int:
        """Return the number of decimals in a sentence: those that the numbers need and their interval supports."""
        low, high = sorted((self.value(lower), self.value(upper)))
        digits = max(0, min(self.digits(*said), supported_decimals(low, high)))
        return digits + any(round(end, digits) == 0 for end in (low, high))

    @property
    def _unit(self) -> str:
        return f" {self.unit}" if self.unit else ""

    def _multiple(self, estimate: float, lower: float, upper: float) -> str:
        values = [exp(min(each, 700.0)) for each in (estimate, lower, upper)]
        size, low, high = (round_to(each, 3 if values[0] < 100 else 2) for each in values)
        interval = f"({low} to {high})" if isfinite(lower) and isfinite(upper) else "(no interval)"
        return f"{size} times {'the odds ' if self.kind == 'odds' else ''}{interval}"


def change_scale(model: FittedMixture, words: Words) -> ChangeScale:
    """Return the scale of a model's effects: that of the study, otherwise what family and response need."""
    response, multiplied = words.response, model.mixture_.experts.multiplied
    kind: Change = response.change or ("difference" if not multiplied and response.back != "exp" else "percent")
    if response.change is None and multiplied.startswith("odds"):
        kind = "odds"
    unit = response.unit if response.back == "none" else ""
    return ChangeScale(kind, unit, response.less or "lower", response.more or "higher")


def response_name(model: FittedMixture, words: Words) -> str:
    """Return what the response is called: the word of the study, or the name of its column."""
    if words.response.label:
        return words.response.label
    names = response_names(model)
    return names[0] if len(names) == 1 else "the response"


def read_back(values: Array, words: Words) -> Array:
    """Return responses as people read them."""
    with np.errstate(over="ignore"):  # what is too large is not shown
        return np.asarray(UNDO[words.response.back](values))
