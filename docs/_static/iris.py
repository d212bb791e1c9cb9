"""Draw the picture of the README and the landing page: ``python docs/_static/iris.py``."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from consilience import MixtureOfExpertsRegressor, plot


def main() -> None:
    iris = load_iris(as_frame=True).data
    X, y = iris[["sepal length (cm)"]], iris["sepal width (cm)"]
    model = MixtureOfExpertsRegressor(n_experts=2, random_state=0).fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6), width_ratios=(1.3, 1))
    plot.experts(model, X, y, ax=left)
    x = np.linspace(4.3, 7.9, 2)
    left.plot(x, np.polyval(np.polyfit(X.iloc[:, 0], y, 1), x), color="0.35", lw=1.2, ls=":")
    left.annotate(
        "one regression", (4.3, 3.17), (4.35, 3.9), color="0.25", arrowprops={"arrowstyle": "-", "color": "0.5"}
    )
    left.set(ylim=(1.9, 4.7), title="Experts: two regressions")
    left.get_legend().remove()
    plot.gate(model, X, ax=right)
    right.set_title("Gate: where each of them holds")
    right.legend(loc="center right")
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
