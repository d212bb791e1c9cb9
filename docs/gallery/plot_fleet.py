"""
A fleet with three behaviours
=============================

The data are simulated readings of power and outdoor temperature from 400 heat pumps, with a few
dozen readings per device. Most devices work as intended. In some, an electric heating rod is used
in the cold; others run at constant power in any weather. The behaviour is not observed, and it
belongs to the *device*, not to a single reading. The devices are connected to four regional
gateways, and readings do not leave their gateway.
"""

# sphinx_gallery_thumbnail_number = -1

import matplotlib.pyplot as plt
import numpy as np

from consilience import ClusteredClients, Federation, MixtureOfRegressions

# %%
# The fleet
# ---------
# Power (kW) is a linear function of the outdoor temperature (°C), with a different regression for
# each behaviour. A device has between 5 and 60 readings, all from one regression, so the three
# regressions cannot be estimated from a single device.

rng = np.random.default_rng(0)
intercept, slope = np.array([3.8, 5.4, 4.0]), np.array([-0.10, -0.22, 0.0])
behaviour = rng.choice(3, 400, p=[0.7, 0.2, 0.1])
device = np.repeat(np.arange(400), rng.integers(5, 61, 400))
outside = rng.normal(2, 5, len(device))
power = (
    intercept[behaviour[device]]
    + slope[behaviour[device]] * outside
    + 0.5 * rng.normal(size=len(device))
)
gateway = device % 4

sites = Federation(
    {
        f"gateway {g}": {
            "X": outside[gateway == g, None],
            "y": power[gateway == g],
            "groups": device[gateway == g],
        }
        for g in range(4)
    }
)

# %%
# The number of behaviours
# ------------------------
# Models with one to five behaviours are fitted in the same messages and compared by BIC.

orders = sites.select_order(
    MixtureOfRegressions(random_state=0), orders=range(1, 6), method=ClusteredClients()
)
for K, fit in zip(orders.orders, orders.fits, strict=True):
    print(f"{K} behaviours: BIC {fit.bic:.0f}")

# %%
# The model with three behaviours
# -------------------------------
# BIC is lowest for three behaviours. The fit of this model alone takes five rounds: two for the
# subspace in which the regressions of devices differ (two because the mean power is far from zero),
# one for the moments of each device in this subspace, and two for EM, in which gateways send only
# sums over devices. The last round includes the observed information, which gives standard errors.

result = sites.fit(
    MixtureOfRegressions(orders.best_order, random_state=0), method=ClusteredClients()
)
model = result.model
print(result.record)

# %%
print(model.summary())

# %%
# Each gateway can compute the behaviour of its own devices from the model; these labels need not be
# sent.

found = model.responsibilities(outside[:, None], power, groups=device).argmax(
    axis=1
)  # one label per device, repeated
counts = np.zeros((3, 3), dtype=int)
first = np.flatnonzero(np.diff(device, prepend=-1))  # one reading of each device
np.add.at(counts, (behaviour, found[first]), 1)
print("devices by true behaviour (rows) and estimated behaviour (columns):")
print(counts)

# %%
# Pictures
# --------
# This is what the gateways have: readings without labels.

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.scatter(outside, power, s=2, color="0.6", linewidths=0)
axes.set(xlabel="outside (°C)", ylabel="power (kW)")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# And this is what the model found: three regressions, with their shares of the devices.

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
grid = np.linspace(outside.min(), outside.max(), 50)
for k, colour in enumerate(["#0072B2", "#D55E00", "#009E73"]):
    mine = found == k
    axes.scatter(outside[mine], power[mine], s=2, color=colour, alpha=0.35, linewidths=0)
    share = model.weights_[k]
    axes.plot(
        grid,
        model.intercept_[k] + model.coef_[k, 0] * grid,
        color=colour,
        lw=2.5,
        label=f"{share:.0%} of the devices",
    )
axes.set(xlabel="outside (°C)", ylabel="power (kW)")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
