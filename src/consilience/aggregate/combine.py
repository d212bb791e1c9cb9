"""One mixture from the models of many sites: trust, reduction, gate, and the evidence for all three."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from consilience.aggregate.align import consistent_labels
from consilience.aggregate.components import Components, SupportComponents, SupportPart
from consilience.aggregate.heterogeneity import Heterogeneity, heterogeneity
from consilience.aggregate.points import Points, drawn_points, given_points, pooled, public_points
from consilience.aggregate.pool import Pool, canonical, in_common
from consilience.aggregate.reduce import Reduction, reduced, spread_start
from consilience.aggregate.site_model import SiteModel
from consilience.aggregate.trust import (
    INFLUENTIAL,
    LOW,
    PASSES,
    Verdict,
    constant_gate_costs,
    copies,
    foreign_gates,
    gate_costs,
    gate_medoid,
    influences,
    judged,
    taken,
)
from consilience.errors import InvalidInputError
from consilience.model import multinomial
from consilience.model.design import Design
from consilience.model.gates import ConstantGate, Gate, SoftmaxGate
from consilience.model.gaussian import GaussianExperts
from consilience.model.mixture import Mixture
from consilience.model.penalty import Penalty
from consilience.numerics.arrays import Array, Labels, Mask, kronecker, unpack

PlanKind = Literal["expert", "row"]
SupportKind = Literal["summaries"] | Mapping[str, Array] | Array
SPREAD_STARTS = 5
"""Starts by k-means++ under the divergence."""


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
        How far leaving the site out moves the combined experts, in root mean square standard errors; NaN if unknown.
    experts : tuple of bool
        Which of its experts were used.
    gate : bool
        Whether its gate was used.
    reasons : tuple of str
        Why not all of it was used, or what speaks against it; empty for a site without reproach.
    copy_of : str or None
        The site whose model this one has sent too.

    Examples
    --------
    >>> SiteEvidence("north", 900.0, -1.4, 0.01, 0.3, (True, True), True, ()).status
    'used'
    """

    name: str
    weight: float
    log_likelihood_per_row: float
    distance: float
    influence: float
    experts: tuple[bool, ...]
    gate: bool
    reasons: tuple[str, ...]
    copy_of: str | None = None

    @property
    def status(self) -> str:
        """``"used"``, ``"used in part"`` or ``"set aside"``."""
        if not any(self.experts):
            return "set aside"
        return "used" if all(self.experts) and self.gate else "used in part"

    def __str__(self) -> str:
        return f"{self.name}: {self.status}" + (f": {'; '.join(self.reasons)}" if self.reasons else "")


@dataclass(frozen=True, eq=False)
class Combination:
    """The combined mixture, with the evidence of how it came about.

    Parameters
    ----------
    mixture : Mixture
        In the coordinates it was combined in.
    shares : (K,) array
        Labels of each expert over the sites that were used.
    weight : float
        Total weight of the sites that were used as a whole.
    log_likelihood : float
        An estimate: what these sites' models reach on their rows, less what the combined mixture costs them.
    precision : (K, f, f) array
        Summed information of each expert's free coefficients; NaN for one without.
    heterogeneity : Heterogeneity
        Of the coefficients on raw covariates, between sites.
    sites : tuple of SiteEvidence
    trace : tuple of float
        Objective of the reduction.
    plan : mapping of str to array
        The expert that each expert of a site went to, -1 for one that was not used.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification
    >>> from consilience.model import Rows
    >>> from consilience.protocols import FitSite
    >>> from consilience.site import Site, answer
    >>> data = soft(6000, n_experts=2, n_features=2, random_state=1)
    >>> parts = [Site(str(i), Rows(data.X[i::3], data.y[i::3, None])) for i in range(3)]
    >>> models = {s.name: answer(FitSite(Specification(K=2), (2,), seed=0), s).model for s in parts}
    >>> combination = combine(models, 2, design=Design.raw(2))
    >>> combination.mixture.K, [site.status for site in combination.sites]
    (2, ['used', 'used', 'used'])
    """

    mixture: Mixture
    shares: Array
    weight: float
    log_likelihood: float
    precision: Array
    heterogeneity: Heterogeneity
    sites: tuple[SiteEvidence, ...]
    trace: tuple[float, ...]
    plan: Mapping[str, Labels]

    def permuted(self, order: Labels) -> Combination:
        """The same combination with its experts in another order."""
        place = np.append(np.argsort(order), -1)  # -1 stays
        return replace(
            self,
            mixture=self.mixture.permuted(order),
            shares=self.shares[order],
            precision=self.precision[order],
            heterogeneity=self.heterogeneity.permuted(order),
            plan={name: place[labels] for name, labels in self.plan.items()},
        )

    @property
    def set_aside(self) -> dict[str, str]:
        """Sites that were not used as a whole, or that something speaks against, with the reasons."""
        return {site.name: "; ".join(site.reasons) for site in self.sites if site.reasons}


def combine(
    models: Mapping[str, SiteModel],
    K: int,
    *,
    design: Design,
    penalty: Penalty | None = None,
    plan: PlanKind = "expert",
    support: SupportKind = "summaries",
    seed: int = 0,
) -> Combination:
    """Combine the models of sites to one mixture of ``K`` experts.

    Parameters
    ----------
    models : mapping of str to SiteModel
        All of one family, with any numbers of experts.
    K : int
    design : Design
        Coordinates of the result, in which the ridge binds.
    penalty : Penalty
        Its gate ridge.
    plan : {"expert", "row"}
        Whether each expert of a site goes to one combined expert as a whole, or at every point anew (the paper's plan).
    support : "summaries", mapping of str to (n, d) arrays, or (n, d) array
        Where gates are compared: points drawn from the sites' covariate summaries, covariates that sites gave, or
        public ones.
    seed : int
        Of the points and of the starts.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> from consilience.fit import Specification
    >>> from consilience.model import Rows
    >>> from consilience.protocols import FitSite
    >>> from consilience.site import Site, answer
    >>> data = soft(3000, n_experts=2, n_features=2, random_state=1)
    >>> question = FitSite(Specification(K=2), (2,), seed=0, start=data.truth)
    >>> parts = [Rows(data.X[i::3], data.y[i::3, None]) for i in range(3)]
    >>> models = {str(i): answer(question, Site(str(i), rows)).model for i, rows in enumerate(parts)}
    >>> from consilience.aggregate import parameter_errors
    >>> parameter_errors(combine(models, 2, design=Design.raw(2)).mixture, data.truth).experts < 0.01
    True
    """
    (only,) = combined_orders(models, (K,), design=design, penalty=penalty, plan=plan, support=support, seed=seed)
    assert only is not None  # a single order that cannot be had is an error  # noqa: S101
    return only


def combined_orders(
    models: Mapping[str, SiteModel],
    orders: Sequence[int],
    *,
    design: Design,
    penalty: Penalty | None = None,
    plan: PlanKind = "expert",
    support: SupportKind = "summaries",
    seed: int = 0,
) -> tuple[Combination | None, ...]:
    """As :func:`combine`, for several numbers of experts, all judged on the same experts of the same sites.

    None stands for a number that the sites have too few experts for, unless that is so for all of them.

    Examples
    --------
    >>> combined_orders({}, (2, 3), design=Design.raw(2))
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: no site has sent a model: there is nothing to combine
    """
    if not models:
        raise InvalidInputError("no site has sent a model: there is nothing to combine")
    pool = _pool(models, design, support, plan, np.random.default_rng([seed, 1]))
    copied = copies(pool)
    verdict = judged(pool, copied)
    used = int(np.sum(verdict.agrees & ~np.isin(pool.owner, list(copied))))
    if used < min(orders):
        raise InvalidInputError(f"{used} experts of sites can be used: too few for {min(orders)}")
    combiners = [_Combiner(pool, copied, verdict, K, penalty or Penalty(), plan, seed) for K in orders]
    return tuple(combiner.combination() if used >= combiner.K else None for combiner in combiners)


def _pool(
    models: Mapping[str, SiteModel], design: Design, support: SupportKind, plan: PlanKind, rng: np.random.Generator
) -> Pool:
    order = canonical(tuple(models), tuple(models.values()))
    names = tuple(list(models)[i] for i in order)
    raw = [models[name] for name in names]
    points = _points(raw, names, support, rng)
    if plan == "row":
        if not points:
            raise InvalidInputError("plan='row' needs covariates, and the sites have described none: pass a support")
        points = (pooled(points, raw),)
    return Pool(names, tuple(in_common(model, design) for model in raw), design, points)


def _points(
    models: Sequence[SiteModel], names: Sequence[str], support: SupportKind, rng: np.random.Generator
) -> tuple[Points, ...]:
    """Where gates are compared; nowhere if no site has described its covariates, and no support is given."""
    d = models[0].mixture.design.d
    if d == 0:
        return given_points(models, [np.empty((1, 0))] * len(models))
    if isinstance(support, str):
        return drawn_points(models, rng) if all(model.covariates is not None for model in models) else ()
    if isinstance(support, Mapping):
        missing = [name for name in names if name not in support]
        if missing:
            raise InvalidInputError(f"the support has no covariates of {', '.join(missing)}")
        return given_points(models, [_checked(support[name], d) for name in names])
    return (public_points(models, _checked(support, d)),)


def _checked(X: Array, d: int) -> Array:
    """Covariates of a support, or a named error."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != d or not len(X) or not np.all(np.isfinite(X)):
        raise InvalidInputError(f"a support of shape {X.shape}: expected rows of {d} finite covariates")
    return X


@dataclass(frozen=True, eq=False)
class _Combiner:
    """The steps from a judged pool to one mixture of K experts."""

    pool: Pool
    copied: dict[int, int]
    verdict: Verdict
    K: int
    penalty: Penalty
    plan: PlanKind
    seed: int

    @cached_property
    def used(self) -> Mask:
        """The components that the mixture is made of, ``(L,)``."""
        return self.verdict.agrees & ~np.isin(self.pool.owner, list(self.copied))

    def combination(self) -> Combination:
        """Experts, gate and evidence."""
        pool = self.pool
        reduction, labels = self._reduction()
        moves = self._influences(labels)
        whole = self._whole()
        gate, trusted, costs = self._gate(reduction, labels, whole)
        mixture = Mixture(pool.design, gate, reduction.experts)
        cost = pool.components.costs(reduction.experts)[np.arange(len(labels)), np.maximum(labels, 0)]
        lost = np.bincount(pool.owner, cost, pool.M)[whole].sum() + np.nansum(costs[whole])
        return Combination(
            mixture,
            self._shares(labels),
            float(sum(model.weight for model, use in zip(pool.models, whole, strict=True) if use)),
            float(sum(m.log_likelihood for m, use in zip(pool.models, whole, strict=True) if use) - lost),
            self._precision(labels),
            self._heterogeneity(labels),
            tuple(self._evidence(m, cost, moves, trusted[m]) for m in range(pool.M)),
            reduction.trace,
            {name: np.where(self.used, labels, -1)[pool.owner == m] for m, name in enumerate(pool.names)},
        )

    # ------------------------------------------------------------------ experts

    def _reduction(self) -> tuple[Reduction, Labels]:
        """The best reduction over all starts, and the label of every component."""
        pool, index = self.pool, np.flatnonzero(self.used)
        components = taken(pool.components, index)
        found = min((reduced(components, start) for start in self._starts(components, index)), key=_objective)
        if self.plan == "row":
            part = SupportComponents((self._shared_part(index),), per_row=True)
            found = reduced(part, found.experts)
        labels, _ = pool.components.plan(found.experts)
        return found, labels

    def _starts(self, components: Components, index: Labels) -> list[Any]:
        """Aligned average, best site, and far components: experts to start from, in the structure of the sites'."""
        pool = self.pool
        same = [m for m in range(pool.M) if pool.models[m].mixture.K == self.K and self.used[pool.owner == m].all()]
        starts = []
        if same:
            best = max(same, key=lambda m: pool.models[m].log_likelihood_per_row)
            first: Any = pool.models[best].mixture.experts
            starts.append(first)
            points = np.array([pool.coefficients[pool.owner == m] for m in same])
            orders = consistent_labels(points, seed=self.seed).orders
            labels, _ = components.plan(first)
            for m, order in zip(same, orders, strict=True):
                labels[np.searchsorted(index, np.flatnonzero(pool.owner == m))] = np.argsort(order)
            starts.append(components.barycentres(labels, first))
        rng = np.random.default_rng([self.seed, 2])
        blank: Any = pool.models[0].mixture.experts
        for _ in range(SPREAD_STARTS):
            chosen = components.experts.permuted(spread_start(components, self.K, rng))
            labels, _ = components.plan(chosen)
            starts.append(components.barycentres(labels, _in_structure(chosen, blank)))
        return starts

    def _shared_part(self, index: Labels, *, exposed: bool = True) -> SupportPart:
        """All used experts on all points: what a plan per row compares; mass counts exposure, or labels."""
        (points,) = self.pool.points
        panel = self.pool.design.panel(points.X)
        masses = []
        for m, model in enumerate(self.pool.models):
            pi = np.broadcast_to(model.mixture.gate.evaluate(panel)[1], (model.mixture.K, len(points.X)))
            masses.append(pi * points.share[m] * points.weight * (model.exposure if exposed else 1.0))
        experts = self.pool.components.experts.permuted(index)
        return SupportPart(experts, panel, np.concatenate(masses)[index])

    # ------------------------------------------------------------------ gate

    def _whole(self) -> Mask:
        """Sites all of whose experts were used."""
        return np.asarray(np.bincount(self.pool.owner, ~self.used, self.pool.M) == 0)

    def _gate(self, reduction: Reduction, labels: Labels, whole: Mask) -> tuple[Gate, Mask, Array]:
        """The gate, the sites whose gates it is made of, and what it costs each of them."""
        pool = self.pool
        if isinstance(pool.models[0].mixture.gate, ConstantGate):
            gate = ConstantGate(self._shares(labels) / self._shares(labels).sum())
            return gate, whole, constant_gate_costs(pool, gate, labels, whole)
        if self.K == 1:
            return SoftmaxGate(np.zeros((1, pool.design.p))), whole, np.zeros(pool.M)
        if self.plan == "row":
            row_gate = self._row_gate(reduction)
            return row_gate, whole, gate_costs(pool, row_gate, labels, whole)
        heard = whole if whole.any() else np.ones(pool.M, dtype=bool)
        softmax, trusted = gate_medoid(pool, labels, heard, self.K), heard
        for _ in range(PASSES):
            foreign = foreign_gates(pool, gate_costs(pool, softmax, labels, heard), softmax)
            before, trusted = trusted, heard & ~foreign
            softmax = self._fitted_gate(labels, trusted, softmax)
            if np.array_equal(before, trusted):
                break
        return softmax, trusted, gate_costs(pool, softmax, labels, heard)

    def _shares(self, labels: Labels) -> Array:
        """Labels of each combined expert, ``(K,)``."""
        counted = np.concatenate([model.labels for model in self.pool.models])
        return np.bincount(labels[self.used], counted[self.used], self.K).astype(np.float64)

    def _fitted_gate(self, labels: Labels, trusted: Mask, start: SoftmaxGate) -> SoftmaxGate:
        panel, target = self.pool.targets(labels, self.K, trusted)
        return self._softmax(panel, target, start.alpha)

    def _row_gate(self, reduction: Reduction) -> SoftmaxGate:
        part = self._shared_part(np.flatnonzero(self.used), exposed=False)
        target = np.array([np.where(reduction.labels == k, part.mass, 0.0).sum(axis=0) for k in range(self.K)])
        return self._softmax(part.panel, target, np.zeros((self.K, self.pool.design.p)))

    def _softmax(self, panel: Array, target: Array, start: Array) -> SoftmaxGate:
        intercept = self.pool.design.intercept
        alpha = multinomial.fitted(start, panel, target, ridge=self.penalty.gate_ridge, intercept=intercept)
        return SoftmaxGate(alpha)

    # ------------------------------------------------------------------ evidence

    def _precision(self, labels: Labels) -> Array:
        """``Σ_l J_l`` over the components of each expert; NaN where one of them has none."""
        total = np.zeros((self.K, self.pool.precision.shape[1]))
        np.add.at(total, labels[self.used], self.pool.precision[self.used])
        return unpack(total)

    def _heterogeneity(self, labels: Labels) -> Heterogeneity:
        """Between sites, for coefficients on raw covariates; a site's experts of one label count once."""
        pool, f = self.pool, self.pool.coefficients.shape[1]
        U = kronecker(np.eye(f // pool.design.p), pool.design.to_raw())
        informed = self.used & pool.informed
        parts = []
        for k in range(self.K):
            mine = np.flatnonzero(informed & (labels == k))
            sites, place = np.unique(pool.owner[mine], return_inverse=True)
            J, right = np.zeros((len(sites), f, f)), np.zeros((len(sites), f))
            own = unpack(pool.precision[mine])
            np.add.at(J, place, own)
            np.add.at(right, place, np.einsum("lab,lb->la", own, pool.coefficients[mine]))
            C = _inverted(J)
            estimates = np.einsum("ab,mbc,mc->ma", U, C, right, optimize=True)
            parts.append(heterogeneity(estimates, np.einsum("ab,mbc,ac->ma", U, C, U, optimize=True)))
        return Heterogeneity.stacked(parts)

    def _influences(self, labels: Labels) -> tuple[Array, Array]:
        """How far leaving a component out moves its expert, and what is usual for its size where sites differ so."""
        influence, expected = influences(self.pool, labels, self.used, self.K)
        ratio = influence / np.maximum(expected, 1e-12)
        usual = max(1.0, float(np.nanmedian(ratio))) if np.isfinite(ratio).any() else 1.0
        return influence, usual * expected

    def _evidence(self, m: int, cost: Array, moves: tuple[Array, Array], trusted: bool) -> SiteEvidence:
        """What was made of site ``m``, from the costs of components and what leaving them out would move."""
        pool, mine = self.pool, np.flatnonzero(self.pool.owner == m)
        model, (influence, usual) = pool.models[m], (part[mine] for part in moves)
        known = influence[np.isfinite(influence)]
        distance = float(cost[mine].sum() / max(model.mass.sum(), 1.0))
        reasons = [*self._copy_reasons(m), *self._foreign_reasons(m, mine, distance, trusted)]
        if np.any(influence > INFLUENTIAL * usual):
            reasons.append(f"leaving it out moves an expert by {np.nanmax(influence):.2g} standard errors")
        return SiteEvidence(
            pool.names[m],
            model.weight,
            model.log_likelihood_per_row,
            distance,
            float(np.sqrt(np.mean(known**2))) if len(known) else np.nan,
            tuple(bool(use) for use in self.used[mine]),
            bool(trusted),
            tuple(reasons),
            pool.names[self.copied[m]] if m in self.copied else None,
        )

    def _copy_reasons(self, m: int) -> Iterator[str]:
        if m in self.copied:
            yield f"its model is that of {self.pool.names[self.copied[m]]}: of copies one is kept"
        elif m in self.copied.values():
            yield "other sites have sent its model too: of copies one is kept"

    def _foreign_reasons(self, m: int, mine: Labels, distance: float, trusted: bool) -> Iterator[str]:
        foreign = int(np.sum(~self.verdict.agrees[mine]))
        if foreign:
            yield (
                f"{foreign} of its {len(mine)} experts are like none of the other sites' "
                f"(they would cost it {distance:.2g} in log-likelihood per row){self._low(m)}"
            )
        elif m not in self.copied and not trusted:
            yield "its gate is unlike those of the other sites"

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


def _inverted(J: Array) -> Array:
    """``J_m⁻¹``, ``(M, f, f)``; generalised where one is singular."""
    try:
        return np.asarray(np.linalg.inv(J))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(J, hermitian=True))


def _objective(reduction: Reduction) -> float:
    return reduction.objective


def _in_structure(experts: Any, like: Any) -> Any:
    """Experts with covariances in the structure of ``like``."""
    if not isinstance(experts, GaussianExperts) or like.structure == experts.structure:
        return experts
    mass = np.ones(experts.K)
    blank = GaussianExperts(experts.B, _blank_covariance(experts, like.structure), like.structure)
    return blank.with_scatter(experts.B, experts.matrices, mass)


def _blank_covariance(experts: GaussianExperts, structure: str) -> Array:
    K, q = experts.K, experts.q
    return np.ones({"full": (K, q, q), "diag": (K, q), "spherical": (K,), "tied": (q, q)}[structure])
