"""Files that releases wrote stay readable for ever, and mean the same."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import consilience
from release_files import predictions, read_studies

SOURCE = Path(consilience.__file__).parent
RELEASES = sorted(Path(__file__).parent.glob("release-*"))
MODELS = [path for folder in RELEASES for path in sorted((folder / "models").glob("[!e]*.json"))]
NOT_STORED = {
    "consilience answer": "it is inside of the sealed answers, which are opened",
    "consilience key for masks": "it is what is signed, and no file",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_a_model_of_a_release_predicts_the_same(path: Path) -> None:
    expected = json.loads(path.with_name("expected.json").read_text())[path.stem]
    check_same(predictions(path.stem, consilience.load(path)), expected, relative=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("folder", RELEASES, ids=lambda path: path.name)
def test_files_of_the_kit_of_a_release_say_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "kit", tmp_path / "kit")
    monkeypatch.chdir(tmp_path / "kit")
    written = json.loads((folder / "expected.json").read_text())
    assert f"release-{written['library']}" == folder.name
    check_same(read_studies(written["coordinator"]), written["found"], relative=1e-6)  # it combines files again


def check_same(found: Any, expected: Any, relative: float) -> None:
    """Compare entries by their names and places, numbers within a tolerance."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            check_same(found[name], expected[name], relative)
    elif isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            check_same(one, other, relative)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=relative, abs=1e-13, nan_ok=True)
    else:
        assert found == expected


def test_each_kind_of_file_is_stored() -> None:
    stated = re.compile(r'(?:kind|format|FORMAT)\b[^"\n]*"?[^"\n]*"(consilience[ -][a-z ]+)"')
    known = {kind for path in SOURCE.rglob("*.py") for kind in stated.findall(path.read_text(encoding="utf-8"))}
    stored = set()
    for path in (path for folder in RELEASES for path in folder.rglob("*") if path.is_file()):
        stored.update(re.findall(r'"?format"?\s*[=:]\s*"(consilience[^"]+)"', path.read_text(encoding="latin-1")))
    assert len(known) > 15
    assert known - stored == set(NOT_STORED)
