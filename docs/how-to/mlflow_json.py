"""Log a model as JSON, with the code of mlflow_model.py, and load it again."""

import mlflow
from sklearn.datasets import load_iris

from consilience import MixtureOfExpertsRegressor

iris = load_iris(as_frame=True).data
X, y = iris[["sepal length (cm)"]], iris["sepal width (cm)"]
model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
model.save("model.json")
with mlflow.start_run():
    logged = mlflow.pyfunc.log_model(
        name="model",
        python_model="mlflow_model.py",
        artifacts={"model": "model.json"},
        pip_requirements=["consilience"],
    )
again = mlflow.pyfunc.load_model(logged.model_uri)
