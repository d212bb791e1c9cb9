"""Scores of sites: of each at a mixture, and their products over rows, for the sandwich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

from consilience.fit import Ascent
from consilience.fit.inference import default_kind
from consilience.messages import Dialogue, Each, ScoreProducts, ScoreSums, Total, together
from consilience.methods.task import Task
from consilience.model import Mixture, Statistics
from consilience.model.expectation import Meat
from consilience.model.information import is_informable, score
from consilience.numerics.arrays import Array


def ask_meats(
    ends: Sequence[Ascent], task: Task, sites: tuple[str, ...] | None = None, *, request: type[Total | Each] = Total
) -> Dialogue[list[Meat | None]]:
    """Ask for the products of scores at the ends of climbs, in one message; None where one table would not use them.

    ``request`` is the kind of the other requests of the round: with ``Each`` the answers are added here.
    """
    wanted = [uses_sandwich(end.statistics, end.mixture, task) for end in ends]
    asked = [
        ScoreProducts(end.mixture, end.statistics.experts.second) for end, w in zip(ends, wanted, strict=True) if w
    ]
    found = iter((yield from together([_summed(request(question, sites)) for question in asked])))
    return [next(found) if w else None for w in wanted]


def ask_meats_and_scores(
    ends: Sequence[Ascent], task: Task, sites: tuple[str, ...] | None = None
) -> Dialogue[tuple[list[Meat | None], list[Mapping[str, Array] | None]]]:
    """Ask for the products of scores at the ends of climbs and, in the same message, for the score of each site."""
    wanted = [uses_sandwich(end.statistics, end.mixture, task) for end in ends]
    asked: list[Dialogue[Any]] = [ask_meats(ends, task, sites, request=Each)]
    at = [end.mixture for end, w in zip(ends, wanted, strict=True) if w]
    asked += [each_score(mixture, sites) for mixture in at]
    meats, *each = yield from together(asked)
    known = zip(at, each, strict=True)
    scores = iter([{site: score(mixture, own) for site, own in found.items()} for mixture, found in known])
    return meats, [next(scores) if w else None for w in wanted]


def each_score(mixture: Mixture, sites: tuple[str, ...] | None = None) -> Dialogue[Mapping[str, Statistics]]:
    """Ask each site for its statistics at a mixture without second moments."""
    each: Mapping[str, Statistics] = yield Each(ScoreSums(mixture), sites)
    return each


def _summed(request: Total | Each) -> Dialogue[Meat]:
    answer = yield request
    total: Meat = answer if isinstance(request, Total) else reduce(add, answer.values())
    return total


def uses_sandwich(statistics: Statistics, mixture: Mixture, task: Task) -> bool:
    """Whether standard errors of one table with the same labels would use the sandwich, and sites may be asked."""
    kind = default_kind(statistics.weight, clustered=task.clustered)
    return task.sandwich and kind == "larger" and statistics.information is not None and is_informable(mixture)
