"""The web service of docs/how-to/serve-a-model.rst, started as the page says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from consilience import MixtureOfExpertsClassifier, MixtureOfExpertsRegressor

pytest.importorskip("fastapi", reason="pip install --group test")
pytest.importorskip("uvicorn", reason="pip install --group test")
pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "how-to"
N = 300


def stays() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(60, 10, N), "ward": rng.choice(["east", "west"], N)})
    table["days"] = np.where(rng.random(N) < 0.5, 3 + 0.1 * table["age"], 20 - 0.1 * table["age"])
    table["days"] += 0.5 * rng.normal(size=N)
    table["died"] = np.where(rng.random(N) < 0.4, "yes", "no")
    return table


@contextmanager
def served(path: Path) -> Iterator[str]:
    """The app of the page at an address of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "serve_a_model:app", "--host", "127.0.0.1", "--port", port]
    process = subprocess.Popen(command, cwd=PAGE, env=os.environ | {"MODEL": str(path)}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            assert process.poll() is None, "the server ended"
            try:
                ask(f"http://127.0.0.1:{port}/columns")
                break
            except urllib.error.URLError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def ask(url: str, body: Any = None) -> tuple[int, Any]:
    """Return status and JSON of an answer; a body that is not text is sent as JSON."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with direct.open(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


MISTAKES: list[tuple[Any, str]] = [
    ({"age": 60}, "the row lacks ward; the columns are age, ward"),
    ({"age": 60, "ward": "east", "sex": "f"}, "the model has no sex; the columns are age, ward"),
    (
        {"age": 60, "ward": "north"},
        "column 'ward' has levels that were not in the fit: 'north'; expected 'east', 'west'",
    ),
    ({"age": "sixty", "ward": "east"}, "column 'age' has values that are not numbers"),
    ({"age": None, "ward": "east"}, "Input should be a valid"),
    ({"age": [60], "ward": "east"}, "Input should be a valid"),
    ([60, "east"], "Input should be a valid dictionary"),
    ('{"age": NaN, "ward": "east"}', "X contains NaN or missing values: age in 1 of 1 rows (0)"),
    ('{"age": 1e999, "ward": "east"}', "X contains infinite values: age in 1 of 1 rows (0)"),
    ("{", "JSON decode error"),
]


def test_a_row_is_predicted_and_what_is_wrong_with_it_is_said(tmp_path: Path) -> None:
    table = stays()
    model = MixtureOfExpertsRegressor(2, random_state=0, n_init=1).fit(table[["age", "ward"]], table["days"])
    model.save(tmp_path / "model.json")
    with served(tmp_path / "model.json") as url:
        assert ask(f"{url}/columns") == (200, ["age", "ward"])
        status, found = ask(f"{url}/predict", {"ward": "west", "age": 61.5})
        row = pd.DataFrame({"age": [61.5], "ward": ["west"]})
        assert status == 200
        assert found == {"prediction": model.predict(row)[0], "experts": list(model.predict_gate(row)[0])}
        for body, said in MISTAKES:
            status, found = ask(f"{url}/predict", body)
            assert status == 422, (body, found)
            assert said in json.dumps(found["detail"]).replace('\\"', '"'), (body, found)


def test_models_of_classes_and_with_a_formula_are_served(tmp_path: Path) -> None:
    table = stays()
    by_formula = MixtureOfExpertsRegressor.from_formula("days ~ age * ward | age", table, random_state=0, n_init=1)
    classes = MixtureOfExpertsClassifier(1).fit(table[["age", "ward"]], table["died"])
    row = {"age": 61.5, "ward": "west"}
    for model in (by_formula, classes):
        model.save(tmp_path / "model.json")
        with served(tmp_path / "model.json") as url:
            assert ask(f"{url}/columns") == (200, ["age", "ward"])
            status, found = ask(f"{url}/predict", row)
            assert status == 200
            assert found["prediction"] == model.predict(pd.DataFrame([row]))[0]
