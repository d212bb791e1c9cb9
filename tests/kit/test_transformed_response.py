"""A study may transform the response itself: the same model as from a column that each site has transformed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from consilience.datasets.hospitals import STUDY, hospitals
from consilience.errors import InvalidInputError
from consilience.kit.combination import combine_files
from consilience.kit.policy.policy import Policy
from consilience.kit.private_rows import private_rows
from consilience.kit.site_fit import examine_for_study, site_file
from consilience.kit.study import Study
from consilience.kit.study_words import words_of
from consilience.kit.table_one import table_one

PLAIN = (
    'name = "log_days"\nkind = "number"\nabout = "Natural logarithm of the length of stay in days"\nlow = -3\nhigh = 7'
)
RAW = 'name = "days"\nkind = "number"\nunit = "days"\nlow = 0.05\nhigh = 1100\ntransform = "log"'
WORDS = 'unit = "days"\nback = "exp"\n'
DAYS = STUDY.replace(PLAIN, RAW).replace('"log_days"', '"days"').replace(WORDS, "")


def with_days(table: pa.Table) -> pa.Table:
    """The table with the days of each stay in place of their logarithm."""
    at = table.column_names.index("log_days")
    return table.set_column(at, "days", pc.exp(table["log_days"]))


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return hospitals()


@pytest.fixture(scope="module")
def files(tables: dict[str, pa.Table]) -> dict[str, list]:
    policy = Policy.of_profile("hospital")
    both = (("logs", STUDY, lambda table: table), ("days", DAYS, with_days))
    return {
        key: [site_file(Study.from_text(text), name, change(table), policy) for name, table in tables.items()]
        for key, text, change in both
    }


def test_the_model_is_that_of_a_column_transformed_before(files: dict[str, list]) -> None:
    logs = combine_files(Study.from_text(STUDY), files["logs"]).best.fit
    days = combine_files(Study.from_text(DAYS), files["days"]).best.fit
    np.testing.assert_allclose(days.mixture.raw().coefficients, logs.mixture.raw().coefficients, rtol=1e-8, atol=1e-8)


def test_rows_with_noise_are_transformed_too(tables: dict[str, pa.Table]) -> None:
    name = next(iter(tables))
    logs = private_rows(Study.from_text(STUDY), tables[name])
    days = private_rows(Study.from_text(DAYS), with_days(tables[name]))
    np.testing.assert_allclose(days.rows.Y, logs.rows.Y, atol=1e-12)
    assert Study.from_text(DAYS).response_range == pytest.approx((np.log(0.05), np.log(1100)))


def test_people_read_the_unit_of_the_column(files: dict[str, list]) -> None:
    study = Study.from_text(DAYS)
    assert (words_of(study).response.unit, words_of(study).response.back) == ("days", "exp")
    row = next(row for row in table_one(study, files["days"]).rows if row.column == "days")
    assert row.label == "days, days: middle (middle two thirds), from log"


def test_the_range_is_that_of_the_values_in_the_table(tables: dict[str, pa.Table]) -> None:
    table = with_days(next(iter(tables.values()))).slice(0, 400)
    values = table["days"].to_pylist()
    values[0] = 0.0  # its logarithm is not a number
    table = table.set_column(table.column_names.index("days"), "days", pa.array(values))
    found = examine_for_study(Study.from_text(DAYS), table)
    assert any("0.05 to 1100" in str(finding) for finding in found.findings)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('family = "gaussian"', 'family = "gamma"', "only a response of family 'gaussian' or 'student' may have one"),
        ("low = 0.05\n", "", "transform='log' needs low, and above 0"),
        ('transform = "log"', 'transform = "log"\ncentre = 2', "has no centre, scale and fill"),
        ('less = "shorter"', 'back = "square"', "words.response.back: the study transforms the response"),
    ],
)
def test_what_does_not_go_together_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Study.from_text(DAYS.replace(old, new))
    assert said in str(error.value)
