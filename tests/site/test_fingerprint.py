"""Fingerprints: of the rows and nothing else, whatever their order and however they are cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from pyarrow import parquet

from consilience.data import Columns
from consilience.data.shards import Shard
from consilience.messages.codec import MODULUS
from consilience.messages.failures import FailureCode, SiteError
from consilience.messages.questions import Identify
from consilience.model import Rows
from consilience.site import Site, answer
from consilience.site.site import fingerprint
from strategies import Shape, shapes


@given(shapes(max_n=30, labels="row"))
def test_neither_order_nor_parts_matter(shape: Shape) -> None:
    _, rows = shape.problem()
    rng = np.random.default_rng(shape.seed)
    whole = fingerprint(rows, b"key")
    assert fingerprint(rows.take(rng.permutation(rows.n)), b"key") == whole
    cut = rows.n // 2
    parts = (rows.take(np.arange(cut)), rows.take(np.arange(cut, rows.n)))
    assert sum(fingerprint(part, b"key") for part in parts) % MODULUS == whole


def changes(rows: Rows) -> list[Rows]:
    """Rows that differ in one number, in the assignment of numbers to rows or columns, or in number."""
    x, y, w = rows.X.copy(), rows.Y.copy(), rows.weight.copy()
    x[3, 1], y[5, 0], w[2] = np.nextafter(x[3, 1], 9), -y[5, 0], w[2] + 1
    other = rows.X.copy()
    other[[0, 1], 0] = other[[1, 0], 0]
    return [
        replace(rows, X=x),
        replace(rows, Y=y),
        replace(rows, weight=w),
        replace(rows, weight=None),
        replace(rows, X=rows.X[:, ::-1]),
        replace(rows, X=other),
        rows.take(np.arange(1, rows.n)),
        rows.take(np.r_[0, np.arange(rows.n)]),
    ]


def test_every_change_changes_it() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(40, 3)), rng.normal(size=(40, 1)), rng.uniform(1, 2, 40))
    found = {fingerprint(each) for each in (rows, *changes(rows))}
    assert len(found) == 9


def test_small_whole_numbers_do_not_collide() -> None:
    tables = np.array(np.meshgrid(*[np.arange(12.0)] * 3)).reshape(3, -1).T
    found = {fingerprint(Rows(row[None, :2], row[None, 2:])) for row in tables}
    assert len(found) == len(tables)


def test_another_key_gives_another_fingerprint() -> None:
    rows = Rows(np.ones((3, 1)), np.ones((3, 1)))
    assert fingerprint(rows, b"north") != fingerprint(rows, b"south") != fingerprint(rows)


def write(path: Path, y: np.ndarray) -> None:
    parquet.write_table(pa.table({"x": np.arange(len(y)) / 7, "y": y}), path)


def test_a_file_has_the_fingerprint_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    y = np.random.default_rng(0).normal(size=200)
    write(path, y)
    site = Site("north", Shard(str(path), Columns(("x",), ("y",))))
    assert site.fingerprint == fingerprint(Rows((np.arange(200) / 7)[:, None], y[:, None]))
    assert site.fingerprint == replace(site, keep=True).fingerprint == site.loaded().fingerprint


def test_a_file_that_changes_within_an_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "north.parquet"
    y = np.random.default_rng(0).normal(size=200)
    write(path, y)
    site = Site("north", Shard(str(path), Columns(("x",), ("y",)))).watched()
    answer(Identify(), site)
    write(path, y + 1)
    with pytest.raises(SiteError) as raised:
        answer(Identify(), site)
    assert raised.value.code is FailureCode.DATA_CHANGED
    answer(Identify(), site.watched())  # another answer: the coordinator compares it with the first
