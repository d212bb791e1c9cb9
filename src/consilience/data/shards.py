"""Shards: files of rows, local or in a store of objects, read in chunks.

A shard is opened again for each pass and keeps nothing between passes, so a cluster worker needs only its address and
columns. Reading uses one thread beside that which computes, and bounded memory, whatever the size of the file's row
groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from consilience.columns.arrow import TEXT
from consilience.data.file_columns import Chunk, Columns, encode_labels
from consilience.data.stores import is_parquet, is_remote, open_store, show_address, translate_errors
from consilience.messages import FailureCode, SiteError
from consilience.model import Rows
from consilience.numerics.threads import one_ahead

CHUNK = 65_536  # rows
SETTLED = 2 * 10**9  # nanoseconds; file systems store the time of a change in steps of at most 2 s
CSV_BLOCK = 1 << 22  # bytes; a line must be shorter
LOCAL_BUFFER = 1 << 16  # bytes per column
REMOTE_BUFFER = 1 << 26  # bytes for all columns: each request to a store asks for a column's share of it


@dataclass(frozen=True)
class Shard:
    """A Parquet or CSV file of rows, read in chunks.

    Parameters
    ----------
    uri : str
        A local path or an address ``file://``, ``s3://``, ``gs://`` or ``abfs://`` that ends in ``.parquet``, ``.pq``,
        ``.csv`` or ``.csv.gz``.
    columns : Columns
        Columns to read.

    Notes
    -----
    Credentials of an S3 store are found where the AWS tools find them: the environment
    (``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``), the profile, or the machine's role.
    They do not belong in the address. A store that is not Amazon's is set by ``AWS_ENDPOINT_URL_S3`` or
    ``AWS_ENDPOINT_URL``, or in the address, which takes precedence:
    ``s3://bucket/key.parquet?endpoint_override=localhost:9000&scheme=http&region=us-east-1``.
    Google's store uses the application default credentials, and one that is not encrypted, such as an emulator
    (``STORAGE_EMULATOR_HOST``, or ``endpoint_override`` with ``scheme=http``), none. Of Azure, an address names the
    account, ``abfs://container@account.dfs.core.windows.net/key.parquet``, or ``AZURE_STORAGE_ACCOUNT_NAME`` does; keys
    are ``AZURE_STORAGE_ACCOUNT_KEY`` or ``AZURE_STORAGE_SAS_TOKEN``, otherwise Azure's default credential.
    Other characters than letters, digits and ``-._~/`` in a key are written as in any URI (``%20``).
    A connection to a store that is down fails after some seconds, to one that does not respond after about 40.

    Examples
    --------
    >>> from pyarrow import parquet
    >>> import pyarrow as pa
    >>> from consilience.data import Columns, Shard
    >>> import tempfile
    >>> table = pa.table({"y": [1.0, 2.0, 4.0], "dose": [1, 2, 3]})
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     parquet.write_table(table, f"{directory}/north.parquet")
    ...     shard = Shard(f"{directory}/north.parquet", Columns(("dose",), ("y",)))
    ...     shard.count(), [rows.X.ravel() for rows in shard.chunks()]
    (3, [array([1., 2., 3.])])
    """

    uri: str
    columns: Columns

    def count(self) -> int:
        """Count the rows: from the footer of a Parquet file, by a pass over a CSV file or if rows are left out."""
        if self.columns.dropping:
            return sum(batch.num_rows for batch in self._complete())
        if is_parquet(self.uri):
            with translate_errors(self.uri), _parquet(self.uri) as file:
                return int(file.metadata.num_rows)
        first = self.columns.names[0]
        return sum(batch.num_rows for batch in _batches(self.uri, Columns((), (first,)), {first: pa.binary()}))

    def state(self) -> tuple[int, ...] | None:
        """Return numbers that change if a local file is written again; None for a remote, new or missing file."""
        if is_remote(self.uri):
            return None
        try:
            found = Path(open_store(self.uri)[1]).stat()
        except OSError:
            return None
        settled = time.time_ns() - found.st_mtime_ns > SETTLED  # a file written just now may be written again unseen
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) if settled else None

    def chunks(self) -> Iterator[Rows]:
        """Yield rows in file order, 65,536 at a time; with groups all at once, since a group must stay whole.

        Chunk boundaries depend only on the number of rows before them. An empty file has no chunks. From the second on,
        a chunk is read by another thread while the caller computes with the one before.
        """
        chunks = self._chunks()
        held = list(islice(chunks, 1))
        if held and held[0].n >= CHUNK:
            yield from one_ahead(chain(map(list.pop, [held]), chunks))  # popped: not held for the whole pass
        else:
            yield from held

    def _chunks(self) -> Iterator[Rows]:
        size = CHUNK if not self.columns.labels else max(1, self.count())
        chunk = Chunk(self.columns, size)
        for batch in self._complete():
            start = 0
            while start < batch.num_rows:
                start += chunk.fill(batch, start)
                if chunk.is_full:
                    yield chunk.rows()
                    chunk = Chunk(self.columns, size)
        if chunk.n:
            yield chunk.rows()

    def _complete(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows, without those that a missing value leaves out."""
        names = self.columns.dropping
        for batch in _batches(self.uri, self.columns):
            missing = [batch.column(name).is_null(nan_is_null=True) for name in names]
            yield batch.filter(pc.invert(reduce(pc.or_, missing))) if missing else batch


def column_names_in(uri: str) -> tuple[str, ...]:
    """Return the column names of a file, in file order.

    Parameters
    ----------
    uri : str
        As in :class:`Shard`.

    Returns
    -------
    tuple of str
    """
    with translate_errors(uri):
        return tuple(_schema(uri).names)


def column_types(uri: str) -> dict[str, pa.DataType]:
    """Return the types of the columns of a file by their names; for a CSV file inferred from its first block."""
    with translate_errors(uri):
        return {field.name: field.type for field in _schema(uri)}


def distinct_values(uri: str, column: str) -> list[Any]:
    """Return the sorted distinct values of one column, in one pass that keeps nothing else.

    Parameters
    ----------
    uri : str
        As in :class:`Shard`.
    column : str
        A column of class or group labels, without missing values. In a CSV file it is whole numbers, numbers or text,
        whichever first fits all its values.

    Returns
    -------
    list
    """
    columns = Columns((), (column,))
    if is_parquet(uri):
        return _distinct(_batches(uri, columns), column)
    with translate_errors(uri):
        inferred = _type_of(_schema(uri), column)
    for kind in (inferred, pa.float64()):
        try:
            return _distinct(_batches(uri, columns, {column: kind}), column)
        except SiteError as error:
            if error.code is not FailureCode.NOT_NUMBERS:
                raise
    return _distinct(_batches(uri, columns, {column: pa.string()}), column)


def _distinct(batches: Iterator[pa.RecordBatch], column: str) -> list[Any]:
    seen: set[Any] = set()
    for batch in batches:
        seen.update(encode_labels(batch.column(column), column)[0])
    return sorted(seen)


def read_columns(uri: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of a file as they are, at least one batch; those of a CSV file as text."""
    columns, text = Columns((), tuple(names)), dict.fromkeys(names, pa.string())
    empty = True
    for batch in _batches(uri, columns, text):
        empty = False
        yield batch.select(list(names))
    if empty:
        types = column_types(uri) if is_parquet(uri) else text
        yield pa.RecordBatch.from_pydict({name: pa.array([], types[name]) for name in names})


# ---------------------------------------------------------------- reading


def _batches(uri: str, columns: Columns, types: dict[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield record batches with the named columns; ``types`` of CSV columns default to those of their roles."""
    known: list[str] = []
    with translate_errors(uri, known):
        if is_parquet(uri):
            with _parquet(uri, len(columns.names)) as file:
                _check_columns(file.schema_arrow, columns, uri)
                yield from file.iter_batches(batch_size=CHUNK, columns=list(columns.names), use_threads=False)
            return
        schema = _schema(uri)
        known += schema.names
        _check_columns(schema, columns, uri)
        types = {name: _csv_type(name, columns, schema) for name in columns.names} if types is None else types
        options = csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=True)
        with _csv(uri, options) as batches:
            yield from batches


@contextmanager
def _parquet(uri: str, width: int = 1) -> Iterator[parquet.ParquetFile]:
    """Open a Parquet file with a small buffer per column.

    Without the buffer a whole column chunk is held for each column; mapped memory would count as the process's own,
    and a cluster's memory monitor would stop workers.
    """
    files, path = open_store(uri)
    buffer = max(LOCAL_BUFFER, REMOTE_BUFFER // width) if is_remote(uri) else LOCAL_BUFFER
    with (
        files.open_input_file(path) as source,
        parquet.ParquetFile(source, pre_buffer=False, buffer_size=buffer) as file,
    ):
        yield file


@contextmanager
def _csv(uri: str, options: csv.ConvertOptions) -> Iterator[csv.CSVStreamingReader]:
    files, path = open_store(uri)
    with files.open_input_stream(path, compression="gzip" if path.endswith(".gz") else None) as source:
        reading = csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK)
        with csv.open_csv(source, reading, convert_options=options) as batches:
            yield batches


def _schema(uri: str) -> pa.Schema:
    """Return the names and types of all columns; for a CSV file inferred from its first block."""
    if is_parquet(uri):
        with _parquet(uri) as file:
            return file.schema_arrow
    with _csv(uri, csv.ConvertOptions()) as batches:
        return batches.schema


def _check_columns(schema: pa.Schema, columns: Columns, uri: str) -> None:
    for name in columns.names:
        number = len(schema.get_all_field_indices(name))
        if number != 1:
            count = f"{number} columns" if number else "no column"
            raise SiteError(FailureCode.OTHER_COLUMNS, f"{show_address(uri)} has {count} named {name!r}")


def _csv_type(name: str, columns: Columns, schema: pa.Schema) -> Any:
    """Return the type to read a CSV column as: number, unless it has labels or its first block is boolean."""
    inferred = _type_of(schema, name)
    if name in columns.labels and name not in columns.numeric:
        return pa.string()
    if columns.classes is not None and name in columns.target and str(inferred) in TEXT:
        return inferred
    levels = columns.feature(name).levels
    if levels:
        return pa.string() if isinstance(levels[0], str) else _number_or_boolean(inferred)
    if columns.classes is not None and name in columns.target and isinstance(columns.classes[0], str):
        return pa.string()
    return _number_or_boolean(inferred)


def _number_or_boolean(inferred: Any) -> Any:
    return inferred if pa.types.is_boolean(inferred) else pa.float64()


def _type_of(schema: pa.Schema, name: str) -> Any:
    return schema.field(name).type if len(schema.get_all_field_indices(name)) == 1 else pa.null()
