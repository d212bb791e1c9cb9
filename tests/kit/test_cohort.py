"""The cohort of a study: which rows it has, what is said of the others, and that sub-groups are other studies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from consilience.errors import InvalidInputError
from consilience.files.site_file import SiteFile
from consilience.kit.cohort import Flow, criteria_of, in_cohort
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.private_rows import private_rows
from consilience.kit.release import last_fit, release_fit
from consilience.kit.site_fit import Statement, examine_for_study, fit_at_site, site_file, study_rows
from consilience.kit.study import CohortRule, Study
from hospital_exports import STUDY, hospital

WARD = '\n[[columns]]\nname = "ward"\nkind = "category"\nuse = "cohort"\nlevels = ["a", "b"]\n'
YEAR = '\n[[columns]]\nname = "year"\nkind = "number"\nuse = "cohort"\nmissing = "drop"\n'
RULES = """cohort = [
  { column = "age", at_least = 50, below = 90 },
  { column = "ward", one_of = ["a"] },
  { column = "year", one_of = [2023, 2024] },
]"""


def study_with(rules: str, more: str = "", **replaced: str) -> Study:
    text = STUDY.replace("[model]", f"{rules}\n[model]")
    for old, new in replaced.items():
        text = text.replace(old, new)
    return Study.from_text(text + more)


COHORT = study_with(RULES, WARD + YEAR)


def table_of(n: int = 800, seed: int = 0) -> dict[str, list]:
    table = hospital(n, seed)
    table["ward"] = ["a" if i % 5 else "b" for i in range(n)]
    table["year"] = [None if i % 50 == 0 else 2020 + i % 5 for i in range(n)]
    return table


def expected(table: dict[str, list]) -> np.ndarray:
    age, ward, year = (np.array(table[name], dtype=object) for name in ("age", "ward", "year"))
    return np.array([50 <= a < 90 and w == "a" and y in (2023, 2024) for a, w, y in zip(age, ward, year, strict=True)])


def test_the_rows_of_the_cohort_are_those_that_meet_all_rules() -> None:
    table = table_of()
    wanted = expected(table)
    assert 0 < wanted.sum() < 800
    np.testing.assert_array_equal(in_cohort(pa.table(table), criteria_of(COHORT)), wanted)
    rows = study_rows(COHORT, pa.table(table))
    complete = wanted & np.array([value is not None for value in table["crp"]])
    assert rows.n == complete.sum()
    np.testing.assert_array_equal(rows.Y[:, 0], np.array(table["los_days"])[complete])


def test_the_flow_adds_up_and_names_rules_and_columns() -> None:
    table = pa.table(table_of())
    found = examine_for_study(COHORT, table)
    assert found.fits
    flow = found.flow
    assert flow is not None
    assert [said for said, _ in flow.excluded] == [
        "age at least 50 and below 90", "ward one of a", "year one of 2023, 2024"]  # fmt: skip
    gone = sum(int(rows.sum()) for _, rows in flow.excluded) + int(flow.left_out.sum())
    assert flow.used == found.used == 800 - gone
    assert flow.lines[0] == "800 rows were read."
    assert flow.lines[-1] == f"{found.used:,} are used."


def test_what_is_not_in_the_cohort_is_not_held_against_ranges_and_a_row_keeps_its_place() -> None:
    table = table_of()
    outside = int(np.flatnonzero(~expected(table))[3])
    inside = int(np.flatnonzero(expected(table))[3])
    table["los_days"][outside] = 10_000.0
    assert examine_for_study(COHORT, pa.table(table)).fits
    table["los_days"][inside] = 10_000.0
    (found,) = [each for each in examine_for_study(COHORT, pa.table(table)).findings if each.is_error]
    assert (found.code, found.first) == ("OUT_OF_RANGE", (inside + 1,))


def test_a_column_of_the_cohort_that_cannot_be_read_stops_the_check_and_others_are_named_too() -> None:
    table = table_of()
    table["ward"][7] = "A"
    table["sex"][0] = "m"
    errors = {(each.code, each.column) for each in examine_for_study(COHORT, pa.table(table)).findings if each.is_error}
    assert errors == {("UNKNOWN_LEVEL", "ward"), ("UNKNOWN_LEVEL", "sex")}
    del table["ward"]
    errors = {(each.code, each.column) for each in examine_for_study(COHORT, pa.table(table)).findings if each.is_error}
    assert ("COLUMN_MISSING", "ward") in errors


def test_a_table_without_a_row_of_the_cohort_says_so() -> None:
    table = table_of()
    table["year"] = [1990] * 800
    codes = [each.code for each in examine_for_study(COHORT, pa.table(table)).findings if each.is_error]
    assert codes == ["EMPTY_COHORT"]


def test_a_row_outside_of_the_cohort_contributes_nothing_with_noise_and_refuses_nothing() -> None:
    noise = COHORT.model_copy(update={"privacy": None})
    table = table_of()
    table["age"] = [*map(str, table["age"][:-1]), "old"]  # one cell that is no number: its row is not in the cohort
    read = private_rows(noise, pa.table(table))
    kept = expected(table_of())
    kept[-1] = False
    complete = kept & np.array([value is not None for value in table["crp"]])
    assert (read.rows.n, read.outside, read.zeros) == (complete.sum(), 800 - kept.sum(), 0)
    np.testing.assert_array_equal(read.rows.Y[:, 0], np.array(table["los_days"])[complete])
    without = private_rows(noise, pa.table({name: [v for v, k in zip(values, kept, strict=True) if k]
                                            for name, values in table.items()}))  # fmt: skip
    np.testing.assert_array_equal(read.rows.X, without.rows.X)


@pytest.mark.parametrize(
    ("rules", "more", "said"),
    [
        ('cohort = [{ column = "ward", one_of = ["a"] }]', "", "there is no column 'ward'"),
        ('cohort = [{ column = "sex", at_least = 1 }]', "", "is a category: give one_of"),
        ('cohort = [{ column = "sex", one_of = ["x"] }]', "", "with some of its levels"),
        ('cohort = [{ column = "age", one_of = ["old"] }]', "", "one_of lists numbers"),
        ('cohort = [{ column = "age" }]', "", "give one_of, or some of"),
        ('cohort = [{ column = "age", at_least = 1, one_of = [2] }]', "", "give one_of, or some of"),
        ('cohort = [{ column = "sex", one_of = ["male"] }]', "", "fewer than two levels in the cohort"),
        ('cohort = [{ column = "age", at_least = 1 }]', WARD, "the cohort, and no other part, names it"),
        ('cohort = [{ column = "age", matches = "1.*" }]', "", "which is not a field of it"),
        ("cohort = []", "", "at least 1 items"),
    ],
)
def test_a_cohort_that_makes_no_sense_is_refused(rules: str, more: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        study_with(rules, more)


def test_a_covariate_has_the_levels_that_the_cohort_can_have() -> None:
    more = '\n[[columns]]\nname = "ward"\nkind = "category"\nlevels = ["a", "b", "c"]\n'
    study = study_with('cohort = [{ column = "ward", one_of = ["a", "c"] }]', more)
    assert study.covariates.columns[-1].levels == ("a", "c")


def test_a_sub_group_is_another_study_and_a_study_without_a_cohort_keeps_its_identity() -> None:
    plain, young = Study.from_text(STUDY), study_with('cohort = [{ column = "age", below = 65 }]')
    assert plain.identity == "sha256:9ac0522dba629fd0a1c00dd3237dcfe9f9c56b05a3d83c656c2ec28dbb77859c"
    assert len({plain.identity, young.identity, COHORT.identity}) == 3
    assert Study.from_text(COHORT.to_text()) == COHORT


def test_the_closed_list_of_comparisons() -> None:
    x = np.array([1.0, 2.0, 3.0, np.nan])
    cases = {"at_least": [0, 1, 1, 0], "above": [0, 0, 1, 0], "at_most": [1, 1, 0, 0], "below": [1, 0, 0, 0]}
    for name, kept in cases.items():
        rule = CohortRule.model_validate({"column": "x", name: 2.0})
        np.testing.assert_array_equal(rule.holds(x), np.array(kept, dtype=bool))
    np.testing.assert_array_equal(CohortRule(column="x", one_of=[1, 3]).holds(x), [True, False, True, False])


# ---------------------------------------------------------------- what leaves


def test_numbers_of_the_flow_are_multiples_of_the_width_less_than_it_away_and_right_on_average() -> None:
    table = pa.table(table_of())
    flow = examine_for_study(COHORT, table).flow
    assert flow is not None
    truth = [int(rows.sum()) for _, rows in flow.excluded] + [int(flow.left_out.sum())]
    drawn = []
    for i in range(300):
        found = flow.document(table, 50, i.to_bytes(32, "big"))
        assert found is not None
        drawn.append([*(each.rows for each in found.excluded), found.left_out])
    stated = np.array(drawn)
    assert not np.any(stated % 50)
    assert np.all(np.abs(stated - truth) < 50)
    np.testing.assert_allclose(stated.mean(axis=0), truth, atol=4 * 25 / np.sqrt(300))


def test_the_same_rows_have_the_same_number_in_any_order_and_study() -> None:
    table, secret = pa.table(table_of()), bytes(range(32))
    turned = table.take(list(range(799, -1, -1)))
    other = study_with(RULES, WARD + YEAR, **{"seed = 5": "seed = 6"})
    found = [Flow.of(rows, criteria_of(study), [study.response, *study.covariates.columns]).document(rows, 7, secret)
             for rows in (table, turned) for study in (COHORT, other)]  # fmt: skip
    assert all(each == found[0] for each in found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_the_file_has_the_flow_in_steps_and_the_ledger_what_the_site_stated(tmp_path) -> None:
    folder = SiteFolder.init("delft", Policy.of_profile("hospital").to_text(), tmp_path)
    study = study_with('cohort = [{ column = "age", at_least = 50 }]')
    table = pa.table(table_of())
    done = fit_at_site(folder, study, table, stated=Statement("2026", "2026-06-30"))
    assert (done.entry.details["wave"], done.entry.details["data_cut"]) == ("2026", "2026-06-30")
    report = last_fit(folder).report
    assert report.flow[0] == "800 rows were read."
    file = SiteFile.from_text(release_fit(folder, "test").decode())
    assert (file.wave, file.data_cut) == ("2026", "2026-06-30")
    assert file.flow is not None
    assert file.flow.width == 50
    assert [each.of for each in file.flow.excluded] == ["age at least 50"]
    assert [each.of for each in file.flow.missing] == ["crp"]
    assert SiteFile.from_text(file.to_text()).hash == file.hash


@pytest.mark.slow
def test_a_study_that_leaves_out_no_rows_has_a_file_as_before() -> None:
    study = study_with("", **{'missing = "drop"': 'missing = "refuse"'})
    table = table_of()
    table["crp"] = [1.0 if value is None else value for value in table["crp"]]
    found = site_file(study, "delft", pa.table(table), Policy.of_profile("hospital"))
    assert {"flow", "wave", "data_cut"}.isdisjoint(found.content)
