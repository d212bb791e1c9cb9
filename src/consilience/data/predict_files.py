"""Files of predictions: scores of a file by a fitted mixture, in a Parquet file that is complete or not there."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyarrow import fs, parquet

from consilience.data.shards import Shard, read_columns
from consilience.data.stores import is_remote, move_file, open_store, show_address, translate_errors
from consilience.errors import ConsilienceError
from consilience.messages import decode
from consilience.messages.checks import check_rows
from consilience.model import Mixture, Rows
from consilience.numerics.arrays import Array
from consilience.numerics.threads import one_blas_thread

STAMP = b"consilience"
"""Key in the metadata of a file under which its stamp is stored."""


def stamp_of(uri: str) -> str | None:
    """Return the stamp of a file: empty if it has none or is not a Parquet file; None if there is no file."""
    with translate_errors(uri):
        files, path = open_store(uri)
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
        Local path, or address in a store.
    schema : pyarrow.Schema
    stamp : str
        Text in the metadata of the file, by which :func:`stamp_of` identifies it.
    """
    files, path = open_store(uri)
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
        move_file(files, part, path)
    except BaseException:
        with suppress(OSError):
            files.delete_file(part)
        raise


def _to_disk(path: str) -> None:
    """Wait until a local file is on disk, so that its name never stands for less than all of it."""
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())


# ---------------------------------------------------------------- scoring

_log = logging.getLogger("consilience.site")


@dataclass(frozen=True)
class Scoring:
    """What to read from one file, and where to write its scores.

    Parameters
    ----------
    shard : Shard
        The file with the columns that the mixture reads; without a target, gate probabilities are written.
    out : str
        Address of the file to write.
    keep : tuple of str
        Columns that are copied, such as a key.
    labels : tuple
        Classes in the order of the mixture; empty for other responses.
    model : str
        Digest of the mixture and of its columns.
    overwrite : bool
        Whether to write again what is there.
    """

    shard: Shard
    out: str
    keep: tuple[str, ...]
    labels: tuple[Any, ...]
    model: str
    overwrite: bool

    def stamp(self) -> str:
        """Return a text that is the same for the same model, file and columns; it is stored with the scores."""
        with translate_errors(self.shard.uri):
            files, path = open_store(self.shard.uri)
            info = files.get_file_info(path)
        said = {
            "scores": show_address(self.shard.uri),
            "bytes": info.size,
            "changed": info.mtime_ns,
            "model": self.model,
            "columns": [*self.shard.columns.names, "|", *self.keep],
        }
        return json.dumps(said)


@dataclass(frozen=True)
class Scored:
    """Outcome for one file: the number of rows written, or that it was there, or why it could not be scored."""

    rows: int = 0
    was_there: bool = False
    failure: str = ""


def score_file(task: Scoring, model: bytes) -> Scored:
    """Score one file, unless its scores are there; failures are returned, in a sentence without data.

    Parameters
    ----------
    task : Scoring
    model : bytes
        Encoded question about the log-likelihood of the mixture, from which it is read.
    """
    try:
        stamp = task.stamp()
        found = None if task.overwrite else stamp_of(task.out)
        if found == stamp:
            return Scored(was_there=True)
        if found is not None:
            return Scored(
                failure=f"{show_address(task.out)} is there, and not of this model and this file: "
                "pass overwrite=True to write it again, or another folder"
            )
        with one_blas_thread():
            return Scored(rows=write_scores(task, decode(model).mixture, stamp))
    except ConsilienceError as error:
        return Scored(failure=str(error))
    except Exception as error:  # noqa: BLE001 - as in an answer: its text may have data in it, and stays in the log
        _log.error("%s could not be scored", show_address(task.shard.uri), exc_info=error)
        return Scored(failure=f"an unexpected {type(error).__name__}: its traceback is in the log consilience.site")


def write_scores(task: Scoring, mixture: Mixture, stamp: str) -> int:
    """Write the scores of a file, chunk by chunk; return the number of rows."""
    kept = _Aligned(read_columns(task.shard.uri, task.keep)) if task.keep else None
    tables = (_table(task, mixture, rows, kept) for rows in _chunks(task.shard))
    first = next(tables)
    total = 0
    with parquet_writer(task.out, first.schema, stamp) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
            total += table.num_rows
    return total


def _chunks(shard: Shard) -> Iterator[Rows]:
    """Yield the chunks of a file; one without rows if it has none, for the columns of its scores."""
    chunks = shard.chunks()
    empty = Rows(np.empty((0, shard.columns.terms)), np.empty((0, len(shard.columns.target))))
    yield next(chunks, empty)
    yield from chunks


def _table(task: Scoring, mixture: Mixture, rows: Rows, kept: _Aligned | None) -> pa.Table:
    columns: dict[str, Any] = {} if kept is None else kept.take(rows.n)
    columns |= _predictions(mixture, rows, task.labels)
    known = rows.Y.shape[1] > 0
    if known:
        check_rows(rows, mixture)
        share = mixture.responsibilities(rows)
        share = share if rows.groups is None else share[rows.groups.codes]
    else:
        share = mixture.gate_weights(rows.X)
    columns["expert"] = share.argmax(axis=1).astype(np.int32)
    name = "responsibility" if known else "gate"
    columns |= {f"{name}_{k}": np.ascontiguousarray(share[:, k]) for k in range(mixture.K)}
    return pa.table(columns)


def _predictions(mixture: Mixture, rows: Rows, labels: tuple[Any, ...]) -> dict[str, Any]:
    """Return the columns of predictions: none without covariates, the class and its probabilities, or the mean."""
    if mixture.design.d == 0:
        return {}
    mean = mixture.mean(rows.X)
    if labels:
        probability = mean / mean.sum(axis=1, keepdims=True)
        classes = pa.array(labels).take(pa.array(probability.argmax(axis=1)))
        return {"prediction": classes} | _columns("probability", labels, probability)
    if rows.exposure is not None:
        mean = mean * rows.exposure[:, None]
    return {"prediction": mean[:, 0]} if mean.shape[1] == 1 else _columns("prediction", range(mean.shape[1]), mean)


def _columns(name: str, labels: Any, values: Array) -> dict[str, Array]:
    return {f"{name}_{label}": np.ascontiguousarray(values[:, j]) for j, label in enumerate(labels)}


class _Aligned:
    """Record batches of the copied columns, taken in other numbers of rows than they come in."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest = pa.Table.from_batches([next(batches)])

    def take(self, n: int) -> dict[str, Any]:
        """Return the next ``n`` rows of each column."""
        while self._rest.num_rows < n:
            self._rest = pa.concat_tables([self._rest, pa.Table.from_batches([next(self._batches)])])
        taken, self._rest = self._rest.slice(0, n), self._rest.slice(n)
        return dict(zip(taken.column_names, taken.columns, strict=True))
