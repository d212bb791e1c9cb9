"""Mappings: an export becomes the table of a study, and what is not known is never changed in silence."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.cli.annex import annex_of
from consilience.columns import Column
from consilience.errors import InvalidInputError
from consilience.kit.folder import MAPPING, SiteFolder
from consilience.kit.mapping import FileFormat, MappedColumn, TableMapping, map_table, read_mapped
from consilience.kit.mapping_draft import file_format, propose_codes, propose_columns, propose_levels, propose_rule
from consilience.kit.policy.policy import Policy
from consilience.kit.private_rows import private_rows
from consilience.kit.release import last_fit
from consilience.kit.site_fit import examine_for_study, fit_at_site
from consilience.kit.study import Study
from hospital_exports import ROWS, export, hospital
from hospital_exports import STUDY as TEXT

STUDY = Study.from_text(TEXT)
GERMAN = TableMapping(
    study="length-of-stay",
    file=FileFormat(encoding="cp1252", delimiter=";", decimal=",", missing=["k.A."]),
    columns=[
        MappedColumn(name="los_days", source="Liegedauer"),
        MappedColumn(name="age", source="Alter"),
        MappedColumn(name="charlson", source="Charlson-Index"),
        MappedColumn(name="crp", source="CRP"),
        MappedColumn(name="sex", source="Geschlecht", levels={"männlich": "male", "weiblich": "female"}),
        MappedColumn(name="admission", source="Aufnahmeart", levels={"geplant": "planned", "Notfall": "emergency"}),
    ],
)
BOSTON = TableMapping(
    study="length-of-stay",
    file=FileFormat(sheet="Stays"),
    columns=[
        MappedColumn(name="los_days", source="LOS hours", multiply=1 / 24),
        MappedColumn(name="age", source="AGE"),
        MappedColumn(name="charlson", source="CHARLSON"),
        MappedColumn(name="crp", source="CRP (mg/dl)", multiply=10, missing=["-99"]),
        MappedColumn(name="sex", source="SEX", levels={"F": "female", "M": "male"}),
        MappedColumn(name="admission", source="ADMISSION TYPE", levels={"URGENT": "emergency", "PLANNED": "planned"}),
    ],
)
MAPPINGS = {"adlershof": GERMAN, "boston": BOSTON, "cardiff": None, "delft": None}


@pytest.mark.parametrize("name", ROWS)
def test_the_export_of_each_hospital_becomes_the_table_that_it_was_made_of(name: str, tmp_path: Path) -> None:
    read = read_mapped(export(name, tmp_path), STUDY, MAPPINGS[name])
    truth = hospital(ROWS[name], list(ROWS).index(name))
    assert examine_for_study(STUDY, read).fits
    for column, values in truth.items():
        mine = read[column].to_pylist()
        if column in ("sex", "admission"):
            assert mine == values
            continue
        assert [value is None for value in mine] == [value is None for value in values]
        pairs = np.array([pair for pair in zip(mine, values, strict=True) if None not in pair], dtype=float)
        np.testing.assert_allclose(pairs[:, 0], pairs[:, 1], rtol=1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_a_draft_finds_the_format_of_each_file(name: str, tmp_path: Path) -> None:
    wanted = {"adlershof": GERMAN.file.model_copy(update={"missing": []})}.get(name, FileFormat())
    assert file_format(export(name, tmp_path)) == wanted


def one(values: list, rule: MappedColumn, column: Column | None = None, decimal: str = ".") -> list:
    file = FileFormat(decimal=decimal)  # type: ignore[arg-type]
    mapping = TableMapping(study="s", file=file, columns=[rule])
    return map_table(pa.table({"here": values}), mapping, [column or Column("x")])["x"].to_pylist()


def test_a_cell_that_is_no_number_stays_as_it_is_and_is_named_by_the_check() -> None:
    rule = MappedColumn(name="x", source="here", multiply=10)
    assert one(["1.5", "n/a?", None, " 2 "], rule) == ["15", "n/a?", None, "20"]
    table = hospital(60, 0)
    table["crp"] = [*map(str, table["crp"][:-1]), "<0.1"]
    mapping = TableMapping(study="length-of-stay", file=FileFormat(missing=["None"]))
    read = map_table(pa.table(table), mapping, [column.column() for column in STUDY.columns])
    (found,) = [each for each in examine_for_study(STUDY, read).findings if each.is_error]
    assert (found.code, found.column, found.first) == ("OTHER_TYPE", "crp", (60,))


def test_codes_of_missing_values_hold_for_numbers_and_for_text() -> None:
    rule = MappedColumn(name="x", source="here", missing=["-99", "k.A."])
    assert one(["1", "-99", "k.A."], rule) == [1.0, None, None]
    assert one([1.0, -99.0, 3.0], rule) == [1.0, None, 3.0]


def test_decimal_commas_and_signs_are_read() -> None:
    assert one(["1,5", "-0,25", "+3", "2"], MappedColumn(name="x", source="here"), decimal=",") == [
        1.5,
        -0.25,
        3.0,
        2.0,
    ]
    assert one(["1,5"], MappedColumn(name="x", source="here")) == ["1,5"]


def test_a_level_that_is_not_mapped_stays_and_numbers_may_stand_for_levels() -> None:
    sex = Column("x", ("female", "male"))
    rule = MappedColumn(name="x", source="here", levels={"1": "male", "2": "female"})
    assert one([1.0, 2.0, 9.0, None], rule, sex) == ["male", "female", "9", None]
    coded = Column("x", (0, 1))
    assert one(["no", "yes"], MappedColumn(name="x", source="here", levels={"no": 0, "yes": 1}), coded) == [0.0, 1.0]


def test_dates_become_times() -> None:
    day = Column("x")
    table = pa.table({"in": ["01.02.2024", "28.02.2024 12:00", None, "soon"], "out": ["03.02.2024"] * 4})
    rule = MappedColumn(name="x", source="in", until="out", unit="days", dates="DD.MM.YYYY")
    found = map_table(table, TableMapping(study="s", columns=[rule]), [day])["x"].to_pylist()
    assert found == ["2.0", "-25.5", None, "no date"]
    born = pa.table({"born": [dt.date(1960, 6, 30), dt.date(2000, 6, 30)]})
    rule = MappedColumn(name="x", source="born", until="2024-06-30", unit="years")
    ages = map_table(born, TableMapping(study="s", columns=[rule]), [day])["x"].to_pylist()
    np.testing.assert_allclose(ages, [64, 24], atol=0.01)


def test_a_mapping_is_read_as_it_was_written_and_its_hash_is_of_what_it_says() -> None:
    again = TableMapping.from_text(GERMAN.to_text())
    assert again == GERMAN
    assert again.identity == GERMAN.identity != BOSTON.identity
    commented = GERMAN.to_text().replace("[file]", "# another remark\n[file]")
    assert TableMapping.from_text(commented).identity == GERMAN.identity


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"multiply": 0.0}, "multiply = 0"),
        ({"until": "out"}, "both, until"),
        ({"multiply": 2.0, "levels": {"a": "b"}}, "give levels, or"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MappedColumn(name="x", source="here", **change)


def test_what_the_export_lacks_is_named() -> None:
    table = pa.table({"here": [1.0]})
    for rule, said in (
        (MappedColumn(name="x", source="there"), "no such column"),
        (MappedColumn(name="z", source="here"), "not a column of the study"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            map_table(table, TableMapping(study="s", columns=[rule]), [Column("x")])
    other = GERMAN.model_copy(update={"study": "another"})
    with pytest.raises(InvalidInputError, match="is for study 'another'"):
        read_mapped("a.csv", STUDY, other)


def test_other_columns_stay_so_that_people_can_be_told_apart() -> None:
    table = pa.table({"here": ["1"], "patient": ["a"]})
    rule = MappedColumn(name="x", source="here")
    assert map_table(table, TableMapping(study="s", columns=[rule]), [Column("x")])["patient"].to_pylist() == ["a"]


def test_rows_with_noise_read_each_cell_by_itself_through_a_mapping(tmp_path: Path) -> None:
    path = export("adlershof", tmp_path)
    before = private_rows(STUDY, read_mapped(path, STUDY, GERMAN))
    lines = path.read_bytes().split(b"\r\n")
    lines[1] = lines[1].replace(b";geplant", b";?").replace(b";Notfall", b";?")
    path.write_bytes(b"\r\n".join(lines))
    after = private_rows(STUDY, read_mapped(path, STUDY, GERMAN))
    assert (after.zeros, after.unfit) == (1, {"admission": 1})
    np.testing.assert_array_equal(before.rows.X[1:], after.rows.X[1:])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_the_ledger_has_the_hash_of_the_mapping_and_what_leaves_has_not(tmp_path: Path) -> None:
    folder = SiteFolder.init("delft", Policy.of_profile("open").to_text(), tmp_path)
    mapping = TableMapping(study="length-of-stay", file=FileFormat(missing=["-99"]))
    table = read_mapped(export("delft", tmp_path), STUDY, mapping)
    done = fit_at_site(folder, STUDY, table, mapping=mapping)
    assert done.entry.details["mapping"] == mapping.identity
    report = last_fit(folder).report
    assert report.mapped == (mapping.identity,)
    assert mapping.identity not in report.file.to_text()


# ---------------------------------------------------------------- drafts


def test_levels_units_and_codes_are_proposed_where_they_are_clear() -> None:
    assert propose_levels(pa.array(["F", "M", "X"]), ("female", "male")) == {"F": "female", "M": "male"}
    assert propose_levels(pa.array(["1", "2"]), (1, 2)) == {}
    assert propose_levels(pa.array(["pre", "premature"]), ("premature", "preterm")) == {}
    crp = STUDY.columns[3].column()
    assert propose_codes(pa.array([1.0, -99.0, -99.0, 7.0]), crp) == ["-99"]
    assert propose_codes(pa.array([1.0, -99.0, 7.0]), crp) == []
    table = pa.table({"CRP (mg/dl)": [0.1, 0.5, 2.0], "LOS hours": [24.0, 30.0, 40.0], "months": [700.0, 800.0, 500.0]})
    names = {"crp": ("CRP (mg/dl)", 10), "los_days": ("LOS hours", 1 / 24), "age": ("months", 1 / 12)}
    for column in (each.column() for each in STUDY.columns if each.name in names):
        name, factor = names[column.name]
        assert propose_rule(table, name, column, FileFormat()).multiply == pytest.approx(factor, rel=1e-3)


def test_names_that_are_only_similar_are_not_sure() -> None:
    table = pa.table({"AGE": [1.0], "Charlson-Index": [1.0], "CRP": [1.0], "crp ": [1.0]})
    drafts = {each.column.name: each for each in propose_columns(table, [column.column() for column in STUDY.columns])}
    assert drafts["age"].is_sure
    assert drafts["charlson"].candidates[0] == "Charlson-Index"
    assert not drafts["charlson"].is_sure
    assert not drafts["crp"].is_sure  # two columns have this name


# ---------------------------------------------------------------- what people read


def test_a_study_and_a_mapping_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for text, kind, wanted in ((TEXT, Study, STUDY), (GERMAN.to_text(), TableMapping, GERMAN)):
        (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert kind.read(tmp_path / "a.toml") == wanted


def test_the_first_rows_with_an_unknown_level_or_without_a_value_are_named() -> None:
    table = hospital(60, 0)
    table["sex"][6] = "x"
    table["age"][8] = None
    found = {each.code: each.first for each in examine_for_study(STUDY, pa.table(table)).findings if each.is_error}
    assert found == {"UNKNOWN_LEVEL": (7,), "MISSING_VALUES": (9,)}


def test_the_annex_says_what_the_mapping_of_this_study_does(tmp_path: Path) -> None:
    folder = SiteFolder.init("adlershof", Policy.of_profile("hospital").to_text(), tmp_path)
    assert "mapping" not in annex_of(folder, STUDY).markdown
    (folder.path / MAPPING).write_text(GERMAN.to_text())
    said = annex_of(folder, STUDY).markdown
    assert GERMAN.identity in said
    assert "sex from 'Geschlecht', with 2 values recoded" in said
    (folder.path / MAPPING).write_text(GERMAN.to_text().replace("length-of-stay", "another"))
    assert "mapping" not in annex_of(folder, STUDY).markdown
