"""Results of a federation: the fitted model, the record of the run, and diagnostics of each site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consilience.errors import InvalidInputError
from consilience.fit import criteria
from consilience.fit.fitting import Fit
from consilience.fit.survey import SiteReport
from consilience.runs.record import Record


@dataclass(frozen=True, eq=False)
class FederatedFit:
    """A model fitted over sites, with the record of the run.

    Parameters
    ----------
    model : estimator
        The fitted estimator.
    record : Record
        Questions of each round, and what each site disclosed.
    fit : Fit
    models : mapping of str to estimator
        Model of each site, for methods that fit one per site (:class:`SharedCentre`, :class:`FedGrEM`); ``model`` is
        then the model of the centre. Empty for other methods.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (100, 1))])
    >>> sites = Federation({"north": (X[::2],), "south": (X[1::2],)})
    >>> result = sites.fit(GaussianMixture(2, random_state=0))
    >>> result.model.weights_.round(2), result.record.rounds[0].question
    (array([0.67, 0.33]), 'Summarise')
    """

    model: Any
    record: Record
    fit: Fit
    models: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sites(self) -> Sequence[SiteReport]:
        """Return a report on each site: how it was used, and what is suspect about its data."""
        return self.fit.evidence()

    @property
    def aic(self) -> float:
        """Return Akaike's criterion over the rows of all sites that were not dropped."""
        self._check_one_mixture("AIC")
        return criteria.aic(self.fit.log_likelihood, self.fit.parameter_count)

    @property
    def bic(self) -> float:
        """Return Schwarz's criterion over the rows of all sites that were not dropped."""
        self._check_one_mixture("BIC")
        weight = self.fit.ascent.statistics.weight
        return criteria.bic(self.fit.log_likelihood, self.fit.parameter_count, weight)

    def _check_one_mixture(self, criterion: str) -> None:
        if self.models:
            raise InvalidInputError(
                f"{criterion} is not defined for a method that fits one mixture per site: choose the number of experts "
                "with FederatedEM or OneShot"
            )


@dataclass(frozen=True, eq=False)
class FederatedOrders:
    """Fits with several numbers of experts, computed in the same messages.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (100, 1))])
    >>> sites = Federation({"north": (X[::2],), "south": (X[1::2],)})
    >>> sites.select_order(GaussianMixture(random_state=0), orders=[1, 2, 3]).best_order
    2
    """

    orders: tuple[int, ...]
    fits: tuple[FederatedFit, ...]
    criterion: str

    @property
    def best(self) -> FederatedFit:
        """Return the fit with the least criterion."""
        return min(self.fits, key=lambda fitted: float(getattr(fitted, self.criterion)))

    @property
    def best_order(self) -> int:
        """Return the number of experts of the best fit."""
        return self.orders[self.fits.index(self.best)]
