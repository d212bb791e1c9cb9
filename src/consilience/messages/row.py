"""One row of the table of questions: the record, its answer, and what is done with both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from consilience.messages.codec import Struct
from consilience.model.rows import Rows


def _always(*_: Any) -> bool:
    return True


def _any_rows(*_: Any) -> None:
    """No check."""


@dataclass(frozen=True)
class Row:
    """A question that sites answer.

    Parameters
    ----------
    question, answer : Struct
        Codecs of the question and of its answer, with their checks. The question's record says what its answer
        discloses.
    contribution : callable or None
        ``contribution(question, rows)`` is what some rows of a site add to its answer. None where the site answers as
        a whole: then :mod:`consilience.site.answer` has a function for it.
    adds : bool
        Whether answers add over sites, so that only their sum may be asked for.
    reads : callable
        ``reads(question, rows)`` raises a :class:`SiteError` for rows that the question cannot be asked of.
    fits : callable
        ``fits(question, answer)``: whether an answer has the shapes that were asked for.
    """

    question: Struct
    answer: Struct
    contribution: Callable[[Any, Rows], Any] | None = None
    adds: bool = True
    reads: Callable[[Any, Rows], None] = _any_rows
    fits: Callable[[Any, Any], bool] = _always
