"""Gate and experts that read different columns, for every family and method."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience import (
    FederatedEM,
    Federation,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    OneShot,
    SharedCentre,
)
from consilience.errors import InvalidInputError

N = 900
FAMILIES = ("gaussian", "student", "poisson", "negative_binomial", "binomial", "gamma")


def data(seed=0, n=N):
    """Experts on ``x``, a gate on ``z`` and a factor."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n), "arm": rng.choice(["a", "b"], n)})
    logit = 2 * table.z + (table.arm == "b") - 0.5
    first = rng.random(n) < 1 / (1 + np.exp(-logit))
    return table, np.where(first, 1.5 + table.x, -1.5 - 0.8 * table.x), rng


def response(family, eta, rng):
    match family:
        case "gaussian" | "student":
            return np.asarray(3 * eta + 0.5 * rng.normal(size=len(eta)))
        case "poisson" | "negative_binomial":
            return rng.poisson(np.exp(eta / 1.5 + 0.5)).astype(float)
        case "binomial":
            return rng.binomial(10, 1 / (1 + np.exp(-eta))).astype(float)
    return rng.gamma(4.0, np.exp(eta / 1.5) / 4)


def fitted(family, table, y, **options):
    trials = {"trials": np.full(len(y), 10.0)} if family == "binomial" else {}
    return MixtureOfExpertsRegressor(2, family=family, random_state=0, n_init=3, **options).fit(table, y, **trials)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_columns_that_are_not_read_have_no_coefficients_and_are_not_counted(family):
    table, eta, rng = data()
    y = response(family, eta, rng)
    model = fitted(family, table, y, gate_features=["z", "arm"], expert_features=["x"])
    assert np.all(model.coef_[:, 1:] == 0)
    assert np.all(model.gate_coef_[:, 0] == 0)
    shapes = model.mixture_.experts.shape_parameters
    assert model.n_parameters_ == 3 + 2 * 2 + shapes
    terms = model.to_frame()
    assert set(terms[terms.part == "gate"].term) == {"(intercept)", "z", "arm[b]"}
    assert set(terms[terms.part == "expert"].term) == {"(intercept)", "x"}
    assert model.unidentified_ == []
    whole = fitted(family, table, y)
    assert whole.log_likelihood_ >= model.log_likelihood_ - 1e-6
    assert model.bic(table, y, **({"trials": np.full(N, 10.0)} if family == "binomial" else {})) < whole.bic(
        table, y, **({"trials": np.full(N, 10.0)} if family == "binomial" else {})
    )


def test_the_gradient_and_the_information_are_those_of_the_coefficients_that_are_read():
    """Standard errors agree with those of a fit in which the other coefficients are nearly 0 by the truth."""
    table, eta, rng = data(n=4000)
    y = response("gaussian", eta, rng)
    model = fitted("gaussian", table, y, gate_features=["z"], expert_features=[0])
    whole = fitted("gaussian", table[["x", "z"]], y)
    ours, theirs = (each.inference_.standard_errors() for each in (model, whole))
    np.testing.assert_allclose(ours.experts[:, 0, 1], theirs.experts[:, 0, 1], rtol=0.02)
    np.testing.assert_allclose(ours.gate[:, [0, 2]], theirs.gate[:, [0, 2]], rtol=0.1)
    assert np.all(np.isnan(ours.gate[:, 1]))
    assert "x" not in model.summary().split("Gate")[1].split("Standard errors")[0].replace("expert", "")


def test_a_classifier_takes_them_too():
    table, eta, rng = data()
    y = (eta + rng.logistic(size=N) > 0).astype(int)
    model = MixtureOfExpertsClassifier(
        2, random_state=0, n_init=2, gate_features=["z", "arm"], expert_features=["x"]
    ).fit(table, y)
    assert np.all(model.coef_[:, 1:] == 0)
    assert model.n_parameters_ == 3 + 2 * 2


def test_groups_read_the_mean_of_the_gates_columns():
    rng = np.random.default_rng(0)
    G, m = 150, 6
    z = rng.normal(size=G)
    first = rng.random(G) < 1 / (1 + np.exp(-2 * z))
    groups = np.repeat(np.arange(G), m)
    x = rng.normal(size=G * m)
    y = np.where(first[groups], 2 * x + 1, -x) + 0.5 * rng.normal(size=G * m)
    X = np.column_stack([x, z[groups]])
    model = MixtureOfExpertsRegressor(2, random_state=0, n_init=2, gate_features=[1], expert_features=[0])
    model.fit(X, y, groups=groups)
    assert np.all(model.gate_coef_[:, 0] == 0)
    order = np.argsort(-model.coef_[:, 0])
    np.testing.assert_allclose(model.coef_[order, 0], [2, -1], atol=0.1)
    slope = np.ptp(model.gate_coef_[:, 1])
    assert 1.2 < slope < 3.2


METHODS = {
    "FederatedEM": FederatedEM(n_climbs=2),
    "OneShot(0)": OneShot(refine=0),
    "OneShot(2)": OneShot(refine=2),
    "OneShot row": OneShot(refine=0, plan="row"),
    "SharedCentre": SharedCentre(),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_methods_read_the_columns_they_are_told_to(method):
    table, eta, rng = data(n=2400)
    y = response("gaussian", eta, rng)
    sites = {f"site {m}": (table[m::3].reset_index(drop=True), y[m::3]) for m in range(3)}
    options = {"gate_features": ["z", "arm"], "expert_features": ["x"]}
    result = Federation(sites).fit(MixtureOfExpertsRegressor(2, random_state=0, **options), method=METHODS[method])
    pooled = MixtureOfExpertsRegressor(2, random_state=0, **options).fit(table, y)
    assert np.all(result.model.coef_[:, 1:] == 0)
    assert np.all(result.model.gate_coef_[:, 0] == 0)
    np.testing.assert_allclose(result.model.coef_[:, 0], pooled.coef_[:, 0], atol=0.05)
    np.testing.assert_allclose(result.model.gate_coef_[:, 1:], pooled.gate_coef_[:, 1:], atol=0.25)
    for model in result.models.values():
        assert np.all(model.gate_coef_[:, 0] == 0)


@pytest.mark.parametrize("name", ["gate_features", "expert_features"])
@pytest.mark.parametrize("features", [["w"], [9], "x", 1])
def test_unknown_columns_are_named(name, features):
    table, eta, _ = data()
    with pytest.raises(InvalidInputError, match=rf"{name}(: X has no column|=)"):
        MixtureOfExpertsRegressor(2, **{name: features}).fit(table, eta)


@pytest.mark.slow
def test_the_patent_data_agree_with_flexmix():
    """Three Poisson regressions on R&D, with a gate on R&D per sales: log-likelihood -197.675, AIC 415.350."""
    try:
        patent = load_table("patent").to_pandas()
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    model = MixtureOfExpertsRegressor(
        3,
        family="poisson",
        gate_features=["RDS"],
        expert_features=["lgRD"],
        gate_ridge=0,
        expert_ridge=0,
        random_state=0,
    ).fit(patent[["lgRD", "RDS"]], patent["Patents"])
    assert model.log_likelihood_ == pytest.approx(-197.675021, abs=1e-4)
    assert model.aic(patent[["lgRD", "RDS"]], patent["Patents"]) == pytest.approx(415.350, abs=1e-3)
    order = np.argsort(model.intercept_)
    np.testing.assert_allclose(model.coef_[order, 0], [1.588645, 0.880085, 0.671929], atol=1e-4)
    gate = model.gate_coef_[order, 1]
    np.testing.assert_allclose(gate[1:] - gate[0], [-40.341, 0.7429], rtol=1e-3)
