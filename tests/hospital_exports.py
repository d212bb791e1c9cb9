"""Exports as four hospitals make them, of the same columns: the tables of a trial with other names, units and codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

STUDY = """
format = "consilience-study"
version = 1
name = "length-of-stay"
seed = 5

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
unit = "days"
low = 0.001
high = 400

[[columns]]
name = "age"
kind = "number"
unit = "years"
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
unit = "mg/l"
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
NAMES = tuple(ROWS)


def hospital(n: int, seed: int) -> dict[str, list]:
    """Gamma stays of two kinds of patients, with 8 % missing values of CRP, by the names of the study."""
    rng = np.random.default_rng([11, seed])
    age, charlson = np.round(np.clip(rng.normal(65, 15, n), 18, 110)), np.clip(rng.poisson(3, n), 0, 20)
    crp, male, urgent = np.expm1(np.clip(rng.normal(2.3, 1, n), 0, 6)), rng.random(n) < 0.5, rng.random(n) < 0.4
    long = rng.random(n) < 1 / (1 + np.exp(-(-0.8 + 0.8 * (age - 65) / 15 + 0.9 * (charlson - 3) / 2)))
    x = np.column_stack([np.ones(n), (age - 65) / 15, (charlson - 3) / 2, np.log1p(crp) - 2.3, male, urgent])
    mean = np.exp(np.where(long, x @ [2.6, 0.15, 0.1, 0.2, 0.05, 0.3], x @ [1.0, 0.05, 0.15, 0.05, 0.0, 0.2]))
    shape = np.where(long, 3.0, 6.0)
    gone = rng.random(n) < 0.08
    return {
        "los_days": np.round(np.clip(rng.gamma(shape, mean / shape), 0.1, 399), 2).tolist(),
        "age": age.tolist(),
        "charlson": charlson.tolist(),
        "crp": [None if missing else round(float(value), 1) for value, missing in zip(crp, gone, strict=True)],
        "sex": ["male" if each else "female" for each in male],
        "admission": ["emergency" if each else "planned" for each in urgent],
    }


def related(seed: int, n: int = 900) -> dict[str, np.ndarray]:
    """A hospital whose columns are related: older patients have more diseases, and are women more often."""
    rng = np.random.default_rng([31, seed])
    table = {name: np.array(values, dtype=object) for name, values in hospital(n, seed).items()}
    old = (table["age"].astype(float) - 65) / 15
    table["charlson"] = np.clip(rng.poisson(np.exp(1.1 + 0.35 * old)), 0, 20)
    table["sex"] = np.where(rng.random(n) < 1 / (1 + np.exp(0.6 * old)), "male", "female")
    table["crp"] = np.array([1.0 if value is None else value for value in table["crp"]])
    return table


def export(name: str, folder: Path) -> Path:
    """Write the export of a hospital as its data manager gets it."""
    table = hospital(ROWS[name], list(ROWS).index(name))
    return {"adlershof": german_csv, "boston": workbook, "cardiff": csv_with_bom, "delft": clean_csv}[name](
        table, folder
    )


def german_csv(table: dict[str, list], folder: Path) -> Path:
    """Windows code page, semicolons, decimal commas, German words."""
    comma = lambda value: "k.A." if value is None else str(value).replace(".", ",")  # noqa: E731 - one expression
    words = {"male": "männlich", "female": "weiblich", "planned": "geplant", "emergency": "Notfall"}
    head = "Fallnummer;Liegedauer;Alter;Charlson-Index;CRP;Geschlecht;Aufnahmeart"
    rows = [
        ";".join([str(i), comma(los), str(int(age)), str(ch), comma(crp), words[sex], words[admission]])
        for i, (los, age, ch, crp, sex, admission) in enumerate(zip(*table.values(), strict=True))
    ]
    path = folder / "adlershof.csv"
    path.write_bytes("\r\n".join([head, *rows]).encode("cp1252"))
    return path


def workbook(table: dict[str, list], folder: Path) -> Path:
    """A workbook with hours, CRP in mg/dl, -99 for missing, other words, and a sheet of notes before the data."""
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Notes"
    book.active.append(["Exported by the data warehouse"])
    sheet = book.create_sheet("Stays")
    words = {"planned": "PLANNED", "emergency": "URGENT"}
    sheet.append(["LOS hours", "AGE", "CHARLSON", "CRP (mg/dl)", "SEX", "ADMISSION TYPE"])
    for los, age, ch, crp, sex, admission in zip(*table.values(), strict=True):
        sheet.append([los * 24, age, ch, -99 if crp is None else crp / 10, sex[0].upper(), words[admission]])
    path = folder / "boston.xlsx"
    book.save(path)
    return path


def csv_with_bom(table: dict[str, list], folder: Path) -> Path:
    """UTF-8 with a byte order mark, CRLF and NA."""
    rows = [",".join("NA" if cell is None else str(cell) for cell in row) for row in zip(*table.values(), strict=True)]
    path = folder / "cardiff.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([",".join(table), *rows]).encode())
    return path


def clean_csv(table: dict[str, list], folder: Path) -> Path:
    """A clean CSV file by the names of the study."""
    path = folder / "delft.csv"
    csv.write_csv(pa.table(table), path)
    return path
