"""What is checked of a release beside its tests: ``tools/release.py``, and the types that its users see."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import consilience
from tools import release

ROOT = Path(__file__).parents[1]


def test_each_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert release.WITH.keys() == project["optional-dependencies"].keys()
    tried = {f"Programming Language :: Python :: {python}" for python in release.PYTHONS}
    assert tried == {each for each in project["classifiers"] if ":: 3." in each}


def test_the_version_is_that_of_the_package_and_of_its_citation() -> None:
    assert release.version() == consilience.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {consilience.__version__}\n" in citation


@pytest.mark.parametrize("strange", ["tests/test_release.py", "src/consilience/left_behind.pyc", "notes.txt"])
def test_a_source_distribution_with_more_than_the_package_is_refused(tmp_path: Path, strange: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    for name, refused in {"src/consilience/py.typed": False, strange: True}.items():
        path = tmp_path / "consilience-1.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.addfile(tarfile.TarInfo(f"consilience-1/{name}"), io.BytesIO())
        if refused:
            with pytest.raises(SystemExit, match=name):
                release.check_source(path)
        else:
            release.check_source(path)


@pytest.mark.long
def test_mypy_knows_what_calls_of_a_user_return_and_names_mistakes(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = shutil.copy(Path(__file__).with_name("typed_user.py"), tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
