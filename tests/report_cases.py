"""Twelve results whose state is known: what the first screen of their report must say."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from consilience import FederatedEM, Federation, MixtureOfExpertsRegressor, MixtureOfRegressions, OneShot
from consilience.datasets import soft
from consilience.engines import InProcess
from consilience.errors import ConsilienceWarning
from consilience.kit.combination import run_study, simulate_study, sites_of
from consilience.runs import RunOptions
from mail_office import TABLES, study_with

NAMES = ("north", "south", "east", "west", "centre")


def parts(n: int = 3000, sites: int = 5, seed: int = 0, K: int = 2) -> dict[str, Any]:
    """Rows of one mixture, split over sites."""
    data = soft(n, n_experts=K, n_features=3, random_state=seed)
    return {name: (data.X[i::sites].copy(), data.y[i::sites].copy()) for i, name in enumerate(NAMES[:sites])}


def fitted(tables: dict[str, Any], K: int = 2, method: Any = None, model: Any = None, **options: Any) -> Any:
    """Fit with the warnings that the report repeats in words."""
    model = model or MixtureOfExpertsRegressor(K, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        return Federation(tables).fit(model, method=method or OneShot(refine=1), **options)


@cache
def good() -> Any:
    return fitted(parts())


def bad_site() -> Any:
    tables = parts()
    rng = np.random.default_rng(1)
    tables["east"] = (tables["east"][0], rng.permutation(tables["east"][1]))
    return fitted(tables)


def wrong_units() -> Any:
    tables = parts()
    tables["west"][0][:, 1] *= 1000
    return fitted(tables, method=FederatedEM())


def one_site_expert() -> Any:
    """A site with most of the rows, a third of which follow an expert that no other site has."""
    tables = parts(3000)
    data = soft(3300, n_experts=2, n_features=3, random_state=0)
    X, y = data.X.copy(), data.y.copy()
    own = np.arange(len(y)) % 3 == 0
    y[own] = 40 + X[own, 0] + 0.3 * np.random.default_rng(2).standard_normal(own.sum())
    tables["south"] = (X, y)
    return fitted(tables, model=MixtureOfRegressions(3, random_state=0, n_init=2))


def sharp_gate() -> Any:
    """A gate that turns within a small range of a covariate, and sites with few rows each."""
    rng = np.random.default_rng(3)
    tables = {}
    for i in range(8):
        X = rng.normal(0, 1, (45, 2))
        label = 25 * X[:, 0] + rng.logistic(size=45) > 0
        tables[f"clinic {i + 1}"] = (X, np.where(label, 3 + X[:, 1], -3 - X[:, 1]) + rng.normal(0, 0.5, 45))
    return fitted(tables, method=OneShot(refine=0))


def sites_differ() -> Any:
    tables = parts(6000)
    for shift, name in zip((-0.8, -0.4, 0, 0.4, 0.8), NAMES, strict=True):
        X, y = tables[name]
        tables[name] = (X, y + shift * X[:, 0])
    return fitted(tables)


def separated_gate() -> Any:
    rng = np.random.default_rng(4)
    tables = {}
    for name in NAMES[:3]:
        X = rng.uniform(-1, 1, (400, 2))
        X[:, 0] += 0.5 * np.sign(X[:, 0])
        tables[name] = (X, np.where(X[:, 0] > 0, 5 + X[:, 1], -5 - X[:, 1]) + rng.normal(0, 0.3, 400))
    return fitted(tables, method=FederatedEM())


def too_many_experts() -> Any:
    rng = np.random.default_rng(5)
    tables = {name: (X := rng.normal(0, 1, (150, 2)), X @ [1.0, -1.0] + rng.normal(0, 1, 150)) for name in NAMES[:3]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        chosen = Federation(tables).select_order(
            MixtureOfRegressions(random_state=0, n_init=2), orders=[1, 3], method=FederatedEM()
        )
    return chosen.fits[1], chosen


def too_few_rows() -> Any:
    tables = {name: (X[:12], y[:12]) for name, (X, y) in parts().items()}
    return fitted(tables, model=MixtureOfExpertsRegressor(4, random_state=0, n_init=1), method=FederatedEM())


def worse_than_one() -> Any:
    """A result that is held against one regression, which is better: its rival's likelihood is raised."""
    found = good()
    rivals = replace(found.fit.rivals, one_regression=found.fit.log_likelihood + 50)
    return replace(found, fit=replace(found.fit, rivals=rivals))


def refused_sites() -> Any:
    """Hospitals of which one answers with noise only, and refuses the study's questions."""
    study = study_with('name = "FederatedEM"')
    sites = sites_of(study, TABLES)
    sites = [site.private(Fraction(1, 40), 1) if site.name == "ash" else site for site in sites]
    start = simulate_study(study_with(), TABLES).best.fit.mixture
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        return run_study(study, InProcess().over(sites), start=start, options=RunOptions(on_drop="continue")).best


def withheld() -> Any:
    return fitted(parts(1500), method=OneShot(refine=0))


CASES: dict[str, Callable[[], Any]] = {
    case.__name__: case
    for case in (
        good,
        bad_site,
        wrong_units,
        one_site_expert,
        sharp_gate,
        sites_differ,
        separated_gate,
        too_many_experts,
        too_few_rows,
        worse_than_one,
        refused_sites,
        withheld,
    )
}
