"""One table of a site, from the files that people export, with errors that name what to do and never a value."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from consilience.data.foreign_files import STATISTICS, read_statistics_file, read_workbook
from consilience.errors import InvalidInputError

DELIMITERS = ",;\t|"
NULLS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", ".")
"""What stands for a missing value in a CSV file."""
MOST_HEADER = 2**20
"""Maximum number of bytes in the first line of a CSV file."""


@dataclass(frozen=True)
class TableFormat:
    """How a file is written; what is empty is found out.

    Parameters
    ----------
    encoding, delimiter : str
        Of a CSV file: UTF-8, and the most frequent of comma, semicolon, tab and bar in its first line, if empty.
    sheet : str
        Sheet of a workbook; the first if empty.
    """

    encoding: str = ""
    delimiter: str = ""
    sheet: str = ""


def read_table(path: str | Path, *, as_text: bool = False, table_format: TableFormat = TableFormat()) -> pa.Table:
    """Return the table of a file: Parquet, CSV, a workbook (.xlsx), or a file of SAS, SPSS or Stata.

    Parameters
    ----------
    path : path
        Its name ends in .parquet, .csv, .tsv, .csv.gz, .xlsx, .sas7bdat, .xpt, .sav or .dta.
    as_text : bool
        Whether all columns are read as text, unless the file itself states their types, as Parquet does: no cell then
        decides how others are read.
    table_format : TableFormat
    """
    path = Path(path)
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    known = ("parquet", "csv", "tsv", "xlsx", *STATISTICS)
    if kind not in known:
        raise InvalidInputError(
            f"{path.name}: expected a name that ends in .{', .'.join(known)}, or .csv.gz. Save an older workbook as "
            ".xlsx; export the result of a query of a database as CSV or Parquet, by the tools of the database"
        )
    try:
        if kind in ("csv", "tsv"):
            return _read_csv(path, table_format, as_text=as_text)
        if kind == "xlsx":
            return read_workbook(path, table_format.sheet, as_text=as_text)
        return pq.read_table(path) if kind == "parquet" else read_statistics_file(path, kind, as_text=as_text)
    except FileNotFoundError as error:
        raise InvalidInputError(f"{path.name} was not found: check the path") from error
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be read: {error.strerror or 'it is damaged'}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, EOFError) as error:
        raise InvalidInputError(
            f"{path.name}{_line_of(error)} is damaged, or its lines have different numbers of columns: is a delimiter "
            "inside of a cell? Export it again, with text in quotes"
        ) from error


def _read_csv(path: Path, table_format: TableFormat, *, as_text: bool) -> pa.Table:
    encoding = table_format.encoding or "utf-8"
    with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rb") as file:
        first = file.readline(MOST_HEADER)
        if not table_format.encoding:
            _check_encoding(first, path, 1)
            for number, line in enumerate(file, start=2):
                _check_encoding(line, path, number)
    try:
        header = first.decode("utf-8-sig" if encoding == "utf-8" else encoding)
        reading = csv.ReadOptions(encoding=encoding, use_threads=False)  # one thread counts rows, for errors
        parsing = csv.ParseOptions(delimiter=table_format.delimiter or max(DELIMITERS, key=header.count))
        types = {}
        if as_text:
            with csv.open_csv(path, read_options=reading, parse_options=parsing) as opened:
                types = dict.fromkeys(opened.schema.names, pa.string())
        converting = csv.ConvertOptions(column_types=types, null_values=list(NULLS), strings_can_be_null=True)
        return csv.read_csv(path, read_options=reading, parse_options=parsing, convert_options=converting)
    except (LookupError, UnicodeError) as error:
        raise InvalidInputError(
            f"{path.name} is not written in {encoding!r}, or there is no such encoding: try 'utf-8' or 'cp1252'"
        ) from error


def _line_of(error: Exception) -> str:
    """Return the row that an error of reading CSV names, the first one being that of the names; empty if none."""
    found = re.search(r"Row #(\d+):", str(error))
    return f", row {found[1]}," if found else ""


def _check_encoding(line: bytes, path: Path, number: int) -> None:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path.name}, line {number}: not UTF-8. Save the file with encoding UTF-8 (in a spreadsheet: 'CSV "
            "UTF-8'), or say in a mapping how it is written: 'consilience site map' finds it out"
        ) from error
