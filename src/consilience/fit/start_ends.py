"""Evidence on the starts of a fit: where the climbs from different kinds of starts ended."""

from __future__ import annotations

from dataclasses import dataclass

UNIT = 1.0
"""Difference in log-likelihood up to which two ends count as the same."""


@dataclass(frozen=True)
class StartEnds:
    """Penalised log-likelihood of the ends of independent climbs, the returned one first.

    Values are of all rows; ends of climbs on a sample are scaled to them.

    Parameters
    ----------
    values : tuple of float
    kinds : tuple of str
        How each start was made, or by which site.

    Examples
    --------
    >>> ends = StartEnds((-100.0, -100.2, -103.0), ("by residuals", "at random", "at random"))
    >>> ends.meeting, ends.count, ends.agree
    (2, 3, True)
    """

    values: tuple[float, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of ends."""
        return len(self.values)

    @property
    def meeting(self) -> int:
        """Number of ends within one unit of log-likelihood of the returned one, itself included."""
        return len(self._met())

    @property
    def kinds_meeting(self) -> int:
        """Number of different kinds of starts whose ends meet the returned one."""
        return len(set(self._met()))

    @property
    def agree(self) -> bool:
        """Whether starts of at least two kinds ended within one unit; True if there are fewer than two ends."""
        return self.count < 2 or self.kinds_meeting > 1

    def _met(self) -> list[str]:
        near = zip(self.kinds, self.values, strict=True)
        return [kind for kind, value in near if abs(value - self.values[0]) <= UNIT]

    def __str__(self) -> str:
        if self.count < 2:
            return "one start"
        kinds = "one kind" if self.kinds_meeting == 1 else f"{self.kinds_meeting} kinds"
        return f"{self.meeting} of {self.count} starts, of {kinds}, ended at this log-likelihood"
