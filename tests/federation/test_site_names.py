"""Names of sites: in normal form, and distinct to the eye."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from consilience import Federation
from consilience.errors import InvalidInputError
from consilience.messages.site_names import site_names


def test_names_are_in_normal_form() -> None:
    assert site_names(["  Nord", "Mu\u0308nchen", 3, "東京"]) == ("Nord", "M\u00fcnchen", "3", "東京")


@pytest.mark.parametrize(
    "pair",
    [
        (1, "1"),
        (True, "True"),
        ("Nord", "Nord "),
        ("\u00e9", "e\u0301"),
        ("a", "\u0430"),
        ("BOX", "\u0412\u041e\u0425"),
        ("north", "North"),
        ("site 1", "site\u00a0 1"),
        ("fi", "\ufb01"),
    ],
    ids=ascii,
)
def test_names_that_look_alike_are_refused(pair: tuple[object, object]) -> None:
    with pytest.raises(InvalidInputError, match="cannot be told apart"):
        site_names(pair)
    with pytest.raises(InvalidInputError, match="cannot be told apart"):
        Federation({name: (np.zeros((3, 1)), np.zeros(3)) for name in pair})


@pytest.mark.parametrize("name", ["", "  ", "red\x1b[31m", "two\nlines", "hidden\u200b", "x" * 201], ids=ascii)
def test_names_that_cannot_be_shown_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="expected a name"):
        site_names([name])


def test_one_file_under_two_spellings_is_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": np.arange(20.0), "y": np.arange(20.0)}), tmp_path / "s.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "s.parquet")
    plain = f"{tmp_path}/s.parquet"
    for other in (
        plain,
        f"{tmp_path}/./s.parquet",
        f"{tmp_path}/../{tmp_path.name}/s.parquet",
        f"{tmp_path}/link.parquet",
    ):
        with pytest.raises(InvalidInputError, match="are the same file: name it once"):
            Federation.from_parquet([plain, other], target="y")
    shutil.copy(plain, tmp_path / "t.parquet")
    assert Federation.from_parquet([plain, f"{tmp_path}/t.parquet"], target="y")  # refused by its content in a run
