"""What a federation returns: the model, the record of what was asked, and what was made of each site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.aggregate.evidence import SiteEvidence
from consilience.fit import criteria
from consilience.fit.fitting import Fit
from consilience.protocols.one_shot import CombinedFit
from consilience.protocols.record import Record


@dataclass(frozen=True, eq=False)
class FederatedFit:
    """A model fitted over sites, with the record of what was asked of them.

    Parameters
    ----------
    model : estimator
        Fitted; it has seen no data.
    record : Record
        What was asked, what left each site, in which round.
    fit : Fit

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> sites = Federation({"north": (rng.normal(0, 1, (200, 1)),), "south": (rng.normal(8, 1, (100, 1)),)})
    >>> result = sites.fit(GaussianMixture(2, random_state=0))
    >>> result.model.weights_.round(2), result.record.rounds[0].question
    (array([0.67, 0.33]), 'Summarise')
    """

    model: Any
    record: Record
    fit: Fit

    @property
    def sites(self) -> tuple[SiteEvidence, ...]:
        """What was made of each site, and why; nothing is said where sites' sums were added as they came."""
        return self.fit.combination.sites if isinstance(self.fit, CombinedFit) else ()

    @property
    def aic(self) -> float:
        """Akaike's criterion over the rows of all sites that stayed to the end."""
        return criteria.aic(self.fit.log_likelihood, self.fit.mixture.parameter_count)

    @property
    def bic(self) -> float:
        """Schwarz's criterion over the rows of all sites that stayed to the end."""
        weight = self.fit.ascent.statistics.weight
        return criteria.bic(self.fit.log_likelihood, self.fit.mixture.parameter_count, weight)


@dataclass(frozen=True, eq=False)
class FederatedOrders:
    """Fits of several orders, made side by side in the same messages.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> sites = Federation({"north": (rng.normal(0, 1, (200, 1)),), "south": (rng.normal(8, 1, (100, 1)),)})
    >>> sites.select_order(GaussianMixture(random_state=0), orders=[1, 2, 3]).best_order
    2
    """

    orders: tuple[int, ...]
    fits: tuple[FederatedFit, ...]
    criterion: str

    @property
    def best(self) -> FederatedFit:
        """The fit with the least criterion."""
        return min(self.fits, key=lambda fitted: float(getattr(fitted, self.criterion)))

    @property
    def best_order(self) -> int:
        """The chosen number of experts."""
        return self.orders[self.fits.index(self.best)]
