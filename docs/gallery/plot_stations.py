"""
Fit one model per station, with help from the others
====================================================

Fine dust in Beijing at noon, at twelve stations that are alike but not equal. One model for all of them would ignore
the differences; twelve separate fits would each have few days. `SharedCentre` fits a model at every station and draws
it towards a robust centre of all stations, by an amount that is estimated from the data. Only sums leave a station.
"""

# sphinx_gallery_thumbnail_number = -1

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import Federation, MixtureOfExpertsRegressor, SharedCentre, plot

CITY = [
    "Aotizhongxin",
    "Dongsi",
    "Guanyuan",
    "Gucheng",
    "Nongzhanguan",
    "Tiantan",
    "Wanliu",
    "Wanshouxigong",
]
OUTSIDE = ["Changping", "Dingling", "Huairou", "Shunyi"]  # in the north
try:
    table = load_table("beijing_air").to_pandas().dropna(subset=["PM2.5", "TEMP", "DEWP", "WSPM"])
    table = table[(table["hour"] == 12) & (table["day"] % 2 == 0)]
    table = table.assign(
        dust=np.log(table["PM2.5"]),
        dryness=table["TEMP"] - table["DEWP"],
        wind=np.log1p(table["WSPM"]),
    )
except DataNotFoundError:
    print("beijing_air is not in the data directory: the days below are simulated.")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"station": np.repeat(CITY + OUTSIDE, 400)})
    table["dryness"], table["wind"] = rng.gamma(3, 5, 4800), rng.gamma(6, 0.18, 4800)
    clean = rng.random(4800) < 1 / (1 + np.exp(2 - 0.15 * table["dryness"]))
    effect = np.where(table["station"].isin(OUTSIDE), 0.1, -0.6) + 0.03 * rng.normal(
        size=12
    ).repeat(400)
    table["dust"] = np.where(
        clean, 3.2 + effect * table["wind"], 4.9 - 0.1 * table["wind"]
    ) + rng.normal(0, 0.7, 4800)

columns = ["wind", "dryness"]  # log of 1 + m/s; degrees between the temperature and the dew point
days = {name: table[table["station"] == name] for name in CITY + OUTSIDE}
sites = Federation({name: (rows[columns], rows["dust"]) for name, rows in days.items()})

# %%
# Fit
# ---
# The response is the logarithm of the concentration (PM2.5). There are two regimes, days with much and days with
# little dust, and the gate finds them by wind and dryness.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that some stations differ is printed below
    result = sites.fit(
        MixtureOfExpertsRegressor(2, n_init=2, random_state=0), method=SharedCentre()
    )
print(*result.sites, sep="\n")

# %%
# The centre is a model as well. Its coefficient of the wind is lower in the regime with little dust: there, wind goes
# with still less.

print(result.model.summary())

# %%
# Pictures
# --------
# How far the fit of each station was drawn to the centre; the four stations outside the city are last.

plot.sharing(result)
plt.show()

# %%
# The coefficient of the wind on days with little dust, at each station and at the centre:

plot.sites(result, "wind", expert=int(result.model.intercept_.argmin()))
plt.show()
