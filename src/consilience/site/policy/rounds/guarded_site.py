"""A site with its guard and the state between rounds: what an engine asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from consilience.site.policy.rounds.asked import Asked
from consilience.site.policy.rounds.guard import ENDED, Outcome, RoundsOf, guarded
from consilience.site.policy.rounds.refusal import RefusedQuestionError
from consilience.site.site import Site

Keep = Callable[[Outcome], None]
"""Records an answer or a refusal at the site."""


@dataclass
class GuardedSite:
    """A site that answers through its guard.

    Parameters
    ----------
    site : Site
    run : RoundsOf
    asked : Asked
        What was asked so far; it changes with every question.
    keep : callable or None
        Called with the outcome of every question, before the reply leaves; not for questions of a run that has ended.
    refusals : list of RefusedQuestionError
        The refusals, with their reasons, which stay at the site.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.messages import Pairs, Summarise, decode, encode
    >>> from consilience.model.design import Design
    >>> from consilience.model.rows import Rows
    >>> from consilience.site.policy.policy import Policy
    >>> site = Site("north", Rows(np.arange(60.0)[:, None], np.arange(60.0)[:, None]))
    >>> guard = GuardedSite(site, RoundsOf(Policy.of_profile()))
    >>> decode(guard.reply(encode(Summarise(d=1, q=1)))).weight
    60.0
    >>> print(decode(guard.reply(encode(Pairs(Design.raw(1), np.zeros(2))))))
    the site refuses the question and ends the run: the reason is in its own ledger
    """

    site: Site
    run: RoundsOf
    asked: Asked = field(default_factory=Asked)
    keep: Keep | None = None
    refusals: list[RefusedQuestionError] = field(default_factory=list)

    def reply(self, question: bytes, totals: Sequence[bytes] = ()) -> bytes:
        """Return the reply to an encoded question; ``totals`` are those of the earlier rounds of the run."""
        return self.accept(self.considered(question, totals))

    def considered(self, question: bytes, totals: Sequence[bytes] = ()) -> Outcome:
        """Return what the guard decides on a question; nothing is recorded."""
        return guarded(question, self.site, self.run, self.asked, totals)

    def accept(self, found: Outcome) -> bytes:
        """Record the outcome of a question, and return the reply that leaves."""
        if self.keep is not None and (found.refusal is None or found.refusal.rule != ENDED):
            self.keep(found)
        if found.refusal is not None:
            self.refusals.append(found.refusal)
        self.asked = found.asked
        return found.reply
