"""Standard errors over real sites are those of one table, for every family."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import FederatedEM, Federation, MixtureOfExpertsClassifier, MixtureOfExpertsRegressor
from consilience.fit import infer
from consilience.model.families.registry import FAMILIES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")]
AT_MOST = 1_500
SETS = {
    "flights": ("origin", ("hour", "distance", "month"), "arr_delay"),
    "beijing_air": ("station", ("TEMP", "DEWP", "WSPM"), "PM2.5"),
    "heart_disease": ("site", ("age", "sex", "oldpeak"), "thalach"),
}
"""Column of the sites, covariates and response of each data set."""


@cache
def table(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    site, covariates, response = SETS[name]
    try:
        frame = load_table(name).to_pandas().dropna(subset=[*covariates, response])
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    frame = frame.sample(min(AT_MOST, len(frame)), random_state=0)
    X = frame[list(covariates)].to_numpy(float)
    return frame[site].to_numpy(str), (X - X.mean(axis=0)) / X.std(axis=0), frame[response].to_numpy(float)


def response(family: str, y: np.ndarray) -> np.ndarray:
    """The response, or what the family reads of it."""
    rank = np.argsort(np.argsort(y)) / len(y)
    if family in ("gaussian", "student"):
        return np.asarray((y - y.mean()) / y.std())
    if family == "categorical":
        return np.digitize(rank, [0.3, 0.7])
    if family == "binomial":
        return (rank > 0.5).astype(float)
    return np.exp(2 * rank) if family == "gamma" else np.floor(9 * rank**3)


@pytest.mark.parametrize(("name", "family"), list(product(SETS, sorted(FAMILIES))))
def test_errors_over_sites_are_those_of_one_table(name: str, family: str) -> None:
    site, X, y = table(name)
    z = response(family, y)
    model: Any = MixtureOfExpertsClassifier(2, random_state=0, n_init=2)
    if family != "categorical":
        model = MixtureOfExpertsRegressor(2, family=family, random_state=0, n_init=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pooled = model.fit(X, z)
        parts = {each: (X[site == each], z[site == each]) for each in np.unique(site)}
        started = type(model)(**{**model.get_params(), "mixture_init": pooled.mixture_})
        one = started.fit(X, z)
        apart = Federation(parts).fit(started, method=FederatedEM(screen=False)).model
    assert apart.inference_.kind == one.inference_.kind == "larger"
    rule = infer(one._fit_result, one.rows(X, z), kind="larger")  # whether one expert would do is not known over sites
    assert dict(apart.inference_.withheld).keys() == dict(rule.withheld).keys()
    ours, theirs = (
        np.sqrt(np.diagonal(each.inference_.covariance)) for each in (apart, one)
    )  # also of what is withheld
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)
