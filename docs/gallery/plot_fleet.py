"""
A fleet with three behaviours
=============================

400 heat pumps, each with a few dozen readings of its power and of the temperature outside. Most work as they should. In
some the heating rod helps out in the cold, and some run on, whatever the weather. No reading says which: the label is
that of the *device*, and the devices are spread over four regional gateways that keep the readings. The data are
simulated.
"""

import matplotlib.pyplot as plt
import numpy as np

from consilience import ClusteredClients, Federation, MixtureOfRegressions

# %%
# The fleet
# ---------
# Power (kW) falls with the temperature outside (°C), differently in each behaviour. A device has between 5 and 60
# readings; one device alone would not tell.

rng = np.random.default_rng(0)
intercept, slope = np.array([3.8, 5.4, 4.0]), np.array([-0.10, -0.22, 0.0])
behaviour = rng.choice(3, 400, p=[0.7, 0.2, 0.1])
device = np.repeat(np.arange(400), rng.integers(5, 61, 400))
outside = rng.normal(2, 5, len(device))
power = intercept[behaviour[device]] + slope[behaviour[device]] * outside + 0.5 * rng.normal(size=len(device))
gateway = device % 4

sites = Federation(
    {
        f"gateway {g}": {"X": outside[gateway == g, None], "y": power[gateway == g], "groups": device[gateway == g]}
        for g in range(4)
    }
)

# %%
# How many behaviours?
# --------------------
# Models with one to five behaviours are fitted side by side, in the same messages, and compared by BIC.

orders = sites.select_order(MixtureOfRegressions(random_state=0), orders=range(1, 6), method=ClusteredClients())
for K, fit in zip(orders.orders, orders.fits, strict=True):
    print(f"{K} behaviours: BIC {fit.bic:.0f}")

# %%
# What was found
# --------------
# Three. Fitted alone it takes five rounds: two for the directions in which devices differ (the first shows that power
# is far from zero), one for a few moments of each device in these, and two of EM, for which only sums over devices
# leave a gateway. The last brings the observed information, and so standard errors.

result = sites.fit(MixtureOfRegressions(orders.best_order, random_state=0), method=ClusteredClients())
model = result.model
print(result.record)

# %%
print(model.summary())

# %%
# Every gateway can now tell the behaviour of its own devices; the labels need not leave it.

found = model.responsibilities(outside[:, None], power, groups=device).argmax(axis=1)  # for each reading its device's
counts = np.zeros((3, 3), dtype=int)
first = np.flatnonzero(np.diff(device, prepend=-1))  # one reading of each device
np.add.at(counts, (behaviour, found[first]), 1)
print("devices, true behaviour by found one:")
print(counts)

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), sharex=True, sharey=True, layout="constrained")
left.scatter(outside, power, s=2, color="0.6", linewidths=0)
left.set(title="What the gateways see", xlabel="outside (°C)", ylabel="power (kW)")
grid = np.linspace(outside.min(), outside.max(), 50)
for k, colour in enumerate(["#0072B2", "#D55E00", "#009E73"]):
    mine = found == k
    right.scatter(outside[mine], power[mine], s=2, color=colour, alpha=0.35, linewidths=0)
    share = model.weights_[k]
    right.plot(grid, model.intercept_[k] + model.coef_[k, 0] * grid, color=colour, lw=2.5, label=f"{share:.0%}")
right.set(title="Three behaviours, and their shares", xlabel="outside (°C)")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
