"""Rules on the summary of the covariates: each of its classes describes rows, and so does each share of a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from consilience.aggregate.combine.site_model import CovariateSummary
from consilience.files.study import Study
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array, pack, unpack
from consilience.site.local_fit import DESCRIBED_ROWS
from consilience.site.policy.check import Check, dominance, effective_rows
from consilience.site.policy.expert_rules import column_dominance
from consilience.site.policy.policy import Policy

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
    """Return the summary with one class merged into the nearest other one; moments of the whole stay the same.

    Examples
    --------
    >>> from consilience.aggregate.combine.site_model import covariate_summary
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> summary = covariate_summary(X, np.ones(300), np.random.default_rng(1))
    >>> merged = with_merged_classes(summary, 0)
    >>> len(merged.weights), bool(np.allclose(merged.moments()[1], summary.moments()[1]))
    (3, True)
    """
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
