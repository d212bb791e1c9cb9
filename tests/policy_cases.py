"""Studies, rows and policies for the tests of a site's policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from consilience.kit.policy.policy import Policy
from consilience.kit.site_fit import study_rows
from consilience.kit.study import CategoryColumn, Minimum, Model, NumberColumn, Study
from consilience.model.rows import Rows

LEAST = Minimum(rows=1, rows_per_level=1, rows_per_expert=1)
"""A study that asks for nothing."""


def study_of(
    numbers: list[str], levels: dict[str, list[str]] | None = None, *, minimum: Minimum = LEAST, **model: Any
) -> Study:
    """A study of the response ``y``, columns of numbers, and categories with their levels."""
    columns: list[Any] = [NumberColumn(name=name, kind="number") for name in ["y", *numbers]]
    columns += [CategoryColumn(name=name, kind="category", levels=list(each)) for name, each in (levels or {}).items()]
    chosen = {"response": "y", "experts": [2], "gate": "constant"} | model
    return Study(
        format="consilience-study", version=1, name="test", seed=3, model=Model(**chosen), minimum=minimum,
        columns=columns,
    )  # fmt: skip


def rows_from(study: Study, **columns: np.ndarray) -> Rows:
    return study_rows(study, pa.table(columns))


def policy_with(profile: str = "hospital", **limits: Any) -> Policy:
    """The policy of a profile with other limits, by their names."""
    tables = Policy.of_profile(profile).model_dump()
    for name, value in limits.items():
        (table,) = (part for part in tables.values() if isinstance(part, dict) and name in part)
        table[name] = value
    return Policy.from_tables(tables)


def failed_rules(verdict: Any) -> set[str]:
    return {check.rule for check in verdict.failed}
