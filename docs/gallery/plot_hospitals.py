"""
Fit one model to the patients of four hospitals
===============================================

Heart disease in four hospitals, whose patients stay where they are. Each hospital fits a logistic regression to its
own patients and sends it once; `OneShot` combines the answers and refines the result in a few further rounds of sums.
The result says how much hospitals differ, coefficient by coefficient, and names a hospital that does not fit.
"""

# sphinx_gallery_thumbnail_number = 1

import textwrap
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import Federation, MixtureOfExpertsClassifier, OneShot, plot

try:
    table = load_table("heart_disease").to_pandas()
    table = table.dropna(subset=["thalach", "oldpeak"]).assign(sick=table["num"] > 0)
except DataNotFoundError:
    print("heart_disease is not in the data directory: the patients below are simulated.")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"site": np.repeat(["cleveland", "hungarian", "switzerland", "va"], [303, 293, 117, 143])}
    )
    table["age"], table["sex"] = rng.normal(53, 9, 856), rng.random(856) < 0.75
    table["thalach"], table["oldpeak"] = rng.normal(138, 25, 856), rng.gamma(0.8, 1.1, 856)
    swiss = table["site"] == "switzerland"
    score = (
        0.03 * table["age"]
        + 1.4 * table["sex"]
        - 0.028 * table["thalach"]
        + np.where(swiss, 2, 0.9 * table["oldpeak"])
    )
    table["sick"] = rng.random(856) < 1 / (1 + np.exp(-score))

X = pd.DataFrame(
    {
        "age": table["age"],
        "sex": np.where(table["sex"] == 1, "male", "female"),
        "highest pulse": table["thalach"],
        "ST depression": table["oldpeak"],
    }
)
disease = np.where(table["sick"], "present", "absent")
places = {
    "cleveland": "Cleveland",
    "hungarian": "Budapest",
    "switzerland": "Switzerland",
    "va": "Long Beach",
}
sites = Federation(
    {place: (X[table["site"] == s], disease[table["site"] == s]) for s, place in places.items()}
)

# %%
# Fit
# ---
# One expert is a logistic regression. Warnings about the data of a hospital are part of the result, and printed here.

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    result = sites.fit(MixtureOfExpertsClassifier(1, random_state=0), method=OneShot(refine=5))
for warning in said:
    print(textwrap.fill(f"{warning.category.__name__}: {warning.message}", 100), end="\n\n")
print(result.model.summary())

# %%
# What left the hospitals
# -----------------------

for line in str(result.record).splitlines():
    print(textwrap.fill(line, 100, subsequent_indent="    "))

# %%
# Pictures
# --------
# Squares are the estimates of the hospitals, with an area proportional to their precision, and the diamond is that of
# the joint model. I² is the share of the differences that sampling does not explain.

plot.sites(result, "ST depression")
plt.show()

# %%

plot.sites(result, "highest pulse")
plt.show()

# %%

plot.sites(result, "age")
plt.show()
