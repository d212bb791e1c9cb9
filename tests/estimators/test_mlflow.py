"""What docs/how-to/serve-a-model.rst says of MLflow: its scikit-learn flavour, and a model that reads our JSON."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # those of MLflow and what it imports
PAGES = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """MLflow with runs in a folder of this test."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    found = pytest.importorskip("mlflow", reason="pip install --group referee")
    found.set_tracking_uri(f"file:{tmp_path}/runs")
    return found


def run(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """Run a script of the page in a folder that holds what the page has."""
    shutil.copy(PAGES / "mlflow_model.py", folder)
    monkeypatch.chdir(folder)
    return runpy.run_path(str(PAGES / name))


def test_the_flavour_of_scikit_learn_logs_and_loads_our_estimators(mlflow, tmp_path, monkeypatch) -> None:
    found = run("mlflow_flavour.py", monkeypatch, tmp_path)
    again, model, X = found["again"], found["model"], found["X"]
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.summary() == model.summary()


def test_a_model_that_reads_our_json_is_logged_without_a_pickle(mlflow, tmp_path, monkeypatch) -> None:
    found = run("mlflow_json.py", monkeypatch, tmp_path)
    again, model, X = found["again"], found["model"], found["X"]
    assert np.array_equal(again.predict(X), model.predict(X))
    stored = {path.name for path in (tmp_path / "runs").rglob("*")}
    assert {"model.json", "mlflow_model.py"} <= stored
    assert not [name for name in stored if name.endswith((".pkl", ".pickle", ".skops"))]
