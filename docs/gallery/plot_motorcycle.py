"""
Choose the number of experts
============================

The acceleration of the head in a test of motorcycle helmets is a standard example of a curve that no straight
line and no constant variance fits. Experts are straight lines with their own variance, and the
gate puts them one after the other. How many are needed? `select_order` fits several numbers and compares
them by AIC, BIC and ICL.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfExpertsRegressor, plot, select_order

try:
    table = load_table("mcycle").to_pandas()
except DataNotFoundError:
    print("mcycle is not in the data directory: the impact below is simulated.")
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(2, 58, 133))
    curve = np.interp(times, [2, 14, 21, 32, 40, 58], [0, -5, -115, 35, 0, 0])
    table = pd.DataFrame(
        {"times": times, "accel": curve + rng.normal(0, np.where(times < 14, 2, 20))}
    )

X, y = (
    table[["times"]].rename(columns={"times": "time (ms)"}),
    table["accel"].rename("acceleration (g)"),
)

# %%
# Fits with one to five experts
# -----------------------------

selection = select_order(MixtureOfExpertsRegressor(random_state=0), X, y, orders=range(1, 6))
print(selection)

# %%
# Criteria are on the scale of minus twice the log-likelihood. AIC charges least for a parameter and tends
# to more experts; ICL also charges for rows whose expert is not clear.

plot.orders(selection)
plt.show()

# %%
# The chosen fit
# --------------
# Dots have the colour of their expert. The black line is the mean of the whole mixture, and 90 % of new
# observations are expected between the dashed lines.

model = selection.best_estimator
axes = plot.experts(model, X, y)
grid = pd.DataFrame({"time (ms)": np.linspace(table["times"].min(), table["times"].max(), 200)})
lower, upper = model.predict_quantiles(grid, [0.05, 0.95]).T
axes.plot(grid["time (ms)"], model.predict(grid), color="black", lw=1.5, label="mean")
for bound in (lower, upper):
    axes.plot(
        grid["time (ms)"],
        bound,
        color="black",
        lw=0.9,
        ls="--",
        label="90 % of the rows" * (bound is lower),
    )
axes.set_ylim(y.min() - 30, y.max() + 30)
axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
plt.show()
