"""A row of the table of questions: codecs, checks, and the function that computes the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from consilience.messages.codec import Struct
from consilience.model.cross_products import CrossProducts
from consilience.model.rows import Rows


def _always(*_: Any) -> bool:
    return True


def _any_rows(*_: Any) -> None:
    """Accept all rows."""


def _possible(*_: Any) -> str:
    """Accept all answers."""
    return ""


def _unlimited(*_: Any) -> int | None:
    """Accept answers of any length."""
    return None


def _unknown(*_: Any) -> CrossProducts | None:
    """Read no products from an answer."""
    return None


@dataclass(frozen=True)
class Row:
    """A type of question: its codecs, its checks, and how rows contribute to the answer.

    Parameters
    ----------
    question, answer : Struct
        Codecs of the question and of its answer, with their checks.
    contribution : callable or None
        ``contribution(question, rows)`` returns the part of the answer from some rows of a site. None if the answer is
        not computed by parts: then :mod:`consilience.site.answer` has a function for it.
    adds : bool
        Whether answers add over sites, so that their sum alone can be requested.
    reads : callable
        ``reads(question, rows)`` raises a :class:`SiteError` if the question cannot be answered from the rows.
    fits : callable
        ``fits(question, answer)`` returns whether the answer has the requested shapes.
    impossible : callable
        ``impossible(question, answer)`` returns what no data can give, in an answer of the requested shapes; empty if
        there is nothing.
    largest : callable
        ``largest(question)`` returns the maximum of numbers in an answer, with shapes and choices; None if it depends
        on the site.
    products : callable
        ``products(question, answer)`` returns the sums over rows that an answer states whatever was asked, by which
        answers of a site are compared; None if it states none.
    """

    question: Struct
    answer: Struct
    contribution: Callable[[Any, Rows], Any] | None = None
    adds: bool = True
    reads: Callable[[Any, Rows], None] = _any_rows
    fits: Callable[[Any, Any], bool] = _always
    impossible: Callable[[Any, Any], str] = _possible
    largest: Callable[[Any], int | None] = _unlimited
    products: Callable[[Any, Any], CrossProducts | None] = _unknown
