"""What docs/how-to/serve-a-model.rst says of MLflow: its scikit-learn flavour, and a model that reads our JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from consilience import MixtureOfExpertsRegressor

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # those of MLflow and what it imports
CODE = Path(__file__).parents[2] / "docs" / "how-to" / "mlflow_model.py"
NEEDS = {"pip_requirements": ["consilience"]}  # otherwise MLflow imports the model in another process to find out


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """MLflow with runs in a folder of this test."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    found = pytest.importorskip("mlflow", reason="pip install --group referee")
    found.set_tracking_uri(f"file:{tmp_path}/runs")
    return found


def fitted() -> tuple[MixtureOfExpertsRegressor, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(60, 10, 300), "ward": rng.choice(["east", "west"], 300)})
    y = np.where(rng.random(300) < 0.5, 3 + 0.1 * X["age"], 20 - 0.1 * X["age"]) + 0.5 * rng.normal(size=300)
    return MixtureOfExpertsRegressor(2, random_state=0, n_init=1).fit(X, y), X


def test_the_flavour_of_scikit_learn_logs_and_loads_our_estimators(mlflow) -> None:
    model, X = fitted()
    with mlflow.start_run():
        logged = mlflow.sklearn.log_model(model, name="model", serialization_format="cloudpickle", **NEEDS)
    again = mlflow.sklearn.load_model(logged.model_uri)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.summary() == model.summary()


def test_a_model_that_reads_our_json_is_logged_without_a_pickle(mlflow, tmp_path: Path) -> None:
    model, X = fitted()
    model.save(tmp_path / "model.json")
    with mlflow.start_run():
        logged = mlflow.pyfunc.log_model(
            name="model", python_model=str(CODE), artifacts={"model": str(tmp_path / "model.json")}, **NEEDS
        )
    assert np.array_equal(mlflow.pyfunc.load_model(logged.model_uri).predict(X), model.predict(X))
    stored = {path.name for path in (tmp_path / "runs").rglob("*")}
    assert {"model.json", "mlflow_model.py"} <= stored
    assert not [name for name in stored if name.endswith((".pkl", ".pickle", ".skops"))]
