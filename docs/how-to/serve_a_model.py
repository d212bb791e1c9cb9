"""A web service: POST /predict takes one row as a JSON object."""

import os
from typing import Any

import pandas as pd
from fastapi import FastAPI, HTTPException

from consilience import load

model = load(os.environ["MODEL"])
names = list(model.columns_.names)
if model.derivation_ is not None:  # of a formula
    names = list(model.derivation_.sources)
app = FastAPI(title=model.title)
Row = dict[str, bool | float | str]


@app.get("/columns")
def columns() -> list[str]:
    """Return the names of the columns that a row must have."""
    return names


@app.post("/predict")
def predict(row: Row) -> dict[str, Any]:
    """Predict the response, and the probability of each expert."""
    check_names(row)
    table = pd.DataFrame([row])[names]
    try:
        return {
            "prediction": model.predict(table).tolist()[0],
            "experts": model.predict_gate(table).tolist()[0],
        }
    except ValueError as error:  # a sentence on a wrong value
        raise HTTPException(422, str(error)) from error


def check_names(row: Row) -> None:
    """Refuse a row without a column, or with another one."""
    known = f"; the columns are {', '.join(names)}"
    if missing := [name for name in names if name not in row]:
        said = f"the row lacks {', '.join(missing)}"
        raise HTTPException(422, said + known)
    if unknown := [name for name in row if name not in names]:
        said = f"the model has no {', '.join(unknown)}"
        raise HTTPException(422, said + known)
