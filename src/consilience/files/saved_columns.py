"""Columns of a data dictionary as JSON objects."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from consilience.columns import Column, Rule
from consilience.columns.rule import PLAIN
from consilience.errors import InvalidInputError


def column_document(column: Column) -> dict[str, Any]:
    """Return a column as a JSON object, without what is as by default.

    Examples
    --------
    >>> column_document(Column("age", rule=Rule("years", low=18)))
    {'name': 'age', 'rule': {'unit': 'years', 'low': 18}}
    """
    found: dict[str, Any] = {"name": column.name}
    if column.is_category:
        found["levels"] = list(column.levels)
    if column.reference is not None:
        found["reference"] = column.reference
    rule = {name: value for name, value in asdict(column.rule).items() if value != getattr(PLAIN, name)}
    return {**found, "rule": rule} if rule else found


def column_of(document: dict[str, Any]) -> Column:
    """Return the column of a JSON object.

    Examples
    --------
    >>> column_of({"name": "sex", "levels": ["f", "m"]}).terms
    ('sex[m]',)
    """
    levels = tuple(document.get("levels", ()))
    if len({isinstance(level, str) for level in levels}) > 1:
        raise InvalidInputError(f"column {document['name'][:40]!r} has levels of text and of numbers")
    return Column(document["name"], levels, document.get("reference"), Rule(**document.get("rule", {})))
