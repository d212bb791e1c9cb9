"""JSON is read strictly and written for people."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from consilience.errors import InvalidInputError
from consilience.files import json_text
from consilience.files.documents import Number, Numbers, jsonable
from consilience.files.json_text import parse_json, read_text, write_json


@given(st.lists(st.floats(), min_size=1))
def test_floats_are_the_same_to_the_bit_after_a_round_trip(values: list[float]) -> None:
    before = np.array(values)
    after = Numbers((1,)).read(parse_json(write_json(jsonable(before))))
    same = (before.view(np.int64) == after.view(np.int64)) | (np.isnan(before) & np.isnan(after))
    assert same.all()
    real = TypeAdapter(Number).validate_python
    assert all(math.isnan(v) or real(parse_json(write_json(jsonable(v)))) == v for v in values)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(st.lists(st.none() | st.booleans() | st.integers() | st.text())) | st.dictionaries(st.text(), st.text())
)
def test_what_is_written_is_json(value: object) -> None:
    assert json.loads(write_json(value)) == value
    assert parse_json(write_json(value)) == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not JSON"),
        ('{"a": 1', "not JSON"),
        ('{"a": 1} x', "not JSON"),
        ('{"a": NaN}', "null for NaN"),
        ("[-Infinity]", "null for NaN"),
        ('{"a": 1, "a": 1}', "'a' occurs twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("9" * 5_000, "not JSON"),
    ],
)
def test_other_text_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        parse_json(text)


def test_large_files_are_refused_before_they_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MOST_VALUES", 10)
    with pytest.raises(InvalidInputError, match="more than 10 values"):
        parse_json("[" + "[],," * 10)
    monkeypatch.setattr(json_text, "MOST_BYTES", 10)
    (tmp_path / "large.json").write_text("{}" * 6)
    with pytest.raises(InvalidInputError, match="more than 10 bytes"):
        read_text(tmp_path / "large.json")


def test_files_that_are_missing_or_not_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_text(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidInputError, match="not text in UTF-8"):
        read_text(tmp_path / "binary.json")


@pytest.mark.parametrize("value", [{"a": object()}, [1.0, float("nan")]])
def test_other_values_are_not_written(value: object) -> None:
    with pytest.raises(InvalidInputError, match="cannot be saved"):
        write_json(value)


@pytest.mark.parametrize("values", [[[1.0], [1.0, 2.0]], [1.0, [2.0]], [[]]])
def test_ragged_or_empty_lists_are_no_arrays(values: list[object]) -> None:
    with pytest.raises(ValueError, match=r"rows of different lengths|expected numbers on 1 or 2 levels"):
        Numbers((1, 2), empty=False).read(values)
