"""
Give experts and gate different columns
=======================================

Patent applications and research spending of 70 pharmaceutical and biomedical companies in 1976. Spending
moves the number of patents; the share of sales that goes into research says what kind of company it is. So
the experts, Poisson regressions, read one column, and the gate reads another: `expert_features` and
`gate_features` (concomitant variables in R's flexmix, where this example comes from).
"""

# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfExpertsRegressor, plot

try:
    table = load_table("patent").to_pandas()
except DataNotFoundError:
    print("patent is not in the data directory: the companies below are simulated.")
    rng = np.random.default_rng(2)
    spending, share = rng.normal(1.3, 2.1, 70), np.exp(rng.normal(-3.3, 1, 70))
    kind = np.where(share < 0.045, 0, rng.integers(1, 3, 70))
    rate = np.exp(np.array([0.5, -2.6, 2.0])[kind] + np.array([0.88, 1.6, 0.67])[kind] * spending)
    table = pd.DataFrame(
        {"lgRD": spending, "RDS": share, "Patents": rng.poisson(rate.clip(max=200))}
    )

X = pd.DataFrame({"log spending": table["lgRD"], "log share of sales": np.log(table["RDS"])})
y = table["Patents"].rename("patents")

# %%
# Fit
# ---
# The summary has no coefficient for a column that a part does not read. Coefficients are on the log scale:
# a slope of 0.9 means that ten per cent more spending goes with about nine per cent more patents.

model = MixtureOfExpertsRegressor(
    3,
    family="poisson",
    expert_features=["log spending"],
    gate_features=["log share of sales"],
    random_state=0,
).fit(X, y)
print(model.summary())

# %%
# Does the column of the gate help? BIC compares with a gate that is constant, and with one that reads the column
# of the experts. Differences of one or two units say little.

constant = MixtureOfExpertsRegressor(
    3, family="poisson", expert_features=[0], gate_features=[], random_state=0
)
same = MixtureOfExpertsRegressor(
    3, family="poisson", expert_features=[0], gate_features=[0], random_state=0
)
for name, other in (
    ("share of sales", model),
    ("nothing", constant.fit(X, y)),
    ("spending", same.fit(X, y)),
):
    print(f"gate on {name:14}  BIC {other.bic(X, y):.1f}")

# %%
# Pictures
# --------
# The experts, with a square root scale of the counts:

axes = plot.experts(model, X, y, "log spending")
axes.set_yscale("function", functions=(lambda v: np.sqrt(np.maximum(v, 0)), np.square))
axes.set(
    ylim=(0, 1.15 * y.max()),
    yticks=[0, 5, 20, 50, 100, 170],
    xlabel="log spending (million dollars)",
)
plt.show()

# %%
# The gate:

plot.gate(model, X, "log share of sales").set_xlabel("log share of sales that goes into research")
plt.show()
