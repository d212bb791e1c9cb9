"""Reasons why a fit stopped, as sentences for users."""

from __future__ import annotations

from dataclasses import dataclass
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
    METHOD = "stopped: the method ended by a rule of its own"

    @property
    def converged(self) -> bool:
        """Whether the fit is at a stationary point, to tolerance."""
        return self in (StopReason.CONVERGED_EM, StopReason.CONVERGED_NEWTON, StopReason.SETTLED)

    @property
    def by_choice(self) -> bool:
        """Whether the fit ended as requested."""
        return self in (StopReason.REFINED, StopReason.COMBINED, StopReason.ROUNDS, StopReason.METHOD)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class MethodStop:
    """A method's own reason to end, for methods that the reasons of the library do not fit.

    A saved model states :attr:`StopReason.METHOD` in its place.

    Parameters
    ----------
    sentence : str
        What ended the fit, in words that follow "stopped:" or "converged:".
    converged : bool
        Whether the fit is at a stationary point of what the method maximises, to tolerance.

    Examples
    --------
    >>> print(MethodStop("medians of the fits of the sites, without iterations"))
    stopped: medians of the fits of the sites, without iterations
    """

    sentence: str
    converged: bool = False

    @property
    def name(self) -> str:
        """Name in a saved model."""
        return StopReason.METHOD.name

    @property
    def by_choice(self) -> bool:
        """Whether the fit ended as requested: always."""
        return True

    def __str__(self) -> str:
        return f"{'converged' if self.converged else 'stopped'}: {self.sentence}"


Stop = StopReason | MethodStop
"""Reason why a fit ended, of the library or of a method's own."""
