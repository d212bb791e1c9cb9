"""Rules on each expert: the rows behind its sums, and whether a few of them dominate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from consilience.files.study import Study
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array
from consilience.site.policy.check import Check, Part, dominance, effective_rows
from consilience.site.policy.level_rules import factors_of
from consilience.site.policy.policy import Policy
from consilience.site.policy.site_rules import numbers_of, read_coefficients
from consilience.site.policy.weighted_rows import WeightedRows

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
