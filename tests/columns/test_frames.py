"""Columns of numbers that are read together, as in a prediction of few rows, are those that are read one by one."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from consilience.columns import Column, Dictionary, Rule
from consilience.columns.frames import FEW, encode_columns

LARGE = 2**53 + 1
COLUMNS: dict[str, list[Any]] = {
    "small": [1, -2, 3],
    "large": [LARGE, -LARGE, 7],
    "real": [0.1, np.nan, 1e300],
    "ward": ["a", "b", "a"],
    "single": [0.1, 0.2, 0.3],
}
TYPES = {"small": "int8", "large": "int64", "single": "float32"}
DICTIONARY = Dictionary(
    (
        Column("small"),
        Column("large"),
        Column("real"),
        Column("ward", ("a", "b")),
        Column("single", rule=Rule(low=0, high=1, centre=0.5, scale=2.0)),
    )
)
LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda table: table,
    "polars": pl.from_pandas,
    "arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "nullable": lambda table: table.astype({"large": "Int64"}),
    "decimals": lambda table: table.assign(small=[Decimal(each) for each in table["small"]]),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_numbers_together_are_those_one_by_one(library: str) -> None:
    table = pd.DataFrame(COLUMNS).astype(TYPES)
    times = FEW // len(table) + 1
    long = pd.concat([table] * times, ignore_index=True)
    found = encode_columns(LIBRARIES[library](table), DICTIONARY)
    one_by_one = encode_columns(LIBRARIES[library](long), DICTIONARY)
    np.testing.assert_array_equal(np.tile(found, (times, 1)), one_by_one)
    expected = [table[name].to_numpy().astype(float) for name in ("small", "large", "real")]
    np.testing.assert_array_equal(found[:, :3].T, expected)
