"""Engine with sites in this process that answer through their guards, as sites of other owners do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from operator import add

from consilience.engines.inprocess import NamedSites
from consilience.messages.failures import Failure
from consilience.messages.questions import question_for
from consilience.messages.table import decode, encode
from consilience.runs.engine import Reply, digest
from consilience.runs.tree_sum import tree_sum
from consilience.site.policy.rounds import GuardedSite


class GuardedSites(NamedSites[GuardedSite]):
    """Sends questions to guarded sites, one after another, and shows them the totals of earlier rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.messages import Summarise, Total
    >>> from consilience.model import Rows
    >>> from consilience.runs import run
    >>> from consilience.site import Site
    >>> from consilience.site.policy import Policy
    >>> from consilience.site.policy.rounds import RoundsOf
    >>> def mean():
    ...     return (yield Total(Summarise(d=0, q=1))).y_mean
    >>> sites = [
    ...     Site(name, Rows(np.empty((60, 0)), np.full((60, 1), y))) for name, y in (("north", 1.0), ("south", 3.0))
    ... ]
    >>> rules = RoundsOf(Policy.of_profile(), dialogue=mean)
    >>> run(mean(), GuardedSites(GuardedSite(site, rules) for site in sites)).value
    array([2.])
    """

    def __init__(self, sites: Iterable[GuardedSite]) -> None:
        super().__init__((each.site.name, each) for each in sites)
        self._totals: list[bytes] = []

    def ask(
        self, number: int, question: bytes, sites: Sequence[str], *, total: bool, timeout: float | None
    ) -> Iterator[list[Reply]]:
        """Yield the reply of each site; the time limit is not used."""
        asked, found = decode(question), {}
        for name in sites:
            began = time.perf_counter()
            place = self._places[name]
            message = self._sites[name].reply(encode(question_for(asked, place)), tuple(self._totals))
            found[place, place + 1] = decode(message)
            yield [Reply(number, (name,), message, (digest(message),), time.perf_counter() - began)]
        if total and not any(isinstance(value, Failure) for value in found.values()):
            self._totals.append(encode(tree_sum(found, 0, len(self._sites), add)))
