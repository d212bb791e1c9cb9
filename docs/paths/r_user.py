"""A user of R's flexmix: a mixture of regressions with a concomitant variable."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd

from consilience import MixtureOfExpertsRegressor, plot, select_order

# Simulated plants: their yield depends on the dose x by one of two curves, and the probability of
# each curve depends on the moisture w.
rng = np.random.default_rng(0)
n = 400
plants = pd.DataFrame({"x": rng.uniform(0, 10, n), "w": rng.normal(0, 1, n)})
plants["x2"] = plants.x**2
moist = rng.random(n) < 1 / (1 + np.exp(-1.5 * plants.w))
y = np.where(moist, 5 * plants.x, 40 - 10 * plants.x + plants.x2) + rng.normal(0, 3, n)

# flexmix(y ~ x + I(x^2), concomitant = FLXPmultinom(~ w), k = 2)
model = MixtureOfExpertsRegressor(
    n_experts=2,
    expert_features=["x", "x2"],
    gate_features=["w"],
    random_state=0,
)

# stepFlexmix(..., k = 1:3) and getModel(..., which = "BIC")
selection = select_order(model, plants, y, orders=range(1, 4))
print(selection.summary())

# refit() and summary()
best = selection.best_estimator
print(best.summary())

# posterior(), clusters() and the numbers of the rootogram that plot() draws: counts of posteriors
# above 0.0001, in ten classes from 0 to 1. If few are in the middle, the curves are well separated.
posterior = best.responsibilities(plants, y)
print("\nRows by component:", np.bincount(posterior.argmax(axis=1)))
for k, each in enumerate(posterior.T):
    counts, _ = np.histogram(each[each > 1e-4], bins=10, range=(0, 1))
    print(f"Posteriors of component {k + 1}:", counts)
plot.posteriors(best, plants, y)[0].figure.savefig("rootogram.png")

# The model is saved as JSON, which ten lines of R read: docs/readers/read_model.R.
best.save("model.json")
plants.to_csv("rows.csv", index=False)
reader = Path(__file__).parents[1] / "readers" / "read_model.R"
if shutil.which("Rscript"):
    subprocess.run(["Rscript", reader], check=True)
    in_r = pd.read_csv("predicted.csv")["mean"]
    print("\nR predicts the same from model.json:", np.allclose(in_r, best.predict(plants)))
