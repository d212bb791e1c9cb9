"""Fitted estimators survive pickle, copy.deepcopy and joblib, bit for bit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import product
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest

from consilience import (
    Federation,
    GaussianMixture,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
)
from consilience.estimators.estimator import MixtureEstimator
from pairwise import every_pair
from simulated import simulated

NAMES = ["age", "dose"]
OPTIONS = {"random_state": 0, "n_init": 2}
PLAIN, COUNTS, CLASSES = (simulated(family, n=120) for family in ("gaussian", "poisson", "categorical"))
COLOURS = np.array(["red", "green", "blue"])[CLASSES.y.astype(int)]
ESTIMATORS = {
    "regressor": (MixtureOfExpertsRegressor(2, **OPTIONS), PLAIN.X, PLAIN.y),
    "counts": (MixtureOfExpertsRegressor(2, family="poisson", **OPTIONS), COUNTS.X, COUNTS.y),
    "classifier": (MixtureOfExpertsClassifier(2, **OPTIONS), CLASSES.X, COLOURS),
    "regressions": (MixtureOfRegressions(2, **OPTIONS), PLAIN.X, PLAIN.y),
    "gaussian mixture": (GaussianMixture(2, **OPTIONS), PLAIN.X, None),
}
TABLES: dict[str, Callable[[np.ndarray], object]] = {
    "numpy": lambda X: X,
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
}
FRAMES = {"numpy": pd.DataFrame, "pandas": pd.DataFrame, "polars": pl.DataFrame}


def pickled(model: object, _: Path) -> object:
    return pickle.loads(pickle.dumps(model))


def pickled_by_the_oldest_protocol(model: object, _: Path) -> object:
    return pickle.loads(pickle.dumps(model, protocol=0))


def copied(model: object, _: Path) -> object:
    return copy.deepcopy(model)


def saved_by_joblib(model: object, directory: Path) -> object:
    joblib.dump(model, directory / "model.joblib")
    return joblib.load(directory / "model.joblib")


WAYS = [pickled, pickled_by_the_oldest_protocol, copied, saved_by_joblib]
each_pair = pytest.mark.parametrize(("name", "kind", "way"), every_pair(product(ESTIMATORS, TABLES, WAYS)))


@cache
def fitted(name: str, kind: str) -> tuple[MixtureEstimator, object, np.ndarray | None]:
    """An estimator and the data of its fit, in a table of a kind."""
    model, X, y = ESTIMATORS[name]
    X = TABLES[kind](X)
    model = copy.deepcopy(model).fit(X, y)
    model.summary()  # fills what is computed once and kept
    return model, X, y


def assert_same(a: object, b: object, where: str = "model") -> None:
    """Assert that two values have one type and the same bits, all the way down."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        assert a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes(), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key, value in a.items():
            assert_same(value, b[key], f"{where}[{key!r}]")
    elif isinstance(a, tuple | list):
        assert len(a) == len(b), where
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif is_dataclass(a):
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    else:
        assert a == b, where


def as_dict(frame: object) -> dict[str, list]:
    return frame.to_dict(as_series=False) if isinstance(frame, pl.DataFrame) else frame.to_dict(orient="list")


@pytest.mark.slow
@each_pair
def test_fitted_estimators_survive(name: str, kind: str, way, tmp_path: Path) -> None:
    model, X, y = fitted(name, kind)
    again = way(model, tmp_path)
    assert type(again) is type(model)
    assert_same(again.predict(X), model.predict(X))
    assert_same(again.predict_gate(X), model.predict_gate(X))
    assert again.summary() == model.summary()
    assert again._repr_html_() == model._repr_html_()
    assert type(again.to_frame()) is type(model.to_frame()) is FRAMES[kind]
    np.testing.assert_equal(as_dict(again.to_frame()), as_dict(model.to_frame()))
    assert_same(again.bic(X, y), model.bic(X, y))
    assert_same(again.infer(X, y).covariance, model.infer(X, y).covariance)


@pytest.mark.slow
@each_pair
def test_every_attribute_survives_with_its_bits(name: str, kind: str, way, tmp_path: Path) -> None:
    model, *_ = fitted(name, kind)
    for attribute, value in vars(model).items():
        assert_same(way(value, tmp_path), value, attribute)


@pytest.mark.parametrize("way", WAYS)
def test_estimators_that_are_not_fitted_survive(way, tmp_path: Path) -> None:
    for model, *_ in ESTIMATORS.values():
        again = way(model, tmp_path)
        assert again.get_params() == model.get_params()
        assert vars(again).keys() == vars(model).keys()


@pytest.mark.parametrize("way", WAYS)
def test_a_model_of_a_federation_survives(way, tmp_path: Path) -> None:
    X = TABLES["polars"](PLAIN.X)
    sites = {"north": (X[:60], PLAIN.y[:60]), "south": (X[60:], PLAIN.y[60:])}
    model = Federation(sites).fit(MixtureOfExpertsRegressor(2, mixture_init=PLAIN.truth)).model
    again = way(model, tmp_path)
    assert_same(again.predict(X), model.predict(X))
    assert again.summary() == model.summary()
    assert isinstance(again.to_frame(), pl.DataFrame)
