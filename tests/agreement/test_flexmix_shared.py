"""Agreement with R flexmix where components share coefficients; ``flexmix/README.md`` tells what the values are."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience.fit import Fit, Specification, fit_mixture
from consilience.fit.criteria import log_likelihood
from consilience.fit.inference import inverse_information
from consilience.fit.parameters import jacobian, parameters
from consilience.model import ConstantGate, Design, GaussianExperts, Groups, Mixture, PoissonExperts, Rows
from consilience.model.families.binomial import BinomialExperts

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "flexmix" / "shared_values.json").read_text())["cases"]
AT_MAXIMUM = ("npreg_poisson", "betablocker")
"""Cases that flexmix's EM leads to the maximum."""


@cache
def rows_of(name: str) -> Rows:
    try:
        table = load_table("betablocker" if name == "betablocker" else "NPreg")
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    read = {column: table[column].to_numpy() for column in table.column_names}
    if name == "betablocker":
        treated = (read["Treatment"] == "Treated").astype(float)[:, None]
        deaths, total = (read[each].astype(float) for each in ("Deaths", "Total"))
        return Rows(treated, deaths[:, None], None, total, Groups.of(read["Center"]))
    y = read["yp" if name == "npreg_poisson" else "yn"].astype(float)
    return Rows(np.column_stack([read["x"], read["x"] ** 2]), y[:, None])


def specification_of(name: str) -> Specification:
    case = CASES[name]
    return Specification(
        K=case["k"],
        family=case["family"],
        gate="constant",
        structure="tied" if case["tied"] else "full",
        expert_ridge=0.0,
        reg_covar=0.0,
        shape_ratio=np.inf,
        shared=(rows_of(name).X.shape[1] - 1,),
    )


def mixture_of(name: str, values: dict[str, Any]) -> Mixture:
    """The mixture of stored values, in flexmix's order."""
    case = CASES[name]
    B = np.column_stack([np.array(values["own"]), np.full(case["k"], values["shared"])])
    if case["family"] == "gaussian":
        S = np.square(values["sigma"])
        experts: Any = GaussianExperts(
            B[:, None], S[:1, None] if case["tied"] else S[:, None, None], "tied" if case["tied"] else "full"
        )
    else:
        experts = PoissonExperts(B) if case["family"] == "poisson" else BinomialExperts(B)
    return Mixture(Design.raw(B.shape[1] - 1), ConstantGate(np.array(values["prior"])), experts)


@cache
def fit_of(name: str) -> Fit:
    """Our fit from where flexmix's ends."""
    start = mixture_of(name, CASES[name])
    return fit_mixture(rows_of(name), specification_of(name), rng=np.random.default_rng(0), start=start)


def in_its_order(name: str, fit: Fit) -> np.ndarray:
    """Places of our experts in flexmix's order."""
    own = np.array(CASES[name]["maximum"]["own"])[:, 0]
    found = fit.mixture.experts.free_coefficients().reshape(fit.mixture.K, -1)[:, 0]
    order = np.empty(len(own), dtype=int)
    order[np.argsort(own)] = np.argsort(found)
    return order


@pytest.mark.parametrize("name", CASES)
def test_the_maximum_is_that_of_r(name: str) -> None:
    fit, best = fit_of(name), CASES[name]["maximum"]
    order = in_its_order(name, fit)
    B = fit.mixture.experts.free_coefficients().reshape(fit.mixture.K, -1)[order]
    own, errors = np.array(best["own"]), np.array(best["own_errors"])
    np.testing.assert_allclose((B[:, :-1] - own) / errors, 0.0, atol=1e-6)
    np.testing.assert_allclose((B[:, -1] - best["shared"]) / best["shared_errors"], 0.0, atol=1e-6)
    assert fit.log_likelihood == pytest.approx(best["loglik"], abs=1e-8)
    assert fit.parameter_count == CASES[name]["df"]
    if best["sigma"] is not None:
        S = fit.mixture.experts.attributes()["variances_"][order]
        np.testing.assert_allclose(np.sqrt(S), best["sigma"], rtol=1e-7)


@pytest.mark.parametrize("name", AT_MAXIMUM)
def test_counts_and_shares_are_those_of_flexmix(name: str) -> None:
    fit, case = fit_of(name), CASES[name]
    B = fit.mixture.experts.free_coefficients().reshape(fit.mixture.K, -1)[in_its_order(name, fit)]
    np.testing.assert_allclose((B[:, :-1] - case["own"]) / np.array(case["maximum"]["own_errors"]), 0.0, atol=1e-6)
    np.testing.assert_allclose((B[:, -1] - case["shared"]) / case["maximum"]["shared_errors"], 0.0, atol=1e-6)
    assert fit.log_likelihood == pytest.approx(case["loglik"], abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_likelihood_at_the_values_of_flexmix_is_its_likelihood(name: str) -> None:
    assert log_likelihood(mixture_of(name, CASES[name]), rows_of(name)) == pytest.approx(
        CASES[name]["loglik"], abs=1e-8
    )
    assert fit_of(name).log_likelihood >= CASES[name]["loglik"] - 1e-9


@pytest.mark.parametrize("name", CASES)
def test_starts_of_our_own_lead_at_least_as_high(name: str) -> None:
    fit = fit_mixture(rows_of(name), specification_of(name), rng=np.random.default_rng(0))
    assert fit.log_likelihood >= CASES[name]["maximum"]["loglik"] - 1e-6


@pytest.mark.parametrize("name", CASES)
def test_standard_errors_are_those_of_the_numerical_hessian(name: str) -> None:
    fit, best = fit_of(name), CASES[name]["maximum"]
    order, end = in_its_order(name, fit), fit.ascent.mixture
    inverse, D = inverse_information(end, fit.ascent.statistics, fit.penalty), jacobian(end, fit.permutation)
    assert inverse is not None
    se = parameters(fit.mixture).like(np.sqrt(np.diagonal(D @ inverse @ D.T))).experts[order, 0]
    np.testing.assert_allclose(se[:, :-1], best["own_errors"], rtol=1e-5)
    np.testing.assert_allclose(se[:, -1], best["shared_errors"], rtol=1e-5)
