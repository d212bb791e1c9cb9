"""Workbooks, and files of statistics programs: what they hold is read, and what cannot be read is said."""

from __future__ import annotations

import datetime as dt
import zipfile
from pathlib import Path

import openpyxl
import pandas as pd
import pyreadstat
import pytest

from consilience.data import foreign_files
from consilience.data.tables import TableFormat, read_table
from consilience.errors import InvalidInputError


def book(path: Path, rows: list[list]) -> Path:
    found = openpyxl.Workbook()
    for row in rows:
        found.active.append(row)
    found.save(path)
    return path


def test_a_workbook_has_numbers_text_and_dates(tmp_path: Path) -> None:
    day = dt.datetime(2024, 2, 1)  # noqa: DTZ001 - a workbook knows no zones
    path = book(tmp_path / "a.xlsx", [["x", "s", "d", "m"], [1, " a ", day, 3], [2.5, "", day, "k.A."], [None] * 4])
    table = read_table(path)
    assert table.to_pydict() == {"x": [1.0, 2.5], "s": ["a", None], "d": [day, day], "m": ["3", "k.A."]}


def test_a_sheet_is_chosen_by_its_name_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    found = openpyxl.Workbook()
    found.active.title = "Notes"
    found.create_sheet("Data").append(["x"])
    found.save(tmp_path / "a.xlsx")
    assert read_table(tmp_path / "a.xlsx", table_format=TableFormat(sheet="Data")).column_names == ["x"]
    with pytest.raises(InvalidInputError, match="its sheets are 'Notes', 'Data'"):
        read_table(tmp_path / "a.xlsx", table_format=TableFormat(sheet="data"))
    with pytest.raises(InvalidInputError, match="first row of the sheet names the columns"):
        read_table(tmp_path / "a.xlsx")


def test_a_workbook_that_is_none_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"x,y\n1,2\n")
    with pytest.raises(InvalidInputError, match="no workbook"):
        read_table(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as parts:
        parts.writestr("anything", "x")
    with pytest.raises(InvalidInputError, match="no workbook"):
        read_table(tmp_path / "b.xlsx")
    path = book(tmp_path / "c.xlsx", [["x"], [1], [2]])
    monkeypatch.setattr(foreign_files, "MOST_UNPACKED", 100)
    with pytest.raises(InvalidInputError, match="too large"):
        read_table(path)
    monkeypatch.undo()
    monkeypatch.setattr(foreign_files, "MOST_CELLS", 2)
    with pytest.raises(InvalidInputError, match="too many cells"):
        read_table(path)


@pytest.mark.parametrize(("kind", "writer"), [("sav", "write_sav"), ("dta", "write_dta"), ("xpt", "write_xport")])
def test_files_of_statistics_programs_are_read(kind: str, writer: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"X": [1.0, float("nan")], "S": ["a", "b"]})
    getattr(pyreadstat, writer)(frame, str(tmp_path / f"a.{kind}"))
    assert read_table(tmp_path / f"a.{kind}").to_pydict() == {"X": [1.0, None], "S": ["a", "b"]}
    (tmp_path / f"b.{kind}").write_bytes(b"nothing of the kind")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_table(tmp_path / f"b.{kind}")
    with pytest.raises(InvalidInputError, match="was not found"):
        read_table(tmp_path / f"c.{kind}")


def test_an_encoding_is_said_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("x;y\n1;männlich\n".encode("cp1252"))
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        read_table(path)
    assert read_table(path, table_format=TableFormat(encoding="cp1252"))["y"].to_pylist() == ["männlich"]
    with pytest.raises(InvalidInputError, match="no such encoding"):
        read_table(path, table_format=TableFormat(encoding="klingon"))


@pytest.mark.parametrize("as_text", [True, False])
def test_a_row_with_too_many_cells_is_named_by_its_place_and_not_by_its_content(tmp_path: Path, as_text: bool) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,secret,5\n")
    with pytest.raises(InvalidInputError, match=r"row 3, .* in quotes") as caught:
        read_table(tmp_path / "a.csv", as_text=as_text)
    assert "secret" not in str(caught.value)


def test_a_database_or_an_older_workbook_ends_with_how_to_export_it(tmp_path: Path) -> None:
    for name in ("a.db", "a.xls"):
        with pytest.raises(InvalidInputError, match="export the result of a query"):
            read_table(tmp_path / name)
