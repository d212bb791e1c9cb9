"""A site with its guard and the state between rounds: what an engine asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from consilience.site import ledger
from consilience.site.folder import LEDGER, SiteFolder
from consilience.site.policy.rounds.asked import Asked
from consilience.site.policy.rounds.guard import ENDED, RoundsOf, guarded
from consilience.site.policy.rounds.refusal import RefusedQuestionError
from consilience.site.site import Site

Charge = Callable[[RefusedQuestionError, Asked], None]
"""Records a refusal at the site."""


def charge_to(folder: SiteFolder, study: str) -> Charge:
    """Return a function that records refusals in the ledger of a site's folder.

    Parameters
    ----------
    folder : SiteFolder
    study : str
        Identity of the study, ``sha256:...``.

    Examples
    --------
    >>> import tempfile
    >>> folder = SiteFolder.init("north", "", tempfile.mkdtemp())
    >>> charge_to(folder, "sha256:a")(RefusedQuestionError("max_leverage", "the answers rest on single rows"), Asked())
    >>> folder.entries[-1].kind, folder.entries[-1].details["rule"]
    ('refusal', 'max_leverage')
    """

    def charge(refusal: RefusedQuestionError, asked: Asked) -> None:
        details = {"study": study, "round": asked.rounds + 1, "rule": refusal.rule, "reason": refusal.reason}
        ledger.append(folder.path / LEDGER, "refusal", details)

    return charge


@dataclass
class GuardedSite:
    """A site that answers through its guard.

    Parameters
    ----------
    site : Site
    run : RoundsOf
    asked : Asked
        What was asked so far; it changes with every question.
    charge : callable or None
        Called with every refusal but those of a run that has ended, before the reply leaves.
    refusals : list of RefusedQuestionError
        The refusals, with their reasons, which stay at the site.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.messages import Sizes, Summarise, decode, encode
    >>> from consilience.model.rows import Rows
    >>> from consilience.site.policy.policy import Policy
    >>> site = Site("north", Rows(np.arange(60.0)[:, None], np.arange(60.0)[:, None]))
    >>> guard = GuardedSite(site, RoundsOf(Policy.of_profile()))
    >>> decode(guard.reply(encode(Summarise(d=1, q=1)))).weight
    60.0
    >>> print(decode(guard.reply(encode(Sizes()))))
    the site refuses the question and ends the run: the reason is in its own ledger
    """

    site: Site
    run: RoundsOf
    asked: Asked = field(default_factory=Asked)
    charge: Charge | None = None
    refusals: list[RefusedQuestionError] = field(default_factory=list)

    def reply(self, question: bytes, totals: Sequence[bytes] = ()) -> bytes:
        """Return the reply to an encoded question; ``totals`` are those of the earlier rounds of the run."""
        found = guarded(question, self.site, self.run, self.asked, totals)
        if found.refusal is not None:
            if self.charge is not None and found.refusal.rule != ENDED:
                self.charge(found.refusal, self.asked)
            self.refusals.append(found.refusal)
        self.asked = found.asked
        return found.reply
