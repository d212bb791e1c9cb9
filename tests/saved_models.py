"""Fitted models of every kind, for the tests of saved models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from consilience import GaussianMixture, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.model import FAMILIES
from simulated import simulated

N = 240


@cache
def covariates() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, 3))


@cache
def response() -> np.ndarray:
    X, rng = covariates(), np.random.default_rng(1)
    return np.where(X[:, 0] + 0.5 * rng.normal(size=N) > 0, 1 + X[:, 1], 3 - X[:, 1]) + 0.3 * rng.normal(size=N)


def frame() -> pd.DataFrame:
    rng, X = np.random.default_rng(2), covariates()
    return pd.DataFrame(
        {
            "age": X[:, 0],
            "fuel": rng.choice(["diesel", "gas", "petrol"], N),
            "dose": X[:, 1],
            "new": rng.random(N) < 0.5,
        }
    )


def regression(y: Any, X: Any = None, **parameters: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    return (
        MixtureOfExpertsRegressor(2, n_init=1, max_iter=20, random_state=0, **parameters),
        covariates() if X is None else X,
        y,
        {},
    )


def of_family(family: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A small mixture of experts of a family, with sizes of rows if the family reads them."""
    case, kind = simulated(family, n=N, exposure=True), FAMILIES[family]
    options = {"n_init": 1, "max_iter": 20, "random_state": 0}
    sizes = {} if kind.size_name is None else {kind.size_name: case.rows.exposure}
    if kind.classes:
        return MixtureOfExpertsClassifier(2, **options), case.X, case.y.astype(int), sizes
    return MixtureOfExpertsRegressor(2, family=family, **options), case.X, case.y, sizes


def counts(scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.poisson(np.exp(0.6 * response()) * scale * rng.gamma(3, 1 / 3, N)).astype(float)


def two() -> np.ndarray:
    return np.column_stack([response(), response() ** 2 / 3 + np.random.default_rng(4).normal(size=N)])


def classes(kind: Callable[[np.ndarray], Any], **parameters: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    codes = np.digitize(response(), [1.0, 2.5])
    return (
        MixtureOfExpertsClassifier(2, n_init=1, max_iter=20, random_state=0, **parameters),
        covariates(),
        kind(codes),
        {},
    )


def of_frame(**parameters: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    return regression(response() + (frame()["fuel"] == "gas").to_numpy(), frame(), **parameters)


CASES: dict[str, Callable[[], tuple[Any, Any, Any, dict[str, Any]]]] = {
    **{family: lambda family=family: of_family(family) for family in FAMILIES},
    "one-expert": lambda: (MixtureOfExpertsRegressor(1), covariates(), response(), {}),
    "no-intercept": lambda: regression(response(), fit_intercept=False),
    "ridge": lambda: regression(response(), expert_ridge=5.0),
    "student-fixed": lambda: regression(response(), family="student", degrees_of_freedom=4),
    **{
        f"two-{kind}": lambda kind=kind: regression(two(), covariance_type=kind)
        for kind in ("full", "diag", "spherical", "tied")
    },
    "categories": of_frame,
    "categories-reference": lambda: of_frame(
        reference_levels={"fuel": "petrol"}, gate_features=["age", "new"], expert_features=("fuel", 2)
    ),
    "polars": lambda: regression(response(), pl.DataFrame(covariates(), schema=["a", "b", "c"]), gate_features=["a"]),
    "levels-of-numbers": lambda: regression(
        response(),
        np.column_stack([covariates()[:, :2], np.random.default_rng(8).integers(0, 3, N)]),
        categorical_features=[2],
    ),
    "redundant": lambda: regression(response(), np.column_stack([covariates(), covariates()[:, 0] - 1])),
    "regressions": lambda: (
        MixtureOfRegressions(2, n_init=1, max_iter=20, random_state=0),
        covariates(),
        response(),
        {},
    ),
    "regressions-poisson": lambda: (
        MixtureOfRegressions(2, family="poisson", n_init=1, max_iter=20, random_state=0),
        covariates(),
        counts(),
        {},
    ),
    "grouped": lambda: (
        MixtureOfRegressions(2, n_init=1, max_iter=20, random_state=0),
        covariates(),
        response(),
        {"groups": np.arange(N) // 2},
    ),
    "classes-of-text": lambda: classes(lambda codes: np.array(["low", "mid", "high"])[codes]),
    "classes-of-objects": lambda: classes(lambda codes: np.array(["no", "yes", "yes"], dtype=object)[codes]),
    "classes-of-integers": lambda: classes(lambda codes: 2 * codes.astype(np.int32), gate="constant"),
    "classes-of-booleans": lambda: classes(lambda codes: codes > 0, gate_features=[0]),
    **{
        f"mixture-{kind}": lambda kind=kind: (
            GaussianMixture(2, covariance_type=kind, n_init=1, max_iter=20, random_state=0),
            covariates() + 3 * (covariates() > 0),
            None,
            {},
        )
        for kind in ("full", "diag", "spherical", "tied")
    },
    "mixture-frame": lambda: (
        GaussianMixture(2, n_init=1, max_iter=20, random_state=0),
        frame()[["age", "dose"]],
        None,
        {},
    ),
}


@cache
def fitted(name: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return the fitted model of a case, with its data and their sizes or groups."""
    model, X, y, metadata = CASES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rank, convergence: not what these tests are about
        model.fit(X, y, **metadata)
    return model, X, y, metadata
