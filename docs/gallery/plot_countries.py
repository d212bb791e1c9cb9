"""
Find two regressions in one cloud of points
===========================================

Carbon dioxide emissions per head and gross national product per head of 28 countries in 1996. No single
line fits them. A mixture of two regressions finds, at the same time, which countries follow which line
and what the lines are. The example shows a first fit from a table to a picture.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfRegressions, plot

try:
    table = load_table("CO2data").to_pandas()
except DataNotFoundError:
    print("CO2data is not in the data directory: the countries below are simulated.")
    rng = np.random.default_rng(1)
    product = rng.uniform(2, 45, 28)
    emission = np.where(np.arange(28) < 7, 1.5 + 0.68 * product, 8.6) + rng.normal(0, 1.2, 28)
    table = pd.DataFrame(
        {"GNP": product, "CO2": emission, "country": [f"C{i}" for i in range(28)]}
    )

X = table[["GNP"]].rename(columns={"GNP": "gross national product per head"})
y = table["CO2"].rename("CO2 emission per head")

# %%
# Fit
# ---
# The fit starts from several guesses of the labels and keeps the best end. The summary has a part for
# each regression; its share is the proportion of countries that follow it.

model = MixtureOfRegressions(2, random_state=0).fit(X, y)
print(model.summary())

# %%
# The same in words. With 28 rows, the description leaves out what the data do not show.

print(model.describe())

# %%
# Picture
# -------
# A country has the colour of the regression that it probably follows, and is the greyer the less certain
# that is. Named are the countries on the steeper line, and in grey the extremes of the other.

steep = int(model.coef_[:, 0].argmax())
likely = model.responsibilities(X, y)[:, steep] > 0.5
axes = plot.experts(model, X, y)
for name, product, emission, on_steep in zip(
    table["country"], table["GNP"], table["CO2"], likely, strict=True
):
    if on_steep or product > 40 or emission > 10.4:
        colour = "black" if on_steep else "0.4"
        axes.annotate(
            name,
            (product, emission),
            (4, -4),
            textcoords="offset points",
            fontsize=8.5,
            color=colour,
        )
plt.show()
