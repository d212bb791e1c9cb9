"""What the combination made of each site, in words that a reader can check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.trust import Verdict
from consilience.numerics.arrays import Array, IntArray, Mask

INFLUENTIAL = 5.0
"""How many times the shift of the combined experts that is usual for its size a site may cause without a remark."""
LOW = 0.25
"""A site's likelihood per row is low when it is this far below the median of the upper half of the sites."""
MOST = 0.5
"""Share of all rows above which a site's word decides the result."""
NO_MODEL = "it has too few rows for a fit of its own, or the fit failed"


@dataclass(frozen=True, eq=False)
class SiteEvidence:
    """What the combination made of one site, and why.

    Parameters
    ----------
    name : str
    weight, log_likelihood_per_row : float
        By the site's own account.
    distance : float
        Likelihood per row that the combined experts would cost it.
    influence : float
        How far leaving the site out moves the precision-weighted mean of its experts' coefficients, in root mean square
        standard errors; NaN if unknown.
    experts : tuple of bool
        Which of its experts were used; empty for a site that has sent no model.
    gate : bool
        Whether its gate was used.
    reasons : tuple of str
        Why not all of it was used.
    remarks : tuple of str
        What else a reader should know of it.
    copy_of : str or None
        The site whose model this one has sent too.

    Examples
    --------
    >>> SiteEvidence("north", 900.0, -1.4, 0.01, 0.3, (True, True), True).status
    'used'
    >>> print(SiteEvidence.without_model("south", 12.0))
    south: no model: it has too few rows for a fit of its own, or the fit failed
    """

    name: str
    weight: float
    log_likelihood_per_row: float
    distance: float
    influence: float
    experts: tuple[bool, ...]
    gate: bool
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    copy_of: str | None = None

    @classmethod
    def without_model(cls, name: str, weight: float, reason: str = NO_MODEL) -> SiteEvidence:
        """A site that has answered, but sent no model that can be combined."""
        return cls(name, weight, np.nan, np.nan, np.nan, (), False, (reason,))

    @property
    def status(self) -> str:
        """``"used"``, ``"used in part"``, ``"set aside"`` or ``"no model"``."""
        if not self.experts:
            return "no model"
        if not any(self.experts):
            return "set aside"
        return "used" if all(self.experts) and self.gate else "used in part"

    def __str__(self) -> str:
        said = "; ".join((*self.reasons, *self.remarks))
        return f"{self.name}: {self.status}" + (f": {said}" if said else "")


@dataclass(frozen=True, eq=False)
class Witness:
    """All that the evidence of the sites is read from.

    Parameters
    ----------
    pool : Pool
    copied : dict
        As from :func:`~consilience.aggregate.combine.trust.copies`.
    verdict : Verdict
    used, trusted : (L,) and (M,) array of bool
        Components and gates that the result is made of.
    cost : (L,) array
        Divergence of each component from the combined expert that it went to.
    influence, expected : (L,) array
        As from :func:`~consilience.aggregate.combine.trust.influences`.
    """

    pool: Pool
    copied: dict[int, int]
    verdict: Verdict
    used: Mask
    trusted: Mask
    cost: Array
    influence: Array
    expected: Array

    def evidence(self, m: int) -> SiteEvidence:
        """What was made of site ``m``."""
        pool, mine = self.pool, np.flatnonzero(self.pool.owner == m)
        model, known = pool.models[m], self.influence[mine][np.isfinite(self.influence[mine])]
        distance = float(self.cost[mine].sum() / max(model.mass.sum(), 1.0))
        return SiteEvidence(
            pool.names[m],
            model.weight,
            model.log_likelihood_per_row,
            distance,
            float(np.sqrt(np.mean(known**2))) if len(known) else np.nan,
            tuple(bool(use) for use in self.used[mine]),
            bool(self.trusted[m]),
            tuple(self._reasons(m, mine, distance)),
            tuple(self._remarks(m, mine)),
            pool.names[self.copied[m]] if m in self.copied else None,
        )

    def _reasons(self, m: int, mine: IntArray, distance: float) -> Iterator[str]:
        if m in self.copied:
            yield f"its model is that of {self.pool.names[self.copied[m]]}: of copies one is kept"
        foreign = int(np.sum(~self.verdict.agrees[mine]))
        if foreign:
            yield (
                f"{foreign} of its {len(mine)} experts are like none of the other sites' "
                f"(the combined ones would cost it {distance:.2g} in log-likelihood per row){self._low(m)}"
            )
        elif m not in self.copied and not self.trusted[m]:
            yield "its gate is unlike those of the other sites"

    def _remarks(self, m: int, mine: IntArray) -> Iterator[str]:
        if m in self.copied.values():
            yield "other sites have sent its model too: of copies one is kept"
        share = self.pool.models[m].weight / sum(model.weight for model in self.pool.models)
        if self.pool.M > 2 and share > MOST:
            yield f"by its own account it has {share:.0%} of all rows: the result is mostly its word"
        if np.any(self.influence[mine] > INFLUENTIAL * self._usual[mine]):
            yield f"leaving it out moves an expert by {np.nanmax(self.influence[mine]):.2g} standard errors"

    @cached_property
    def _usual(self) -> Array:
        """Influence that is usual for the size of a component: more than chance has where sites differ, ``(L,)``."""
        ratio = self.influence / np.maximum(self.expected, 1e-12)
        times = max(1.0, float(np.nanmedian(ratio))) if np.isfinite(ratio).any() else 1.0
        return times * self.expected

    def _low(self, m: int) -> str:
        """A remark on a site whose model explains its own rows worse than the models of others explain theirs."""
        values = np.sort([model.log_likelihood_per_row for model in self.pool.models])
        usual = float(np.median(values[len(values) // 2 :]))
        mine = self.pool.models[m].log_likelihood_per_row
        if mine >= usual - LOW:
            return ""
        return (
            f"; log-likelihood {mine:.2f} per row where the better half of the sites has {usual:.2f}: a poor optimum?"
        )
