"""A model of MLflow that reads model.json; nothing is pickled."""

from typing import Any

import mlflow
import pandas as pd

import consilience


class JsonModel(mlflow.pyfunc.PythonModel):
    """Predictions of the model in the artifact ``model``."""

    def load_context(self, context: Any) -> None:
        self.model = consilience.load(context.artifacts["model"])

    def predict(self, context: Any, model_input: pd.DataFrame) -> Any:
        return self.model.predict(model_input)


mlflow.models.set_model(JsonModel())
