"""Pictures of fitted models with Matplotlib, the extra ``plot``.

Every function draws into ``ax``, or into a new figure, and returns the Axes. An expert has the same colour, marker and
line style in every picture; colours can be told apart with a colour vision deficiency, and nothing else has them.
Models are fitted estimators or results of ``Federation.fit``.

Examples
--------
>>> import matplotlib.pyplot as plt
>>> from consilience import MixtureOfExpertsRegressor, plot
>>> from consilience.datasets import soft
>>> data = soft(1000, n_experts=2, n_features=2, random_state=0)
>>> model = MixtureOfExpertsRegressor(2, random_state=0).fit(data.X, data.y)
>>> figure, (left, right) = plt.subplots(1, 2, layout="constrained")
>>> plot.experts(model, data.X, data.y, "x0", ax=left) is left
True
>>> plot.gate(model, data.X, "x0", ax=right) is right
True
>>> plt.close(figure)
"""

from consilience.plot.curves import experts
from consilience.plot.diagnostics import calibration, convergence, posteriors
from consilience.plot.estimates import coefficients, orders
from consilience.plot.federated_results import shares, sharing, sites, transport
from consilience.plot.gate_curves import gate

__all__ = [
    "calibration",
    "coefficients",
    "convergence",
    "experts",
    "gate",
    "orders",
    "posteriors",
    "shares",
    "sharing",
    "sites",
    "transport",
]
