"""Four hospitals with 350 to 1,400 rows, whose rounds an earlier guard refused: a model, and no refusal."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience.kit.combination import simulate_study
from consilience.kit.folder import SiteFolder
from consilience.kit.policy.policy import Policy
from consilience.kit.study import Study
from mail_office import Office

HEAD = """
format = "consilience-study"
version = 1
name = "length-of-stay"
seed = 5
LINES
[model]
response = "los_days"
family = "gamma"
gate = "softmax"
experts = [2]
gate_columns = ["age", "charlson"]

[minimum]
rows = 50

[[columns]]
name = "los_days"
kind = "number"
low = 0.001
high = 400

[[columns]]
name = "age"
kind = "number"
low = 18
high = 110
centre = 65
scale = 15

[[columns]]
name = "charlson"
kind = "number"
low = 0
high = 20
centre = 3
scale = 2

[[columns]]
name = "crp"
kind = "number"
low = 0
high = 500
missing = "drop"
transform = "log1p"
centre = 2.3
scale = 1

[[columns]]
name = "sex"
kind = "category"
levels = ["female", "male"]

[[columns]]
name = "admission"
kind = "category"
levels = ["planned", "emergency"]
"""
ROWS = {"adlershof": 820, "boston": 1400, "cardiff": 610, "delft": 350}


def hospital(n: int, seed: int) -> pa.Table:
    """Gamma stays of two kinds of patients, with 8 % missing values of CRP."""
    rng = np.random.default_rng([11, seed])
    age, charlson = np.clip(rng.normal(65, 15, n), 18, 110), np.clip(rng.poisson(3, n), 0, 20).astype(float)
    crp, male, urgent = np.expm1(np.clip(rng.normal(2.3, 1, n), 0, 6)), rng.random(n) < 0.5, rng.random(n) < 0.4
    long = rng.random(n) < 1 / (1 + np.exp(-(-0.8 + 0.8 * (age - 65) / 15 + 0.9 * (charlson - 3) / 2)))
    x = np.column_stack([np.ones(n), (age - 65) / 15, (charlson - 3) / 2, np.log1p(crp) - 2.3, male, urgent])
    mean = np.exp(np.where(long, x @ [2.6, 0.15, 0.1, 0.2, 0.05, 0.3], x @ [1.0, 0.05, 0.15, 0.05, 0.0, 0.2]))
    shape = np.where(long, 3.0, 6.0)
    stay = np.clip(rng.gamma(shape, mean / shape), 0.01, 399)
    seen = [None if gone else float(value) for value, gone in zip(crp, rng.random(n) < 0.08, strict=True)]
    return pa.table({
        "los_days": stay, "age": age, "charlson": charlson, "crp": pa.array(seen, pa.float64()),
        "sex": np.where(male, "male", "female"), "admission": np.where(urgent, "emergency", "planned"),
    })  # fmt: skip


TABLES = {name: hospital(n, i) for i, (name, n) in enumerate(ROWS.items())}


def study(lines: str) -> Study:
    return Study.from_text(HEAD.replace("LINES", lines))


@cache
def pooled() -> Any:
    return simulate_study(study(""), {"all": pa.concat_tables(TABLES.values())}).best.fit


@cache
def largest() -> Any:
    """The fit of the largest hospital, from which runs may start."""
    return simulate_study(study(""), {"boston": TABLES["boston"]}).best.fit.mixture


RUNS = {
    "one refinement": 'trust = "coordinator"\nmethod = {name = "OneShot", refine = 1}',
    "EM": 'trust = "coordinator"\nmethod = {name = "FederatedEM"}',
    "one centre": 'trust = "coordinator"\nmethod = {name = "SharedCentre", rounds = 10}',
    "noise": 'trust = "noise"\nmethod = {name = "PrivateScoring"}\nprivacy = {epsilon = 3.0}',
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("case", RUNS)
def test_four_hospitals_get_a_model_in_rounds_without_a_refusal(case: str, tmp_path: Path) -> None:
    asked = study(RUNS[case])
    office = Office(tmp_path, asked, "hospital", start=largest() if case == "noise" else None, tables=TABLES)
    if case == "noise":  # as the profile is
        text = Policy.of_profile("hospital").to_text()
        office.folders = {name: SiteFolder.init(name, text, tmp_path / "strict") for name in office.names}
    done = office.to_the_end()
    kinds = [entry.kind for folder in office.folders.values() for entry in folder.entries]
    assert "refusal" not in kinds
    assert done.model.n_experts == 2
    inference = pooled().inference
    errors = inference.standard_errors()
    assert np.isfinite(errors.experts).all()
    apart = (done.fit.mixture.coefficients - pooled().mixture.coefficients) / errors.experts[:, 0, :]
    most = {"one refinement": 1.0, "EM": 0.01, "one centre": 1.5, "noise": 5.0}[case]
    assert np.abs(apart).max() < most
