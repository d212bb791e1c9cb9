"""Parts that files share, as pydantic models: numbers as arrays, mixtures, and what is wrong with a file in sentences.

A number that is not finite is null (NaN) or the word "Infinity" or "-Infinity". Gates and families of experts are
unions made from their registries: a file has the fields that a gate or family declares in ``message_fields``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pydantic
from pydantic_core import ErrorDetails as Problem
from pydantic_core import PydanticCustomError, core_schema

from consilience.errors import InvalidInputError
from consilience.fit import StopReason
from consilience.model import FAMILIES, GATES, Design, Experts, Gate, Mixture
from consilience.model.families.registry import family_of
from consilience.model.gates import gate_of
from consilience.model.received import check_mixture
from consilience.numerics.arrays import Array

LONGEST = 10**7
"""Maximum length of a list of numbers."""
LARGEST_COVARIANCES = 2**27
"""Maximum number of covariances between responses, of all experts, in a mixture that is read."""
WORDS = {np.inf: "Infinity", -np.inf: "-Infinity"}


class Part(pydantic.BaseModel):
    """A part of a file: unknown entries are refused, values never change."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, ser_json_inf_nan="null")


P = TypeVar("P", bound=Part)

# ---------------------------------------------------------------- problems

KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "text"),
    (list, "a list"),
    (dict, "an object"),
    (type(None), "null"),
)
EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number, not too large for a float",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "finite_number": "a finite one, not too large for a float",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
}
"""What pydantic expected, by its type of a problem."""
PREDICATE = "predicate"
"""Type of a problem of ours whose message continues the place."""


def problems(error: pydantic.ValidationError) -> list[str]:
    """Return a sentence for each problem of a file: where, what it is, what was expected; no values but short words."""
    return [_sentence(each) for each in error.errors(include_url=False)]


def _sentence(problem: Problem) -> str:
    kind, said = problem["type"], problem["msg"].removeprefix("Value error, ")
    path = [str(part)[:40] for part in problem["loc"] if part not in ("number", "category")]
    above, place = ".".join(path[:-1]) or "the file", ".".join(path)
    if kind == "missing":
        return f"{above} has no {path[-1]!r}"
    if kind == "extra_forbidden":
        return f"{above} has {path[-1]!r}, which is not a field of it"
    if kind == PREDICATE:
        return f"{place or 'the file'} {said}"
    if kind not in EXPECTED:
        return f"{place}: {said}" if place else said
    expected = EXPECTED[kind].format(**problem.get("ctx", {})).replace("'", '"')
    return f"{place or 'the file'} {_got(kind, problem['input'])}; expected {expected}"


def _got(kind: str, value: Any) -> str:
    if kind in ("too_short", "too_long"):
        return f"has {len(value)} items"
    if kind in ("string_too_short", "string_too_long"):
        return f"has {len(value)} characters"
    return f"is {name_kind(value, quoted=kind == 'literal_error')}"


def name_kind(value: Any, *, quoted: bool = False) -> str:
    """Return what a value of JSON or TOML is, in words; short text may be quoted."""
    if quoted and isinstance(value, str) and len(value) <= 40:
        return f"the text {value!r}"
    return next((words for kind, words in KINDS if isinstance(value, kind)), f"a {type(value).__name__}")


def predicate(said: str) -> PydanticCustomError:
    """Return the error of a value whose sentence continues its place: ``"has no rows"``."""
    return PydanticCustomError(PREDICATE, said.replace("{", "(").replace("}", ")"))


def validated(kind: type[P], document: Any, called: str) -> P:
    """Return a document as a part; raise an error that says in one sentence what is wrong, and where."""
    try:
        return kind.model_validate(document)
    except pydantic.ValidationError as error:
        raise InvalidInputError(f"not a valid {called}: {problems(error)[0]}") from error


def check_version(document: Any, form: str, version: int, called: str) -> None:
    """Raise an error unless a document is of a format, in a version up to the one that is read."""
    if not isinstance(document, dict) or document.get("format") != form:
        raise InvalidInputError(f'not a {called}: expected an object with "format": "{form}"')
    found = document.get("version")
    if type(found) is int and found > version:
        raise InvalidInputError(
            f"the file has format {found}; this version of the library reads formats up to {version}: "
            "upgrade consilience"
        )


# ---------------------------------------------------------------- numbers and words


def _whole(value: Any) -> Any:
    """Return a float without a fraction as an integer, which it is in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _real(value: Any) -> Any:
    """Return null and the words of infinite numbers as floats."""
    if value is None:
        return np.nan
    return float(value) if isinstance(value, str) and value in WORDS.values() else value


def expecting(words: str) -> pydantic.WrapValidator:
    """Return a check that says in these words what a union of types expects, rather than once for each type."""

    def check(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except pydantic.ValidationError as error:
            raise predicate(f"is {name_kind(value)}; expected {words}") from error

    return pydantic.WrapValidator(check)


NUMBER = {"anyOf": [{"type": "number"}, {"enum": [None, *WORDS.values()]}]}
WHOLE = pydantic.BeforeValidator(_whole)
"""Last in the metadata of an integer, so that its bounds are in the schema."""
Number = Annotated[float, pydantic.BeforeValidator(_real), pydantic.WithJsonSchema(NUMBER)]
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
Integer = Annotated[int, pydantic.Field(ge=-(2**63), le=2**64)]
Real = Annotated[Integer | Finite, expecting("a finite number")]
"""A number that is written as it was read: 18 or 18.0."""
NotNegative = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Words = Annotated[str, pydantic.StringConstraints(max_length=10_000)]
Text = Annotated[str, pydantic.StringConstraints(strict=True, min_length=1, max_length=200)]


def _check_visible(text: str) -> str:
    """Raise an error for text that can move the cursor of a terminal, or turn the direction of what follows it."""
    if any((unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\t") or each in TURNING for each in text):
        raise ValueError("control characters are not allowed in it")
    return text


TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
"""Characters that change the direction of text."""
Visible = pydantic.AfterValidator(_check_visible)
"""Text that is shown to people as it is."""


def _stop(value: Any) -> StopReason:
    """Return the reason to stop of a name in small letters."""
    if value not in STOPS:
        expected = " or ".join(f'"{name}"' for name in STOPS)
        raise predicate(f"is {name_kind(value, quoted=True)}; expected {expected}")
    return StopReason[value.upper()]


STOPS = [reason.name.lower() for reason in StopReason]
StopEntry = Annotated[
    StopReason, pydantic.PlainValidator(_stop), pydantic.WithJsonSchema({"type": "string", "enum": STOPS})
]


@dataclass(frozen=True)
class Numbers:
    """Array of numbers as nested lists.

    Parameters
    ----------
    axes : tuple of int
        Allowed numbers of axes.
    finite : bool
        Whether all numbers must be finite.
    empty : bool
        Whether lists without numbers are allowed, whose numbers of axes may be smaller.
    longest : int
        Maximum length of a list.
    """

    axes: tuple[int, ...]
    finite: bool = False
    empty: bool = True
    longest: int = LONGEST

    def read(self, values: Any) -> Array:
        """Return nested lists as an array."""
        self._check(values, max(self.axes))
        try:
            found: Array = np.array(values, dtype=np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise predicate("has rows of different lengths, or a number too large for a float") from error
        if found.ndim not in self.axes if found.size else not self.empty:
            expected = " or ".join(map(str, self.axes))
            raise predicate(f"is a list of shape {found.shape}; expected numbers on {expected} levels")
        if self.finite and not np.all(np.isfinite(found)):
            raise predicate("has a number too large for a float")
        return found

    def _check(self, values: Any, levels: int) -> None:
        """Raise an error unless values are lists on at most so many levels, of numbers and what stands for them."""
        if not isinstance(values, list) or not levels:
            raise predicate(f"has {name_kind(values)}; expected {'a list' if levels else 'a number'}")
        if len(values) > self.longest:
            raise predicate(f"has {len(values)} items; expected at most {self.longest} items")
        if set(map(type, values)) <= {float, int}:
            return
        for each in values:
            if isinstance(each, list):
                self._check(each, levels - 1)
            elif isinstance(each, bool | dict | str | None) and (self.finite or each not in (None, *WORDS.values())):
                raise predicate(f"has {name_kind(each)}; expected a number")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        bounds = {"maxItems": self.longest} if self.empty else {"minItems": 1, "maxItems": self.longest}
        alternatives = []
        for axes in self.axes:
            found: dict[str, Any] = {"type": "number"} if self.finite else NUMBER
            for _ in range(axes):
                found = {"type": "array", "items": found, **bounds}
            alternatives.append(found)
        return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


Vector = Annotated[Any, Numbers((1,))]
Matrix = Annotated[Any, Numbers((2,), empty=False)]


def shaped(values: Array, shape: tuple[int, ...], name: str) -> Array:
    """Return an array if it has this shape, or no numbers as it should; otherwise raise an error."""
    if values.shape != shape and (values.size or np.prod(shape)):
        if len(shape) == 1:
            raise InvalidInputError(f"{name} has {values.size} numbers; expected {shape[0]}")
        raise InvalidInputError(f"{name} has shape {values.shape}; expected {shape}")
    return values.reshape(shape)


def jsonable(value: Any) -> Any:
    """Return arrays, floats and tuples, in each other, as values of JSON."""
    if isinstance(value, np.ndarray):
        return value.tolist() if np.all(np.isfinite(value)) else jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, float):
        return None if np.isnan(value) else WORDS.get(value, float(value))
    return value


def document_of(value: Any, kind: type[Part], **others: Any) -> dict[str, Any]:
    """Return the fields of a part as JSON, from ``others`` and the attributes of a value; None is left out."""
    fields = {name: others[name] if name in others else getattr(value, name) for name in kind.model_fields}
    return {name: jsonable(each) for name, each in fields.items() if each is not None}


# ---------------------------------------------------------------- mixtures


@dataclass(frozen=True)
class TaggedUnion:
    """Objects of several forms, told apart by the name in one of their fields: a union made from a registry.

    Parameters
    ----------
    key : str
        The field with the name.
    names : iterable of str
    form : callable
        Part of a name; raises an error for a name that is not known.
    """

    key: str
    names: Iterable[str]
    form: Callable[[str], type[Part]]

    def read(self, value: Any) -> Part:
        """Return an object as the part of its name."""
        if not isinstance(value, dict) or not isinstance(value.get(self.key), str):
            raise predicate(f"is {name_kind(value)} without a name as {self.key!r}")
        return self.form(value[self.key]).model_validate(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        forms = [handler(self.form(name).__pydantic_core_schema__) for name in self.names]
        return {"oneOf": forms, "discriminator": {"propertyName": self.key}}


@cache
def _form(kind: type[Gate | Experts], key: str) -> type[Part]:
    """Return the part of a file that has the fields of a gate or family."""
    fields: dict[str, Any] = {key: Literal[getattr(kind, key)]}
    for name, form in kind.message_fields.items():
        axes = tuple(each for each in form if isinstance(each, int))
        fields[name] = Annotated[Any, Numbers(axes, empty=False)] if axes else Literal[form]
    definitions: dict[str, Any] = {name: (form, ...) for name, form in fields.items()}
    return pydantic.create_model(kind.__name__, __base__=Part, **definitions)


class MixtureDocument(Part):
    """Parameters in raw coordinates, experts by decreasing weight."""

    intercept: bool
    gate: Annotated[Any, TaggedUnion("kind", GATES, lambda name: _form(gate_of(name), "kind"))]
    experts: Annotated[Any, TaggedUnion("family", FAMILIES, lambda name: _form(family_of(name), "family"))]

    @classmethod
    def of(cls, mixture: Mixture) -> dict[str, Any]:
        """Return a mixture as JSON."""
        gate, experts = mixture.gate, mixture.experts
        return {
            "intercept": mixture.design.intercept,
            "gate": document_of(gate, _form(type(gate), "kind")),
            "experts": document_of(experts, _form(type(experts), "family")),
        }

    def value(self) -> Mixture:
        """Return the mixture; raise an error if it is none."""
        gate: Gate = gate_of(self.gate.kind)(**_fields(self.gate, "kind"))
        experts: Experts = family_of(self.experts.family)(**_fields(self.experts, "family"))
        if experts.K * experts.q**2 > LARGEST_COVARIANCES:
            raise InvalidInputError(f"the mixture has {experts.K} experts of {experts.q} responses, which are too many")
        mixture = Mixture(Design.raw(max(experts.p - self.intercept, 0), self.intercept), gate, experts)
        check_mixture(mixture)
        return mixture


def _fields(part: Part, key: str) -> dict[str, Any]:
    return {name: getattr(part, name) for name in type(part).model_fields if name != key}
