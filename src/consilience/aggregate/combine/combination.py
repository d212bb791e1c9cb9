"""Result of combining site models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from consilience.aggregate.camps import Camps
from consilience.aggregate.combine.evidence import SiteEvidence
from consilience.aggregate.combine.heterogeneity import Heterogeneity, SiteCoefficients
from consilience.model.mixture import Mixture
from consilience.numerics.arrays import Array, IntArray


@dataclass(frozen=True, eq=False)
class Combination:
    """The combined mixture, with diagnostics of the combination.

    Parameters
    ----------
    mixture : Mixture
        The mixture in the coordinates of the combination.
    shares : (K,) array
        Number of labels of each expert over the sites that were used.
    weight : float
        Total weight of the sites in the log-likelihood: those used as a whole, for every order that is compared.
    log_likelihood : float
        Estimated log-likelihood: that of these sites' models on their rows, less the cost of the combined mixture.
    precision : (K, f, f) array
        Inverse covariance of each expert's free coefficients, from the sampling error at the sites; zero if too little
        of it is known.
    heterogeneity : Heterogeneity
        Heterogeneity between sites of the coefficients on raw covariates, ``(K, f)``.
    shape_heterogeneity : Heterogeneity
        The same for the logarithms of the experts' shapes, ``(K, s)``.
    gate_heterogeneity : Heterogeneity
        The same for the log odds of each expert at given covariates, ``(K, 1)``.
    sites : tuple of SiteEvidence
    trace : tuple of float
        Objective of the reduction at each iteration.
    plan : mapping of str to array
        The combined expert that each expert of a site was assigned to, -1 for an expert that was not used.
    coefficients : SiteCoefficients
        Coefficients of each combined expert at each site, with their sampling variances.
    camps : Camps or None
        Whether the sites form two camps.

    Examples
    --------
    >>> from consilience.aggregate import combine_models
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification
    >>> from consilience.model import Design, Rows
    >>> from consilience.messages import FitSite
    >>> from consilience.site import Site, answer
    >>> data = soft(6000, n_experts=2, n_features=2, random_state=1)
    >>> parts = [Site(str(i), Rows(data.X[i::3], data.y[i::3, None])) for i in range(3)]
    >>> models = {s.name: answer(FitSite(Specification(K=2), (2,), seed=0), s).model for s in parts}
    >>> combination = combine_models(models, 2, design=Design.raw(2))
    >>> combination.mixture.K, [site.status for site in combination.sites]
    (2, ['used', 'used', 'used'])
    """

    mixture: Mixture
    shares: Array
    weight: float
    log_likelihood: float
    precision: Array
    heterogeneity: Heterogeneity
    shape_heterogeneity: Heterogeneity
    gate_heterogeneity: Heterogeneity
    sites: tuple[SiteEvidence, ...]
    trace: tuple[float, ...]
    plan: Mapping[str, IntArray]
    coefficients: SiteCoefficients
    camps: Camps | None = None

    def permuted(self, permutation: IntArray) -> Combination:
        """Return the combination with its experts in another order."""
        place = np.append(np.argsort(permutation), -1)  # -1 stays
        return replace(
            self,
            mixture=self.mixture.permuted(permutation),
            shares=self.shares[permutation],
            precision=self.precision[permutation],
            heterogeneity=self.heterogeneity.permuted(permutation),
            shape_heterogeneity=self.shape_heterogeneity.permuted(permutation),
            gate_heterogeneity=self.gate_heterogeneity.permuted(permutation),
            plan={name: place[labels] for name, labels in self.plan.items()},
            coefficients=self.coefficients.permuted(permutation),
        )

    @property
    def set_aside(self) -> dict[str, str]:
        """Sites that were not used as a whole, with the reasons."""
        return {site.name: "; ".join(site.reasons) for site in self.sites if site.reasons}

    @property
    def named(self) -> dict[str, str]:
        """Sites with a reason why they were not used as a whole, or with a remark."""
        said = {site.name: (*site.reasons, *site.remarks) for site in self.sites}
        return {name: "; ".join(parts) for name, parts in said.items() if parts}
