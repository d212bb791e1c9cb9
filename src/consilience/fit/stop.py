"""Reasons why a fit stopped, as sentences for users."""

from __future__ import annotations

from enum import Enum


class StopReason(Enum):
    """Reason why an ascent ended; *converged* and *stopped* are distinct.

    Examples
    --------
    >>> StopReason.MAX_ITER.converged
    False
    >>> print(StopReason.MAX_ITER)
    stopped: max_iter was reached before convergence
    """

    CONVERGED_EM = "converged: a full EM step gained less than tol per unit of weight"
    CONVERGED_NEWTON = "converged: the Newton decrement fell below its bound"
    MAX_ITER = "stopped: max_iter was reached before convergence"
    STALLED = "stopped: no fraction of the Newton step raised the likelihood, twice in a row"
    REFINED = "stopped: the requested refinement rounds are complete"
    COMBINED = "stopped: combined from one answer of each site, without a round of refinement"
    SETTLED = "converged: in a round coefficients changed by no more than a small fraction of their standard errors"
    ROUNDS = "stopped: the maximum number of rounds was reached before convergence"

    @property
    def converged(self) -> bool:
        """Whether the fit is at a stationary point, to tolerance."""
        return self in (StopReason.CONVERGED_EM, StopReason.CONVERGED_NEWTON, StopReason.SETTLED)

    @property
    def by_choice(self) -> bool:
        """Whether the fit ended as requested."""
        return self in (StopReason.REFINED, StopReason.COMBINED, StopReason.ROUNDS)

    def __str__(self) -> str:
        return self.value
