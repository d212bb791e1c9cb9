"""Log a model by MLflow's flavour for scikit-learn, and load it again."""

import mlflow
from sklearn.datasets import load_iris

from consilience import MixtureOfExpertsRegressor

iris = load_iris(as_frame=True).data
X, y = iris[["sepal length (cm)"]], iris["sepal width (cm)"]
model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
with mlflow.start_run():
    logged = mlflow.sklearn.log_model(
        model,
        name="model",
        serialization_format="cloudpickle",
        pip_requirements=["consilience"],
    )
again = mlflow.sklearn.load_model(logged.model_uri)
