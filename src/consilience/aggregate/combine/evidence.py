"""Diagnostics of each site in a combination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.trust import TrustVerdict
from consilience.fit.survey import SiteInfluence
from consilience.numerics.arrays import Array, Mask

INFLUENTIAL = 5.0
"""Multiple of the usual influence for its size above which a site gets a remark."""
LOW = 0.25
"""Distance below the median of the upper half of the sites at which a likelihood per row counts as low."""
FOREIGN_GATE = "its gate is far from those of the other sites"
NO_MODEL = "it has too few rows for a fit of its own, or the fit failed"


@dataclass(frozen=True, eq=False)
class SiteEvidence:
    """Diagnostics of one site in a combination.

    Parameters
    ----------
    name : str
    weight, log_likelihood_per_row : float
        As reported by the site.
    distance : float
        Loss in log-likelihood per row if the combined experts replace the site's.
    pull : float
        Change of the precision-weighted mean of its experts' coefficients if the site is left out of the same plan, in
        root mean square standard errors; NaN if unknown.
    experts : tuple of bool
        Which of its experts were used; empty for a site that sent no model.
    gate : bool
        Whether its gate was used.
    reasons : tuple of str
        Reasons why it was not used as a whole.
    remarks : tuple of str
        Other remarks on the site.
    copy_of : str or None
        The site that sent an identical model.
    influence : SiteInfluence or None
        The coefficient that would change most without it.

    Examples
    --------
    >>> from consilience.aggregate import SiteEvidence
    >>> SiteEvidence("north", 900.0, -1.4, 0.01, 0.3, (True, True), True).status
    'used'
    >>> print(SiteEvidence.without_model("south", 12.0))
    south: no model: it has too few rows for a fit of its own, or the fit failed
    """

    name: str
    weight: float
    log_likelihood_per_row: float
    distance: float
    pull: float
    experts: tuple[bool, ...]
    gate: bool
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    copy_of: str | None = None
    influence: SiteInfluence | None = None

    @classmethod
    def without_model(cls, name: str, weight: float, reason: str = NO_MODEL) -> SiteEvidence:
        """Return the diagnostics of a site that answered but sent no usable model."""
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
    """Inputs of the sites' diagnostics.

    Parameters
    ----------
    pool : Pool
    copied : dict
        As from :func:`~consilience.aggregate.combine.trust.copies`.
    verdict : TrustVerdict
    used, trusted : (L,) and (M,) array of bool
        Components and gates that were used.
    cost : (L,) array
        Divergence of each component from the combined expert that it was assigned to.
    pull, expected : (L,) array
        As from :func:`~consilience.aggregate.combine.trust.influences`.
    """

    pool: Pool
    copied: dict[int, int]
    verdict: TrustVerdict
    used: Mask
    trusted: Mask
    cost: Array
    pull: Array
    expected: Array

    def evidence(self, m: int) -> SiteEvidence:
        """Return the diagnostics of site ``m``."""
        pool, mine = self.pool, self.pool.own[m]
        model, known = pool.models[m], self.pull[mine][np.isfinite(self.pull[mine])]
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

    def _reasons(self, m: int, mine: slice, distance: float) -> Iterator[str]:
        if m in self.copied:
            yield f"its model is identical to that of {self.pool.names[self.copied[m]]}: only one is kept"
        agrees = self.verdict.agrees[mine]
        foreign = int(np.sum(~agrees))
        if foreign:
            yield (
                f"{foreign} of its {len(agrees)} experts are far from all experts of the other sites "
                f"(the combined ones would cost it {distance:.2g} in log-likelihood per row){self._low(m)}"
            )
        elif m not in self.copied and not self.trusted[m]:
            yield FOREIGN_GATE

    def _remarks(self, m: int, mine: slice) -> Iterator[str]:
        if m in self._copied_from:
            yield "other sites sent an identical model: only one is kept"
        if np.any(self.pull[mine] > INFLUENTIAL * self._usual[mine]):
            yield f"leaving it out changes an expert by {np.nanmax(self.pull[mine]):.2g} standard errors"

    @cached_property
    def _usual(self) -> Array:
        """Return the usual influence of a component of its size, larger than expected if sites differ, ``(L,)``."""
        ratio = self.pull / np.maximum(self.expected, 1e-12)
        times = max(1.0, float(np.nanmedian(ratio))) if np.isfinite(ratio).any() else 1.0
        return times * self.expected

    @cached_property
    def _copied_from(self) -> set[int]:
        """Return the sites of whose model there are copies."""
        return set(self.copied.values())

    @cached_property
    def _usual_likelihood(self) -> float:
        """Return the median log-likelihood per row of the better half of the sites."""
        values = np.sort([model.log_likelihood_per_row for model in self.pool.models])
        return float(np.median(values[len(values) // 2 :]))

    def _low(self, m: int) -> str:
        """Return a remark if the site's own log-likelihood per row is low compared with other sites."""
        mine, usual = self.pool.models[m].log_likelihood_per_row, self._usual_likelihood
        if mine >= usual - LOW:
            return ""
        return f"; log-likelihood {mine:.2f} per row, {usual:.2f} in the better half of the sites: a poor optimum?"
