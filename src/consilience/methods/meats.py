"""The meat of the sandwich over sites: the products of scores at the end of a fit, as one table would have them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from consilience.fit import Ascent
from consilience.fit.inference import default_kind
from consilience.messages import Dialogue, Each, ScoreProducts, Total, together
from consilience.methods.task import Task
from consilience.model.expectation import Meat
from consilience.model.information import is_informable


def ask_meats(
    ends: Sequence[Ascent], task: Task, sites: tuple[str, ...] | None = None, *, request: type[Total | Each] = Total
) -> Dialogue[list[Meat | None]]:
    """Ask for the products of scores at the ends of climbs, in one message; None where one table would not use them.

    ``request`` is the kind of the other requests of the round: with ``Each`` the answers are added here.
    """
    wanted = [is_wanted(end, task) for end in ends]
    asked = [
        ScoreProducts(end.mixture, end.statistics.experts.second) for end, w in zip(ends, wanted, strict=True) if w
    ]
    found = iter((yield from together([_summed(request(question, sites)) for question in asked])))
    return [next(found) if w else None for w in wanted]


def _summed(request: Total | Each) -> Dialogue[Meat]:
    answer = yield request
    total: Meat = answer if isinstance(request, Total) else reduce(add, answer.values())
    return total


def is_wanted(end: Ascent, task: Task) -> bool:
    """Whether standard errors of one table with the same labels would use the sandwich, and sites may be asked."""
    labels = end.statistics.weight
    kind = default_kind(labels, clustered=task.clustered)
    return task.sandwich and kind == "larger" and end.statistics.information is not None and is_informable(end.mixture)
