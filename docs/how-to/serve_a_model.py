"""One model as a web service: POST /predict takes one row as a JSON object."""

import os
from typing import Any

import pandas as pd
from fastapi import FastAPI, HTTPException

from consilience import load

model = load(os.environ["MODEL"])
formula = model.derivation_
names = list(model.columns_.names if formula is None else formula.sources)
app = FastAPI(title=model.title)


@app.get("/columns")
def columns() -> list[str]:
    """Return the names of the columns that a row must have."""
    return names


@app.post("/predict")
def predict(row: dict[str, bool | float | str]) -> dict[str, Any]:
    """Predict the mean response of one row, and the probability of each expert."""
    missing, unknown = [name for name in names if name not in row], [name for name in row if name not in names]
    if missing or unknown:
        said = [f"the row lacks {', '.join(missing)}"] * bool(missing) + [
            f"the model has no {', '.join(unknown)}"
        ] * bool(unknown)
        raise HTTPException(422, f"{'; '.join(said)}; the columns are {', '.join(names)}")
    table = pd.DataFrame([row])[names]
    try:
        return {"prediction": model.predict(table).tolist()[0], "experts": model.predict_gate(table).tolist()[0]}
    except ValueError as error:  # a value that the model does not know, in a sentence
        raise HTTPException(422, str(error)) from error
