import time

import numpy as np
import pyarrow as pa
import pytest

from consilience.columns import Column, Rule
from consilience.errors import InvalidInputError
from consilience.kit import row_tags as module
from consilience.kit.examination import UsedRows
from consilience.kit.row_tags import RowTags, count_differences, row_tags

KEY = bytes(range(32))
TABLE = pa.table({"age": [61.0, 70.0, None, 61.0], "sex": ["f", "m", "f", "f"], "smokes": [True, False, True, True]})
NAMES = ["age", "sex", "smokes"]


def tags(table, names=None, key=KEY):
    return row_tags(table, names or table.column_names, key)


def test_order_of_rows_and_columns_and_chunks_do_not_count():
    other = TABLE.take([3, 1, 0, 2]).select(["smokes", "age", "sex"])
    chunked = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    assert tags(TABLE) == tags(other) == tags(chunked)
    assert hash(tags(TABLE)) == hash(tags(other))


@pytest.mark.parametrize(
    "same",
    [
        pa.array([0, 1, None], pa.int8()),
        pa.array([0, 1, None], pa.uint64()),
        pa.array([-0.0, 1.0, float("nan")], pa.float64()),
        pa.array([0.0, 1.0, None], pa.float32()),
        pa.array([False, True, None]),
        pa.array([0, 1, None], pa.int64()).dictionary_encode(),
        pa.array(["0", "1.00", None]).cast(pa.decimal128(5, 2)),
    ],
    ids=str,
)
def test_numbers_count_by_value(same):
    assert tags(pa.table({"x": same})) == tags(pa.table({"x": [0.0, 1.0, None]}))


@pytest.mark.parametrize(
    "same",
    [
        pa.array(["é", "b", None], pa.large_string()),
        pa.array(["é", "b", None]).dictionary_encode(),
        pa.array(["e\u0301", "b", None]),
    ],
    ids=["large", "dictionary", "decomposed"],
)
def test_text_counts_by_its_normal_form(same):
    assert tags(pa.table({"x": same})) == tags(pa.table({"x": ["é", "b", None]}))


def test_missing_values_are_no_number_and_no_text():
    for other in ([0.0], ["", "x"][:1], ["None"], ["nan"]):
        assert tags(pa.table({"x": pa.array([None], pa.float64())})) != tags(pa.table({"x": other}))
    assert tags(pa.table({"x": pa.array([None], pa.float64())})) == tags(pa.table({"x": pa.array([None], pa.string())}))
    assert tags(pa.table({"x": pa.array([None], pa.null())})) == tags(pa.table({"x": pa.array([None], pa.string())}))


def test_values_keep_their_columns():
    table = pa.table({"a": [1.0], "b": [2.0]})
    assert tags(table) != tags(pa.table({"a": [2.0], "b": [1.0]}))
    assert tags(table) != tags(table.rename_columns(["a", "c"]))
    assert not np.array_equal(tags(table).tags, tags(table.rename_columns(["b", "c"])).tags)


def test_nobody_without_the_secret_can_compute_tags():
    assert count_differences(tags(TABLE), tags(TABLE, key=bytes(32))) == 2 * TABLE.num_rows
    with pytest.raises(InvalidInputError, match="16 bytes, expected 32"):
        tags(TABLE, key=bytes(16))


def test_every_value_of_a_row_counts():
    rng = np.random.default_rng(1)
    columns = {f"x{j}": rng.normal(size=50) for j in range(5)}
    for name in columns:
        changed = {**columns, name: np.r_[np.nextafter(columns[name][0], 9), columns[name][1:]]}
        assert count_differences(tags(pa.table(columns)), tags(pa.table(changed))) == 2


def test_differences_count_rows_as_often_as_they_occur():
    rng = np.random.default_rng(2)
    for _ in range(20):
        one, two = (rng.integers(0, 6, size=rng.integers(0, 30)) for _ in range(2))
        expected = sum(abs(int(np.sum(one == v)) - int(np.sum(two == v))) for v in range(6))
        assert count_differences(*(tags(pa.table({"x": each})) for each in (one, two))) == expected
    with pytest.raises(InvalidInputError, match="different columns"):
        count_differences(tags(pa.table({"x": [1]})), tags(pa.table({"y": [1]})))


def test_blocks_do_not_count(monkeypatch):
    expected = tags(TABLE)
    monkeypatch.setattr(module, "BLOCK", 3)
    assert tags(TABLE) == expected


def test_unreadable_columns_and_no_columns_are_refused():
    with pytest.raises(InvalidInputError, match="column 'day' is of type date32"):
        tags(pa.table({"day": pa.array([1], pa.date32())}))
    with pytest.raises(InvalidInputError, match="name the columns"):
        row_tags(TABLE, [], KEY)


def test_files_hold_16_bytes_a_row_and_no_value(tmp_path):
    found = tags(TABLE)
    found.write(tmp_path / "a.tags")
    data = (tmp_path / "a.tags").read_bytes()
    assert RowTags.read(tmp_path / "a.tags") == found
    assert RowTags.read(tmp_path / "a.tags").hash == found.hash
    assert len(data) == data.index(b"\n") + 1 + 16 * 4
    assert np.float64(61.0).tobytes() not in data
    with pytest.raises(InvalidInputError, match="never overwritten"):
        found.write(tmp_path / "a.tags")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x[:-1], "stated number of tags"),
        (lambda x: x + bytes(16), "stated number of tags"),
        (lambda x: x[:-32] + x[-16:] + x[-32:-16], "out of order"),
        (lambda x: x.replace(b'"version":1', b'"version":2'), "version 2"),
        (lambda x: x.replace(b'"rows":4', b'"rows":99999999999'), "no number of rows"),
        (lambda x: x.replace(b'"rows":4', b'"rows":true'), "no number of rows"),
        (lambda x: x.replace(b'"rows":4', b'"rows":4,"rows":4'), "occurs twice"),
        (lambda x: x.replace(b'"rows":4', b'"rows":4,"more":4'), "not a file of row tags"),
        (lambda x: x.replace(b'["age","sex"', b'["sex","age"'), "no sorted columns"),
        (lambda x: b"", "not JSON"),
        (lambda x: b"\xff\n", "not a file of row tags"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, said):
    (tmp_path / "a.tags").write_bytes(change(tags(TABLE).data))
    with pytest.raises(InvalidInputError, match=said):
        RowTags.read(tmp_path / "a.tags")


def test_used_rows_are_those_that_are_not_dropped():
    used = UsedRows.of(TABLE, [Column("age", rule=Rule(missing="drop"))], KEY)
    assert used.n == used.tags.n == 3
    assert used.tags.columns == ("age",)
    assert used.tags_in(["sex", "age"]) == tags(TABLE.filter(pa.array([True, True, False, True])), ["age", "sex"])
    assert used.tags_in(["weight"]) is None
    assert "secret" not in repr(used)
    with pytest.raises(InvalidInputError, match="lacks a column"):
        UsedRows.of(TABLE, [Column("weight")], KEY).tags  # noqa: B018


@pytest.mark.long
def test_a_million_rows_take_seconds():
    rng = np.random.default_rng(0)
    n = 10**6
    table = pa.table({**{f"x{j}": rng.normal(size=n) for j in range(10)}, "sex": rng.choice(["f", "m"], n)})
    start = time.process_time()
    assert count_differences(tags(table), tags(table.slice(1))) == 1
    assert time.process_time() - start < 30
