"""Every piece of Python on a page runs from its first line: as a doctest, or as a script that a test names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in DOCS.rglob("*.rst") if not {"_build", "generated"} & set(page.relative_to(DOCS).parts)]
SCRIPTS = {  # that pages include, and what runs them
    "how-to/cluster/fit.py": "test_snippets.py",
    "how-to/cluster/score.py": "test_snippets.py",
    "how-to/cluster/secure.py": "engines/test_dask_tls.py",
    "how-to/cluster/table.py": "test_snippets.py",
    "how-to/mlflow_flavour.py": "estimators/test_mlflow.py",
    "how-to/mlflow_json.py": "estimators/test_mlflow.py",
    "how-to/mlflow_model.py": "estimators/test_mlflow.py",
    "how-to/serve_a_model.py": "estimators/test_serving.py",
    "paths/biostatistician.py": "paths/test_paths.py",
    "paths/platform_engineer.py": "paths/test_paths.py",
    "paths/r_user.py": "paths/test_paths.py",
    "paths/scikit_learn_user.py": "paths/test_paths.py",
    "readers/read_model.py": "files/test_readers.py",
    "studies/beijing_air/tables.py": "test_worked_studies.py",
    "studies/heart_disease/tables.py": "test_worked_studies.py",
    "studies/parkinsons/tables.py": "test_worked_studies.py",
}


def test_no_page_has_python_that_nothing_runs() -> None:
    """The doctest builder runs doctests and ``testcode``; it does not run code blocks, nor what is skipped."""
    assert len(PAGES) > 60
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for silent in ("code-block:: py", "code:: py", "sourcecode:: py", "doctest: +SKIP", ":hide:"):
            assert silent not in text, f"{page}: {silent}"
        for setup in re.findall(r"^\.\. testsetup::\n\n((?:   .*\n)+)", text, flags=re.MULTILINE):
            file = re.fullmatch(r' +__import__\("shutil"\)\.copy\(f"\{CHECKOUT\}/docs/([\w/.]+)", "[\w.]+"\)\n', setup)
            assert file, f"{page}: {setup}"  # nothing is hidden but the file that the page shows
            assert f"literalinclude:: ../{file[1]}" in text, f"{page}: {setup}"


def included(page: Path) -> list[str]:
    """Paths below docs of the scripts that a page includes."""
    marked = [
        line.split("::")[1].strip()
        for line in page.read_text(encoding="utf-8").splitlines()
        if "literalinclude::" in line
    ]
    files = [DOCS / name[1:] if name.startswith("/") else (page.parent / name).resolve() for name in marked]
    return [file.relative_to(DOCS).as_posix() for file in files if file.suffix == ".py" and file.is_relative_to(DOCS)]


def test_scripts_that_pages_include_are_run_by_tests() -> None:
    assert {name for page in PAGES for name in included(page)} == set(SCRIPTS)
    for name, test in SCRIPTS.items():
        words = (Path(__file__).parent / test).read_text(encoding="utf-8")
        assert Path(name).name in words or Path(name).stem in words or "tables.py" in name, name


@pytest.mark.long
def test_the_scripts_of_the_cluster_page_fit_and_score_files(tmp_path: Path) -> None:
    said = ""
    for name in ("table.py", "fit.py", "score.py"):
        script = [sys.executable, DOCS / "how-to" / "cluster" / name]
        said += subprocess.run(script, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "MixtureOfExpertsRegressor, n_experts=4" in said
    assert len(list((tmp_path / "scores").glob("*.parquet"))) == 20
    assert len(list((tmp_path / "scores-of-new").glob("*.parquet"))) == 5
