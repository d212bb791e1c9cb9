"""A row of the table of questions: codecs, checks, and the function that computes the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from consilience.messages.codec import Struct
from consilience.model.rows import Rows


def _always(*_: Any) -> bool:
    return True


def _any_rows(*_: Any) -> None:
    """Accept all rows."""


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
    """

    question: Struct
    answer: Struct
    contribution: Callable[[Any, Rows], Any] | None = None
    adds: bool = True
    reads: Callable[[Any, Rows], None] = _any_rows
    fits: Callable[[Any, Any], bool] = _always
