"""An ONNX runtime predicts what the estimator predicts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import MixtureOfExpertsRegressor
from consilience.errors import InvalidInputError
from saved_models import CASES, covariates, fitted, response

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

FAST = ("one-expert", "regressions", "categories-reference", "mixture-diag", "classes-of-booleans")
OTHERS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in CASES
    if name not in (*FAST, "levels-of-numbers", "hurdle_poisson")  # these two are refused
]


def inputs(model: Any, X: Any) -> dict[str, np.ndarray]:
    if not model.columns_.has_categories:
        return {"X": np.asarray(X, dtype=np.float64)}
    columns = {column.name: X[column.name].to_numpy().reshape(-1, 1) for column in model.columns_.columns}
    return {name: values.astype(object) if values.dtype.kind in "UO" else values for name, values in columns.items()}


def run(model: Any, X: Any, folder: Path) -> dict[str, np.ndarray]:
    model.to_onnx(folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs(model, X)), strict=True))


@pytest.mark.parametrize("name", [*FAST, *OTHERS])
def test_the_runtime_predicts_what_the_estimator_predicts(name: str, tmp_path: Path) -> None:
    model, X, _, _ = fitted(name)
    found = run(model, X, tmp_path)
    np.testing.assert_allclose(found["gate"], model.predict_gate(X), atol=1e-6)
    if "prediction" in found:
        assert found["prediction"].shape == model.predict(X).shape
        np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-6, atol=1e-6)
        return
    assert found["label"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-6)


def test_unknown_levels_are_an_error_in_the_runtime(tmp_path: Path) -> None:
    model, X, _, _ = fitted("categories-reference")
    with pytest.raises(Exception, match="Unknown Category"):
        run(model, X.assign(fuel="coal"), tmp_path)


def test_levels_of_floats_are_refused(tmp_path: Path) -> None:
    X = np.column_stack([covariates()[:, 0], np.arange(240) % 3])
    model = MixtureOfExpertsRegressor(1, categorical_features=[1]).fit(X, response())
    with pytest.raises(InvalidInputError, match="'x1' has levels that are not text"):
        model.to_onnx(tmp_path / "model.onnx")


def test_a_mean_that_is_no_multiple_of_its_link_is_refused(tmp_path: Path) -> None:
    model, *_ = fitted("hurdle_poisson")
    with pytest.raises(InvalidInputError, match="'hurdle_poisson': the mean is not a multiple of its log link"):
        model.to_onnx(tmp_path / "model.onnx")


def test_the_error_without_onnx_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = MixtureOfExpertsRegressor(1).fit(covariates(), response())
    with pytest.raises(ImportError, match=r"pip install 'consilience\[onnx\]'"):
        model.to_onnx(tmp_path / "model.onnx")
