"""Sites with wrong data: every method reports on every site, and says which are suspect."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from consilience import (
    ClusteredClients,
    FederatedEM,
    Federation,
    FedGrEM,
    FedMomentDescent,
    GaussianMixture,
    GradientEM,
    MinimaxRegression,
    MixtureOfExpertsRegressor,
    MixtureOfRegressions,
    OneShot,
    SharedCentre,
)
from consilience.errors import ConsilienceWarning, SetAsideWarning, SuspectDataWarning, UntrustedWarning
from consilience.federation import FederatedFit
from consilience.methods import Method

EXPERTS = np.array([[0, 2.0, 1.0], [4, -1.0, 1.0]])
GATE = np.array([[0, -1.5, 0.5], [0, 1.5, -0.5]])
MODEL = MixtureOfExpertsRegressor(2, random_state=0, n_init=2)
PAIR = MixtureOfRegressions(2, covariance_type="tied", random_state=0, n_init=2)


def drawn(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_normal((n, 2))
    design = np.c_[np.ones(n), X]
    z = (softmax(design @ GATE.T, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return X, np.sum(design * EXPERTS[z], axis=1) + rng.standard_normal(n)


def honest(M: int = 3, n: int = 400, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng([seed, M])
    return {f"site {m}": drawn(n, rng) for m in range(M)}


def quiet(sites: Any, model: Any, method: Method) -> tuple[FederatedFit, dict[type, str]]:
    """Fit; return the warnings about sites by their kind."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConsilienceWarning)
        fit = Federation(sites).fit(model, method)
    about = (SetAsideWarning, SuspectDataWarning, UntrustedWarning)
    return fit, {w.category: str(w.message) for w in caught if issubclass(w.category, about)}


METHODS = [
    (FederatedEM(), MODEL),
    (FederatedEM(newton=False), MODEL),
    (OneShot(refine=0), MODEL),
    (OneShot(refine=1), MODEL),
    (SharedCentre(), MODEL),
    (SharedCentre(participation=0.9), MODEL),
    (ClusteredClients(), PAIR),
    *(
        pytest.param(method, model, marks=pytest.mark.published)
        for method, model in ((GradientEM(), MODEL), (MinimaxRegression(), PAIR), (FedMomentDescent(rounds=3), PAIR))
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "model"), METHODS, ids=lambda each: repr(each)[:40])
def test_every_method_names_a_column_in_other_units(method: Method, model: Any) -> None:
    sites = honest(3)
    if method.by_client:
        sites = {name: {"X": X, "y": y, "groups": np.arange(len(y)) // 20} for name, (X, y) in sites.items()}
        sites["site 1"]["X"] = sites["site 1"]["X"] * [10.0, 1.0]
    else:
        sites["site 1"] = (sites["site 1"][0] * [10.0, 1.0], sites["site 1"][1])
    result, said = quiet(sites, model, method)
    assert [site.name for site in result.sites] == list(sites)
    assert "site 1: x0 is about 10 times the others': units?" in said[SuspectDataWarning]
    assert "x0 is about 10 times the others': units?" in result.sites[1].remarks


@pytest.mark.published
def test_fedgrem_reports_on_every_site() -> None:
    rng = np.random.default_rng(0)
    sites = {name: (np.r_[rng.normal(0, 1, (60, 2)), rng.normal(6, 1, (40, 2))],) for name in "abcd"}
    sites["c"] = (sites["c"][0] * [1.0, 20.0],)
    result, said = quiet(sites, GaussianMixture(2, random_state=0), FedGrEM(rounds=3))
    assert [site.name for site in result.sites] == list("abcd")
    assert "c: x1 is about 19 times the others'" in said[SuspectDataWarning]


@pytest.mark.slow
def test_names_of_columns_are_those_of_the_user() -> None:
    sites = {name: (pd.DataFrame(X, columns=["age", "dose"]), y) for name, (X, y) in honest().items()}
    sites["site 2"][0]["dose"] *= 1000
    _, said = quiet(sites, MODEL, FederatedEM())
    assert "site 2: dose is about 1,000 times the others': units?" in said[SuspectDataWarning]


def test_an_empty_site_is_named() -> None:
    rng = np.random.default_rng(0)
    sites = {"full": (rng.normal(size=(60, 2)),), "empty": (np.empty((0, 2)),)}
    result, said = quiet(sites, GaussianMixture(1), FederatedEM())
    assert result.sites[-1].status == "empty"
    assert said == {
        SetAsideWarning: "some sites were not used as a whole: empty: it has no rows. See FederatedFit.sites"
    }


@pytest.mark.slow
def test_of_two_sites_it_is_not_said_which_is_wrong() -> None:
    sites = honest(2)
    sites["site 1"] = (sites["site 1"][0] * [10.0, 1.0], sites["site 1"][1])
    result, said = quiet(sites, MODEL, FederatedEM())
    assert "the data cannot tell which is wrong" in said[UntrustedWarning]
    assert result.fit.survey.suspicions == {}


@pytest.mark.slow
@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=1)], ids=["FederatedEM", "OneShot"])
def test_honest_sites_are_not_suspect(method: Method) -> None:
    result, said = quiet(honest(), MODEL, method)
    assert said == {}
    assert [site.name for site in result.sites] == ["site 0", "site 1", "site 2"]


@pytest.mark.slow
@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=1)], ids=["FederatedEM", "OneShot"])
def test_shuffled_responses_at_one_of_three_sites_are_named(method: Method) -> None:
    sites = honest()
    sites["site 1"] = (sites["site 1"][0], np.random.default_rng(1).permutation(sites["site 1"][1]))
    result, said = quiet(sites, MODEL, method)
    survey = result.fit.survey
    assert {*survey.suspicions, *(site.name for site in survey.sites if site.status == "set aside")} == {"site 1"}
    text = said.get(SuspectDataWarning, "") + said.get(SetAsideWarning, "")
    assert "site 1: the joint mixture explains its rows worse than its own model" in text


@pytest.mark.slow
@pytest.mark.parametrize("method", [FederatedEM(), OneShot(refine=1)], ids=["FederatedEM", "OneShot"])
def test_equal_camps_are_undecided(method: Method) -> None:
    sites = honest(4)
    sites |= {name: (sites[name][0], -sites[name][1]) for name in ("site 1", "site 2")}
    result, said = quiet(sites, MODEL, method)
    assert result.fit.survey.suspicions == {}
    assert "the sites disagree, and the data cannot tell which are wrong" in said[UntrustedWarning]


@pytest.mark.slow
def test_a_component_that_is_one_sites_own_is_flagged() -> None:
    sites = honest(5)
    sites["site 3"] = (sites["site 3"][0], sites["site 3"][1] + 30.0)
    result, _ = quiet(sites, MixtureOfExpertsRegressor(3, random_state=0, n_init=2), FederatedEM(screen=False))
    assert any("of its rows form " in said for said in result.fit.survey.suspicions["site 3"])


@pytest.mark.slow
def test_sites_in_regions_of_the_covariates_are_not_suspect() -> None:
    X, y = drawn(3000, np.random.default_rng(3))
    order = np.argsort(X[:, 0])
    sites = {f"site {m}": (X[part], y[part]) for m, part in enumerate(np.array_split(order, 3))}
    for method in (FederatedEM(), OneShot(refine=1)):
        _, said = quiet(sites, MODEL, method)
        assert SuspectDataWarning not in said
        assert UntrustedWarning not in said
