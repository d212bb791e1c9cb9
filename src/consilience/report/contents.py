"""The sections of a report, in the order in which a reader needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from consilience.report.model_sections import coefficients, convergence, data_pictures, gate, words
from consilience.report.parts import Picture, Section, Table
from consilience.report.run_sections import orders, provenance, rounds
from consilience.report.site_sections import between_sites, plan, rivals, site_table
from consilience.report.subject import Subject
from consilience.report.svg import inline

Draw = Callable[[str, Callable[[], Any], Table | None], list[Picture]]
"""Makes a picture of a text that says what it shows, a function that draws, and the numbers; or nothing."""


def sections(subject: Subject, *, pictures: bool = True) -> list[Section]:
    """Return the sections of a report; without ``pictures`` only words and tables."""
    makers = (words, site_table, coefficients, gate, between_sites, plan, rivals, orders, convergence)
    draw = _drawn() if pictures else _numbers
    found = (make(subject, draw) for make in (*makers, data_pictures, rounds, provenance))
    return [section for section in found if section is not None]


def _drawn() -> Draw:
    """Return a function that draws, and gives each picture identifiers of its own."""
    numbers: Iterator[int] = iter(range(1_000_000))

    def draw(alt: str, make: Callable[[], Any], table: Table | None = None) -> list[Picture]:
        return [Picture(inline(make, f"p{next(numbers)}", alt), alt, table)]

    return draw


def _numbers(alt: str, _make: Callable[[], Any], table: Table | None = None) -> list[Picture]:
    """Return the numbers of a picture, which is not drawn."""
    return [] if table is None else [Picture("", alt, table)]
