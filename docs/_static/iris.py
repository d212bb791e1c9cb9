"""Draw the picture of the README and the landing page, by the lines of the README: ``python docs/_static/iris.py``."""

from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from consilience import MixtureOfExpertsRegressor, plot


def main() -> None:
    iris = load_iris(as_frame=True).data
    X, y = iris[["sepal length (cm)"]], iris["sepal width (cm)"]
    model = MixtureOfExpertsRegressor(n_experts=2, random_state=0).fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    plot.experts(model, X, y, ax=left)
    plot.gate(model, X, ax=right)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
