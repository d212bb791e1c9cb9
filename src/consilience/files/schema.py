"""Check of JSON values against a JSON Schema: the keywords that the published schema of a model uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

Schema = Mapping[str, Any]

LARGEST = 1.7976931348623157e308
KINDS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: KINDS["number"](value) and value == value // 1,
}
WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "number": "a number",
    "integer": "a whole number",
}


@cache
def published(version: int, kind: str = "model") -> Schema:
    """Return the published schema of a version of a kind of file, "model" or "site".

    Examples
    --------
    >>> published(1)["title"]
    'Consilience model, version 1'
    """
    text = files("consilience.files").joinpath(f"{kind}-{version}.schema.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


def problem(value: Any, schema: Schema, root: Schema | None = None, at: str = "") -> str:
    """Return why ``value`` does not match the schema, with its place; empty if it does.

    Examples
    --------
    >>> schema = {"type": "object", "properties": {"K": {"type": "integer", "minimum": 1}}, "required": ["K"]}
    >>> problem({"K": 0}, schema), problem({"K": 2}, schema)
    ('K is 0; expected at least 1', '')
    """
    return next(_problems(value, schema, schema if root is None else root, at), "")


def _problems(value: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    here = at or "the file"
    if "anyOf" in schema:
        if all(problem(value, each, root, at) for each in schema["anyOf"]):
            yield f"{here} is {kind_of(value)}; expected {schema['title']}"
        return
    if "oneOf" in schema:
        yield from _one_of(value, schema, root, at)
        return
    wanted = schema.get("type")
    if wanted is not None and not KINDS[wanted](value):
        yield f"{here} is {kind_of(value)}; expected {WORDS[wanted]}"
        return
    yield from _own(value, schema, here)
    if isinstance(value, dict):
        yield from _properties(value, schema, root, at)
    elif isinstance(value, list) and "items" in schema:
        yield from _items(value, schema["items"], root, at)


def _own(value: Any, schema: Schema, here: str) -> Iterator[str]:
    """Compare a value with the bounds of its own: values, range, length."""
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not any(type(value) is type(each) and value == each for each in allowed):
        yield f"{here} is {kind_of(value)}; expected {' or '.join(map(json.dumps, allowed))}"
    elif KINDS["number"](value):
        if not abs(value) <= LARGEST:
            yield f"{here} is a number too large for a float"
        if value < schema.get("minimum", value):
            yield f"{here} is {value}; expected at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"{here} is {value}; expected at most {schema['maximum']}"
    elif isinstance(value, str | list):
        unit, least, most = ("characters", "minLength", "maxLength")
        if isinstance(value, list):
            unit, least, most = ("items", "minItems", "maxItems")
        if not schema.get(least, 0) <= len(value) <= schema.get(most, len(value)):
            bounds = f"{schema.get(least, 0)} to {schema.get(most, 'any number of')}"
            yield f"{here} has {len(value)} {unit}; expected {bounds}"


def _properties(value: dict[str, Any], schema: Schema, root: Schema, at: str) -> Iterator[str]:
    known, rest, here = schema.get("properties", {}), schema.get("additionalProperties", True), at or "the file"
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{here} has no {name!r}"
    for name, each in value.items():
        if name in known:
            yield from _problems(each, known[name], root, f"{at}.{name}" if at else name)
        elif rest is False:
            yield f"{here} has {name[:40]!r}, which is not a field of it"
        elif isinstance(rest, dict):
            yield from _problems(each, rest, root, f"{here}[{name[:40]!r}]")


def _items(values: list[Any], schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if values and set(map(type, values)) == {float}:  # bounds of numbers hold for all if they hold for the extremes
        values = [min(values), max(values)]
    for i, each in enumerate(values):
        yield from _problems(each, schema, root, f"{at}[{i}]")


def _one_of(value: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    """Compare an object with the alternative whose constant it has, such as its class."""
    key = schema["x-key"]
    if not isinstance(value, dict) or key not in value:
        yield f"{at or 'the file'} is {kind_of(value)} without {key!r}"
        return
    alternatives = {each["properties"][key]["const"]: each for each in schema["oneOf"]}
    chosen = value[key]
    if not isinstance(chosen, str) or chosen not in alternatives:
        yield f"{at}.{key} is {kind_of(chosen)}; expected one of {', '.join(alternatives)}"
        return
    yield from _problems(value, alternatives[chosen], root, at)


def kind_of(value: Any) -> str:
    """Return what a JSON value is, in words; short text is quoted.

    Examples
    --------
    >>> kind_of([1]), kind_of(True), kind_of("high")
    ('a list', 'true or false', "the text 'high'")
    """
    if isinstance(value, str) and len(value) <= 40:
        return f"the text {value!r}"
    return WORDS[next(name for name in WORDS if KINDS[name](value))]
