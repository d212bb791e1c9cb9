"""Near copies of rows: found after a join and under a little noise, not in honest tables of whole numbers."""

import numpy as np
import pyarrow as pa
import pytest

from consilience.columns import Column, Dictionary
from consilience.datasets.hospitals import STUDY, hospitals
from consilience.kit import examination
from consilience.kit.examination import Wanted, examine_table
from consilience.kit.folder import SiteFolder
from consilience.kit.near_copies import count_near_copies, say_near_copies
from consilience.kit.policy.policy import Policy
from consilience.kit.release import last_fit
from consilience.kit.site_fit import fit_at_site
from consilience.kit.study import Study

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


TABLE_FROM = {"log_days": -3.0, "age": 18.0, "severity": 0.0}


@pytest.mark.slow
def test_a_fit_counts_them_once_and_says_them(tmp_path, monkeypatch):
    times = []
    monkeypatch.setattr(examination, "count_near_copies", lambda values: times.append(1) or count_near_copies(values))
    study, ash = Study.from_text(STUDY), hospitals()["ash"]
    for name in ("log_days", "age", "severity"):  # the values of a hospital are rounded
        exact = 0.99 * ash[name].to_numpy() + 0.1 * RNG.random(ash.num_rows)
        ash = ash.set_column(ash.column_names.index(name), name, pa.array(np.clip(exact, TABLE_FROM[name], None)))
    twice = pa.concat_tables([ash, ash])
    folder = SiteFolder.init("ash", Policy.of_profile("hospital").to_text(), tmp_path)
    fit_at_site(folder, study, twice)
    assert len(times) == 1
    (note,) = last_fit(folder).report.notes
    assert note.endswith("Is the table joined twice, or does a person stand in it several times? Then export it again")
