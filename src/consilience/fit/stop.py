"""Why a fit stopped: members are the sentences that users read."""

from __future__ import annotations

from enum import Enum


class StopReason(Enum):
    """Why an ascent ended; *converged* and *stopped* are different words.

    Examples
    --------
    >>> StopReason.MAX_ITER.converged
    False
    >>> print(StopReason.MAX_ITER)
    stopped: the largest number of iterations was reached before convergence
    """

    CONVERGED_EM = "converged: a full EM step gained less than tol per unit of weight"
    CONVERGED_NEWTON = "converged: the Newton decrement fell below its bound"
    MAX_ITER = "stopped: the largest number of iterations was reached before convergence"
    STALLED = "stopped: no fraction of the Newton step raised the likelihood, twice in a row"
    REFINED = "stopped: the rounds of refinement that were asked for are over"
    COMBINED = "stopped: combined from one answer of each site, without a round of refinement"
    SETTLED = "converged: in a round coefficients moved by no more than a small part of their standard errors"
    ROUNDS = "stopped: the largest number of rounds was reached before coefficients had settled"

    @property
    def converged(self) -> bool:
        """Whether the fit is at a stationary point, to tolerance."""
        return self in (StopReason.CONVERGED_EM, StopReason.CONVERGED_NEWTON, StopReason.SETTLED)

    @property
    def by_choice(self) -> bool:
        """Whether the fit ended where it was asked to end."""
        return self in (StopReason.REFINED, StopReason.COMBINED, StopReason.ROUNDS)

    def __str__(self) -> str:
        return self.value
