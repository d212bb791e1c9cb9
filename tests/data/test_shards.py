"""Shards: every bit of the file arrives, in its order; what is wrong with a file has a name and shows no value."""

from __future__ import annotations

import gc
import gzip
import os
import subprocess
import sys
import warnings
import weakref
from dataclasses import astuple
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import csv, parquet

from consilience.data.file_columns import Columns
from consilience.data.shards import CHUNK, Shard, column_names_in, distinct_values
from consilience.data.stores import PLACE, _code, expand
from consilience.errors import InvalidInputError
from consilience.messages.failures import FailureCode, SiteError
from consilience.model import Groups, Rows
from pairwise import every_pair

FORMATS = (".parquet", ".pq", ".csv", ".csv.gz")


def write(table: pa.Table | dict, path: Path, **options) -> str:
    table = pa.table(table)
    if path.name.endswith((".parquet", ".pq")):
        parquet.write_table(table, path, **options)
    else:
        with pa.output_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as stream:
            csv.write_csv(table, stream)
    return str(path)


def since(version: int) -> pytest.MarkDecorator:
    """Skip a type that an older pyarrow cannot write to a Parquet file."""
    old = int(pa.__version__.split(".")[0]) < version
    return pytest.mark.skipif(old, reason=f"pyarrow < {version} does not write this type to Parquet")


def numbers(n: int, names: str = "abcy", seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(n) * 10.0 ** rng.integers(-5, 5) for name in names}


def code(shard: Shard) -> FailureCode:
    with pytest.raises(SiteError) as caught:
        for _ in shard.chunks():
            pass
    assert "secret" not in str(caught.value)
    return caught.value.code


# ---------------------------------------------------------------- what arrives


@pytest.mark.parametrize("suffix", FORMATS)
def test_round_trip_is_exact(tmp_path, suffix):
    data = numbers(1000)
    shard = Shard(write(data, tmp_path / f"a{suffix}"), Columns(("c", "a"), ("y", "b")))
    (rows,) = shard.chunks()
    assert_array_equal(rows.X, np.stack([data["c"], data["a"]], axis=1))
    assert_array_equal(rows.Y, np.stack([data["y"], data["b"]], axis=1))
    assert rows.X.dtype == rows.Y.dtype == np.float64
    assert rows.weight is rows.exposure is rows.groups is None
    assert shard.count() == 1000
    assert column_names_in(shard.uri) == ("a", "b", "c", "y")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_chunks_end_where_the_row_number_says_and_keep_the_order(tmp_path, suffix):
    n = 2 * CHUNK + 17
    data = {"x": np.arange(float(n)), "z": -np.arange(float(n)), "y": np.arange(float(n)) % 7}
    options = {"row_group_size": 10_001} if suffix == ".parquet" else {}
    uri = write(data, tmp_path / f"a{suffix}", **options)
    chunks = list(Shard(uri, Columns(("x", "z"), ("y",))).chunks())
    assert [rows.n for rows in chunks] == [CHUNK, CHUNK, 17]
    assert_array_equal(np.concatenate([rows.X for rows in chunks]), np.stack([data["x"], data["z"]], axis=1))
    assert_array_equal(np.concatenate([rows.Y[:, 0] for rows in chunks]), data["y"])
    for rows in chunks:
        assert rows.X.T.flags.c_contiguous
        assert rows.Y.T.flags.c_contiguous


def test_chunks_are_independent_of_each_other(tmp_path):
    uri = write({"x": np.arange(float(CHUNK + 1))}, tmp_path / "a.parquet")
    first, second = Shard(uri, Columns((), ("x",))).chunks()
    assert first.Y[0] == 0
    assert second.Y[0] == CHUNK
    assert first.X.shape == (CHUNK, 0)


def test_a_shard_is_rebuilt_from_plain_values(tmp_path):
    shard = Shard(write(numbers(5), tmp_path / "a.parquet"), Columns(("a",), ("y",), weight=None))
    uri, columns = astuple(shard)
    again = Shard(uri, Columns(*columns))
    assert again == shard
    assert hash(again) == hash(shard)
    assert_array_equal(next(again.chunks()).X, next(shard.chunks()).X)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 1, 2], pa.int8()),
        pa.array([0, 1, 2], pa.uint64()),
        pa.array([2**53 + 1, 1, 2], pa.int64()),
        pa.array([0.1, 1, 2], pa.float32()),
        pytest.param(pa.array(np.array([0.5, 1, 2], np.float16)), marks=since(15)),
        pa.array([False, True, True]),
        pa.array([Decimal("0.25"), Decimal(1), Decimal(2)], pa.decimal128(10, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_numeric_types_become_float64(tmp_path, column):
    uri = write({"x": column, "y": [0.0, 1.0, 2.0]}, tmp_path / "a.parquet")
    (rows,) = Shard(uri, Columns(("x",), ("y",))).chunks()
    assert rows.X.dtype == np.float64
    assert_array_equal(rows.X[:, 0], np.array([float(value) for value in column.to_pylist()]))


def test_csv_of_true_and_false_and_whole_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "True,1\n" * 3 + "False,2.5\n")
    (rows,) = Shard(str(path), Columns(("x",), ("y",))).chunks()
    assert_array_equal(rows.X[:, 0], [1, 1, 1, 0])
    assert_array_equal(rows.Y[:, 0], [1, 1, 1, 2.5])


@pytest.mark.parametrize("suffix", FORMATS)
def test_weight_and_exposure(tmp_path, suffix):
    data = {"x": [1.0, 2.0], "y": [3, 4], "w": [0, 2], "e": [0.5, 1.5]}
    uri = write(data, tmp_path / f"a{suffix}")
    (rows,) = Shard(uri, Columns(("x",), ("y",), weight="w", exposure="e")).chunks()
    assert_array_equal(rows.weight, [0, 2])
    assert_array_equal(rows.exposure, [0.5, 1.5])
    (rows,) = Shard(uri, Columns(("x",), ("y",), exposure="e")).chunks()
    assert rows.weight is None
    assert_array_equal(rows.exposure, [0.5, 1.5])


def test_a_column_may_play_two_parts(tmp_path):
    uri = write({"x": [1.0, 2.0], "y": [3.0, 4.0]}, tmp_path / "a.parquet")
    columns = Columns(("x",), ("y",), exposure="x", groups="y")
    assert columns.names == ("x", "y")
    (rows,) = Shard(uri, columns).chunks()
    assert_array_equal(rows.exposure, rows.X[:, 0])


def test_columns_with_dots_and_prefixes_are_told_apart(tmp_path):
    data = {"x": [1.0], "x.y": [2.0], "y": pa.array([{"z": 3.0}])}
    (rows,) = Shard(write(data, tmp_path / "a.parquet"), Columns(("x",), ("x.y",))).chunks()
    assert (rows.X.item(), rows.Y.item()) == (1.0, 2.0)


def test_large_finite_values_pass(tmp_path):
    uri = write({"x": [1.7e308] * 3 + [-1.7e308], "y": [1.0] * 4}, tmp_path / "a.parquet")
    (rows,) = Shard(uri, Columns(("x",), ("y",))).chunks()
    assert rows.X[0] == 1.7e308


@pytest.mark.parametrize("groups", [None, "y"])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_no_rows_no_chunk(tmp_path, suffix, groups):
    uri = write({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}, tmp_path / f"a{suffix}")
    shard = Shard(uri, Columns(("x",), ("y",), groups=groups))
    assert shard.count() == 0
    assert list(shard.chunks()) == []


def test_local_paths_and_file_uris_are_the_same_shard(tmp_path, monkeypatch):
    write(numbers(3), tmp_path / "a b.parquet")
    monkeypatch.chdir(tmp_path)
    columns = Columns(("a",), ("y",))
    uris = ["a b.parquet", str(tmp_path / "a b.parquet"), (tmp_path / "a b.parquet").as_uri()]
    first, *others = [next(Shard(uri, columns).chunks()).X for uri in uris]
    for other in others:
        assert_array_equal(other, first)


# ---------------------------------------------------------------- classes and groups


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    "labels",
    [["well", "dead", "well", "ill"], [3, 1, 3, 10], [0.5, -1.5, 0.5, 2.0], [True, False, True, True]],
    ids=["text", "whole", "real", "bool"],
)
def test_classes_become_their_codes(tmp_path, labels, suffix):
    uri = write({"x": [1.0, 2.0, 3.0, 4.0], "y": labels}, tmp_path / f"a{suffix}")
    classes = distinct_values(uri, "y")
    assert classes == sorted(set(labels))
    assert [type(label) for label in classes] == [type(label) for label in sorted(set(labels))]
    (rows,) = Shard(uri, Columns(("x",), ("y",), classes=tuple(classes))).chunks()
    assert_array_equal(rows.Y[:, 0], [classes.index(label) for label in labels])
    assert rows.Y.dtype == np.float64
    assert Shard(uri, Columns((), ("y",), classes=tuple(classes))).count() == 4


@pytest.mark.parametrize(
    "kind",
    ["large_string", pytest.param("string_view", marks=since(21)), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_classes_in_every_kind_of_text(tmp_path, kind):
    labels = pa.array(["b", "a", "b"], kind)
    uri = write({"y": labels}, tmp_path / "a.parquet")
    assert distinct_values(uri, "y") == ["a", "b"]
    (rows,) = Shard(uri, Columns((), ("y",), classes=("a", "b", "c"))).chunks()
    assert_array_equal(rows.Y[:, 0], [1, 0, 1])


def test_unused_categories_are_not_values(tmp_path):
    labels = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array(["a", "unused"]))
    assert distinct_values(write({"y": labels}, tmp_path / "a.parquet"), "y") == ["a"]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["a", "secret"], ("a", "b")),
        ([1, 2], (0, 1)),
        ([1.5, 1.0], (0, 1)),
        (["a", "secret"], (0, 1)),
        ([0, 1], ("a", "b")),
    ],
)
def test_unknown_class(tmp_path, labels, classes, suffix):
    uri = write({"y": labels}, tmp_path / f"a{suffix}")
    assert code(Shard(uri, Columns((), ("y",), classes=classes))) is FailureCode.UNKNOWN_CLASS


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("labels", [["b", "a", "c", "b"], [10, 9, -1, 10]], ids=["text", "whole"])
def test_groups_are_those_of_the_labels_and_the_shard_is_one_chunk(tmp_path, labels, suffix):
    labels = labels * (CHUNK // 2)  # two chunks' worth
    uri = write({"y": np.arange(float(len(labels))), "g": labels}, tmp_path / f"a{suffix}")
    (rows,) = Shard(uri, Columns((), ("y",), groups="g")).chunks()
    as_read = [str(label) for label in labels] if "csv" in suffix else labels  # a CSV file's labels are text
    expected = Groups.of(np.array(as_read))
    assert_array_equal(rows.groups.order, expected.order)
    assert_array_equal(rows.groups.bounds, expected.bounds)
    assert_array_equal(rows.groups.codes, expected.codes)
    assert_array_equal(rows.Y[:, 0], np.arange(float(len(labels))))
    assert rows.Y.T.flags.c_contiguous
    assert distinct_values(uri, "g") == sorted(set(labels))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["1"] * 10 + ["2.5"], [1.0, 2.5]),
        (["1"] * 10 + ["b"], ["1", "b"]),
        (["2.5"] * 10 + ["b"], ["2.5", "b"]),
        (["true"] * 10 + ["maybe"], ["maybe", "true"]),
    ],
)
def test_distinct_in_csv_takes_the_type_that_fits_all(tmp_path, monkeypatch, lines, expected):
    monkeypatch.setattr("consilience.data.shards.CSV_BLOCK", 16)  # the odd value is not in the first block
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["g", *lines]))
    assert distinct_values(str(path), "g") == expected


# ---------------------------------------------------------------- troubles


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("part", ["features", "target", "weight"])
def test_text_is_not_numbers(tmp_path, suffix, part):
    uri = write({"x": [1.0, 2.0], "s": ["1", "secret"]}, tmp_path / f"a{suffix}")
    parts = {"features": ("x",), "target": ("x",)} | ({"weight": "s"} if part == "weight" else {part: ("s",)})
    assert code(Shard(uri, Columns(**parts))) is FailureCode.NOT_NUMBERS


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["1", "2"]).dictionary_encode(),
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([[1.0], [2.0]]),
        pa.array([{"a": 1.0}, {"a": 2.0}]),
    ],
    ids=lambda column: str(column.type).split("<", maxsplit=1)[0],
)
def test_other_types_are_not_numbers(tmp_path, column):
    uri = write({"x": column, "y": [1.0, 2.0]}, tmp_path / "a.parquet")
    assert code(Shard(uri, Columns(("x",), ("y",)))) is FailureCode.NOT_NUMBERS


MISSING = [
    (suffix, value, part)
    for suffix in FORMATS
    for value in (None, np.nan, np.inf, -np.inf)
    for part in ("features", "target", "weight", "exposure", "groups")
    if not (part == "groups" and "csv" in suffix and value is not None)  # a label of a CSV file is text: inf is a word
]


@pytest.mark.parametrize(("suffix", "value", "part"), every_pair(MISSING))
def test_missing_values(tmp_path, suffix, value, part):
    bad = pa.array([1.0, value], pa.float64(), from_pandas=False)
    uri = write({"x": [1.0, 2.0], "bad": bad}, tmp_path / f"a{suffix}")
    parts = {"features": ("x",), "target": ("x",)}
    parts |= {part: ("bad",)} if part in parts else {part: "bad"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert code(Shard(uri, Columns(**parts))) is FailureCode.MISSING_VALUES


@pytest.mark.parametrize("suffix", FORMATS)
def test_missing_classes_and_groups(tmp_path, suffix):
    uri = write({"x": [1.0, 2.0], "s": ["a", None]}, tmp_path / f"a{suffix}")
    assert code(Shard(uri, Columns(("x",), ("s",), classes=("a",)))) is FailureCode.MISSING_VALUES
    assert code(Shard(uri, Columns((), ("x",), groups="s"))) is FailureCode.MISSING_VALUES
    with pytest.raises(SiteError) as caught:
        distinct_values(uri, "s")
    assert caught.value.code is FailureCode.MISSING_VALUES


def test_opposite_infinities_and_late_nan_are_found(tmp_path):
    x = np.zeros(CHUNK + 5)
    x[-1] = np.nan
    assert code(Shard(write({"x": x}, tmp_path / "a.parquet"), Columns((), ("x",)))) is FailureCode.MISSING_VALUES
    x[:2], x[-1] = (np.inf, -np.inf), 0
    assert code(Shard(write({"x": x}, tmp_path / "b.parquet"), Columns((), ("x",)))) is FailureCode.MISSING_VALUES


def test_all_null_column(tmp_path):
    uri = write({"x": pa.nulls(2), "y": [1.0, 2.0]}, tmp_path / "a.parquet")
    assert code(Shard(uri, Columns(("x",), ("y",)))) is FailureCode.MISSING_VALUES


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(("part", "value"), [("weight", -1.0), ("exposure", 0.0), ("exposure", -1.0)])
def test_bad_weights(tmp_path, suffix, part, value):
    uri = write({"y": [1.0, 2.0], "w": [1.0, value]}, tmp_path / f"a{suffix}")
    assert code(Shard(uri, Columns((), ("y",), **{part: "w"}))) is FailureCode.BAD_WEIGHTS


@pytest.mark.parametrize("suffix", FORMATS)
def test_absent_column(tmp_path, suffix):
    uri = write(numbers(2), tmp_path / f"a{suffix}")
    assert code(Shard(uri, Columns(("a", "nowhere"), ("y",)))) is FailureCode.OTHER_COLUMNS
    with pytest.raises(SiteError) as caught:
        distinct_values(uri, "nowhere")
    assert caught.value.code is FailureCode.OTHER_COLUMNS


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_name_that_two_columns_have(tmp_path, suffix):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([3.0])], names=["x", "x", "y"])
    assert code(Shard(write(table, tmp_path / f"a{suffix}"), Columns(("x",), ("y",)))) is FailureCode.OTHER_COLUMNS


@pytest.mark.parametrize("suffix", FORMATS)
def test_absent_file(tmp_path, suffix):
    shard = Shard(str(tmp_path / f"none{suffix}"), Columns((), ("y",)))
    assert code(shard) is FailureCode.DATA_NOT_FOUND
    for read in (shard.count, lambda: column_names_in(shard.uri), lambda: distinct_values(shard.uri, "y")):
        with pytest.raises(SiteError) as caught:
            read()
        assert caught.value.code is FailureCode.DATA_NOT_FOUND


def damaged(path: Path) -> Path:
    content = bytearray(path.read_bytes())
    content[100 : len(content) // 2] = os.urandom(len(content) // 2 - 100)
    path.write_bytes(content)
    return path


def test_what_is_not_the_format_it_says(tmp_path):
    data = numbers(1000)
    files = {
        "text.parquet": b"y,x\n1,2\n",
        "empty.parquet": b"",
        "empty.csv": b"",
        "ragged.csv": b"y,x\n1,2\nsecret\n",
        "plain.csv.gz": b"y,x\n1,2\n",
        "cut.csv.gz": gzip.compress(b"y\n" + b"1.25\n" * 10_000)[:-20],
        "cut.parquet": Path(write(data, tmp_path / "whole.parquet")).read_bytes()[:-100],
        "other.xlsx": b"",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert code(Shard(str(tmp_path / name), Columns((), ("y",)))) is FailureCode.DATA_UNREADABLE, name
    damaged(tmp_path / "whole.parquet")
    assert code(Shard(str(tmp_path / "whole.parquet"), Columns(("a", "b"), ("y",)))) is FailureCode.DATA_UNREADABLE
    (tmp_path / "directory.parquet").mkdir()
    assert code(Shard(str(tmp_path / "directory.parquet"), Columns((), ("y",)))) is FailureCode.DATA_UNREADABLE
    assert code(Shard("ftp://host/a.parquet", Columns((), ("y",)))) is FailureCode.DATA_NOT_FOUND


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read(tmp_path):
    uri = write(numbers(2), tmp_path / "a.parquet")
    Path(uri).chmod(0)
    assert code(Shard(uri, Columns((), ("y",)))) is FailureCode.NO_CREDENTIALS


def test_errors_tell_the_place_and_not_the_value(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n3,secret\n")
    with pytest.raises(SiteError, match=r"a\.csv, column 'y', line 3$") as caught:
        list(Shard(str(path), Columns(("x",), ("y",))).chunks())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    said = "CSV parse error: Row #7: Expected 2 columns, got 1: Row #8: CSV conversion error to double"
    assert PLACE.match(said).groups() == (None, "7", None)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", FailureCode.NO_CREDENTIALS),
        ("AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation", FailureCode.NO_CREDENTIALS),
        ("AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation", FailureCode.NO_CREDENTIALS),
        (
            "AWS Error UNKNOWN (HTTP status 400) during HeadObject operation",
            FailureCode.NO_CREDENTIALS,
        ),  # expired token
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation", FailureCode.DATA_NOT_FOUND),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7", FailureCode.NO_STORE),
        ("Corrupt snappy compressed data.", FailureCode.DATA_UNREADABLE),
    ],
)
def test_what_pyarrow_says_has_a_name(said, expected):
    assert _code(f"When reading information for key 'a' in bucket 'b': {said}") is expected


# ---------------------------------------------------------------- columns and patterns


@pytest.mark.parametrize(
    "parts",
    [
        {"features": (), "target": ()},
        {"features": ("x", "x"), "target": ("y",)},
        {"features": (), "target": ("y", "z"), "classes": (0, 1)},
        {"features": (), "target": ("y",), "classes": ()},
        {"features": (), "target": ("y",), "classes": (1, 0)},
        {"features": (), "target": ("y",), "classes": (0, 0)},
        {"features": (), "target": ("y",), "classes": (0, "a")},
        {"features": (), "target": ("y",), "classes": (None,)},
    ],
)
def test_columns_that_cannot_be(parts):
    with pytest.raises(InvalidInputError):
        Columns(**parts)


def test_expand_is_sorted_absolute_and_of_files_only(tmp_path, monkeypatch):
    for name in ("b/2.parquet", "a/1.parquet", "a/0.parquet", "a/x.csv", "c [1].parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a" / "directory.parquet").mkdir()
    monkeypatch.chdir(tmp_path)

    def names(pattern: str) -> list[str]:
        return [str(Path(uri).relative_to(tmp_path)) for uri in expand(pattern)]

    assert names("a/*.parquet") == ["a/0.parquet", "a/1.parquet"]
    assert names(f"{tmp_path}/*/?.parquet") == ["a/0.parquet", "a/1.parquet", "b/2.parquet"]
    assert names("**/*.parquet") == ["a/0.parquet", "a/1.parquet", "b/2.parquet", "c [1].parquet"]
    assert names(f"file://{tmp_path}/a/[01].parquet") == ["a/0.parquet", "a/1.parquet"]
    assert names("c [1].parquet") == ["c [1].parquet"]
    assert expand(["z.csv", "a.csv"]) == ("z.csv", "a.csv")
    for pattern in ("a/*.pq", "nowhere/*", "a", []):
        with pytest.raises(InvalidInputError, match="no file matches"):
            expand(pattern)


# ---------------------------------------------------------------- cost

READ_ALL = """
import re, sys
from pathlib import Path
from consilience.data.file_columns import Columns
from consilience.data.shards import Shard
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
total = sum(rows.n for rows in Shard(sys.argv[1], Columns(tuple(f"x{j}" for j in range(20)), ("y",))).chunks())
print(total, (peak() - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("compression", ["snappy", pytest.param("none", marks=pytest.mark.long)])
def test_memory_does_not_grow_with_the_row_group(tmp_path, compression):
    n = 2_000_000
    rng = np.random.default_rng(0)
    table = {f"x{j}": rng.standard_normal(n) for j in range(20)} | {"y": rng.standard_normal(n)}
    uri = write(table, tmp_path / "a.parquet", row_group_size=n, compression=compression)
    out = subprocess.run([sys.executable, "-c", READ_ALL, uri], capture_output=True, text=True, check=True)
    rows, megabytes = map(int, out.stdout.split())
    assert rows == n
    assert 10 < megabytes < 200  # of 336


def test_the_model_reads_chunks_as_it_reads_the_whole(tmp_path):
    from consilience.datasets import soft
    from consilience.model import expect

    data = soft(70_000, random_state=0)
    d = data.X.shape[1]
    uri = write({**{f"x{j}": data.X[:, j] for j in range(d)}, "y": data.y}, tmp_path / "a.parquet")
    shard = Shard(uri, Columns(tuple(f"x{j}" for j in range(d)), ("y",)))
    first, second = (expect(data.truth, rows) for rows in shard.chunks())
    whole = expect(data.truth, Rows(data.X, data.y[:, None]))
    np.testing.assert_allclose((first + second).experts.second, whole.experts.second, rtol=1e-10, atol=1e-8)


@pytest.mark.slow
def test_a_pass_holds_the_current_chunk_and_the_next(tmp_path):
    n = 4 * CHUNK
    uri = write({"x": np.arange(float(n)), "y": np.arange(float(n))}, tmp_path / "a.parquet")
    seen = []
    for rows in Shard(uri, Columns(("x",), ("y",))).chunks():
        seen.append(weakref.ref(rows))
        del rows
        gc.collect()
        assert [each() is not None for each in seen[:-1]] == [False] * (len(seen) - 1)
    assert len(seen) == 4
