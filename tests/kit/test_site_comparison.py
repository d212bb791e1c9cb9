"""Columns of a site that look wrong beside those of the others, and Table 1, from files that are made of moments."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest

from consilience.aggregate import SiteModel
from consilience.errors import InvalidInputError
from consilience.files.site_file import CountDocument, FlowDocument, SiteFile
from consilience.kit.combination import check_waves, combine_files, with_questions
from consilience.kit.policy.policy import Policy
from consilience.kit.site_comparison import ColumnFinding, compare_files
from consilience.kit.site_fit import site_file, study_rows
from consilience.kit.study import Study
from consilience.kit.table_one import table_one
from consilience.messages import LocalFit
from consilience.model.summary import column_summary
from consilience.report import verdict
from consilience.report.scale import round_to
from hospital_exports import NAMES, STUDY, related

LOS = Study.from_text(STUDY)
WIDE = Study.from_text(STUDY.replace("high = ", "high = 100"))
"""The same without narrow ranges, which would stop most errors at the site."""


def sent(name: str, table: dict[str, np.ndarray], study: Study = LOS) -> SiteFile:
    """A file with the moments of a table, and no model."""
    rows = study_rows(study, pa.table({key: list(values) for key, values in table.items()}))
    return SiteFile(study.identity, name, ("(intercept)", *study.covariates.terms),
                    LocalFit(column_summary(rows), None, None))  # fmt: skip


def files(study: Study = LOS, **changed: dict[str, np.ndarray]) -> list[SiteFile]:
    return [sent(name, changed.get(name, related(i)), study) for i, name in enumerate(NAMES)]


def test_honest_sites_are_not_named() -> None:
    assert compare_files(LOS, files()) == []


@pytest.mark.parametrize(
    ("column", "factor"), [("crp", 0.1), ("crp", 10.0), ("los_days", 24.0), ("age", 12.0), ("los_days", 1 / 7)]
)
def test_a_change_of_units_is_named_with_the_factor_that_mends_it(column: str, factor: float) -> None:
    table = related(1)
    table[column] = table[column].astype(float) * factor
    (found,) = compare_files(WIDE, files(WIDE, boston=table))
    assert (found.site, found.column, found.what) == ("boston", column, "units")
    assert found.factor == pytest.approx(1 / factor)
    assert "boston: " + found.text == str(found)
    assert found.text.endswith("?")


def test_a_shuffled_column_and_swapped_levels_are_named() -> None:
    table = related(1)
    table["age"] = np.random.default_rng(0).permutation(table["age"])
    (found,) = compare_files(LOS, files(boston=table))
    assert (found.site, found.column, found.what) == ("boston", "age", "shuffled")
    table = related(2)
    table["sex"] = np.where(table["sex"] == "male", "female", "male")
    (found,) = compare_files(LOS, files(cardiff=table))
    assert (found.site, found.column, found.what) == ("cardiff", "sex", "swapped")
    assert "female and male were exchanged" in found.text


def test_two_of_three_levels_that_were_swapped_are_named() -> None:
    ward = '\n[[columns]]\nname = "ward"\nkind = "category"\nlevels = ["a", "b", "c"]\n'
    study, tables = Study.from_text(STUDY + ward), [related(i) for i in range(4)]
    for i, table in enumerate(tables):
        rng = np.random.default_rng([5, i])
        old = (table["age"].astype(float) - 65) / 15
        table["ward"] = np.array(["a", "b", "c"])[np.clip(np.round(1 + 0.8 * old + rng.normal(0, 0.7, len(old))), 0, 2)
                                                  .astype(int)]  # fmt: skip
    assert compare_files(study, [sent(n, t, study) for n, t in zip(NAMES, tables, strict=True)]) == []
    swap = {"a": "c", "c": "a", "b": "b"}
    tables[3]["ward"] = np.array([swap[each] for each in tables[3]["ward"]])
    (found,) = compare_files(study, [sent(n, t, study) for n, t in zip(NAMES, tables, strict=True)])
    assert (found.site, found.column, found.what) == ("delft", "ward", "swapped")
    assert "a and c were exchanged" in found.text


def test_a_column_that_no_factor_mends_is_a_question_and_of_two_sites_both_are_asked() -> None:
    table = related(1)
    table["charlson"] = table["charlson"] + 17
    (found,) = compare_files(WIDE, files(WIDE, boston=table))
    assert (found.column, found.what, found.factor) == ("charlson", "far", None)
    months = related(1)
    months["age"] = months["age"].astype(float) * 12
    two = compare_files(WIDE, [sent("a", related(0), WIDE), sent("b", months, WIDE)])
    assert {(each.site, each.column) for each in two} == {("a", "age"), ("b", "age")}
    assert compare_files(LOS, [sent("a", related(0))]) == []


# ---------------------------------------------------------------- Table 1


def test_table_one_has_moments_in_units_and_levels_in_numbers() -> None:
    tables = [related(i) for i in range(4)]
    found = table_one(LOS, files())
    assert found.sites == NAMES
    rows = {row.label: row for row in found.rows}
    age = [table["age"].astype(float) for table in tables]
    assert rows["age, years: mean (SD)"].values == tuple(f"{a.mean():.1f} ({a.std():.1f})" for a in age)
    logs = [np.log1p(table["crp"].astype(float)) for table in tables]
    middle = [f"{round_to(float(np.expm1(z.mean())))} (" for z in logs]
    crp = rows["crp, mg/l: middle (middle two thirds), from log1p"]
    assert all(value.startswith(start) for value, start in zip(crp.values, middle, strict=True))
    male = [int(np.sum(table["sex"] == "male")) for table in tables]
    assert rows["sex male: n (%)"].values == tuple(f"{n} ({n / 9:.0f} %)" for n in male)
    female = rows["sex female: n (%)"]
    np.testing.assert_allclose(female.differences, -np.array(rows["sex male: n (%)"].differences))
    others = np.concatenate(age[1:])
    expected = (age[0].mean() - others.mean()) / np.sqrt((age[0].var() + others.var()) / 2)
    assert rows["age, years: mean (SD)"].differences[0] == pytest.approx(expected)
    assert len(found.cells) == len(found.rows)
    assert {len(line) for line in [found.header, *found.cells]} == {6}
    assert len(str(found).splitlines()) == 1 + len(found.rows)


def test_table_one_has_what_sites_state_and_the_flow() -> None:
    flow = FlowDocument(width=50, excluded=[CountDocument(of="age at least 18", rows=100)],
                        missing=[CountDocument(of="crp", rows=50)], left_out=50)  # fmt: skip
    one, *others = files()
    rows = {row.label: row.values for row in table_one(LOS, [replace(one, flow=flow, wave="2"), *others]).rows}
    assert rows["wave"] == ("2", "not stated", "not stated", "not stated")
    assert rows["not in the cohort, age at least 18: about"] == ("100", "not stated", "not stated", "not stated")
    assert rows["crp missing: about"][0] == "50"


# ---------------------------------------------------------------- combination


def test_files_of_different_waves_are_refused_by_name() -> None:
    one, two, *_ = files()
    check_waves({"a": one, "b": two})
    check_waves({"a": replace(one, wave="1"), "b": replace(two, wave="1")})
    with pytest.raises(InvalidInputError, match="1: a; none stated: b"):
        check_waves({"a": replace(one, wave="1"), "b": two})


@lru_cache(1)
def fitted() -> tuple[SiteFile, ...]:
    study = Study.from_text(STUDY.replace("experts = [2]", "experts = [1]"))
    return tuple(
        site_file(
            study, name, pa.table({k: list(v) for k, v in related(i, 400).items()}), Policy.of_profile("hospital")
        )
        for i, name in enumerate(NAMES)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_the_combination_names_a_site_in_other_units_and_the_verdict_asks_it() -> None:
    study = Study.from_text(STUDY.replace("experts = [2]", "experts = [1]"))
    assert all(isinstance(file.fit.model, SiteModel) for file in fitted())
    honest = combine_files(study, fitted())
    assert not honest.best.fit.survey.suspicions
    table = {k: list(v) for k, v in related(3, 400).items()}
    table["crp"] = [value / 10 for value in table["crp"]]
    wrong = site_file(study, "delft", pa.table(table), Policy.of_profile("hospital"))
    with pytest.raises(InvalidInputError, match="--mixed-waves"):
        combine_files(study, [*fitted()[:3], replace(wrong, wave="2")])
    result = combine_files(study, [*fitted()[:3], replace(wrong, wave="2")], mixed_waves=True)
    (said,) = result.best.fit.survey.suspicions["delft"]
    assert said.startswith("crp is about 10 times lower than elsewhere; multiplied by 10")
    assert "The data of delft may be wrong" in str(verdict(result))
    assert "Ask the site" in str(verdict(result))
    assert with_questions(honest.best, study, []) is honest.best


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_a_column_that_looks_shuffled_is_a_question_and_no_suspicion() -> None:
    study = Study.from_text(STUDY.replace("experts = [2]", "experts = [1]"))
    asked = ColumnFinding("delft", "age", "shuffled", "is age shuffled?")
    units = ColumnFinding("delft", "crp", "units", "is crp in other units?", 10.0)
    survey = with_questions(combine_files(study, fitted()).best, study, [asked, units]).fit.survey
    assert survey.questions == {"delft": "is age shuffled?"}
    assert survey.suspicions == {"delft": ("is crp in other units?",)}
