"""Categories in files: indicators in chunks, and failures that name the column but no value."""

import numpy as np
import pyarrow as pa
import pytest

from consilience.columns import Column, Dictionary
from consilience.data.file_columns import Chunk, Columns
from consilience.errors import InvalidInputError
from consilience.messages.failures import FailureCode, SiteError

FUEL = Dictionary((Column("age"), Column("fuel", ("diesel", "gas", "petrol"), "gas")))
COLUMNS = Columns(("age", "fuel"), ("y",), weight="w", dictionary=FUEL)


def batch(fuel):
    n = len(fuel)
    return pa.RecordBatch.from_pydict({"age": [40.0] * n, "fuel": fuel, "y": [1.0] * n, "w": [2.0] * n})


def test_a_chunk_has_the_indicators_of_a_category_in_its_place():
    chunk = Chunk(COLUMNS, size=3)
    chunk.fill(batch(["gas", "diesel", "petrol"]))
    rows = chunk.rows()
    np.testing.assert_array_equal(rows.X, [[40, 0, 0], [40, 1, 0], [40, 0, 1]])
    assert rows.Y.ravel().tolist() == [1, 1, 1]
    assert rows.weight.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("fuel", "code"),
    [
        (["gas", "secret"], FailureCode.UNKNOWN_LEVEL),
        (["gas", None], FailureCode.MISSING_VALUES),
        ([1.0, 2.0], FailureCode.UNKNOWN_LEVEL),
    ],
)
def test_values_outside_the_dictionary_are_failures_without_the_value(fuel, code):
    with pytest.raises(SiteError) as error:
        Chunk(COLUMNS, size=3).fill(batch(fuel))
    assert error.value.code is code
    assert "'fuel'" in str(error.value)
    assert "secret" not in str(error.value)


def test_the_dictionary_is_of_the_features():
    with pytest.raises(InvalidInputError, match="other columns than the features"):
        Columns(("fuel", "age"), ("y",), dictionary=FUEL)
