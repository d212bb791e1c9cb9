"""A closed grammar of formulas: names of columns, four functions and five signs; nothing in a formula is evaluated.

::

    formula  = name "~" side ["|" side]
    side     = product {("+" | "-") product}
    product  = atom {("*" | ":") atom}
    atom     = name | "." | "1" | "(" side ")" | function "(" name ["," "df" "=" number] ")"

``a * b`` is ``a + b + a:b``; ``.`` is every column but the response.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from types import MappingProxyType

from consilience.errors import InvalidInputError

FUNCTIONS = ("log", "log1p", "sqrt", "spline", "category")
"""The closed list of functions of a column."""
ALIASES = MappingProxyType(
    {
        "C": "category",
        "factor": "category",
        "bs": "spline",
        "ns": "spline",
        "cr": "spline",
        "rcs": "spline",
        "s": "spline",
    }
)
"""Names that other programs give to these functions."""
DEGREES = 4
"""Number of terms of a spline by default."""
MOST_DEGREES = 20
LONGEST = 2_000
"""Maximum number of characters of a formula."""
MOST_TERMS = 500
MOST_NESTED = 20
NAMED = 20
"""Maximum number of columns that an error lists."""
NAMES = ("name", "quoted")
TOKEN = re.compile(r"\s*(?:(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`\n]+)`|(?P<number>\d+)|(?P<sign>[~|+*:().,=-]))")
REFUSED = MappingProxyType(
    {
        **dict.fromkeys("'\"", "it has no text in quotes; a name of a column stands in backticks"),
        **dict.fromkeys("[]{}@;\\", "it has no Python"),
        **dict.fromkeys("/%&<>!", "make a column of the result before the fit"),
        "^": "write the products, such as (a + b) * c",
    }
)
"""Signs that Python or other formulas have, and what is said of them."""


@dataclass(frozen=True)
class TermFactor:
    """A column, or a function of one column."""

    name: str
    function: str = ""
    df: int = 0

    @property
    def label(self) -> str:
        """What tables and pictures call it."""
        df = f", df={self.df}" if self.df not in (0, DEGREES) else ""
        return f"{self.function}({self.name}{df})" if self.function else self.name


Term = tuple[TermFactor, ...]
"""A product of factors; empty for the intercept."""


@dataclass(frozen=True)
class Formula:
    """The response, the terms of the experts, and those of the gate; None if the gate reads those of the experts.

    Examples
    --------
    >>> formula = parse_formula("los ~ age * admission | severity", ["los", "age", "admission", "severity"])
    >>> [":".join(factor.label for factor in term) for term in formula.experts]
    ['age', 'admission', 'age:admission']
    """

    response: str
    experts: tuple[Term, ...]
    gate: tuple[Term, ...] | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms, each once: those of the experts, then the others of the gate."""
        return tuple(unique_terms((*self.experts, *(self.gate or ()))))


def unique_terms(terms: Iterable[Term]) -> list[Term]:
    """Return the terms, each product once in whatever order of its factors."""
    found: dict[frozenset[TermFactor], Term] = {}
    for term in terms:
        found.setdefault(frozenset(term), term)
    return list(found.values())


def parse_formula(text: str, columns: Sequence[str]) -> Formula:
    """Return the formula of a text over these columns; raise an error that names what is no part of a formula.

    Parameters
    ----------
    text : str
    columns : sequence of str
        Names of the columns of the data.
    """
    return _Parser(text, columns).formula()


class _Parser:
    """The tokens of a formula, and how far they are read."""

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
            raise _error(f"expected a text of at most {LONGEST:,} characters, such as 'y ~ age + dose | age'")
        self.columns, self.tokens = columns, _tokens(text)
        self.at, self.depth, self.response = 0, 0, ""

    def formula(self) -> Formula:
        self.response = self._name("the response")
        self._take("~", "after the response")
        experts = self._side()
        gate = self._side() if self._skip("|") else None
        if self.tokens[self.at][0] != "end":
            raise self._expected("a sign between two terms, or the end")
        if any(TermFactor(self.response) in term for term in (*experts, *(gate or ()))):
            raise _error(f"the response {self.response!r} is also a term: leave it out on the right of '~'")
        return Formula(self.response, tuple(filter(None, experts)), None if gate is None else tuple(filter(None, gate)))

    def _side(self) -> list[Term]:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise _error(f"more than {MOST_NESTED} parentheses inside each other")
        terms = self._product()
        while (sign := self._sign()) in ("+", "-"):
            self.at += 1
            found = self._product()
            if sign == "-" and () in found:
                raise _no_part("- 1", "set fit_intercept=False")
            less = [term for term in terms if set(term) not in map(set, found)]
            terms = [*terms, *found] if sign == "+" else less
            _check_number(len(terms))
        self.depth -= 1
        return unique_terms(terms)

    def _product(self) -> list[Term]:
        found = self._atom()
        while (sign := self._sign()) in ("*", ":"):
            self.at += 1
            other = self._atom()
            if () in (*found, *other):
                raise _error("1 is the intercept, and has no products")
            _check_number(2 * len(found) * len(other))
            both = [_product_of(a, b) for a, b in product(found, other)]
            found = unique_terms([*found, *other, *both] if sign == "*" else both)
        return found

    def _atom(self) -> list[Term]:
        kind, value, _ = self.tokens[self.at]
        if self._skip("("):
            inside = self._side()
            self._take(")", "after '('")
            return inside
        if self._skip("."):
            if self.tokens[self.at][0] in NAMES:
                raise self._attribute("")
            return [(TermFactor(name),) for name in self.columns if name != self.response]
        if kind == "number":
            self.at += 1
            if value == "0":
                raise _no_part("0", "set fit_intercept=False")
            if value != "1":
                raise _no_part(f"the number {value}", "make a column")
            return [()]
        if kind == "name" and self.tokens[self.at + 1][:2] == ("sign", "("):
            return [(self._function(),)]
        return [(TermFactor(self._name("a column")),)]

    def _function(self) -> TermFactor:
        function = self.tokens[self.at][1]
        if function not in FUNCTIONS:
            raise _no_part(
                f"a call of {function}(…)", f"{_instead(function)}; the functions are {', '.join(FUNCTIONS)}"
            )
        self.at += 2
        name, df = self._name(f"the column of {function}(…)"), DEGREES if function == "spline" else 0
        if self._skip(","):
            df = self._degrees(function, name)
        self._take(")", f"after the column of {function}(…)")
        return TermFactor(name, function, df)

    def _degrees(self, function: str, name: str) -> int:
        """Return the number of terms of a spline."""
        if function != "spline" or self.tokens[self.at][:2] != ("name", "df"):
            raise _error(f"{function}(…) takes one column, and spline(…) also df, as in spline(age, df=4)")
        self.at += 1
        self._take("=", "after df")
        kind, value, _ = self.tokens[self.at]
        if kind != "number" or len(value) > 2 or not 2 <= int(value) <= MOST_DEGREES:
            raise _error(f"df of spline({name}): expected a whole number from 2 to {MOST_DEGREES}")
        self.at += 1
        return int(value)

    def _name(self, what: str) -> str:
        """Return the name of a column that the data have."""
        kind, value, _ = self.tokens[self.at]
        if kind not in NAMES:
            raise self._expected(what)
        if self.tokens[self.at + 1][:2] == ("sign", ".") and self.tokens[self.at + 2][0] in NAMES:
            self.at += 2
            raise self._attribute(value)
        if kind == "name" and self.tokens[self.at + 1][:2] == ("sign", "("):
            raise _no_part(f"{value}(…) as {what}", "make a column of it before the fit")
        if kind == "name" and value not in self.columns and (value.startswith("__") or keyword.iskeyword(value)):
            raise _no_part(value, "it is a word of Python")
        if value not in self.columns:
            near = get_close_matches(value, self.columns, 1)
            known = ", ".join(map(repr, self.columns[:NAMED])) + ", …" * (len(self.columns) > NAMED)
            said = f"did you mean {near[0]!r}?" if near else f"they have {known}"
            raise _error(f"the data have no column {value!r}; {said}")
        self.at += 1
        return value

    def _attribute(self, owner: str) -> InvalidInputError:
        attribute = self.tokens[self.at][1]
        return _no_part(f"the attribute {owner}.{attribute}", "a column whose name has a dot stands in backticks")

    def _expected(self, what: str) -> InvalidInputError:
        _, got, at = self.tokens[self.at]
        return _error(f"expected {what}, got {got!r} at character {at + 1}" if got else f"expected {what} at its end")

    def _sign(self) -> str:
        kind, value, _ = self.tokens[self.at]
        return value if kind == "sign" else ""

    def _skip(self, sign: str) -> bool:
        found = self._sign() == sign
        self.at += found
        return found

    def _take(self, sign: str, where: str) -> None:
        if not self._skip(sign):
            raise self._expected(f"{sign!r} {where}")


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Return kind, value and place of each token, and three at the end."""
    found, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            at = len(text) - len(text[at:].lstrip())
            sign = text[at]
            raise _no_part(f"{sign!r} at character {at + 1}", REFUSED.get(sign, "it is not a sign of formulas"))
        kind = str(match.lastgroup)
        found.append((kind, match[kind], match.start(kind)))
        at = match.end()
    return [*found, *[("end", "", len(text))] * 3]


def _check_number(terms: int) -> None:
    if terms > MOST_TERMS:
        raise _error(f"more than {MOST_TERMS} terms")


def _product_of(a: Term, b: Term) -> Term:
    """Return the product of two terms, in which each factor stands once."""
    return tuple(dict.fromkeys((*a, *b)))


def _instead(function: str) -> str:
    if function in ALIASES:
        return f"did you mean {ALIASES[function]}(…)?"
    return "pass exposure=" if function == "offset" else "make a column of it before the fit"


def _no_part(what: str, instead: str) -> InvalidInputError:
    return _error(f"{what} is no part of a formula: {instead}")


def _error(said: str) -> InvalidInputError:
    return InvalidInputError(f"formula: {said}")
