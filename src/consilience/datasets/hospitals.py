"""Five simulated hospitals with different patients, and the study that they take part in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

STUDY = """\
# The study of the demonstration: how long patients stay, and which patients are alike.
format = "consilience-study"
version = 1
name = "hospital-stay"
title = "Length of stay of two kinds of patients (simulated)"
seed = 20261116
max_rows = 100000

# Two kinds of patients: in each the logarithm of the days depends on the covariates in its own way.
[model]
response = "log_days"
family = "gaussian"
gate = "softmax"
experts = [2]
gate_columns = ["age", "severity"]

[minimum]
rows = 200

[[columns]]
name = "log_days"
kind = "number"
about = "Natural logarithm of the length of stay in days"
low = -3
high = 7

[[columns]]
name = "age"
kind = "number"
unit = "years"
low = 18
high = 110
centre = 60
scale = 15

[[columns]]
name = "severity"
kind = "number"
unit = "points"
low = 0
high = 10
centre = 4
scale = 2

[[columns]]
name = "sex"
kind = "category"
levels = ["female", "male"]

[[columns]]
name = "admission"
kind = "category"
levels = ["planned", "emergency"]

# How people read the result; none of it changes the fit.
[words]
title = "Length of stay of two kinds of patients"
question = "How long do patients stay, and which patients are alike?"
rows = ["stay", "stays"]
sites = ["hospital", "hospitals"]
simulated = true

[words.response]
label = "length of stay"
unit = "days"
back = "exp"
less = "shorter"
more = "longer"

[words.columns.age]
per = 10

[words.columns.severity]
per = 1

[words.columns.sex]
levels = { male = "men", female = "women" }
"""
"""Text of the study file."""
CASE_MIX = {  # rows, mean age, share of emergencies
    "ash": (900, 52.0, 0.25),
    "birch": (1400, 60.0, 0.40),
    "cedar": (700, 66.0, 0.55),
    "elm": (1100, 71.0, 0.45),
    "oak": (1600, 58.0, 0.65),
}


def hospitals(random_state: int = 0) -> dict[str, pa.Table]:
    """Simulate the patients of five hospitals.

    All hospitals follow one model; they differ in the number and age of their patients and in the share of
    emergencies. Older and more severe cases tend to be of the first kind, whose stay depends on severity; the stay of
    the others depends on the admission.

    Parameters
    ----------
    random_state : int

    Returns
    -------
    dict of str to pyarrow.Table
        The table of each hospital, with the columns of :data:`STUDY`.
    """
    rng = np.random.default_rng(random_state)
    return {name: _patients(*mix, rng) for name, mix in CASE_MIX.items()}


def _patients(n: int, mean_age: float, emergencies: float, rng: np.random.Generator) -> pa.Table:
    age = np.clip(rng.normal(mean_age, 14, n), 18, 105).round()
    severity = np.clip(rng.normal(3 + age / 60, 1.6, n), 0, 10).round(1)
    male, emergency = rng.random(n) < 0.48, rng.random(n) < emergencies
    frail = rng.random(n) < 1 / (1 + np.exp(-(0.9 * (age - 60) / 15 + 0.8 * (severity - 4) / 2 - 0.3)))
    slow = 2.4 + 0.30 * (severity - 4) / 2 + 0.10 * (age - 60) / 15 + 0.10 * emergency
    fast = 1.0 + 0.05 * (age - 60) / 15 + 0.40 * emergency - 0.05 * male
    log_days = np.where(frail, slow, fast) + rng.normal(0, np.where(frail, 0.35, 0.25), n)
    return pa.table(
        {
            "log_days": log_days.round(3),
            "age": age,
            "severity": severity,
            "sex": np.where(male, "male", "female"),
            "admission": np.where(emergency, "emergency", "planned"),
        }
    )
