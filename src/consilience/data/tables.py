"""One table of a site, from a Parquet or CSV file, with errors that name what to do and never a value."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from consilience.errors import InvalidInputError

DELIMITERS = ",;\t|"
NULLS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", ".")
"""What stands for a missing value in a CSV file."""
MOST_HEADER = 2**20
"""Maximum number of bytes in the first line of a CSV file."""


def read_table(path: str | Path, *, as_text: bool = False) -> pa.Table:
    """Return the table of a file whose name ends in .parquet, .csv, .tsv or .csv.gz.

    The delimiter of a CSV file is the most frequent of comma, semicolon, tab and bar in its first line.

    Parameters
    ----------
    path : path
    as_text : bool
        Whether all columns of a CSV file are read as text: no cell then decides how others are read.
    """
    path = Path(path)
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind not in ("parquet", "csv", "tsv"):
        raise InvalidInputError(f"{path.name}: expected a name that ends in .parquet, .csv, .tsv or .csv.gz")
    try:
        table = pq.read_table(path) if kind == "parquet" else _read_csv(path, as_text=as_text)
    except FileNotFoundError as error:
        raise InvalidInputError(f"{path.name} was not found: check the path") from error
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be read: {error.strerror or 'it is damaged'}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, EOFError) as error:
        raise InvalidInputError(
            f"{path.name} is damaged, or its lines have different numbers of columns: export it again"
        ) from error
    return table


def _read_csv(path: Path, *, as_text: bool) -> pa.Table:
    with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rb") as file:
        first = file.readline(MOST_HEADER)
        _check_encoding(first, path, 1)
        for number, line in enumerate(file, start=2):
            _check_encoding(line, path, number)
    header = first.decode("utf-8-sig")
    delimiter = max(DELIMITERS, key=header.count)
    parsing = csv.ParseOptions(delimiter=delimiter)
    types = {}
    if as_text:
        with csv.open_csv(path, parse_options=parsing) as opened:
            types = dict.fromkeys(opened.schema.names, pa.string())
    return csv.read_csv(
        path,
        parse_options=parsing,
        convert_options=csv.ConvertOptions(column_types=types, null_values=list(NULLS), strings_can_be_null=True),
    )


def _check_encoding(line: bytes, path: Path, number: int) -> None:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path.name}, line {number}: not UTF-8. Save the file with encoding UTF-8 (in a spreadsheet: 'CSV UTF-8')"
        ) from error
