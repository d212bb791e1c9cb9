"""
Find the regimes of a day
=========================

Electricity consumption of a zone of Tetouan, Morocco, every hour of 2017. Consumption rises with the temperature, but
from another level at night, by day and in the evening. Nobody told the model when these begin: the experts read
the temperature, and the gate reads the hour of the day, as a point on a circle.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfExpertsRegressor, plot

try:
    table = load_table("tetouan_power").to_pandas().set_index("DateTime")
    table = table[table.index.minute == 0]
    hour, warm, load = (
        table.index.hour,
        table["Temperature"],
        table["Zone 1 Power Consumption"] / 1000,
    )
except DataNotFoundError:
    print("tetouan_power is not in the data directory: the year below is simulated.")
    rng = np.random.default_rng(0)
    hour = np.tile(np.arange(24), 364)
    warm = pd.Series(19 + 7 * rng.normal(size=len(hour)) - 3 * np.cos(2 * np.pi * hour / 24))
    level = np.where(hour < 7, 19, np.where((hour >= 18) & (hour < 22), 34, 26))
    load = level + 0.36 * warm + 2.5 * rng.normal(size=len(hour))

angle = 2 * np.pi * np.asarray(hour) / 24
X = pd.DataFrame(
    {"temperature": np.asarray(warm), "sine": np.sin(angle), "cosine": np.cos(angle)}
)
y = pd.Series(np.asarray(load), name="consumption (MW)")

# %%
# Fit
# ---
# A sine and a cosine let the gate run round the clock without a jump at midnight.

model = MixtureOfExpertsRegressor(
    3, expert_features=["temperature"], gate_features=["sine", "cosine"], random_state=0
).fit(X, y)
print(model.to_frame().query("part == 'expert'").round(2).to_string(index=False))

# %%
# Pictures
# --------
# A twentieth of the hours, with the three regressions:

some = np.random.default_rng(0).choice(len(X), len(X) // 20, replace=False)
plot.experts(model, X.iloc[some], y.iloc[some], "temperature").set_xlabel("temperature (°C)")
plt.show()

# %%
# Which regime holds at which hour:

clock = np.linspace(0, 24, 241)
angle = 2 * np.pi * clock / 24
probability = model.predict_gate(
    pd.DataFrame({"temperature": 0.0, "sine": np.sin(angle), "cosine": np.cos(angle)})
)
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.stackplot(
    clock, probability.T, colors=["#0072B2", "#D55E00", "#009E73"], alpha=0.85
)  # as above
axes.legend(
    ["expert 1", "expert 2", "expert 3"],
    ncols=3,
    loc="lower center",
    bbox_to_anchor=(0.5, 1),
    frameon=False,
)
axes.set(
    xlabel="hour of the day",
    ylabel="gate probability",
    xticks=range(0, 25, 3),
    xlim=(0, 24),
    ylim=(0, 1),
)
plt.show()
