"""A gate of each site from one exchange: the combined experts with the gate of the site's own fit.

The plan of the combination says which combined expert each expert of a site is, so that the site's gate becomes one of
the combined experts. Standard errors of the gates, intervals of the shares and the test of equal gates need a round,
from which on the mixtures of the sites are climbed as in :class:`~consilience.FederatedEM`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np

from consilience.aggregate import Combination, SiteEvidence, SiteModel
from consilience.aggregate.combine.evidence import FOREIGN_GATE
from consilience.fit import Ascent, Fit, Inference, InferredFit, StartEnds, StopReason
from consilience.methods.own_gates import EqualGates, OwnGatesFit, own_parameters, unadvised
from consilience.model import ColumnSummary, Gate, Mixture, Penalty
from consilience.model.mixture import alignment
from consilience.numerics.arrays import Array, IntArray


class Covariates(Protocol):
    """A distribution of covariates, such as a summary of those of a site."""

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n rows ``(n, d)``."""


@dataclass(frozen=True, eq=False)
class NormalCovariates:
    """Normal covariates with the means and covariances of a summary; columns may be dependent or constant."""

    summary: ColumnSummary

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw n rows ``(n, d)``."""
        values, vectors = np.linalg.eigh(self.summary.x_products / self.summary.weight)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(self.summary.x_mean + rng.standard_normal((n, len(values))) @ root.T)


POINTS = 2000
"""Number of covariates drawn at a site, at which its gate is written in the combined experts."""
LEAST_LABELS = 0.5
"""Number of labels that a site has at least of each expert, so that no share is zero."""
RAKING = 50
"""Number of steps in which shares are reached."""


def site_mixtures(
    combination: Combination,
    models: Mapping[str, SiteModel],
    covariates: Mapping[str, Covariates],
    *,
    per_site: str,
    penalty: Penalty,
    seed: int,
) -> dict[str, Mixture]:
    """Return the combined experts with the gate of each site, for all sites some of whose experts were used.

    Parameters
    ----------
    combination : Combination
    models : mapping of str to SiteModel
    covariates : mapping of str to Covariates
        Distribution of the covariates of each site.
    per_site : {"gate", "shares"}
        With ``"shares"`` the slopes are those of the combined gate.
    penalty : Penalty
    seed : int
        Of the points at which a softmax gate is fitted.
    """
    rng, common, found = np.random.default_rng([seed, 2]), combination.mixture, {}
    for site, plan in combination.plan.items():
        if not np.any(plan >= 0):
            continue
        labels = combined_experts(models[site], plan, common)
        counts = np.maximum(count_labels(models[site], labels, common.K), LEAST_LABELS)
        gate = common.gate.with_shares(counts / counts.sum())
        if common.gate.reads_covariates and per_site == "gate" and is_permutation(labels, common.K):
            gate = models[site].mixture.in_coordinates_of(common).gate.permuted(np.argsort(labels))
        elif common.gate.reads_covariates:
            panel = common.reads.panel(covariates[site].sample(POINTS, rng))
            gate = _with_mean(common.gate, panel, counts / counts.sum())
            gate = gate if per_site == "shares" else _own_gate(common, models[site], labels, panel, penalty)
        found[site] = replace(common, gate=gate)
    return found


def combined_experts(model: SiteModel, plan: IntArray, common: Mixture) -> IntArray:
    """Return the combined expert of each expert of a site; of experts that were not used, the one that is left."""
    if np.all(plan >= 0) or model.mixture.K != common.K:
        return plan
    return np.argsort(alignment(model.mixture.in_coordinates_of(common), common))


def is_permutation(labels: IntArray, K: int) -> bool:
    """Whether each combined expert is one of the site's."""
    return bool(np.array_equal(np.sort(labels), np.arange(K)))


def count_labels(model: SiteModel, labels: IntArray, K: int) -> Array:
    """Count the labels of each combined expert at a site, ``(K,)``."""
    used = labels >= 0
    return np.asarray(np.bincount(labels[used], model.label_counts[used], K), dtype=np.float64)


def _own_gate(common: Mixture, model: SiteModel, labels: IntArray, panel: Array, penalty: Penalty) -> Gate:
    """Fit the softmax gate of a site for the combined experts to the sums of its own gate."""
    own = model.mixture.in_coordinates_of(common).gate
    used, target = labels >= 0, np.full((common.K, panel.shape[1]), LEAST_LABELS / model.weight)
    np.add.at(target, labels[used], own.evaluate(panel)[1][used])
    target *= model.weight / panel.shape[1] / target.sum(axis=0)
    return common.gate.fitted(panel, target, ridge=penalty.gate_matrix(len(panel), intercept=common.reads.intercept))


def _with_mean(gate: Gate, panel: Array, shares: Array) -> Gate:
    """Return the gate with other intercepts, whose mean over the points ``panel (p, S)`` is ``shares (K,)``."""
    for _ in range(RAKING):
        ratio = np.log(shares / gate.evaluate(panel)[1].mean(axis=1))
        change = np.zeros((gate.K - 1, len(panel)))
        change[:, 0] = (ratio - ratio[-1])[:-1]
        gate = gate.moved(change.ravel())
    return gate


def unrefined_gates_fit(
    common: InferredFit,
    combination: Combination,
    mixtures: Mapping[str, Mixture],
    models: Mapping[str, SiteModel],
    *,
    per_site: str,
    infer_site: Callable[[Fit], Inference],
) -> OwnGatesFit:
    """Return the fit of one exchange with a gate of each site; its likelihood is an estimate.

    Parameters
    ----------
    common : InferredFit
        The fit with one gate for all sites.
    combination : Combination
        In the order of the climb.
    mixtures : mapping of str to Mixture
        Of the sites, as :func:`site_mixtures` returns them.
    models : mapping of str to SiteModel
    per_site : {"gate", "shares"}
    infer_site : callable
        Standard errors of the fit of a site.
    """
    lost = {site.name: site.distance * models[site.name].mass.sum() for site in combination.sites if site.experts}
    fits = {}
    for site, mixture in mixtures.items():
        ascent = Ascent.without_steps(
            mixture,
            count_labels(models[site], combined_experts(models[site], combination.plan[site], mixture), mixture.K),
            log_likelihood=models[site].log_likelihood - lost[site],
            weight=models[site].weight,
            penalty=common.penalty,
            passes=0,
            stop=StopReason.COMBINED,
        )
        raw = mixture.permuted(common.permutation).raw()
        fit = Fit(raw, ascent, common.permutation, common.penalty, StartEnds())
        fits[site] = InferredFit(**vars(fit), inference=infer_site(fit))
    values = {field.name: getattr(common, field.name) for field in fields(InferredFit)}
    statistics = replace(
        common.ascent.statistics,
        log_likelihood=sum(fit.log_likelihood for fit in fits.values()),
        weight=sum(models[site].weight for site in fits),
    )
    values["ascent"] = replace(common.ascent, statistics=statistics)
    degrees = (len(fits) - 1) * len(own_parameters(combination.mixture, per_site))
    return OwnGatesFit(**values, fits=fits, test=EqualGates(float("nan"), degrees))


def with_reports(own: OwnGatesFit, sites: Iterable[SiteEvidence], doubts: tuple[str, ...]) -> OwnGatesFit:
    """Return the fit with the reports of the combination, in which no gate is foreign, and with further doubts."""
    reports = tuple(
        replace(site, gate=True, reasons=tuple(said for said in site.reasons if said != FOREIGN_GATE))
        if site.name in own.fits and site.experts
        else site
        for site in sites
    )
    survey = unadvised(own.survey)
    return replace(own, reports=reports, survey=replace(survey, doubts=(*survey.doubts, *doubts)))
