"""
Count claims of policies that were insured for different times
==============================================================

A sample of 60,000 French motor insurance policies. A policy that was insured for two months has fewer
claims than one of a full year, whatever the driver. So the time is passed as `exposure`, and the model is one
of claims per year. The rate depends on the driver's age in a way that one log-linear regression cannot follow.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfExpertsRegressor

try:
    table = load_table("fremtpl2_frequency").to_pandas().sample(60_000, random_state=0)
except DataNotFoundError:
    print("fremtpl2_frequency is not in the data directory: the policies below are simulated.")
    rng = np.random.default_rng(0)
    age, years = (
        18 + rng.gamma(2.5, 11, 60_000).round().clip(0, 72),
        rng.beta(0.8, 0.8, 60_000).clip(0.01),
    )
    rate = 0.1 + 0.4 * np.exp(-(age - 18) / 4)
    table = pd.DataFrame(
        {"DrivAge": age, "Exposure": years, "ClaimNb": rng.poisson(rate * years)}
    )

X = table[["DrivAge"]].rename(columns={"DrivAge": "age"}).astype(float)
claims = table["ClaimNb"].clip(upper=4)  # usual with these data: larger numbers are errors
years = table["Exposure"].clip(upper=1)  # a policy lasts a year

# %%
# Fit one and two experts
# -----------------------
# Two Poisson regressions on age, with a gate that depends on age. BIC is lower for two.

one, two = (
    MixtureOfExpertsRegressor(K, family="poisson", random_state=0).fit(X, claims, exposure=years)
    for K in (1, 2)
)
for model in (one, two):
    print(f"{model.n_experts} expert(s): BIC {model.bic(X, claims, exposure=years):.0f}")

# %%
# Are there extra zeros?
# ----------------------
# 95 of 100 policies have no claim. Two families have more zeros than Poisson counts with the same mean. The negative
# binomial lets the rates of policies of one age vary. The zero-inflated Poisson has policies that never claim, a
# share `zero_shares_` at any age and for any exposure.

for family in ("poisson", "negative_binomial", "zero_inflated_poisson"):
    wider = MixtureOfExpertsRegressor(1, family=family, random_state=0).fit(
        X, claims, exposure=years
    )
    print(f"{family:21}  BIC {wider.bic(X, claims, exposure=years):.0f}")
print(f"share of extra zeros: {wider.zero_shares_[0]:.2f}")

# %%
# There are more zeros than one Poisson regression has. One zero-inflated regression is as good as two Poisson experts,
# and one negative binomial is better than both, with as many parameters as the zero-inflated one. So there is no sign
# of drivers who never claim: rates that vary explain the zeros better, and the share of extra zeros is not to be read
# as a share of drivers. With two experts of these wider families the starts end at different maxima: the data do not
# tell such experts apart. Below we keep the two Poisson experts, which follow the young drivers.

# %%
# Predict rates and counts
# ------------------------
# Without exposure the prediction is a rate per year; with it, the expected number of claims in that time.

drivers = pd.DataFrame({"age": [18.0, 25.0, 50.0, 80.0]})
print("claims per year:      ", two.predict(drivers).round(3))
print("claims in two months: ", two.predict(drivers, exposure=np.full(4, 1 / 6)).round(3))

# %%
# Picture
# -------
# A dot is the number of claims divided by the years insured, in a class of ages, with two standard errors; its
# area is the years insured. The mixture follows the steep fall among young drivers.

classes = pd.cut(
    X["age"], [17, 18, 19, 20, 21, 22, 24, 26, 29, 33, 37, 41, 45, 49, 53, 58, 63, 70, 80, 100]
)
totals = (
    pd.DataFrame({"age": X["age"] * years, "claims": claims, "years": years})
    .groupby(classes, observed=True)
    .sum()
)
observed, centre = totals["claims"] / totals["years"], totals["age"] / totals["years"]
grid = pd.DataFrame({"age": np.arange(18.0, 90.0, 0.5)})

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.plot(
    grid["age"], one.predict(grid), color="0.55", ls="--", lw=1.8, label="one Poisson regression"
)
axes.plot(grid["age"], two.predict(grid), color="#0072B2", lw=2.2, label="two experts")
axes.errorbar(
    centre,
    observed,
    2 * np.sqrt(totals["claims"]) / totals["years"],
    fmt="none",
    color="0.2",
    lw=1,
)
axes.scatter(
    centre, observed, s=10 + totals["years"] / 40, color="0.2", zorder=3, label="observed"
)
axes.set(xlabel="age of the driver", ylabel="claims per year insured", ylim=(0, None))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
plt.show()
