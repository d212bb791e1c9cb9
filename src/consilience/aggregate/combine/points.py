"""Points at which gates are compared, and the weight of each site's gate at each point.

The combined gate is closest to the sites' gates over the rows they were fitted on: it minimises
``Σ_m n_m E_{x ~ p_m} KL(π^m(x) ‖ ρ(x))``. With covariate summaries as ``p_m`` this equals fitting ``ρ`` to the average
``Σ_m r_m(x) π^m(x)`` with ``r_m(x) ∝ n_m p_m(x)``, which needs far fewer points: a gate has weight where its site has
rows, and all gates have weight where sites have the same covariates. Summaries also differ by sampling error, so
``r_m ∝ n_m (p_m / p̄)^θ``, where θ is the fraction of their divergence not explained by sampling error, 0 for
homogeneous sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from consilience.aggregate.combine.site_model import SiteModel
from consilience.errors import InvalidInputError
from consilience.numerics.arrays import Array, IntArray, Mask, log_sum_exp
from consilience.numerics.linalg import solve_symmetric

SupportKind = Literal["summaries"] | Mapping[str, Array] | Array
NUMBERS = 4_000_000
"""Target size ``K p S`` of the gate regression, from which the total number of points follows."""
PER_ROW = 10
"""Maximum number of points per row of the sites; the error of the points is then small beside that of the rows."""
ENOUGH = 20_000
"""Number of points that is drawn in spite of ``PER_ROW``, because it is cheap."""
POOLED = 8_000
"""Maximum number of points for a plan per row."""
LEAST = 20
"""Minimum number of points of a site."""
TOGETHER = 32
"""Maximum number of sites whose gates are averaged at a point; sites are grouped at random."""


@dataclass(frozen=True, eq=False)
class Points:
    """Points of a group of sites.

    Parameters
    ----------
    members : (g,) array of int
        The sites of the group.
    X : (S, d) array
    weight : (S,) array
        Number of rows that a point represents.
    share : (g, S) array
        Weight of each member's gate at each point; sums to one over members.
    owner : (S,) array of int
        The site that a point was drawn for, or -1.
    fitted : bool
        Whether the points are rows that the gates were fitted on; otherwise gates are downweighted by their variance.
    """

    members: IntArray
    X: Array
    weight: Array
    share: Array
    owner: IntArray
    fitted: bool = False

    def thinned(self, step: int) -> Points:
        """Return every ``step``-th point, with weights increased accordingly."""
        at = slice(None, None, step)
        weight = self.weight[at] * (self.weight.sum() / max(self.weight[at].sum(), 1e-300))
        return Points(self.members, self.X[at], weight, self.share[:, at], self.owner[at], self.fitted)

    def places(self, site: int) -> tuple[Mask, Array]:
        """Return the points that represent rows of a site, with weights: its own, or all of a public support."""
        own = self.owner == site
        if own.any():
            return own, self.weight[own]
        share = self.share[int(np.flatnonzero(self.members == site)[0])]
        return np.ones(len(own), dtype=bool), self.weight * share


def support_points(
    models: Sequence[SiteModel], names: Sequence[str], support: SupportKind, rng: np.random.Generator
) -> tuple[Points, ...]:
    """Return the points at which gates are compared; none without covariate summaries or a given support."""
    d = models[0].mixture.design.d
    check_support(support, names, d)
    if d == 0:
        return given_points(models, [np.empty((1, 0))] * len(models))
    if isinstance(support, str):
        return draw_points(models, rng) if all(model.covariates is not None for model in models) else ()
    if isinstance(support, Mapping):
        return given_points(models, [np.asarray(support[name], dtype=np.float64) for name in names])
    return (public_points(models, np.asarray(support, dtype=np.float64)),)


def check_support(support: SupportKind, names: Sequence[str], d: int) -> None:
    """Raise an error for covariates of the wrong shape, or missing for one of the sites ``names``."""
    if isinstance(support, str):
        return
    if isinstance(support, Mapping) and (missing := [name for name in names if name not in support]):
        raise InvalidInputError(f"the support has no covariates of {', '.join(missing)}")
    for given in support.values() if isinstance(support, Mapping) else [support]:
        X = np.asarray(given, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != d or not len(X) or not np.all(np.isfinite(X)):
            raise InvalidInputError(f"a support of shape {X.shape}: expected rows of {d} finite covariates")


def draw_points(models: Sequence[SiteModel], rng: np.random.Generator) -> tuple[Points, ...]:
    """Draw points from the sites' covariate summaries; no row leaves a site."""
    if not models:
        return ()
    total = sum(model.weight for model in models)
    largest = max(model.mixture.K for model in models) * models[0].mixture.design.p
    number = min(NUMBERS / largest, max(PER_ROW * total, ENOUGH))
    sizes = [max(round(number * model.weight / total), LEAST) for model in models]
    order = rng.permutation(len(models))
    groups = [np.sort(group) for group in np.array_split(order, -(-len(models) // TOGETHER))]
    theta = beyond_chance(models)
    return tuple(_drawn(group, models, sizes, theta, rng) for group in groups)


def _drawn(
    members: IntArray, models: Sequence[SiteModel], sizes: Sequence[int], theta: float, rng: np.random.Generator
) -> Points:
    """Draw points of a group, with weights of each member's gate: ``n_m p_m(x)^θ``, normalised."""
    summaries = [summary for m in members if (summary := models[m].covariates) is not None]
    X = np.concatenate([summary.sample(sizes[m], rng) for m, summary in zip(members, summaries, strict=True)])
    log_share = np.repeat(np.log([[models[m].weight] for m in members]), len(X), axis=1)
    if theta > 0:
        log_share += theta * np.array([summary.log_density(X) for summary in summaries])
    counts = [sizes[m] for m in members]
    weight = np.repeat([models[m].weight / sizes[m] for m in members], counts)
    return Points(members, X, weight, log_sum_exp(log_share)[1], np.repeat(members, counts))


def beyond_chance(models: Sequence[SiteModel]) -> float:
    """Estimate the fraction of the divergence between the sites' covariates not explained by their sizes.

    Columns are compared by mean and variance. Under homogeneity the divergence of a site of ``n`` rows is about
    ``d / n``; up to twice that is attributed to sampling error.
    """
    weight = np.array([model.weight for model in models])
    moments = [summary.moments() for model in models if (summary := model.covariates) is not None]
    if len(moments) < max(len(models), 1):
        return 0.0
    mean, variance = (np.array(part) for part in zip(*moments, strict=True))
    share = (weight / weight.sum())[:, None]
    centre = np.sum(share * mean, axis=0)
    spread = np.sum(share * (variance + (mean - centre) ** 2), axis=0)
    varies = spread > 0
    ratio = np.maximum(variance[:, varies], 1e-12 * spread[varies]) / spread[varies]
    gap = (mean - centre)[:, varies] ** 2 / spread[varies]
    found = float(np.sum(share * 0.5 * (ratio - 1 - np.log(ratio) + gap)))
    chance = float(varies.sum()) * len(models) / float(weight.sum())
    return float(np.clip(1 - 2 * chance / found, 0.0, 1.0)) if found > 0 else 0.0


def given_points(models: Sequence[SiteModel], rows: Sequence[Array]) -> tuple[Points, ...]:
    """Return points from covariates given by sites, ``(S_m, d)`` each; each gate is evaluated at its own site's."""
    return tuple(
        Points(np.array([m]), X, np.full(len(X), model.weight / len(X)), np.ones((1, len(X))), np.full(len(X), m), True)
        for m, (model, X) in enumerate(zip(models, rows, strict=True))
    )


def confidence(pi: Array, curvature: Array, panel: Array) -> Array:
    """Compute the weight ``1 / (1 + w v)³`` of a gate at points that it was not fitted on, ``(S,)``.

    Between the two most probable experts a gate is a logistic regression, with curvature ``w = π(1 - π)`` and variance
    ``v = (K - 1)/K · x̃ᵀ (H_a⁻¹ + H_b⁻¹) x̃`` of its log odds (exact for two experts, and for equal experts). A row at
    x would have moved the gate towards its own label by ``1 / (1 + w v)``, and the gate's own error adds ``w v`` to the
    noise of a label. Without this weight the average of sharp gates, each with its own error, is softer than all of
    them. These two arguments give the power 2; the power 3 lost less in simulations with sharp gates and as little with
    soft.

    Parameters
    ----------
    pi : (K, S) array
    curvature : (K, p, p) array
        ``H_k = Σ_s mass_s π_k (1 - π_k) x̃ x̃ᵀ`` over the rows of the site.
    panel : (p, S) array
    """
    K, S = pi.shape
    if K == 1:
        return np.ones(S)
    inverses = (solve_symmetric(H, np.eye(len(H)))[0] for H in curvature)
    v = np.array([np.einsum("ps,ps->s", panel, inverse @ panel) for inverse in inverses])
    first, second = np.argsort(-pi, axis=0, kind="stable")[:2]
    at = np.arange(S)
    odds = pi[first, at] / (pi[first, at] + pi[second, at])
    spread = (K - 1) / K * odds * (1 - odds) * (v[first, at] + v[second, at])
    return np.asarray((1 + spread) ** -3.0)


def public_points(models: Sequence[SiteModel], X: Array) -> Points:
    """Return points from public covariates ``X (S, d)``: all gates are evaluated there, weighted by site."""
    weight = np.array([model.weight for model in models])
    share = np.repeat((weight / max(weight.sum(), 1.0))[:, None], len(X), axis=1)
    each = np.full(len(X), weight.sum() / max(len(X), 1))
    return Points(np.arange(len(models)), X, each, share, np.full(len(X), -1))


def merge_points(points: Sequence[Points], models: Sequence[SiteModel]) -> Points:
    """Merge points into one group in which every gate has the weight of its site everywhere, as in the paper.

    Every expert of every site is compared at each point, so there are at most ``POOLED``.
    """
    weight = np.array([model.weight for model in models])
    step = -(-sum(len(part.X) for part in points) // POOLED)
    points = [part.thinned(step) for part in points]
    X, each = np.concatenate([part.X for part in points]), np.concatenate([part.weight for part in points])
    share = np.repeat((weight / weight.sum())[:, None], len(X), axis=1)
    return Points(np.arange(len(models)), X, each, share, np.full(len(X), -1))
