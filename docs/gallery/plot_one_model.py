"""
Pictures of one model
=====================

The data are simulated: the fall in blood pressure of 1,000 patients after some weeks of treatment,
with their age and dose. In one kind of patients the fall grows with the dose, in the other hardly
at all. The second kind is rare among the young and frequent among the old. The kind of a patient is
not observed.
"""

# sphinx_gallery_thumbnail_number = 2

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from consilience import MixtureOfExpertsRegressor, plot, select_order

rng = np.random.default_rng(0)
n = 1000
X = pd.DataFrame({"age (years)": rng.uniform(30, 80, n), "dose (mg)": rng.uniform(0, 40, n)})
age, dose = X["age (years)"], X["dose (mg)"]
insensitive = rng.random(n) < 1 / (1 + np.exp(-(age - 62) / 5))
fall = np.where(insensitive, 3 + 0.05 * dose + 0.05 * (age - 55), 4 + 0.6 * dose) + rng.normal(
    0, 3, n
)
y = pd.Series(fall, name="fall in pressure (mmHg)")

# %%
# The number of experts
# ---------------------
# All criteria are on the scale of minus twice the log-likelihood, smaller is better. A ring marks
# the number that a criterion prefers; an open marker is a fit whose starts do not agree.

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore"
    )  # the starts of three experts do not agree, which the picture shows
    selection = select_order(MixtureOfExpertsRegressor(random_state=0), X, y, orders=range(1, 4))
model = selection.best_estimator
plot.orders(selection)
plt.show()

# %%
# Experts over the data
# ---------------------
# Lines are the mean responses of the experts, with pointwise confidence bands; age is at its mean
# given the dose. A point has the colour and the marker of its most probable expert, and is the greyer the less
# certain that is.

plot.experts(model, X, y, "dose (mg)")
plt.show()

# %%
# Gate
# ----
# The probability of each expert along one covariate, or a map over two. In the map, the solid line
# is the border between the experts, and beyond the dotted lines one of them has probability 0.9.

plot.gate(model, X, "age (years)")
plt.show()

# %%

plot.gate(model, X, ("age (years)", "dose (mg)"))
plt.show()

# %%
# Coefficients
# ------------
# Each coefficient is per standard deviation of its covariate, so that terms with different units can
# be compared; `standardised=False` shows the numbers of `model.to_frame()`. `part="gate"` shows the
# coefficients of the gate.

plot.coefficients(model)
plt.show()

# %%
# Responsibilities
# ----------------
# Counts are on a square root scale, and responsibilities below 0.0001 are left out, as in the
# rootograms of R's flexmix. Where experts are well separated, nearly all counts are close to 1.

plot.posteriors(model, X, y)
plt.show()

# %%
# Calibration
# -----------
# Quantile residuals of the whole mixture follow the normal distribution if the model is right.
# For a classifier, the picture is a reliability diagram.

plot.calibration(model, X, y)
plt.show()

# %%
# Convergence
# -----------
# The log-likelihood at each iteration over all rows, and where the starts ended.

plot.convergence(model)
plt.show()

# %%
# Several pictures in one figure
# ------------------------------
# Every function draws into the Axes that it gets as `ax`, and returns them.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
plot.experts(model, X, y, "dose (mg)", ax=left).get_legend().remove()
plot.gate(model, X, "age (years)", ax=right)
left.set_title("Experts")
right.set_title("Gate")
plt.show()
