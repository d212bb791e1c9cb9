"""Combine the models of many sites into one mixture: detection of outlying sites, reduction, gate, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from consilience.aggregate.combine import heterogeneity as between
from consilience.aggregate.combine import trust
from consilience.aggregate.combine.components import SupportComponents, SupportPart
from consilience.aggregate.combine.evidence import SiteEvidence, Witness
from consilience.aggregate.combine.heterogeneity import FixedPlan, Heterogeneity, SiteCoefficients
from consilience.aggregate.combine.points import SupportKind
from consilience.aggregate.combine.pool import Pool
from consilience.aggregate.combine.reduce import Reduction, reduce_components, reduction_starts
from consilience.aggregate.combine.site_model import SiteModel
from consilience.aggregate.disagreement import Camps
from consilience.errors import InvalidInputError
from consilience.fit import climb, drive
from consilience.fit.starts import responder
from consilience.model import Design, Gate, Mixture, Penalty, Rows
from consilience.numerics.arrays import Array, IntArray, Mask
from consilience.numerics.linalg import inverse_bounded

FOREIGN = 10.0
"""Multiple of the usual cost above which a gate is outlying."""
LEVELS = np.array([0.2, 0.4])
"""Levels of the quantiles of log costs for their scatter: the smallest are those of the gate that is the consensus."""
CONTRADICTED = 0.1
"""Maximum fraction of labels that a gate may assign differently from the site's own counts."""
THINNED = 7
"""Thinning factor of the points for the initial gate."""


def agreed_gate(pool: Pool, labels: IntArray, heard: Mask, K: int, *, ridge: Array) -> tuple[Gate, Mask]:
    """Fit the gate to those of the sites ``heard`` that agree with it; return it with these sites.

    Starting from the gate of the medoid site, sites with outlying gates are excluded and the gate is fitted to the
    rest, until the set of sites no longer changes.
    """
    softmax, trusted = _medoid(pool, labels, heard, K), heard
    for _ in range(trust.PASSES):
        before, trusted = trusted, heard & ~foreign_gates(pool, gate_costs(pool, softmax, labels, heard), softmax)
        panel, target = pool.targets(labels, K, trusted)
        softmax = softmax.fitted(panel, target, ridge=ridge)
        if np.array_equal(before, trusted):
            break
    return softmax, trusted


def _medoid(pool: Pool, labels: IntArray, sites: Mask, K: int) -> Gate:
    """Return the gate of the medoid site, among a few spread over ``sites``.

    Its experts are those that the site's experts were assigned to; gates of experts with the same label are averaged.
    """
    tried, asked = trust.candidates(np.flatnonzero(sites))
    pool = replace(pool, points=tuple(part.thinned(THINNED) for part in pool.points))
    gates: list[Gate] = [pool.models[m].mixture.gate.relabelled(labels[pool.own[m]], K) for m in tried]
    weight = np.array([model.weight for model in pool.models])
    among = np.isin(np.arange(pool.M), asked)
    medians = [np.nanmedian(gate_costs(pool, gate, labels, among) / weight) for gate in gates]
    return gates[int(np.argmin(medians))]


def gate_costs(pool: Pool, combined: Gate, labels: IntArray, sites: Mask) -> Array:
    """Compute the cost ``n_m E_m KL(π^m ‖ ρ)`` of the combined gate for each of ``sites``, ``(M,)``; NaN for others."""
    costs = np.full(pool.M, np.nan)
    for part, panel in zip(pool.points, pool.gate_panels, strict=True):
        log_rho, _ = combined.evaluate(panel)
        for m in (m for m in part.members if sites[m]):
            at, weight = part.places(m)
            gate = np.zeros((combined.K, len(weight)))
            np.add.at(gate, labels[pool.own[m]], pool.models[m].mixture.gate.evaluate(panel[:, at])[1])
            log_gate = np.log(np.maximum(gate, np.finfo(float).tiny))
            costs[m] = float(np.sum(weight * gate * (log_gate - log_rho[:, at])))
    return costs


def constant_gate_costs(pool: Pool, combined: Gate, labels: IntArray, sites: Mask) -> Array:
    """Compute costs ``Σ_k n_mk log(π^m_k / ρ_k)`` of combined weights for each of ``sites``, ``(M,)``, else NaN."""
    costs = np.full(pool.M, np.nan)
    for m in np.flatnonzero(sites):
        counts = np.bincount(labels[pool.own[m]], pool.models[m].label_counts, combined.K)
        ratio = counts / counts.sum() / combined.read()[:, 0]
        costs[m] = float(np.sum(counts * np.log(np.where(counts > 0, ratio, 1.0))))
    return costs


def foreign_gates(pool: Pool, costs: Array, gate: Gate) -> Mask:
    """Detect sites whose gate costs far more than others, in total and per row, and is not merely sharp.

    Gates of honest sites that are nearly separated have costs many times those of others, but less than ``log K`` per
    row, the maximum for a label, and they agree with the site's own counts of labels.
    """
    known = np.isfinite(costs)
    if known.sum() < 3:
        return np.zeros(len(costs), dtype=bool)
    weight, P = np.array([model.weight for model in pool.models]), gate.parameter_count
    total, per_row = np.maximum(np.nan_to_num(costs), 0.5 * P), np.nan_to_num(costs / weight)
    far = known & trust.is_far(total, known, FOREIGN, P, LEVELS) & trust.is_far(per_row, known, FOREIGN, P, LEVELS)
    strange = [bool(far[m]) and (per_row[m] > np.log(gate.K) or _contradicts(pool, m)) for m in range(pool.M)]
    return np.array(strange, dtype=bool)


def _contradicts(pool: Pool, m: int) -> bool:
    """Whether a site's gate implies other weights than the site's label counts; a fitted gate does not."""
    model, (panel, weight) = pool.models[m], pool.points_of(m)
    shares = model.mixture.gate.evaluate(panel)[1] @ weight / weight.sum()
    return bool(0.5 * np.abs(shares - model.label_counts / model.label_counts.sum()).sum() > CONTRADICTED)


# ---------------------------------------------------------------- combiner

PlanKind = Literal["expert", "row"]
NEARLY_ALL = 0.8
"""Minimum fraction of a site's labels that must belong to used experts for its gate to be used."""


def combine_models(
    models: Mapping[str, SiteModel],
    K: int,
    *,
    design: Design,
    penalty: Penalty | None = None,
    plan: PlanKind = "expert",
    support: SupportKind = "summaries",
    seed: int = 0,
    gate_design: Design | None = None,
) -> Combination:
    """Combine the models of sites into one mixture of ``K`` experts.

    Parameters
    ----------
    models : mapping of str to SiteModel
        Models of one family, with any numbers of experts.
    K : int
    design : Design
        Coordinates of the result, in which the ridge is defined.
    penalty : Penalty
        Penalty, of which the gate ridge is used.
    plan : {"expert", "row"}
        Whether each expert of a site is assigned to one combined expert as a whole, or at every point (the paper).
    support : "summaries", mapping of str to (n, d) arrays, or (n, d) array
        Points at which gates are compared: drawn from the sites' covariate summaries, covariates given by sites, or
        public covariates.
    seed : int
        Seed of the points and of the starts.
    gate_design : Design or None
        Coordinates of the gate, if it reads other covariates than the experts.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.aggregate import combine_models
    >>> from consilience.model import Design
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification
    >>> from consilience.model import Rows
    >>> from consilience.messages import FitSite
    >>> from consilience.site import Site, answer
    >>> data = soft(3000, n_experts=2, n_features=2, random_state=1)
    >>> question = FitSite(Specification(K=2), (2,), seed=0, start=data.truth)
    >>> parts = [Rows(data.X[i::3], data.y[i::3, None]) for i in range(3)]
    >>> models = {str(i): answer(question, Site(str(i), rows)).model for i, rows in enumerate(parts)}
    >>> combination = combine_models(models, 2, design=Design.raw(2))
    >>> distances = np.linalg.norm(combination.mixture.coefficients[:, None] - data.truth.coefficients, axis=2)
    >>> bool(distances.min(axis=0).max() < 0.2)
    True
    """
    (only,) = combine_orders(
        models, (K,), design=design, penalty=penalty, plan=plan, support=support, seed=seed, gate_design=gate_design
    )
    assert only is not None  # a single order that cannot be had is an error  # noqa: S101
    return only


def combine_orders(
    models: Mapping[str, SiteModel],
    orders: Sequence[int],
    *,
    design: Design,
    penalty: Penalty | None = None,
    plan: PlanKind = "expert",
    support: SupportKind = "summaries",
    seed: int = 0,
    gate_design: Design | None = None,
) -> tuple[Combination | None, ...]:
    """Combine the models of sites for several numbers of experts, with likelihoods over the same sites if possible.

    The result is None for a number of experts that the sites cannot provide, unless that holds for all numbers.
    Mixtures with class responses are refitted to the predictions of the sites.

    Examples
    --------
    >>> from consilience.aggregate import combine_orders
    >>> from consilience.model import Design
    >>> combine_orders({}, (2, 3), design=Design.raw(2))
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: no site has sent a model: there is nothing to combine
    """
    if not models:
        raise InvalidInputError("no site has sent a model: there is nothing to combine")
    pool = Pool.of(models, design, support, np.random.default_rng([seed, 1]), gate_design)
    if plan == "row":
        pool = pool.with_shared_points()
    copied = trust.copies(pool)
    verdicts = [trust.judge_sites(pool, copied, K) for K in orders]
    combiners = [
        _Combiner(pool, copied, verdict, K, penalty or Penalty(), plan, seed)
        for K, verdict in zip(orders, verdicts, strict=True)
    ]
    possible = [combiner for combiner in combiners if combiner.used.sum() >= combiner.K]
    if not possible:
        n_used = int(combiners[0].used.sum())
        raise InvalidInputError(f"{n_used} experts of sites can be used: too few for {min(orders)}")
    common = np.all([combiner.whole for combiner in possible], axis=0)
    return tuple(combiner.combination(common) if combiner in possible else None for combiner in combiners)


@dataclass(frozen=True, eq=False)
class _Combiner:
    """Steps from a pool with accepted components to one mixture of K experts."""

    pool: Pool
    copied: dict[int, int]
    verdict: trust.TrustVerdict
    K: int
    penalty: Penalty
    plan: PlanKind
    seed: int

    @cached_property
    def used(self) -> Mask:
        """Mask of the components that are combined, ``(L,)``."""
        return self.verdict.agrees & ~np.isin(self.pool.owner, list(self.copied))

    @cached_property
    def whole(self) -> Mask:
        """Mask of the sites all of whose experts were used, ``(M,)``."""
        return np.asarray(np.bincount(self.pool.owner, ~self.used, self.pool.M) == 0)

    @property
    def _gate_ridge(self) -> Array:
        """Second derivative of the ridge by one expert's gate coefficients, ``(p, p)``."""
        return self.penalty.gate_matrix(self.pool.reads.p, intercept=self.pool.design.intercept)

    def combination(self, counted: Mask) -> Combination:
        """Compute experts, gate and diagnostics; the likelihood is over the sites ``counted``, or all whole ones."""
        pool, counted = self.pool, counted if counted.any() else self.whole
        reduction, labels = self._reduction()
        gate, trusted, gate_cost = self._gate(reduction, labels)
        mixture = Mixture(pool.design, gate, reduction.experts, pool.gate_design)
        cost = pool.components.costs(reduction.experts)[np.arange(len(labels)), labels]
        lost = np.bincount(pool.owner, cost, pool.M)[counted].sum() + np.nansum(gate_cost[counted])
        models = [model for model, use in zip(pool.models, counted, strict=True) if use]
        if self.plan == "expert" and mixture.experts.outcomes is not None and trusted.any():
            mixture = nearest_in_prediction(mixture, predict_rows(pool, trusted))
            lost = np.nansum(prediction_costs(pool, mixture, counted))
        stated = between.Stated.of(pool, labels, self.used, reduction.experts)
        coefficients = between.site_coefficients(pool, labels, self.K, stated)
        moves = trust.influences(pool, labels, self.used, self.K, stated.precision)
        plan = np.where(self.used, labels, -1)
        witness = Witness(pool, self.copied, self.verdict, self.used, trusted, cost, *moves)
        return Combination(
            mixture,
            self._shares(labels),
            float(sum(model.weight for model in models)),
            float(sum(model.log_likelihood for model in models) - lost) if models else np.nan,
            between.combined_precision(pool, labels, self.used, reduction.experts, stated),
            between.coefficients_between_sites(coefficients),
            between.shapes_between_sites(pool, labels, reduction.experts, stated),
            between.gates_between_sites(pool, labels, mixture.gate, trusted),
            tuple(witness.evidence(m) for m in range(pool.M)),
            reduction.trace,
            dict(zip(pool.names, (plan[own] for own in pool.own), strict=True)),
            coefficients,
            FixedPlan.of(pool, labels, self.used, stated),
            between.camps_between(pool, labels, self.K),
        )

    def _reduction(self) -> tuple[Reduction, IntArray]:
        """Return the best reduction over all starts, and the label of every component."""
        pool = self.pool
        components = pool.components.taken(np.flatnonzero(self.used))
        starts = reduction_starts(pool, components, self.used, self.K, self.seed)
        reductions = [reduce_components(components, start) for start in starts]
        found = min(reductions, key=lambda reduction: reduction.objective)
        if self.plan == "row":
            shared = SupportComponents((self._shared_part(exposed=True),), per_row=True)
            found = reduce_components(shared, found.experts)
        labels, _ = pool.components.plan(found.experts)
        return found, labels

    def _gate(self, reduction: Reduction, labels: IntArray) -> tuple[Gate, Mask, Array]:
        """Fit the gate; return it with the sites whose gates were used, and its cost at each site."""
        pool, whole = self.pool, self.whole
        like = pool.models[0].mixture.gate
        if not like.reads_covariates:
            gate = like.with_shares(self._shares(labels) / self._shares(labels).sum())
            return gate, whole, constant_gate_costs(pool, gate, labels, whole)
        blank = type(like).blank(self.K, pool.reads.p)
        if self.K == 1:
            return blank, whole, np.zeros(pool.M)
        if self.plan == "row":
            row_gate = self._row_gate(reduction, blank)
            return row_gate, whole, gate_costs(pool, row_gate, labels, whole)
        heard = self._heard()
        softmax, trusted = agreed_gate(pool, labels, heard, self.K, ridge=self._gate_ridge)
        return softmax, trusted, gate_costs(pool, softmax, labels, heard)

    def _heard(self) -> Mask:
        """Return the sites whose gates are used: nearly all of their labels belong to used experts; all if none."""
        counted = np.concatenate([model.label_counts for model in self.pool.models])
        used = np.bincount(self.pool.owner, self.used * counted, self.pool.M)
        heard = used >= NEARLY_ALL * np.bincount(self.pool.owner, counted, self.pool.M)
        return np.asarray(heard if heard.any() else np.ones(self.pool.M, dtype=bool))

    def _row_gate(self, reduction: Reduction, blank: Gate) -> Gate:
        part = self._shared_part(exposed=False)
        target = np.array([np.where(reduction.labels == k, part.mass, 0.0).sum(axis=0) for k in range(self.K)])
        return blank.fitted(self.pool.gate_panels[0], target, ridge=self._gate_ridge)

    def _shared_part(self, *, exposed: bool) -> SupportPart:
        """Return all used experts on all points, for a plan per row; mass counts exposure, or labels."""
        pool, (points,), (panel,), (read,) = self.pool, self.pool.points, self.pool.panels, self.pool.gate_panels
        masses = []
        for model, share in zip(pool.models, points.share, strict=True):
            pi = np.broadcast_to(model.mixture.gate.evaluate(read)[1], (model.mixture.K, len(points.X)))
            masses.append(pi * share * points.weight * (model.exposure if exposed else 1.0))
        whole = SupportPart(pool.components.experts, panel, np.concatenate(masses))
        return whole.taken(np.flatnonzero(self.used))

    def _shares(self, labels: IntArray) -> Array:
        """Return the number of labels of each combined expert, ``(K,)``: all that are used, in the shares of the gate.

        Shares are those at sites whose gates are used. A site of which one expert is set aside would count for the
        others only.
        """
        counted = np.concatenate([model.label_counts for model in self.pool.models])
        heard = self.used & self._heard()[self.pool.owner]
        of_used, of_heard = (np.bincount(labels[own], counted[own], self.K) for own in (self.used, heard))
        known = np.all((of_heard > 0) | (of_used == 0))
        return np.asarray(of_heard * (of_used.sum() / of_heard.sum()) if known else of_used, dtype=np.float64)


# ---------------------------------------------------------------- the combination


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
    fixed : FixedPlan
        The experts of sites at their places in the plan, for the coefficients without some sites.
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
    fixed: FixedPlan
    camps: Camps | None = None

    def covariances(self) -> Array:
        """Compute the covariance of each expert's coefficients, without the variance between sites, ``(K, f, f)``."""
        return np.array([inverse_bounded(own)[0] for own in self.precision])

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
            fixed=self.fixed.permuted(place),
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


# ---------------------------------------------------------------- fit to the predictions of sites
#
# A class carries little information on its expert, so the likelihood of a site has many maxima of nearly the same
# height: sites differ in their experts although they agree in their predictions. Averaging experts one by one then
# loses information that averaging predictions keeps. The reduction provides the start, the labels, and the accepted
# sites.


ROWS = 60_000
"""Maximum number of rows (points times classes) of predictions; they have no noise, so more rows change nothing."""
DECREMENT = 1e-14
"""Newton decrement per unit of weight at which the combined predictions are found."""
ITERATIONS = 100
"""Maximum number of iterations; Newton steps need some tens, also for nearly separated gates."""


def nearest_in_prediction(start: Mixture, rows: Rows) -> Mixture:
    """Maximise the likelihood on rows generated by models, from a start.

    There is no ridge, since the sites' fits are already penalised.
    """
    dialogue = climb(start, Penalty(0.0, 0.0), max_iter=ITERATIONS, decrement=DECREMENT)
    return drive(dialogue, responder(rows, "predictions", None)).mixture


def predict_rows(pool: Pool, heard: Mask) -> Rows:
    """Generate rows from the models of the sites ``heard``: every class at each point, weighted by its probability.

    The maximum likelihood mixture on them minimises ``Σ_m n_m E_m KL(P^m(y | x) ‖ P(y | x))``: the KL average of the
    sites' models, which is optimal to second order among combinations of local fits (Q. Liu and A. Ihler, Distributed
    estimation, information loss and exponential families, NeurIPS 2014).

    Parameters
    ----------
    pool : Pool
        Pool of experts whose responses have few values (``outcomes``).
    heard : (M,) array of bool
        Mask of the sites to use.
    """
    C = pool.models[0].mixture.experts.outcomes
    if C is None:
        raise InvalidInputError("predictions can be expanded to rows only if responses have few values")
    step = -(-C * sum(len(part.X) for part in pool.points) // ROWS)
    points, masses = [], []
    for part in (part.thinned(step) for part in pool.points):
        members = [(j, int(m)) for j, m in enumerate(part.members) if heard[m]]
        mass, share = np.zeros((len(part.X), C)), np.zeros(len(part.X))
        for j, m in members:
            mass += part.share[j][:, None] * pool.models[m].mixture.mean(part.X)
            share += part.share[j]
        mine = ((part.owner < 0) | heard[part.owner]) & (share > 0)
        points.append(part.X[mine])
        masses.append(mass[mine] * (part.weight[mine] / share[mine])[:, None])
    X, mass = np.concatenate(points), np.concatenate(masses)
    classes = np.repeat(np.arange(C, dtype=np.float64), len(X))[:, None]
    return Rows(np.tile(X, (C, 1)), classes, mass.T.ravel())


def prediction_costs(pool: Pool, combined: Mixture, sites: Mask) -> Array:
    """Compute costs ``n_m E_m KL(P^m ‖ P)`` of the combined predictions for each of ``sites``, ``(M,)``; else NaN."""
    costs, least = np.full(pool.M, np.nan), np.finfo(float).tiny
    for part in pool.points:
        for m in (m for m in part.members if sites[m]):
            at, weight = part.places(m)
            own, other = (np.maximum(each.mean(part.X[at]), least) for each in (pool.models[m].mixture, combined))
            costs[m] = float(weight @ np.sum(own * np.log(own / other), axis=1))
    return costs
