"""The loaders: only the right bytes are parsed, and every refusal says what to do."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from benchmarks.lib import datasets
from benchmarks.lib.datasets import (
    IMAGES,
    TABLES,
    DataFile,
    DataNotFoundError,
    DigestMismatchError,
    Origin,
    available,
    load_images,
    load_table,
)
from consilience.errors import InvalidInputError

ORIGIN = Origin("https://example.org/data", "as published", "CC0", "Nobody (2000)")
CSV = b"a,b\n1,x\n,y\n"
ROWS, COLUMNS = 3, 2


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A data directory whose files are registered with their digests."""
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    (tmp_path / "plain.csv").write_bytes(CSV)
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(CSV))
    parquet.write_table(pa.table({"a": [1, None], "b": ["x", "y"]}), tmp_path / "columns.parquet")
    images = np.arange(4 * ROWS * COLUMNS, dtype=np.uint8).reshape(4, ROWS, COLUMNS)
    labels = np.arange(4, dtype=np.uint8)
    np.savez(tmp_path / "set.npz", x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    for name, array in (("xa", images), ("ya", labels), ("xb", images[:2]), ("yb", labels[:2])):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(header + array.tobytes()))

    def entry(path):
        return DataFile(path, hashlib.sha256((tmp_path / path).read_bytes()).hexdigest(), ORIGIN)

    tables = {name: entry(name) for name in ("plain.csv", "packed.csv.gz", "columns.parquet")}
    sets = {"npz": (entry("set.npz"),), "idx": tuple(entry(f"{name}.gz") for name in ("xa", "ya", "xb", "yb"))}
    monkeypatch.setattr(datasets, "TABLES", tables)
    monkeypatch.setattr(datasets, "IMAGES", sets)
    return tmp_path


@pytest.mark.parametrize("name", ["plain.csv", "packed.csv.gz", "columns.parquet"])
def test_tables_of_every_format(directory, name):
    table = load_table(name, directory)
    assert table.to_pydict() == {"a": [1, None], "b": ["x", "y"]}


@pytest.mark.parametrize("name", ["npz", "idx"])
def test_images_of_every_format(directory, name):
    images = load_images(name, directory)
    assert images.X_train.shape == (4, ROWS, COLUMNS)
    assert images.X_train.ravel().tolist() == list(range(4 * ROWS * COLUMNS))
    assert images.y_train.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(images.X_test, images.X_train[:2])
    assert images.y_test.tolist() == [0, 1]
    assert all(array.dtype == np.uint8 and array.flags.writeable for array in (images.X_train, images.y_test))


def test_the_directory_may_come_from_the_environment(directory, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(directory))
    assert load_table("plain.csv").num_rows == 2
    with pytest.raises(DataNotFoundError):  # an argument wins
        load_table("plain.csv", directory / "elsewhere")


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_directory_the_error_names_source_file_and_variable(directory, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("CONSILIENCE_DATA", value)
    with pytest.raises(DataNotFoundError) as caught:
        load_table("plain.csv")
    for part in ("https://example.org/data", "plain.csv", "CONSILIENCE_DATA", "directory="):
        assert part in str(caught.value)


def test_a_missing_file_is_named_with_its_source(directory):
    (directory / "ya.gz").unlink()
    with pytest.raises(DataNotFoundError, match=r"no file ya\.gz .*https://example\.org/data"):
        load_images("idx", directory)


@pytest.mark.parametrize("name", ["plain.csv", "packed.csv.gz", "columns.parquet"])
def test_a_changed_table_is_refused_before_it_is_parsed(directory, name):
    path = directory / name
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(path.read_bytes()[:-1] + b"#")
    got = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DigestMismatchError) as caught:
        load_table(name, directory)
    assert expected in str(caught.value)
    assert got in str(caught.value)


def test_a_pickle_in_an_archive_is_refused(directory, monkeypatch):
    path = directory / "set.npz"
    objects = np.array([{}, {}], dtype=object)
    np.savez(path, x_train=objects, y_train=objects, x_test=objects, y_test=objects)
    file = DataFile("set.npz", hashlib.sha256(path.read_bytes()).hexdigest(), ORIGIN)
    monkeypatch.setattr(datasets, "IMAGES", {"npz": (file,)})
    with pytest.raises(ValueError, match="allow_pickle"):
        load_images("npz", directory)


def test_unknown_names_get_a_hint():
    with pytest.raises(InvalidInputError, match="did you mean 'heart_disease'"):
        load_table("heart_diseases")
    with pytest.raises(InvalidInputError, match="expected one of fashion_mnist, mnist"):
        load_images("tonedata")


def test_the_registry_is_complete_and_sorted():
    known = available()
    assert list(known) == sorted(known)
    assert known.keys() == TABLES.keys() | IMAGES.keys()
    files = [*TABLES.values(), *(file for files in IMAGES.values() for file in files)]
    assert len({file.path for file in files}) == len(files)
    for file in files:
        assert len(file.sha256) == 64
        assert int(file.sha256, 16) >= 0
        assert file.origin.address.startswith("https://")
        assert file.origin.licence
        assert file.origin.citation


# ---------------------------------------------------------------- the real files, where they are at hand


def in_data_directory(file):
    """Skip, with the reason, unless the data directory holds the file."""
    place = os.environ.get("CONSILIENCE_DATA")
    if not place:
        pytest.skip("CONSILIENCE_DATA is not set: the real files are not checked")
    if not (Path(place) / file.path).is_file():
        pytest.skip(f"the data directory has no {file.path}")


# Rows, columns, and the mean of one column as published.
TRUTHS = {
    "tonedata": (150, 2, "tuned", 2.07221),
    "NPreg": (200, 7, "class", 1.5),
    "betablocker": (44, 4, None, None),
    "mcycle": (133, 2, None, None),
    "heart_disease": (920, 15, None, None),
    "flights": (336_776, 19, "dep_delay", 12.639),
    "fremtpl2_frequency": (678_013, 12, "ClaimNb", 36_102 / 678_013),
    "mmash_actigraph": (1_462_678, 14, "HR", 75.51),
    "pendigits": (10_992, 22, None, None),
    "parkinsons": (5_875, 22, "motor_UPDRS", 21.296),
    "tetouan_power": (52_416, 9, "Zone 1 Power Consumption", 32_344.97),
    "beijing_air": (420_768, 18, "PM2.5", 79.793),
}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_real_tables(name):
    in_data_directory(TABLES[name])
    table = load_table(name)
    assert table.num_rows > 0
    if name in TRUTHS:
        rows, columns, column, mean = TRUTHS[name]
        assert table.shape == (rows, columns)
        if column is not None:
            values = table[column].to_numpy().astype(np.float64)
            assert np.nanmean(values) == pytest.approx(mean, rel=1e-4)


@pytest.mark.parametrize(("name", "mean"), [("mnist", 0.13066), ("fashion_mnist", 0.28604)])
def test_real_images(name, mean):
    in_data_directory(IMAGES[name][0])
    images = load_images(name)
    assert images.X_train.shape == (60_000, 28, 28)
    assert images.X_test.shape == (10_000, 28, 28)
    assert images.y_train.shape == (60_000,)
    assert images.X_train.mean() / 255 == pytest.approx(mean, rel=1e-4)
    assert np.bincount(images.y_test).sum() == 10_000
