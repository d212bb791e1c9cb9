"""Write Parquet files so that a name is there only when its file is complete, locally or in an S3 store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs, parquet

from consilience.site.stores import is_remote, named, store

STAMP = b"consilience"
"""Key in the metadata of a file under which its stamp is stored."""


def stamp_of(uri: str) -> str | None:
    """Return the stamp of a file: empty if it has none or is not a Parquet file; None if there is no file.

    Examples
    --------
    >>> stamp_of("no/such/file.parquet") is None
    True
    """
    with named(uri):
        files, path = store(uri)
        if files.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with suppress(pa.ArrowException), files.open_input_file(path) as source:
            metadata = parquet.read_schema(source).metadata or {}
            return str(metadata.get(STAMP, b"").decode())
    return ""


@contextmanager
def parquet_writer(uri: str, schema: pa.Schema, stamp: str) -> Iterator[parquet.ParquetWriter]:
    """Open a writer of a Parquet file that gets its name when all of it is written; after an error there is no file.

    Rows go to a hidden file beside it, which a pattern such as ``*.parquet`` does not match.

    Parameters
    ----------
    uri : str
        Local path or ``s3://`` address.
    schema : pyarrow.Schema
    stamp : str
        Text in the metadata of the file, by which :func:`stamp_of` identifies it.

    Examples
    --------
    >>> import tempfile
    >>> rows = pa.table({"y": [1.0]})
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with parquet_writer(f"{directory}/a.parquet", rows.schema, "first") as writer:
    ...         writer.write_table(rows)
    ...     os.listdir(directory), stamp_of(f"{directory}/a.parquet")
    (['a.parquet'], 'first')
    """
    files, path = store(uri)
    folder, _, name = path.rpartition("/")
    part = f"{folder}/.{name}.{uuid4().hex}.part"
    if not is_remote(uri):
        Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        stamped = schema.with_metadata({STAMP: stamp})
        with files.open_output_stream(part) as sink, parquet.ParquetWriter(sink, stamped) as writer:
            yield writer
        if not is_remote(uri):
            _to_disk(part)
        files.move(part, path)
    except BaseException:
        with suppress(OSError):
            files.delete_file(part)
        raise


def _to_disk(path: str) -> None:
    """Wait until a local file is on disk, so that its name never stands for less than all of it."""
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())
