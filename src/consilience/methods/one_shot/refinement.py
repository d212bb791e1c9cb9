"""Rounds of refinement: steps on the likelihood of all rows, from the combined mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from consilience.aggregate.combine.combination import Combination
from consilience.errors import InvalidInputError
from consilience.fit.climb import Ascent, Expect, climb
from consilience.fit.stop import StopReason
from consilience.messages.dialogue import Dialogue, Each, Total
from consilience.messages.questions import Answers, LocalFit, Several
from consilience.model.information import is_informable
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.model.statistics import Statistics

DECREMENT = 1e-10
"""Newton decrement per row at which refinement ends: one step below that of other climbs, as steps near the maximum
gain many digits each."""
EXPLAINED = 0.25
"""Tolerance in log-likelihood per row. A site whose model was not fully used takes part in refinement if the combined
mixture explains its rows as well as its own model does, up to this tolerance: its rows are then like the others'."""


def opening(
    combinations: Sequence[Combination], fits: Mapping[str, LocalFit]
) -> Dialogue[tuple[tuple[str, ...] | None, list[Statistics]]]:
    """Run the first round of refinement for all mixtures; return the sites that take part and their sums.

    If all models were used, only the sum is requested, and all sites take part. Otherwise each site answers on its own,
    and a site whose model was not fully used takes part if its rows are like the others': the combined mixture explains
    them as well as the site's own model does, and no worse than it explains the rows of the sites that were used. Sites
    without a model take part.
    """
    mixtures = [combination.mixture for combination in combinations]
    question = Several(tuple(Expect(mixture, information=is_informable(mixture)) for mixture in mixtures))
    in_doubt = ("set aside", "used in part")
    doubted = {site.name for each in combinations for site in each.sites if site.status in in_doubt}
    if not doubted:
        total: Answers = yield Total(question)
        return None, list(total.items)
    each: Mapping[str, Answers] = yield Each(question)
    copied = {site.name for site in combinations[0].sites if site.copy_of is not None}
    reached = {site: _best_per_row(answer) for site, answer in each.items()}
    believed = {site.name for site in combinations[0].sites if site.status == "used"} - doubted
    lowest = min((reached[site] for site in believed if site in reached), default=-np.inf)

    def is_member(site: str) -> bool:
        if site not in doubted:
            return True
        model = fits[site].model
        own = lowest if model is None else max(lowest, model.log_likelihood_per_row)
        return site not in copied and reached[site] >= own - EXPLAINED

    members = tuple(filter(is_member, each))
    if not members:
        raise InvalidInputError("the combined mixture explains the rows of no site: use FederatedEM")
    return members, [reduce(add, (each[site].items[i] for site in members)) for i in range(len(mixtures))]


def _best_per_row(answer: Answers) -> float:
    """Return the highest log-likelihood per row of several mixtures on the rows of a site."""
    return float(max(item.log_likelihood / max(item.weight, 1.0) for item in answer.items))


def refined(
    start: Mixture, first: Statistics, penalty: Penalty, steps: int, members: tuple[str, ...] | None
) -> Dialogue[Ascent]:
    """Take at most ``steps`` steps from ``start``, whose statistics are ``first``; each is evaluated by a round.

    The result is the last accepted mixture, with its own statistics.
    """
    ascending = climb(start, penalty, max_iter=steps, near=True, decrement=DECREMENT)
    next(ascending)  # the opening round has answered the first question
    try:
        question = ascending.send(first)
        while True:
            question = ascending.send((yield Total(question, members)))
    except StopIteration as reached:
        end: Ascent = reached.value
        return replace(end, stop=StopReason.REFINED) if end.stop is StopReason.MAX_ITER else end
