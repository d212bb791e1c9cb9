"""Near copies of rows: found after a join and under a little noise, not in honest tables of whole numbers."""

import numpy as np
import pyarrow as pa
import pytest

from consilience.columns import Column, Dictionary
from consilience.kit.examination import Wanted, examine_table
from consilience.kit.near_copies import count_near_copies, say_near_copies

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(500, 3))


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_copies_are_counted_with_and_without_noise(columns, noise):
    rows = ROWS[:, :columns]
    copied = np.concatenate([rows + noise * RNG.standard_normal(rows.shape) for _ in range(8)])
    found = count_near_copies(copied)
    assert found > 0.95 * len(copied)
    assert say_near_copies(found, len(copied)).endswith("in all columns of numbers)")


def test_honest_rows_are_not_copies():
    for rows in (ROWS, RNG.lognormal(sigma=2, size=(20_000, 2))):
        assert say_near_copies(count_near_copies(rows), len(rows)) == ""


@pytest.mark.parametrize(
    "rows",
    [
        RNG.integers(0, 3, (1000, 4)).astype(float),  # categories
        np.c_[RNG.integers(20, 90, 1000), RNG.integers(90, 180, 1000), RNG.normal(size=1000).round(1)],  # rounded
        np.c_[RNG.normal(size=1000), RNG.integers(0, 2, 1000)],  # one continuous column
        np.zeros((0, 3)),
        np.full((50, 3), np.nan),
    ],
)
def test_tables_of_few_different_values_are_not_judged(rows):
    assert count_near_copies(rows) == 0


def test_a_column_in_other_units_or_with_gaps_changes_nothing():
    rows = np.concatenate([ROWS, ROWS]) * [1, 1e6, 1e-6]
    rows[::10, 1] = np.nan
    assert count_near_copies(rows) >= 0.8 * len(rows)


def test_the_check_of_a_table_says_them():
    wanted = Wanted(Dictionary.of_numbers(["a", "b"]), Column("y"))
    table = pa.table(dict(zip("aby", np.concatenate([ROWS, ROWS]).T, strict=True)))
    (found,) = examine_table(table, wanted).findings
    assert (found.code, found.rows, found.is_error) == ("NEAR_COPIES", 1000, False)
    assert "1,000 of 1,000 rows are near copies of another row" in str(found)
    assert examine_table(table.slice(0, 500), wanted).findings == ()
