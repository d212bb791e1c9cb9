"""
Find the year in which a slope changed
======================================

The global temperature anomaly over land, year by year from 1880 to 2015. A mixture of two experts with the year
as its only covariate is a line with a break whose date is estimated: the experts are the two trends, and the gate
says when one takes over from the other.
"""

# sphinx_gallery_thumbnail_number = 1

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfExpertsRegressor, plot

try:
    table = load_table("tempanomalies").to_pandas()
except DataNotFoundError:
    print("tempanomalies is not in the data directory: the years below are simulated.")
    year = np.arange(1880, 2016)
    trend = -0.45 + 0.0065 * (year - 1880) + 0.015 * np.clip(year - 1967, 0, None)
    noise = np.random.default_rng(0).normal(0, 0.11, len(year))
    table = pd.DataFrame({"Year": year, "AnnualAnomaly": trend + noise})

X, y = table[["Year"]], table["AnnualAnomaly"].rename("temperature anomaly (°C)")

# %%
# Two trends
# ----------
# Slopes are in degrees per year. The gate changes so quickly that its slope is hardly identified; the
# summary withholds its intervals and says why.

model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
print(model.summary())

# %%
# The break is where both experts have probability 1/2. To see how well it is known, the model is fitted
# again to years drawn with replacement, which treats years as independent.


def break_of(fitted):
    return -fitted.gate_intercept_[0] / fitted.gate_coef_[0, 0]


rng, breaks = np.random.default_rng(0), []
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # two starts need not agree
    for rows in rng.integers(len(X), size=(25, len(X))):
        again = MixtureOfExpertsRegressor(2, n_init=2, random_state=0).fit(
            X.iloc[rows], y.iloc[rows]
        )
        breaks.append(break_of(again))
early, late = np.quantile(breaks, [0.05, 0.95])
print(
    f"The slope changes in {break_of(model):.0f}; 90 % of the repeated fits put it from {early:.0f} to {late:.0f}."
)

# %%
# Pictures
# --------
# The two trends with their confidence bands, and the year of the break:

axes = plot.experts(model, X, y)
axes.set(xlabel="year", ylim=(y.min() - 0.2, y.max() + 0.2))
axes.axvline(break_of(model), color="black", lw=0.9, ls=":", zorder=0)
plt.show()

# %%
# The breaks of the repeated fits:

figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
axes.hist(breaks, bins=np.arange(1880, 2017, 2), color="0.35")
axes.set(xlabel="year", ylabel="repeated fits", xlim=(X["Year"].min(), X["Year"].max()))
axes.axvline(break_of(model), color="black", lw=0.9, ls=":", zorder=0)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
