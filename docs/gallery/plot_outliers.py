"""
Keep a regression in the presence of outliers
=============================================

In an experiment on perception, a musician tuned a tone to the octave above another one, 150 times, while overtones
were stretched by different ratios. Some answers are near the octave, 2, and others follow the overtones. Ten rows
that are simply wrong are enough to destroy one of the two regressions if errors are taken to be Gaussian. With
errors of Student's distribution, `family="student"`, a row far away counts less.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfRegressions, plot

try:
    tones = load_table("tonedata").to_pandas()
except DataNotFoundError:
    print("tonedata is not in the data directory: the answers below are simulated.")
    rng = np.random.default_rng(0)
    ratio = rng.uniform(1.35, 3, 150)
    tuned = np.where(rng.random(150) < 0.6, 1.94 + 0.03 * ratio, ratio) + 0.02 * rng.standard_t(
        2, 150
    )
    tones = pd.DataFrame({"stretchratio": ratio, "tuned": tuned})

wrong = pd.DataFrame({"stretchratio": [1.5] * 10, "tuned": [4.0] * 10})
table = pd.concat([tones, wrong], ignore_index=True)

# %%
# Slopes with and without the wrong rows
# --------------------------------------


def fitted(family, rows):
    model = MixtureOfRegressions(2, family=family, random_state=0)
    return model.fit(rows[["stretchratio"]], rows["tuned"])


models = {
    (family, rows is table): fitted(family, rows)
    for family in ("gaussian", "student")
    for rows in (tones, table)
}
for (family, with_wrong), model in models.items():
    slopes = ", ".join(f"{slope:.2f}" for slope in np.sort(model.coef_[:, 0]))
    print(f"{family:8}  {'with' if with_wrong else 'without':7} the wrong rows: slopes {slopes}")

# %%
# Pictures
# --------
# Both models were fitted to all rows. With Gaussian errors, a regression serves the ten wrong rows at the top.


def draw(family):
    axes = plot.experts(models[family, True], table[["stretchratio"]], table["tuned"])
    axes.set(title=f'family="{family}"', xlabel="stretch ratio", ylabel="tuned ratio")
    axes.annotate(
        "10 wrong rows", (1.5, 4), (8, -3), textcoords="offset points", fontsize="small"
    )
    plt.show()


draw("gaussian")

# %%
# With errors of Student's distribution, the two regressions of the tones are still there.

draw("student")
