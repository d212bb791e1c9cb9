"""
Pictures of a federation
========================

The data are simulated: eight hospitals with 200 to 600 patients each, whose recovery follows one of
two regressions. Hospitals differ a little in the effect of the treatment, and one of them has
recorded the dose in another unit.
"""

import textwrap
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from consilience import Federation, MixtureOfExpertsRegressor, OneShot, SharedCentre, plot

rng = np.random.default_rng(1)
hospitals = {}
for name in ("Ash", "Birch", "Cedar", "Elm", "Hazel", "Maple", "Oak", "Pine"):
    n = int(rng.integers(200, 601))
    X = pd.DataFrame({"age": rng.normal(0, 1, n), "dose": rng.normal(0, 1, n)})
    slow = rng.random(n) < 1 / (1 + np.exp(-1.5 * X["age"]))
    effect = 2 + rng.normal(0, 0.15)
    recovery = np.where(
        slow, -3 + 0.3 * X["dose"], 3 + effect * X["dose"] - X["age"]
    ) + rng.normal(size=n)
    hospitals[name] = (X.assign(dose=10 * X["dose"]) if name == "Oak" else X, recovery)
sites = Federation(hospitals)

# %%
# One-shot aggregation: how experts were combined
# -----------------------------------------------
# Each hospital sends its own fit once. The transport plan shows which of its experts became which
# expert of the joint model. Oak is used, and what is odd about it is said: so wrong a unit is to be
# corrected at the hospital.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what they say of Oak is printed
    once = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=OneShot(refine=3))
print(*(textwrap.fill(str(site), 96) for site in once.sites if site.name == "Oak"))
plot.transport(once)
plt.show()

# %%
# One coefficient at all sites
# ----------------------------
# Squares are the estimates of the hospitals, with an area proportional to their precision; the
# diamond is the estimate of the joint model with its confidence interval, which includes the
# variance between hospitals, τ², where it is significant. Here that is what Oak adds.

plot.sites(once, "dose", expert=int(once.model.coef_[:, 1].argmax()))
plt.show()

# %%
# One model per site: who borrowed how much
# -----------------------------------------
# `SharedCentre` shrinks the fit of each hospital towards a robust centre. Open markers are experts
# that do not define the centre.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Oak keeps its own model, which the picture shows
    apart = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=SharedCentre())
plot.sharing(apart)
plt.show()
