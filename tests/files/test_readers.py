"""The readers of the documentation predict what the model predicts, from the file alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import consilience

READERS = Path(__file__).parents[2] / "docs" / "readers"
MODEL = Path(__file__).parent / "version-1" / "gaussian.json"


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["read_model.py", "read_model.R"])
def test_a_reader_needs_ten_lines_and_the_file(reader: str, tmp_path: Path) -> None:
    command = "Rscript" if reader.endswith(".R") else sys.executable
    if shutil.which(command) is None:
        pytest.skip("needs R, with jsonlite")
    X = np.random.default_rng(0).normal(size=(7, 3))
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",", header="x0,x1,x2", comments="")
    shutil.copy(MODEL, tmp_path / "model.json")
    done = subprocess.run([command, READERS / reader], cwd=tmp_path, capture_output=True, text=True, check=False)
    if "no package called" in done.stderr:
        pytest.skip("needs jsonlite in R")
    assert done.returncode == 0, done.stderr
    found = np.loadtxt(tmp_path / "predicted.csv", delimiter=",", skiprows=1)
    model = consilience.load(MODEL)
    np.testing.assert_allclose(found[:, 0], model.predict(X), rtol=1e-9)
    np.testing.assert_allclose(found[:, 1:], model.predict_gate(X), rtol=1e-9)
    code = [line for line in (READERS / reader).read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(code) <= 10
