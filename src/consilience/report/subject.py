"""What a report is about: a fitted model, alone or with the run over sites that it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from consilience.errors import InvalidInputError
from consilience.fit.survey import SiteReport
from consilience.fitted import protocols
from consilience.fitted.protocols import FederatedComparison, FederatedResult, FittedMixture
from consilience.fitted.site_influence import site_influences, with_influences
from consilience.plot.drawing import estimator_of

Result = FittedMixture | FederatedResult | FederatedComparison
"""What a report is on: a fitted estimator, or the result of ``Federation.fit`` or ``Federation.select_order``."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A fit, and what else is known of it.

    Parameters
    ----------
    model : estimator
        The fitted estimator.
    result : FederatedFit or None
        The result that the model is of; None for a model of one machine, or from a file.
    orders : FederatedOrders or None
        The comparison that the number of experts was chosen by.
    X, y : array or frame, optional
        Rows for pictures; a report has no single row.
    origin : mapping of str to str
        Further lines of the provenance, such as the identity of the study.
    policies : mapping of str to str
        The policy that each site applied.
    """

    model: FittedMixture
    result: FederatedResult | None = None
    orders: FederatedComparison | None = None
    X: Any = None
    y: Any = None
    origin: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, **known: Any) -> Subject:
        """Return the subject of a fitted estimator, a federated fit, or a comparison of orders."""
        if protocols.is_federated_comparison(result):
            if known.get("orders") is not None:
                raise InvalidInputError("orders: the result is a comparison of orders already")
            return cls(result.best.model, result.best, **{**known, "orders": result})
        return cls(estimator_of(result), result if protocols.is_federated_result(result) else None, **known)

    @property
    def sites(self) -> list[SiteReport]:
        """What is known of each site; empty for a model of one machine."""
        if self.result is None:
            return []
        return with_influences(self.result.fit.evidence(), site_influences(self.model, self.result.fit))

    @property
    def combination(self) -> Any:
        """The combination of sites' models that the fit comes from; None for another method."""
        return None if self.result is None else getattr(self.result.fit, "combination", None)

    @property
    def rivals(self) -> Any:
        """Simpler models that the fit was held against; None if there are none."""
        return None if self.result is None else getattr(self.result.fit, "rivals", None)

    @property
    def privacy(self) -> str:
        """What a fit with noise may have disclosed, as far as it is known; empty for a fit without noise."""
        if self.result is not None:
            found = getattr(self.result.fit, "privacy", None)
            return "" if found is None else str(found)
        stored = str(getattr(self.model, "provenance_", {}).get("privacy", ""))
        return stored or "how much is not known" * (self.model.inference_.kind == "private")

    @property
    def dropped(self) -> Mapping[str, str]:
        """Sites that left the run, and why."""
        return {} if self.result is None else self.result.record.dropped
