"""
Group clinical centres by their results
=======================================

A trial of beta blockers after a heart attack, in 22 centres: deaths among the treated and among the controls. Each
centre has two rows, and both belong together: the latent label is one of the centre, not of the row. So the centre
is passed as `groups`. Deaths out of a number of patients are binomial, with the number as `trials`.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import MixtureOfRegressions, select_order

try:
    table = load_table("betablocker").to_pandas()
except DataNotFoundError:
    print("betablocker is not in the data directory: the centres below are simulated.")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"Center": np.repeat(np.arange(1, 23), 2), "Treatment": ["Control", "Treated"] * 22}
    )
    table["Total"] = rng.integers(300, 900, 44)
    level = np.repeat(np.array([-1.5, -2.3, -3.1])[rng.integers(3, size=22)], 2)
    table["Deaths"] = rng.binomial(
        table["Total"], 1 / (1 + np.exp(-level + 0.26 * (table["Treatment"] == "Treated")))
    )

X, deaths = table[["Treatment"]], table["Deaths"]
rows = {"groups": table["Center"], "trials": table["Total"]}

# %%
# How many groups of centres
# --------------------------
# The treatment is text, and becomes the term `Treatment[Treated]`: the difference in the log odds of death.
# ICL prefers groups to which centres clearly belong, which is what this example is about.

mixture = MixtureOfRegressions(family="binomial", random_state=0)
selection = select_order(mixture, X, deaths, orders=range(1, 5), criterion="icl", **rows)
print(selection)

# %%

model = selection.best_estimator
print(model.summary())

# %%
# Picture
# -------
# A thin line is a centre, from its controls to its treated patients, in the colour of its group; a thick line is the
# fitted risk of a group. The groups differ in the risk of their patients more than in the effect of the treatment.

label = model.responsibilities(X, deaths, **rows).argmax(
    axis=1
)  # that of the centre, for each of its rows
table = table.assign(label=label, risk=deaths / table["Total"])
colours = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for _, centre in table.sort_values("Treatment").groupby("Center"):
    axes.plot(
        [0, 1],
        centre["risk"],
        "o-",
        color=colours[centre["label"].iloc[0]],
        lw=0.8,
        ms=3,
        alpha=0.7,
    )
fitted = model.predict_experts(pd.DataFrame({"Treatment": ["Control", "Treated"]}))  # (2, K)
for k, ends in enumerate(fitted.T):
    axes.plot(
        [0, 1],
        ends,
        color=colours[k],
        lw=4,
        label=f"group {k + 1}: {np.sum(label == k) // 2} centres",
    )
axes.set(
    xticks=[0, 1],
    xticklabels=["controls", "treated"],
    ylabel="share of patients who died",
    xlim=(-0.15, 1.15),
)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
plt.show()
