import gzip
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import hospital_exports
from consilience.columns import Column, Dictionary, Rule
from consilience.data.tables import read_table
from consilience.errors import InvalidInputError
from consilience.kit.examination import Wanted, examine_table, prepare_table
from consilience.kit.site_fit import examine_for_study
from consilience.kit.study import Study

WANTED = Wanted(
    Dictionary(
        (
            Column("age", rule=Rule("years", 18, 110, centre=60, scale=15)),
            Column("weight", rule=Rule("kg", 30, 250, missing="drop")),
            Column("sex", ("f", "m")),
            Column("ward", ("icu", "medical", "surgical"), rule=Rule(missing="drop")),
        )
    ),
    Column("days", rule=Rule("days", 0, 400)),
    min_rows=20,
    max_rows=1000,
)


def good(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.arange(n),
            "age": rng.integers(20, 90, n),
            "weight": rng.uniform(50, 120, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "ward": rng.choice(["icu", "medical", "surgical"], n),
            "days": rng.gamma(2.0, 4.0, n),
        }
    )


def look(table: pd.DataFrame):
    return examine_table(pa.Table.from_pandas(table, preserve_index=False), WANTED)


def test_a_table_that_fits_has_no_findings():
    found = look(good())
    assert found.findings == ()
    assert found.fits
    assert (found.rows, found.used) == (60, 60)


CASES = {
    "missing column": (lambda t: t.drop(columns="age"), "COLUMN_MISSING", "age", 0, "has no column of this name"),
    "other case": (lambda t: t.rename(columns={"age": "Age"}), "COLUMN_MISSING", "age", 0, "a similar name: 'Age'"),
    "out of range": (lambda t: t.assign(age=[7, *t.age[1:]]), "OUT_OF_RANGE", "age", 1, "range 18 to 110 years"),
    "unknown level": (lambda t: t.assign(sex=["x", *t.sex[1:]]), "UNKNOWN_LEVEL", "sex", 1, "the study lists f, m"),
    "other spelling": (lambda t: t.assign(sex=t.sex.str.upper()), "UNKNOWN_LEVEL", "sex", 60, "case and spaces count"),
    "all missing": (lambda t: t.assign(weight=np.nan), "ALL_MISSING", "weight", 60, "all values are missing"),
    "missing": (lambda t: t.assign(age=t.age.where(t.index > 2)), "MISSING_VALUES", "age", 3, "refuses missing"),
    "other type": (lambda t: t.assign(age=t.age.astype(str) + " y"), "OTHER_TYPE", "age", 60, "without units"),
    "numbers for text": (lambda t: t.assign(sex=0), "OTHER_TYPE", "sex", 60, "Recode"),
    "dates": (lambda t: t.assign(age=pd.Timestamp("2020-01-01")), "OTHER_TYPE", "age", 60, "Compute a number"),
    "decimal commas": (
        lambda t: t.assign(weight=t.weight.map(lambda kg: f"{kg:.1f}".replace(".", ","))),
        "DECIMAL_COMMA", "weight", 60, "decimal points",
    ),
    "other units": (lambda t: t.assign(weight=10 * t.weight), "OUT_OF_RANGE", "weight", 60, "multiplication by 0.1"),
    "tens of years": (lambda t: t.assign(age=t.age / 10), "OUT_OF_RANGE", "age", 60, "multiplication by 10"),
    "months for years": (lambda t: t.assign(age=t.age * 12), "OUT_OF_RANGE", "age", 60, "0.08333 (from months)"),
    "days for years": (lambda t: t.assign(age=t.age * 365.25), "OUT_OF_RANGE", "age", 60, "0.002738 (from days)"),
    "infinite": (lambda t: t.assign(days=[np.inf, *t.days[1:]]), "INFINITE", "days", 1, "mark them as missing"),
    "few rows": (lambda t: t[:19], "TOO_FEW_ROWS", "", 19, "at least 20 are needed"),
    "many rows": (lambda t: pd.concat([t] * 20), "TOO_MANY_ROWS", "", 1200, "is it the right table?"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_said_with_place_count_and_remedy(case):
    change, code, column, rows, said = CASES[case]
    table = change(good())
    found = look(table)
    assert not found.fits
    (finding,) = (each for each in found.findings if each.is_error)
    assert (finding.code, finding.column) == (code, column)
    assert finding.rows == rows or (case == "other units" and 50 <= finding.rows <= 60)
    assert said in str(finding)
    assert finding.remedy[0].isupper()


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("few rows", "many rows")])
def test_no_value_of_the_table_is_shown(case):
    table = CASES[case][0](good())
    marked = table.assign(**{name: table[name].map(_marked) for name in table if name in ("sex", "ward")})
    for finding in look(marked).findings:
        said = f"{finding.said} {finding.remedy}"
        assert "secret" not in said
        numbers = set(re.findall(r"\d+\.\d+", said)) - {"0.1"}
        assert not numbers & {f"{value:.1f}" for value in good().weight}


def _marked(value: object) -> object:
    return "secret" if value == "x" else value


def test_rows_with_missing_values_are_dropped_where_the_study_says_so():
    table = good().assign(weight=good().weight.where(good().index > 4))
    found = look(table)
    assert found.fits
    assert found.used == 55
    assert [str(each) for each in found.findings] == [
        "column 'weight': 5 of 60 rows have no value; these rows are left out. Nothing to do"
    ]
    kept = prepare_table(pa.Table.from_pandas(table, preserve_index=False), WANTED)
    assert kept.num_rows == 55
    assert "id" not in kept.column_names


def test_an_absent_level_is_a_note_and_no_error():
    found = look(good().assign(ward="medical"))
    assert found.fits
    assert [(each.code, each.is_error) for each in found.findings] == [("ABSENT_LEVEL", False)]
    assert "no row has level icu, surgical" in str(found.findings[0])


def test_missing_levels_and_dictionary_encoding_are_read():
    table = good().assign(ward=pd.Categorical(good().ward.where(good().index > 0)))
    assert look(table).used == 59


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("packed", [False, True])
def test_csv_files_are_read_whatever_the_delimiter(tmp_path, delimiter, packed):
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")
    text = good().to_csv(index=False, sep=delimiter).encode()
    path.write_bytes(gzip.compress(text) if packed else b"\xef\xbb\xbf" + text)
    found = examine_table(read_table(path), WANTED)
    assert found.findings == ()


def test_decimal_commas_of_a_spreadsheet_are_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(good().to_csv(index=False, sep=";", decimal=","))
    codes = {(each.code, each.column) for each in examine_table(read_table(path), WANTED).findings}
    assert codes == {("DECIMAL_COMMA", "weight"), ("DECIMAL_COMMA", "days")}


def test_another_encoding_is_named_with_the_line(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes("age,ward\n61,m\n62,médical\n".encode("latin-1"))
    with pytest.raises(InvalidInputError, match=r"line 3: not UTF-8\. Save the file with encoding UTF-8"):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.ods", b"", "expected a name that ends in .parquet, .csv"),
        ("rows.parquet", b"PAR1 nonsense", "is damaged"),
        ("rows.csv", b"a,b\n1,2\n1,2,3\n", "different numbers of columns"),
        ("rows.csv.gz", b"not gzip", "cannot be read"),
        ("rows.csv", b"", "is damaged"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=said):
        read_table(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"none.csv was not found"):
        read_table(tmp_path / "none.csv")


def test_the_first_rows_are_named_by_their_place():
    table = good().astype({"age": float})
    table.loc[[3, 17], "age"] = 999.0
    (finding,) = (each for each in look(table).findings if each.is_error)
    assert finding.first == (4, 18)
    assert "first: row 4, 18 after the names" in str(finding)
    mixed = good().astype({"age": object})
    mixed["age"] = mixed["age"].astype(str)
    mixed.loc[8, "age"] = "unknown"
    (finding,) = (each for each in look(mixed).findings if each.is_error)
    assert (finding.rows, finding.first) == (1, (9,))


# ---------------------------------------------------------------- units

STAYS = Study.from_text(hospital_exports.STUDY)


def stays(**factors: float) -> pa.Table:
    table = hospital_exports.hospital(700, 0)
    for name, factor in factors.items():
        table[name] = [None if value is None else value * factor for value in table[name]]
    return pa.table(table)


@pytest.mark.parametrize(
    ("column", "factor", "code", "said"),
    [
        ("los_days", 24.0, "OUT_OF_RANGE", "0.04167 (from hours) nearly all would be inside: is the unit days?"),
        ("crp", 0.1, "OTHER_UNITS", "multiplication by 10 it would not be: is the unit mg/l?"),
        ("crp", 10.0, "OUT_OF_RANGE", "multiplication by 0.1 nearly all would be inside"),
        ("age", 12.0, "OUT_OF_RANGE", "0.08333 (from months)"),
    ],
)
def test_a_factor_is_named_where_some_are_outside_or_the_middle_is_far(column, factor, code, said):
    (found,) = (each for each in examine_for_study(STAYS, stays(**{column: factor})).findings if each.factors)
    assert (found.column, found.code) == (column, code)
    assert said in str(found)
    assert found.factors[0] == pytest.approx(1 / factor, rel=1e-3)
    assert found.is_error == (code == "OUT_OF_RANGE")


def test_no_factor_is_named_for_a_good_table_or_for_a_code_of_missing_values():
    assert not any(each.factors for each in examine_for_study(STAYS, stays()).findings)
    table = hospital_exports.hospital(700, 0)
    table["los_days"] = [9999.0 if i % 20 == 0 else value for i, value in enumerate(table["los_days"])]
    (found,) = (each for each in examine_for_study(STAYS, pa.table(table)).findings if each.is_error)
    assert (found.code, found.factors) == ("OUT_OF_RANGE", ())
    assert "Correct them" in found.remedy
