"""A model as data, and predictions for a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from consilience.errors import InvalidInputError
from consilience.fitted.protocols import FittedMixture, parameter_table


def described(model: FittedMixture) -> dict[str, Any]:
    """Return a fitted model as a JSON object: columns, parameters with intervals, and fit."""
    table = parameter_table(model, 0.95)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return {
        "model": type(model).__name__,
        "columns": list(model.columns_.names),
        "log_likelihood": model.log_likelihood_,
        "parameters": [{name: _finite(value) for name, value in row.items()} for row in rows],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def scored(model: FittedMixture, table: pa.Table, out: Path) -> None:
    """Write a table with predictions and the probability of each expert, given the covariates, as new columns."""
    names = list(model.columns_.names)
    lacking = [name for name in names if name not in table.column_names]
    if lacking:
        raise InvalidInputError(f"the table has no column {', '.join(lacking)}")
    X = table.select(names)
    predicted = model.predict(X)
    found = table.append_column("prediction", pa.array(np.asarray(predicted)))
    for k, probability in enumerate(model.predict_gate(X).T):
        found = found.append_column(f"gate_{k}", pa.array(probability))
    if out.suffix == ".parquet":
        pq.write_table(found, out)
    elif out.suffix == ".csv":
        csv.write_csv(found, out)
    else:
        raise InvalidInputError(f"{out.name}: expected a name that ends in .parquet or .csv")
