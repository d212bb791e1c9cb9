"""Tables of programs that other people use: workbooks, and files of SAS, SPSS and Stata."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from consilience.errors import InvalidInputError

STATISTICS = {"sas7bdat": "read_sas7bdat", "xpt": "read_xport", "sav": "read_sav", "dta": "read_dta"}
"""Functions of pyreadstat by the ends of names."""
MOST_UNPACKED = 2**31
"""Maximum size in bytes of a workbook when it is unpacked."""
MOST_CELLS = 10**8
"""Maximum number of cells of a sheet that are read."""


def read_workbook(path: Path, sheet: str = "", *, as_text: bool = False) -> pa.Table:
    """Return the table of a sheet of an .xlsx file: names in its first row, and the values that formulas have.

    A column of numbers alone has numbers, one of dates alone has times, and all others have text; all have with
    ``as_text``.
    """
    with _open_workbook(path) as book:
        if sheet and sheet not in book.sheetnames:
            found = ", ".join(map(repr, book.sheetnames[:20]))
            raise InvalidInputError(f"{path.name} has no sheet {sheet!r}: its sheets are {found}")
        return _table_of(book[sheet or book.sheetnames[0]], path, as_text=as_text)


def sheets_of(path: Path) -> tuple[str, ...]:
    """Return the names of the sheets of a workbook, the first of which is read by default; none of other files."""
    if not path.name.lower().endswith(".xlsx"):
        return ()
    with _open_workbook(path) as book:
        return tuple(map(str, book.sheetnames))


@contextmanager
def _open_workbook(path: Path) -> Iterator[Any]:
    try:
        import openpyxl
    except ImportError as error:
        raise ImportError("workbooks need openpyxl: pip install 'consilience[excel]'") from error
    try:
        with zipfile.ZipFile(path) as parts:
            unpacked = sum(part.file_size for part in parts.infolist())
    except zipfile.BadZipFile as error:
        raise InvalidInputError(f"{path.name} is no workbook, or it is damaged: save it again as .xlsx") from error
    if unpacked > MOST_UNPACKED:
        raise InvalidInputError(f"{path.name} is too large when it is unpacked: export it as CSV")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (KeyError, ValueError) as error:
        raise InvalidInputError(f"{path.name} is no workbook, or it is damaged: save it again as .xlsx") from error
    try:
        yield book
    finally:
        book.close()


def _table_of(sheet: Any, path: Path, *, as_text: bool) -> pa.Table:
    rows = sheet.iter_rows(values_only=True)
    head = list(next(rows, ()))
    while head and head[-1] is None:
        head.pop()
    names = ["" if name is None else str(name).strip() for name in head]
    if not names or "" in names:
        raise InvalidInputError(f"{path.name}: the first row of the sheet names the columns, and a name is empty")
    cells: list[list[Any]] = [[] for _ in names]
    for number, row in enumerate(rows, start=2):
        if number * len(names) > MOST_CELLS:
            raise InvalidInputError(f"{path.name} has too many cells: export it as CSV or Parquet")
        values = [_blank(value) for value in (*row, *(None,) * len(names))[: len(names)]]
        if any(value is not None for value in values):
            for column, value in zip(cells, values, strict=True):
                column.append(value)
    return pa.table([_column(values, as_text=as_text) for values in cells], names=names)


def _blank(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip() or None
    return value


def _column(values: Sequence[Any], *, as_text: bool) -> pa.Array:
    there = [value for value in values if value is not None]
    if as_text:
        return pa.array([None if value is None else _text(value) for value in values], pa.large_string())
    if all(isinstance(value, bool) for value in there):
        return pa.array(values, pa.bool_())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in there):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if all(isinstance(value, datetime | date) for value in there):
        return pa.array(values, pa.timestamp("s"))
    return pa.array([None if value is None else _text(value) for value in values], pa.large_string())


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def read_statistics_file(path: Path, kind: str, *, as_text: bool = False) -> pa.Table:
    """Return the table of a file of SAS, SPSS or Stata, with codes as they are stored; as text with ``as_text``."""
    try:
        import pyreadstat
    except ImportError as error:
        raise ImportError(
            "files of SAS, SPSS and Stata need pyreadstat: pip install 'consilience[statistics]'"
        ) from error
    if not path.is_file():
        raise FileNotFoundError
    try:
        columns, _ = getattr(pyreadstat, STATISTICS[kind])(str(path), output_format="dict")
    except (pyreadstat.ReadstatError, ValueError) as error:
        raise InvalidInputError(f"{path.name} cannot be read: is it a file of this kind, and whole?") from error
    return pa.table({str(name): _stored(list(values), as_text=as_text) for name, values in columns.items()})


def _stored(values: Sequence[Any], *, as_text: bool) -> pa.Array:
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    there = [None if value is None or value == "" or value != value else value for value in plain]  # noqa: PLR0124 - NaN
    return _column(there, as_text=as_text)
