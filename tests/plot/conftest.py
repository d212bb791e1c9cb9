"""Small fitted models that the tests of the pictures share; no test may change them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")  # without a screen, before pyplot is imported

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from consilience import (
    FederatedEM,
    Federation,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
    SharedCentre,
)
from consilience.datasets import soft

NAMES = ["age", "dose", "body mass index"]


class Fitted(NamedTuple):
    model: Any
    X: Any
    y: Any


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def regressor() -> Fitted:
    """Three experts on three named covariates, with a named response."""
    data = soft(1500, n_experts=3, n_features=3, random_state=0)
    X, y = pd.DataFrame(data.X, columns=NAMES), pd.Series(data.y, name="pressure")
    return Fitted(MixtureOfExpertsRegressor(3, random_state=0, mixture_init=data.truth).fit(X, y), X, y)


@pytest.fixture(scope="session")
def lines() -> Fitted:
    """Two regressions on one covariate."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    y = np.where(rng.random(300) < 0.7, 3 * x, 2 - 3 * x) + 0.2 * rng.normal(size=300)
    return Fitted(MixtureOfRegressions(2, random_state=0).fit(x[:, None], y), x[:, None], y)


@pytest.fixture(scope="session")
def counts() -> tuple[Fitted, np.ndarray]:
    """Two Poisson regressions with an exposure."""
    rng = np.random.default_rng(1)
    X, exposure, upper = rng.uniform(-1, 1, (500, 2)), rng.uniform(0.5, 2, 500), rng.random(500) < 0.5
    y = rng.poisson(exposure * np.exp(np.where(upper, 3 + X[:, 0], 0.5 - X[:, 1])))
    return Fitted(
        MixtureOfRegressions(2, family="poisson", random_state=0).fit(X, y, exposure=exposure), X, y
    ), exposure


@pytest.fixture(scope="session")
def classifier() -> Fitted:
    """Three classes with text labels."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(600, 2))
    noise = rng.gumbel(size=(600, 3))
    y = np.array(["mild", "none", "severe"])[(X @ [[1.0, 0.0, -1.0], [0.5, -1.0, 0.5]] + noise).argmax(axis=1)]
    return Fitted(MixtureOfExpertsClassifier(1, random_state=0).fit(X, y), X, y)


@pytest.fixture(scope="session")
def binary() -> Fitted:
    """Two classes, two experts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(800, 2))
    y = (rng.random(800) < 1 / (1 + np.exp(-np.where(X[:, 0] > 0, 2 * X[:, 1], -2 * X[:, 1])))).astype(int)
    return Fitted(MixtureOfExpertsClassifier(2, random_state=0).fit(X, y), X, y)


@pytest.fixture(scope="session")
def two_responses() -> Fitted:
    """Two regressions of two responses."""
    rng = np.random.default_rng(4)
    x, upper = rng.normal(size=(400, 1)), rng.random((400, 1)) < 0.4
    Y = np.where(upper, np.hstack([2 + x, -x]), np.hstack([-2 - x, 3 + x])) + 0.5 * rng.normal(size=(400, 2))
    Y = pd.DataFrame(Y, columns=["motor", "total"])
    return Fitted(MixtureOfRegressions(2, random_state=0).fit(x, Y), x, Y)


@pytest.fixture(scope="session")
def cars() -> Fitted:
    """Experts that read a number and a category, and a gate that reads another category."""
    rng = np.random.default_rng(6)
    X = pd.DataFrame(
        {"age": rng.uniform(0, 15, 500), "fuel": rng.choice(["diesel", "gas"], 500), "city": rng.random(500) < 0.5}
    )
    frugal = rng.random(500) < np.where(X["city"], 0.8, 0.3)
    y = np.where(frugal, 3 + 0.1 * X["age"], 8 + 0.5 * X["age"] + 2 * (X["fuel"] == "gas")) + rng.normal(0, 0.5, 500)
    model = MixtureOfExpertsRegressor(
        2, gate_features=["city"], expert_features=["age", "fuel"], n_init=2, random_state=0
    )
    return Fitted(model.fit(X, y), X, y)


@pytest.fixture(scope="session")
def correlated() -> Fitted:
    """Two regressions of minutes of a flight, on distance and, nearly the same, time in the air."""
    rng = np.random.default_rng(0)
    distance = rng.uniform(0.2, 3, 600)
    X = np.column_stack([distance, 100 * distance + 5 * rng.normal(size=600), rng.random(600) < distance / 3])
    y = np.where(rng.random(600) < 0.6, 50, 0) + X @ [-90.0, 1.0, 5.0] + 2 * rng.normal(size=600)
    X = pd.DataFrame(X, columns=["distance", "minutes", "night"])
    return Fitted(MixtureOfRegressions(2, random_state=0).fit(X, y), X, y)


@pytest.fixture(scope="session")
def ports() -> Fitted:
    """Experts and a gate that read a category of three levels beside a number."""
    rng = np.random.default_rng(0)
    port = rng.choice(["Lisbon", "Oslo", "Riga"], 900, p=[0.5, 0.3, 0.2])
    X = pd.DataFrame({"load": rng.normal(size=900) + (port == "Oslo"), "port": port})
    share = pd.Series(port).map({"Lisbon": 0.8, "Oslo": 0.5, "Riga": 0.0}).to_numpy()
    first = rng.random(900) < share
    y = np.where(first, 10 + X["load"] + 3 * (port == "Oslo"), -X["load"] - 2 * (port == "Riga"))
    y = y + 0.5 * rng.normal(size=900)
    return Fitted(MixtureOfExpertsRegressor(2, random_state=0).fit(X, y), X, y)


SITES = ("north", "south", "east", "west", "far", "tiny")


@pytest.fixture(scope="session")
def federation() -> Federation:
    """Four similar sites, one with another regression, and one with too few rows for a fit."""
    data = soft(2500, n_experts=2, n_features=2, random_state=5)
    parts = {name: (data.X[i::5], data.y[i::5]) for i, name in enumerate(SITES[:5])}
    parts["far"] = (parts["far"][0], parts["far"][1] + 20 * parts["far"][0][:, 0])
    parts["tiny"] = (data.X[:6], data.y[:6])
    return Federation(parts)


@pytest.fixture(scope="session")
def combined(federation: Federation) -> Any:
    with warnings.catch_warnings(action="ignore"), pytest.MonkeyPatch.context() as patch:  # far and tiny are not used
        patch.setattr("consilience.aggregate.combine.points.NUMBERS", 10_000)  # a fraction of the points, for speed
        return federation.fit(MixtureOfExpertsRegressor(2, n_init=2, random_state=0), method=OneShot(refine=0))


@pytest.fixture(scope="session")
def shared(federation: Federation) -> Any:
    with warnings.catch_warnings(action="ignore"):  # far and tiny are not used
        return federation.fit(MixtureOfExpertsRegressor(2, n_init=2, random_state=0), method=SharedCentre())


@pytest.fixture(scope="session")
def own_gates(federation: Federation) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return federation.fit(
            MixtureOfExpertsRegressor(2, n_init=2, random_state=0), method=FederatedEM(per_site="gate")
        )
