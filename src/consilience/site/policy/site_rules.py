"""Rules on all rows together: their number, the number of parameters, and sums over columns that few rows dominate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from consilience.files.study import Study
from consilience.model.mixture import Mixture
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array
from consilience.site.policy.check import Check, dominance
from consilience.site.policy.level_rules import factors_of
from consilience.site.policy.policy import Policy


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
    """Count the free parameters on covariates that gate and experts read; the others have coefficients 0.

    Examples
    --------
    >>> from consilience.datasets import soft
    >>> read_parameters(soft(10, random_state=0).truth)
    151
    """
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
    found, start = {}, 0
    for column in study.covariates.columns:
        if not column.is_category:
            found[column.name] = rows.X[:, start]
        start += len(column.terms)
    return found


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
