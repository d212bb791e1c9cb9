"""Results of a federation: the fitted model, the record of the run, and diagnostics of each site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from consilience.errors import InvalidInputError
from consilience.estimators.estimator import MixtureEstimator
from consilience.estimators.federated import frame_like
from consilience.federation.text import fit_html, fit_text
from consilience.fit import criteria
from consilience.fit.fitting import Fit
from consilience.fit.orders import html_table, least, left_out, lines
from consilience.fit.survey import SiteReport
from consilience.runs.record import Record

CRITERIA = ("aic", "bic", "icl")


@dataclass(frozen=True, eq=False, repr=False)
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

    model: MixtureEstimator
    record: Record
    fit: Fit
    models: Mapping[str, MixtureEstimator] = field(default_factory=dict)

    @property
    def sites(self) -> Sequence[SiteReport]:
        """Return a report on each site: how it was used, and what is suspect about its data."""
        return self.fit.evidence()

    @property
    def aic(self) -> float:
        """Return Akaike's criterion over the rows of all sites that were not dropped."""
        self.check_one_mixture("AIC")
        return criteria.aic(self.fit.log_likelihood, self.fit.parameter_count)

    @property
    def bic(self) -> float:
        """Return Schwarz's criterion over the rows of all sites that were not dropped."""
        self.check_one_mixture("BIC")
        weight = self.fit.ascent.statistics.weight
        return criteria.bic(self.fit.log_likelihood, self.fit.parameter_count, weight)

    @property
    def icl(self) -> float:
        """Return BIC plus twice the entropy of the responsibilities; NaN if the answers of sites do not state it.

        They do for a constant gate with Gaussian or Student-t experts, if the likelihood was computed at the sites.
        """
        entropy = criteria.entropy_of_sums(self.fit.ascent.mixture, self.fit.ascent.statistics)
        return self.bic + 2 * (np.nan if entropy is None else entropy)

    def __repr__(self) -> str:
        return fit_text(self)

    def _repr_html_(self) -> str:
        return fit_html(self)

    def report(self, path: str | Path, *, title: str = "") -> None:
        """Write a report for people: an HTML file, or a model card if the name ends in ``.md``; the extra ``report``.

        Parameters
        ----------
        path : str or Path
        title : str
            Title of the report; by default the kind of model.
        """
        from consilience.report import write_report  # only here: it imports all pictures

        write_report(self, path, title=title)

    def check_one_mixture(self, criterion: str) -> None:
        """Raise an error if the method fits one mixture per site, of which no criterion is defined."""
        if self.models:
            raise InvalidInputError(
                f"{criterion} is not defined for a method that fits one mixture per site: choose the number of experts "
                "with FederatedEM or OneShot"
            )


@dataclass(frozen=True, eq=False, repr=False)
class FederatedOrders:
    """Fits with several numbers of experts, computed in the same messages.

    Parameters
    ----------
    orders : tuple of int
    fits : tuple of FederatedFit
        One per order.
    criterion : {"bic", "aic", "icl"}
        The criterion used for the choice.
    set_aside : mapping of int to str
        Orders that are not compared, with the reason: the fit is degenerate, or could not be made (such orders have no
        place in ``orders``). If all fits are degenerate, all are compared.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience import Federation, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (200, 1)), rng.normal(8, 1, (100, 1))])
    >>> sites = Federation({"north": (X[::2],), "south": (X[1::2],)})
    >>> chosen = sites.select_order(GaussianMixture(random_state=0), orders=[1, 2])
    >>> chosen.best_order
    2
    >>> print(chosen)
               order             aic             bic             icl  log_likelihood
                   1         1661.99          1669.4          1669.4        -828.995
                   2         1249.31         1267.82         1267.83        -619.653
    Selected by bic: 2.
    """

    orders: tuple[int, ...]
    fits: tuple[FederatedFit, ...]
    criterion: str
    set_aside: Mapping[int, str] = field(default_factory=dict)

    @property
    def scores(self) -> dict[str, list[float]]:
        """Return AIC, BIC, ICL (NaN where it is not known) and the log-likelihood of each order."""
        found = {name: [float(getattr(fitted, name)) for fitted in self.fits] for name in CRITERIA}
        return {**found, "log_likelihood": [fitted.fit.log_likelihood for fitted in self.fits]}

    @property
    def best(self) -> FederatedFit:
        """Return the fit with the least criterion among those that are not set aside."""
        return self.fits[self.orders.index(self.best_order)]

    @property
    def best_order(self) -> int:
        """Return the number of experts of the best fit."""
        if len(self.orders) == 1:
            return self.orders[0]
        values = [float(getattr(fitted, self.criterion)) for fitted in self.fits]
        return least(self.orders, values, self.set_aside)

    def to_frame(self) -> Any:
        """Return a table with one row per order: criteria, convergence, and why it is set aside.

        It is a frame of the library that the data came from, else of pandas or pyarrow.
        """
        columns: dict[str, list[Any]] = {
            "order": list(self.orders),
            **self.scores,
            "converged": [fitted.model.converged_ for fitted in self.fits],
            "set_aside": [self.set_aside.get(K, "") for K in self.orders],
        }
        return frame_like(self.fits[0].model, columns)

    def report(self, path: str | Path, *, title: str = "") -> None:
        """Write a report on the best fit and on the comparison, as :meth:`FederatedFit.report` does."""
        from consilience.report import write_report  # only here: it imports all pictures

        write_report(self, path, title=title)

    def summary(self) -> str:
        """Return the criteria of each order and the orders that are set aside as text."""
        chosen = f"Selected by {self.criterion}: {self.best_order}."
        return "\n".join([*lines(self.orders, self.scores), *left_out(self.set_aside), chosen])

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary()

    def _repr_html_(self) -> str:
        said = [*left_out(self.set_aside), f"Selected by {self.criterion}: {self.best_order}."]
        return html_table(self.orders, self.scores, said)
