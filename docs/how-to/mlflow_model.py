"""A model of MLflow that reads model.json: MLflow stores this file and the JSON, and pickles nothing."""

import mlflow
import pandas as pd

import consilience


class JsonModel(mlflow.pyfunc.PythonModel):
    """Predictions of the model in the artifact ``model``."""

    def load_context(self, context: mlflow.pyfunc.PythonModelContext) -> None:
        self.model = consilience.load(context.artifacts["model"])

    def predict(self, context: mlflow.pyfunc.PythonModelContext, model_input: pd.DataFrame) -> pd.Series:
        return pd.Series(self.model.predict(model_input), model_input.index, name="prediction")


mlflow.models.set_model(JsonModel())
