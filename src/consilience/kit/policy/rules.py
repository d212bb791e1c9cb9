"""Rules of the one file that leaves a site: on its rows, levels, experts, covariates and precision.

Rules on the levels of categories: their means and cross-products are tables of counts, margins and cells.

A column of numbers with two or three values counts as a category, since its mean and variance give the counts. So does
the response. Levels of categories are listed in the study, hence public; values of numbers are not, and are not named.

Rules on the precision matrices of the experts' coefficients, and what is sent instead of one that fails.

The information on coefficients is what complete labels would give, minus what is missing without them:
``Σ τ v x xᵀ - Σ τ (1 - τ) s² x xᵀ``, up to terms of other parameters. The file states the first sum of a Gaussian
expert. Where experts are well separated, the second rests on the few rows between them; if it is that of one row, the
difference of the two matrices has rank one and its eigenvector is the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from consilience.aggregate import CovariateSummary, SiteModel
from consilience.columns import Column
from consilience.errors import InvalidInputError
from consilience.kit.policy.policy import Policy
from consilience.kit.study import Study
from consilience.model import Mixture, Rows
from consilience.model.families.base import MomentExperts
from consilience.numerics.arrays import Array, IntArray, pack, unpack
from consilience.numerics.linalg import solve_symmetric
from consilience.site.local_fit import DESCRIBED_ROWS

Part = Literal["site", "levels", "experts", "precision", "covariates"]
"""The part of the file that a check is about, which decides what is done if it fails."""


@dataclass(frozen=True)
class Check:
    """Result of one rule on one part of the file.

    Parameters
    ----------
    part : str
        Part of the file: "site", "levels", "experts", "precision" or "covariates".
    rule : str
        Name of the rule.
    scope : str
        What it was applied to, in words from the study only: "site", "expert 2", the name of a column.
    limit, observed : float
        The policy's limit, and what was found. ``observed`` stays at the site.
    kept : bool
        Whether the limit is kept.
    detail : str
        Where the worst value was found, such as levels or a column; it stays at the site.
    place : int or None
        Place of the expert or of the class that the check is about, from 0; None for all.
    """

    part: Part
    rule: str
    scope: str
    limit: float
    observed: float
    kept: bool
    detail: str = ""
    place: int | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """What may be said of the rule outside the site: its name, scope and limit."""
        return {"rule": self.rule, "scope": self.scope, "limit": self.limit}

    @classmethod
    def at_least(cls, part: Part, rule: str, scope: str, limit: float, observed: float, *, detail: str = "") -> Check:
        """Return a check that is kept if what was found is at least the limit."""
        return cls(part, rule, scope, float(limit), float(observed), bool(observed >= limit), detail)

    @classmethod
    def at_most(cls, part: Part, rule: str, scope: str, limit: float, observed: float, *, detail: str = "") -> Check:
        """Return a check that is kept if what was found is at most the limit."""
        return cls(part, rule, scope, float(limit), float(observed), bool(observed <= limit), detail)


def effective_rows(weight: Array) -> float:
    """Compute the number of equally weighted rows with the same variance of a mean, ``(Σ w)² / Σ w²``."""
    largest = float(weight.max(initial=0.0))
    if largest <= 0:
        return 0.0
    scaled = weight / largest  # squares of tiny weights would vanish
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def dominance(contributions: Array, rows: int, negligible: float = 0.0) -> float:
    """Compute the percentage of a sum of ``contributions (n,)`` that comes from the ``rows`` largest.

    It is 0 for a sum of at most ``negligible``: nothing is disclosed.
    """
    total = float(contributions.sum())
    if total <= max(negligible, 0.0):
        return 0.0
    if rows >= len(contributions):
        return 100.0
    return min(100.0 * float(np.partition(contributions, -rows)[-rows:].sum()) / total, 100.0)


# ---------------------------------------------------------------- weighted rows


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Weights of n rows in the sums of K experts.

    Parameters
    ----------
    tau : (K, n) array
        Responsibilities: what part of a row each expert has.
    scores : (K, n) array
        Squared score of each row on the linear predictors of each expert; squared residuals over variances, for
        Gaussian experts.
    curvature : (h, n) array
        Weights of ``x xᵀ`` in the information on the coefficients.
    """

    tau: Array
    scores: Array
    curvature: Array

    @property
    def missing(self) -> Array:
        """Weights ``τ (1 - τ) s²`` of ``x xᵀ`` in the information that is missing without labels, ``(K, n)``."""
        return np.asarray(self.tau * (1.0 - self.tau) * self.scores)


def weighted_rows(mixture: Mixture, rows: Rows) -> WeightedRows:
    """Compute the weights of the rows under a mixture."""
    if rows.groups is not None or rows.weight is not None:
        raise InvalidInputError("there are no rules for rows with groups or weights: pass plain rows")
    tau, scores, curvature = [], [], []
    for block, at in mixture.posteriors(rows):
        tau.append(at.tau.copy())
        scores.append(np.sum(mixture.experts.scores(at.at).linear ** 2, axis=1))
        curvature.append(np.array(mixture.experts.weights(at.at, at.tau, block.panel.shape[0]).second))
    return WeightedRows(*(np.concatenate(parts, axis=1) for parts in (tau, scores, curvature)))


# ---------------------------------------------------------------- level rules

COUNTED_VALUES = 3
"""Maximum number of values of a column of numbers whose mean and variance determine how often each occurs."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A column that is read as levels.

    Parameters
    ----------
    name : str
    levels : tuple of str
        Names of the levels; all equal for the values of a column of numbers, which are not public.
    codes : (n,) array of int
        Place of each row's level.
    """

    name: str
    levels: tuple[str, ...]
    codes: IntArray


def factors_of(rows: Rows, study: Study) -> list[Factor]:
    """Return the columns of covariates and the response that are read as levels, in the order of the study."""
    found = [
        _of_category(column, part) if column.is_category else _of_numbers(column.name, part[:, 0])
        for column, part in _covariates(rows, study)
    ]
    return [factor for factor in (*found, _of_response(rows, study)) if factor is not None]


def _covariates(rows: Rows, study: Study) -> Iterator[tuple[Column, Array]]:
    """Yield each column of covariates with its terms, ``(n, terms)``."""
    start = 0
    for column in study.covariates.columns:
        yield column, rows.X[:, start : start + len(column.terms)]
        start += len(column.terms)


def _of_category(column: Column, indicators: Array) -> Factor:
    (base,) = set(range(len(column.levels))) - set(column.coded)
    codes = np.where(indicators.any(axis=1), np.asarray(column.coded)[indicators.argmax(axis=1)], base)
    return Factor(column.name, tuple(f"{column.name}[{level}]" for level in column.levels), codes)


def _of_numbers(name: str, values: Array) -> Factor | None:
    distinct, codes = np.unique(values, return_inverse=True)
    return None if len(distinct) > COUNTED_VALUES else Factor(name, (f"a value of {name}",) * len(distinct), codes)


def _of_response(rows: Rows, study: Study) -> Factor | None:
    name, classes = study.model.response, study.classes
    if classes is None:
        return _of_numbers(name, rows.Y[:, 0])
    return Factor(name, tuple(f"{name}[{level}]" for level in classes), rows.Y[:, 0].astype(np.intp))


def level_rules(rows: Rows, study: Study, policy: Policy) -> list[Check]:
    """Check the rows of each level, and of each pair of levels of two columns: none, or at least the limit."""
    factors = factors_of(rows, study)
    by_name = {factor.name: factor for factor in factors}
    names = [*study.covariates.names, study.model.response]
    return [*(_of_levels(name, by_name.get(name), policy) for name in names), *_of_pairs(factors, policy)]


def _of_levels(name: str, factor: Factor | None, policy: Policy) -> Check:
    """Check the levels of a column; one of numbers with many values keeps the rule."""
    limit = policy.site.rows_per_level
    counts = np.empty(0) if factor is None else np.bincount(factor.codes, minlength=len(factor.levels))
    least, rare = _least(counts, limit)
    said = "" if factor is None else ", ".join(dict.fromkeys(factor.levels[i] for i in rare))
    return Check.at_least("levels", "rows_per_level", name, limit, least, detail=said)


def _of_pairs(factors: list[Factor], policy: Policy) -> Iterator[Check]:
    """Yield one check for each pair of columns with a rare pair of levels, or one for all pairs."""
    limit, least = policy.site.rows_per_pair, float("inf")
    failed = False
    for first, second in combinations(factors, 2):
        wide = len(second.levels)
        counts = np.bincount(first.codes * wide + second.codes, minlength=len(first.levels) * wide)
        found, rare = _least(counts, limit)
        least = min(least, found)
        if len(rare):
            failed = True
            pairs = dict.fromkeys(f"{first.levels[i // wide]} and {second.levels[i % wide]}" for i in rare)
            yield Check.at_least(
                "levels", "rows_per_pair", f"{first.name} and {second.name}", limit, found, detail=", ".join(pairs)
            )
    if not failed:
        yield Check.at_least("levels", "rows_per_pair", "all pairs of columns", limit, least)


def _least(counts: np.ndarray, limit: int) -> tuple[float, IntArray]:
    """Return the least count that is not zero, and the places of those below the limit."""
    positive = counts[counts > 0]
    return float(positive.min()) if len(positive) else float("inf"), np.flatnonzero((counts > 0) & (counts < limit))


# ---------------------------------------------------------------- site rules


def site_rules(rows: Rows, mixture: Mixture | None, study: Study, policy: Policy) -> list[Check]:
    """Check the number of rows, the mixture's size against it, and the sums of squares of all columns."""
    limits = policy.site
    checks = [Check.at_least("site", "min_rows", "site", limits.min_rows, rows.n)]
    if mixture is not None:
        per_parameter = rows.n / max(read_parameters(mixture), 1)
        checks += [
            Check.at_most("experts", "max_experts", "site", limits.max_experts, mixture.K),
            Check.at_least("experts", "rows_per_parameter", "site", limits.rows_per_parameter, per_parameter),
        ]
    return [*checks, *_column_rules(rows, study, policy)]


def read_parameters(mixture: Mixture) -> int:
    """Count the free parameters on covariates that gate and experts read; the others have coefficients 0."""
    gate = mixture.gate.parameter_count
    if mixture.gate.reads_covariates and mixture.K > 1:
        alpha: Array = mixture.gate.alpha  # type: ignore[attr-defined]  # a gate that reads covariates has it
        gate = (mixture.K - 1) * int(np.count_nonzero(np.any(alpha != 0, axis=0)))
    return gate + mixture.K * read_coefficients(mixture) + mixture.experts.shape_parameters


def read_coefficients(mixture: Mixture) -> int:
    """Count the free coefficients of one expert on the covariates that experts read."""
    return int(np.count_nonzero(np.any(mixture.coefficients != 0, axis=0)))


def numbers_of(rows: Rows, study: Study) -> dict[str, Array]:
    """Return the covariates that are numbers, by the names of their columns, each ``(n,)``."""
    return {column.name: part[:, 0] for column, part in _covariates(rows, study) if not column.is_category}


def _column_rules(rows: Rows, study: Study, policy: Policy) -> Iterator[Check]:
    """Yield the dominance in the sum of squares of each column of numbers, and in its sum within each level."""
    most, limit = policy.experts.dominance_rows, policy.experts.dominance_percent
    columns = numbers_of(rows, study)
    if study.classes is None:
        columns[study.model.response] = rows.Y[:, 0]
    if rows.exposure is not None and study.model.exposure is not None:
        columns[study.model.exposure] = rows.exposure
    factors = factors_of(rows, study)
    for name, values in columns.items():
        gap = np.abs(values - values.mean())
        worst, where = dominance(gap**2, most), ""
        for factor in factors if name not in {each.name for each in factors} else ():
            for code, level in enumerate(factor.levels):
                within = factor.codes == code
                rare = within.sum() < policy.site.rows_per_level  # another rule's concern
                share = 0.0 if rare else dominance(gap[within], most)
                if share > worst:
                    worst, where = share, f"within {level}"
        yield Check.at_most("site", "column_dominance", name, limit, worst, detail=where)


# ---------------------------------------------------------------- expert rules

NEGLIGIBLE = 1e-13
"""Part of an expert's sum below which rounding hides it: it is then not in the file."""


def expert_rules(rows: Rows, mixture: Mixture, weights: WeightedRows, study: Study, policy: Policy) -> list[Check]:
    """Check mass, effective rows, residual degrees of freedom and dominance of each expert."""
    columns = panel_of(rows, study)
    return [
        replace(check, place=k) for k in range(mixture.K) for check in _of_expert(k, mixture, weights, columns, policy)
    ]


def panel_of(rows: Rows, study: Study) -> dict[str, Array]:
    """Return all columns whose products are in the file, each ``(n,)``: numbers, and an indicator of each level.

    The indicator of the reference level is among them: it is the intercept without the others.
    """
    found = numbers_of(rows, study)
    covariates = {column.name for column in study.covariates.columns if column.is_category}
    for factor in factors_of(rows, study):
        if factor.name in covariates:
            found |= {level: (factor.codes == code).astype(float) for code, level in enumerate(factor.levels)}
    return found


def _of_expert(
    k: int, mixture: Mixture, weights: WeightedRows, columns: dict[str, Array], policy: Policy
) -> Iterator[Check]:
    limits, scope, tau = policy.experts, f"expert {k + 1}", weights.tau[k]
    mass, effective = float(tau.sum()), effective_rows(tau)
    p = read_coefficients(mixture)
    yield Check.at_least("experts", "rows_per_expert", scope, limits.rows_per_expert, mass)
    yield Check.at_least("experts", "effective_rows", scope, limits.effective_rows, effective)
    yield Check.at_least("experts", "residual_degrees", scope, limits.residual_degrees, min(mass, effective) - p)
    most, percent = limits.dominance_rows, limits.dominance_percent
    yield Check.at_most("experts", "dominance", scope, percent, dominance(tau, most))
    if mixture.experts.shapes:
        residuals = dominance(tau * weights.scores[k], most)
        yield Check.at_most("experts", "residual_dominance", scope, percent, residuals)
    yield column_dominance("experts", scope, tau, columns, policy)


def column_dominance(part: Part, scope: str, weight: Array, columns: dict[str, Array], policy: Policy) -> Check:
    """Check that no few rows dominate the sum of squares ``Σ w (x - x̄)²`` of any column.

    For the indicator of a level it finds one or two rows that alone have, or lack, the level among these rows.
    """
    total = float(weight.sum())
    worst, where = 0.0, ""
    for name, values in columns.items():
        squares = (values - weight @ values / total) ** 2 if total > 0 else np.zeros_like(values)
        negligible = NEGLIGIBLE * total * float(squares.max(initial=0.0))
        share = dominance(weight * squares, policy.experts.dominance_rows, negligible)
        if share > worst:
            worst, where = share, name
    return Check.at_most(part, "column_dominance", scope, policy.experts.dominance_percent, worst, detail=where)


# ---------------------------------------------------------------- covariate rules

MEMBER = 0.5
"""Probability above which a row is a member of a class."""


def covariate_rules(rows: Rows, summary: CovariateSummary | None, study: Study, policy: Policy) -> list[Check]:
    """Check the rows behind each class of the summary, and behind each share of a value within a class.

    Rows per parameter are rows per mean of a column; covariances count as a check of degrees of freedom only.
    """
    if summary is None:
        return []
    resp = summary.responsibilities(rows.X)  # (n, G)
    sampled = min(1.0, DESCRIBED_ROWS / max(rows.n, 1))  # the summary is of at most so many rows
    terms = study.covariates.terms
    return [
        replace(check, place=g)
        for g, weight in enumerate(resp.T)
        for check in _of_class(f"class {g + 1} of the covariates", weight, sampled, (rows, summary, terms), policy)
    ]


def _of_class(
    scope: str, weight: Array, sampled: float, described: tuple[Rows, CovariateSummary, tuple[str, ...]], policy: Policy
) -> Iterator[Check]:
    rows, summary, terms = described
    limits, many = policy.experts, summary.many
    mass, effective = sampled * float(weight.sum()), sampled * effective_rows(weight)
    yield Check.at_least("covariates", "rows_per_class", scope, policy.covariates.rows_per_class, min(mass, effective))
    per_column = min(mass, effective) / (len(many) + 1)
    yield Check.at_least("covariates", "rows_per_parameter", scope, policy.site.rows_per_parameter, per_column)
    degrees = min(mass, effective) - len(many) - 1
    yield Check.at_least("covariates", "residual_degrees", scope, limits.residual_degrees, degrees)
    share = dominance(weight, limits.dominance_rows)
    yield Check.at_most("covariates", "dominance", scope, limits.dominance_percent, share)
    yield column_dominance("covariates", scope, weight, {terms[j]: rows.X[:, j] for j in many}, policy)
    least, where = _least_members(rows.X[weight > MEMBER], summary, terms)
    yield Check.at_least("covariates", "rows_per_pair", scope, policy.site.rows_per_pair, sampled * least, detail=where)


def _least_members(X: Array, summary: CovariateSummary, terms: tuple[str, ...]) -> tuple[float, str]:
    """Return the least positive number of members of a class with a value whose share is stated, and its column."""
    least, where = float("inf"), ""
    for j, values in enumerate(summary.levels):
        if len(values) and len(X):
            nearest = np.abs(X[:, j][:, None] - values).argmin(axis=1)
            counts = np.bincount(nearest, minlength=len(values))
            found = float(counts[counts > 0].min())
            if found < least:
                least, where = found, terms[j]
    return least, where


def with_merged_classes(summary: CovariateSummary, at: int) -> CovariateSummary:
    """Return the summary with one class merged into the nearest other one; moments of the whole stay the same."""
    gaps = np.sum((summary.means - summary.means[at]) ** 2 / np.maximum(summary.moments()[1][summary.many], 1e-300), 1)
    gaps[at] = np.inf
    pair = [at, int(np.argmin(gaps))]
    kept = [g for g in range(len(summary.weights)) if g not in pair]
    share = summary.weights[pair] / summary.weights[pair].sum()
    mean = share @ summary.means[pair]
    gap = summary.means[pair] - mean
    S = np.einsum("g,gab->ab", share, unpack(summary.covariances)[pair]) + (share * gap.T) @ gap
    return CovariateSummary(
        np.append(summary.weights[kept], summary.weights[pair].sum()),
        np.vstack([summary.means[kept], mean]),
        np.vstack([summary.covariances[kept], pack(S)]),
        summary.levels,
        tuple(np.vstack([each[kept], share @ each[pair]]) for each in summary.shares),
    )


# ---------------------------------------------------------------- precision rules

NEGLIGIBLE_INFORMATION = 1e-13
"""Fraction of the information that rounding hides."""


def precision_rules(rows: Rows, model: SiteModel, weights: WeightedRows, policy: Policy) -> Iterator[Check]:
    """Check that few rows dominate neither the information on coefficients nor what is missing of it."""
    if not len(model.precision):
        return
    most, limit = policy.experts.dominance_rows, policy.experts.missing_information_percent
    flat = flattened_experts(model)
    for k, missing in enumerate(weights.missing):
        size = _sizes(model.mixture, rows, weights.tau[k])
        full = float(np.sum(weights.tau[k] * weights.scores[k] * size))
        share = 0.0 if flat[k] else dominance(missing * size, most, NEGLIGIBLE_INFORMATION * full)
        check = Check.at_most("precision", "missing_information", f"expert {k + 1}", limit, share)
        yield replace(check, place=k)
    if not isinstance(model.mixture.experts, MomentExperts):  # its weights are the responsibilities
        worst = max((dominance(np.abs(row), most) for row in weights.curvature), default=0.0)
        yield Check.at_most("precision", "information", "all experts", limit, worst)


def _sizes(mixture: Mixture, rows: Rows, tau: Array) -> Array:
    """Compute ``x̃ᵀ (Σ τ x̃ x̃ᵀ)⁻¹ x̃`` of each row, ``(n,)``: its size whatever the units of the columns."""
    panel = mixture.design.panel(rows.X)
    solved, _ = solve_symmetric((panel * tau) @ panel.T, panel)
    return np.asarray(np.maximum(np.einsum("pn,pn->n", panel, solved), 0.0))


def complete_precision(model: SiteModel) -> Array | None:
    """Compute ``Σ_k⁻¹ ⊗ S_k`` of Gaussian experts, the precision for known labels, ``(K, f, f)``; else None."""
    experts = model.mixture.experts
    if not isinstance(experts, MomentExperts) or not len(model.second):
        return None
    return experts.labelled_precision(unpack(model.second))


def flattened_experts(model: SiteModel) -> np.ndarray:
    """Return which experts have a precision that is a multiple of the precision for known labels, ``(K,)``."""
    complete = complete_precision(model)
    if complete is None:
        return np.zeros(model.mixture.K, dtype=bool)
    own = unpack(model.precision)
    factor = np.trace(own, axis1=1, axis2=2) / np.trace(complete, axis1=1, axis2=2)
    gap = np.abs(own - factor[:, None, None] * complete).max(axis=(1, 2))
    return np.asarray(gap <= NEGLIGIBLE_INFORMATION * np.abs(complete).max(axis=(1, 2)))


def flatten_precision(model: SiteModel, failed: list[int]) -> SiteModel:
    """Return the model with a precision that discloses one number more than the file has anyway, for some experts.

    It is ``κ Σ_k⁻¹ ⊗ S_k`` with the fraction ``κ = tr(C⁻¹ J) / f`` of the information that is left without labels. For
    other families all precision matrices are left out, and the combined model may lack standard errors.

    Parameters
    ----------
    model : SiteModel
    failed : list of int
        Places of the experts.
    """
    complete = complete_precision(model)
    if complete is None:
        return replace(model, precision=np.empty((0, 0)))
    own = unpack(model.precision).copy()
    for k in failed:
        solved, _ = solve_symmetric(complete[k], own[k])
        fraction = float(np.clip(np.trace(solved) / len(solved), 0.0, 1.0))
        own[k] = fraction * complete[k]
    return replace(model, precision=pack(own))
