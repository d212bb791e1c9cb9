"""A program of a user, which type checkers read: what calls return, and which mistakes are named before it runs.

``python tools/release.py`` reads it with mypy and pyright beside the wheel. Where a mistake was not named, the comment
that expects it would be unused, which is an error too.
"""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from consilience import Federation, GaussianMixture, MixtureOfExpertsRegressor, OneShot, load, select_order
from consilience.federation import FederatedFit
from consilience.model import Mixture

Array = NDArray[np.float64]

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 2))
y = np.where(X[:, 0] > 0, X[:, 1], 3 - X[:, 1]) + 0.1 * rng.normal(size=400)

model = MixtureOfExpertsRegressor(2, random_state=0).fit(X, y)
assert_type(model, MixtureOfExpertsRegressor)
assert_type(model.mixture_, Mixture)
assert_type(model.predict_gate(X), Array)
assert_type(model.bic(X, y), float)
labels = GaussianMixture(2, random_state=0).fit(X).predict_proba(X).argmax(axis=1)
predicted: Array = model.predict(X)
text: str = str(model.summary())
best = select_order(MixtureOfExpertsRegressor(random_state=0), X, y, orders=[1, 2])

sites = Federation({"north": (X[:200], y[:200]), "south": (X[200:], y[200:])})
result = sites.fit(MixtureOfExpertsRegressor(2, random_state=0), method=OneShot())
assert_type(result, FederatedFit)
reasons = {site.name: site.reasons for site in result.sites}
model.save("model.json")
again: Array = load("model.json").predict(X)
pooled: Array = result.model.predict(X)

MISTAKES = (
    lambda: MixtureOfExpertsRegressor("2"),  # type: ignore[arg-type]
    lambda: MixtureOfExpertsRegressor(2, experts=2),  # type: ignore[call-arg]
    lambda: OneShot(refine="two"),  # type: ignore[arg-type]
    lambda: sites.fit(MixtureOfExpertsRegressor(2), method=OneShot),  # type: ignore[arg-type]
)
