"""
Compare categories, with text columns
=====================================

Minutes that flights from New York made up in the air in 2013: the delay at departure minus that at arrival. Most
flights are ordinary, a few are held up, and no column says which. Airlines and airports are text; their levels become
terms such as `airline[JetBlue Airways]`, each against a reference level that `reference_levels` chooses.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfExpertsRegressor, plot

REFERENCE = "United Air Lines Inc."
try:
    names = load_table("flights_airlines").to_pandas().set_index("carrier")["name"]
    flights = load_table("flights").to_pandas().dropna(subset=["dep_delay", "arr_delay"])
    largest = flights["carrier"].value_counts().index[:9]
    table = flights[flights["carrier"].isin(largest)].sample(6000, random_state=0)
    gained, airline = (
        table["dep_delay"] - table["arr_delay"],
        table["carrier"].map(names).astype(str),
    )
    airport, hour, distance = table["origin"].astype(str), table["hour"], table["distance"] / 1000
except DataNotFoundError:
    print("flights is not in the data directory: the flights below are simulated.")
    rng = np.random.default_rng(0)
    number, airport = rng.integers(9, size=6000), rng.choice(["EWR", "JFK", "LGA"], 6000)
    airline = np.array([REFERENCE, *(f"Airline {c}" for c in "ABCDEFGH")])[number]
    hour, distance, held_up = (
        rng.integers(5, 24, 6000),
        rng.gamma(3, 0.35, 6000),
        rng.random(6000) < 0.1,
    )
    gained = np.where(
        held_up, rng.normal(-20, 29, 6000), 8 - number + 2 * distance + rng.normal(0, 13, 6000)
    )

X = pd.DataFrame(
    {"airline": airline, "distance": distance, "airport": airport, "hour": hour}
).reset_index(drop=True)
y = pd.Series(np.asarray(gained, dtype=float), name="minutes made up")

# %%
# Fit
# ---
# Experts read airline and distance (in 1,000 miles), the gate airport and hour of departure.

model = MixtureOfExpertsRegressor(
    2,
    expert_features=["airline", "distance"],
    gate_features=["airport", "hour"],
    reference_levels={"airline": REFERENCE},
    random_state=0,
).fit(X, y)
print(model.describe())

# %%
# Picture
# -------
# The difference in minutes between each airline and United Air Lines, at the same distance. Among ordinary flights,
# expert 1, airlines differ by a few minutes, and the intervals are short. Among flights that are held up, expert 2,
# the data do not tell airlines apart.

carriers = [term for term in model.columns_.terms if term.startswith("airline[")]
order = np.argsort(model.coef_[0][[model.columns_.terms.index(term) for term in carriers]])[::-1]
axes = plot.coefficients(model, [carriers[i] for i in order])
axes.set_yticklabels([carriers[i][8:-1] for i in order])
axes.set_xlabel(f"minutes made up, against {REFERENCE}")
plt.show()
