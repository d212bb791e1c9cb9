"""Agreement with R flexmix, in the way the conventions say; ``flexmix/README.md`` tells what the values are.

Both start from the same posteriors. Distances are in flexmix's standard errors, never relative: an intercept may be
near 0.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from consilience.datasets import DataNotFoundError, load_table
from consilience.fit import Fit, Specification, aic, fit_mixture, infer
from consilience.fit.climb import decrement_bound
from consilience.fit.parameters import parameters
from consilience.fit.starts import mixture_from, start_sample
from consilience.model import GaussianExperts, Groups, Mixture, Rows, SoftmaxGate, expect
from consilience.model.summary import column_summary

HERE = Path(__file__).parent / "flexmix"
VALUES = json.loads((HERE / "values.json").read_text())
CASES = VALUES["cases"]
GAUSSIAN = [name for name, case in CASES.items() if case["family"] == "gaussian"]
OTHERS = [name for name, case in CASES.items() if case["family"] != "gaussian"]
GATED = [name for name, case in CASES.items() if "gate" in case]


# ---------------------------------------------------------------------- the data, as flexmix saw them


@cache
def simulation() -> Any:
    spec = importlib.util.spec_from_file_location("flexmix_simulate", HERE / "simulate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def columns_of(name: str) -> dict[str, np.ndarray]:
    if name == "simulated":
        return simulation().simulate()
    try:
        table = load_table(name)
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    return {column: table[column].to_numpy() for column in table.column_names}


def design_column(table: dict[str, np.ndarray], term: str) -> np.ndarray:
    """A column of R's design matrix."""
    if ":" in term:
        return np.prod([design_column(table, factor) for factor in term.split(":")], axis=0)
    if term in ("TreatmentTreated", "TreatmentYes"):
        return (table["Treatment"] == term.removeprefix("Treatment")).astype(float)
    made = {"I(x^2)": lambda: table["x"] ** 2, "log(Day)": lambda: np.log(table["Day"])}
    return np.asarray(made[term]() if term in made else table[term], dtype=float)


def responses(table: dict[str, np.ndarray], formula: str) -> np.ndarray:
    """The left side of the formula: ``(n,)``, or successes and failures ``(n, 2)``."""
    left = formula.split("~", maxsplit=1)[0].strip()
    pairs = {
        "cbind(yb, 1 - yb)": lambda: (table["yb"], 1 - table["yb"]),
        "cbind(Deaths, Total - Deaths)": lambda: (table["Deaths"], table["Total"] - table["Deaths"]),
        "cbind(successes, failures)": lambda: (table["successes"], table["failures"]),
    }
    found = np.column_stack(pairs[left]()) if left in pairs else table[left]
    return np.asarray(found, dtype=float)


@dataclass(frozen=True, eq=False)
class Case:
    """A problem of flexmix's in our terms."""

    values: dict[str, Any]
    rows: Rows
    specification: Specification
    labels: np.ndarray  # (m,)   start label of each row or group

    @property
    def start(self) -> Mixture:
        K = self.specification.K
        own, other = VALUES["start"]["own"], VALUES["start"]["other"]
        resp = np.where(np.arange(K)[:, None] == self.labels, own, other)
        ground = start_sample(self.rows, self.specification, column_summary(self.rows))
        return mixture_from(resp / resp.sum(axis=0), ground)

    def aligned(self, mixture: Mixture) -> Mixture:
        """The mixture in raw coordinates with its experts in flexmix's order."""
        distance = np.abs(coefficients(mixture)[:, None] - np.array(self.values["coefficients"])) / self.errors
        return mixture.raw().permuted(linear_sum_assignment(distance.max(axis=2).T)[1])

    @property
    def errors(self) -> np.ndarray:
        return np.array(self.values["standard_errors"]["coefficients"])


def case_of(name: str) -> Case:
    values = CASES[name]
    table = columns_of(values["data"])
    n = len(next(iter(table.values())))
    X = np.column_stack([design_column(table, term) for term in values["columns"][1:]])
    Y = responses(table, values["formula"])
    labels = np.array(values["start"]["labels"] if "start" in values else table["start"], dtype=int)
    codes = np.asarray(table[values["groups"]]) if "groups" in values else None
    exposure = np.asarray(table[values["exposure"]], dtype=float) if "exposure" in values else None
    family = "categorical" if values["family"] == "binomial" else values["family"]
    weight = None
    if family == "categorical":  # a record is a group of two weighted 0/1 rows
        X, weight, labels = np.repeat(X, 2, axis=0), Y.ravel(), np.repeat(labels, 2)
        codes = np.repeat(np.arange(n) if codes is None else codes, 2)
        Y = np.tile([1.0, 0.0], n)
    groups = None if codes is None else Groups.of(codes)
    if groups is not None:
        labels = labels[groups.order[groups.bounds[:-1]]]
    rows = Rows(X, Y.reshape(-1, 1), weight, exposure, groups)
    specification = Specification(
        K=values["n_components"],
        family=family,
        gate="softmax" if "gate" in values else "constant",
        gate_ridge=0.0,
        expert_ridge=0.0,
        reg_covar=0.0,
    )
    return Case(values, rows, specification, labels)


@cache
def fitted(name: str) -> tuple[Case, Fit, Mixture]:
    case = case_of(name)
    fit = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=case.start, max_iter=2000)
    assert fit.ascent.stop.converged
    return case, fit, case.aligned(fit.mixture)


def log_likelihood(case: Case, fit: Fit) -> float:
    return fit.log_likelihood + case.values.get("log_binomial_coefficients", 0.0)


def coefficients(mixture: Mixture) -> np.ndarray:
    """``(K, p)``; for two classes the log odds of a success."""
    return parameters(mixture).experts[:, 0]


def gate_contrasts(mixture: Mixture) -> np.ndarray:
    """Against the first expert ``(K - 1, p)``; log odds where the gate is constant."""
    gate = mixture.gate
    scores = gate.alpha if isinstance(gate, SoftmaxGate) else np.log(gate.probabilities)[:, None]
    return scores[1:] - scores[:1]


def distance(ours: np.ndarray, theirs: Any, errors: Any) -> float:
    """Largest difference in standard errors."""
    return float(np.abs((ours - np.array(theirs)) / np.array(errors)).max())


# ---------------------------------------------------------------------- agreement


def test_the_simulated_table_is_the_one_r_saw() -> None:
    module = simulation()
    found = module.checksums(module.simulate())
    for name, expected in VALUES["simulated_checksums"].items():
        assert np.allclose(found[name], expected, rtol=0, atol=1e-12 * expected[1]), name


@pytest.mark.parametrize("name", OTHERS)
def test_poisson_and_binomial_experts_agree(name: str) -> None:
    case, fit, ours = fitted(name)
    assert log_likelihood(case, fit) == pytest.approx(case.values["loglik"], abs=1e-6)
    assert distance(coefficients(ours), case.values["coefficients"], case.errors) < 1e-3
    gate = case.values["maximum"]["gate"]
    assert distance(gate_contrasts(ours), gate, case.values["standard_errors"]["gate"]) < 1e-3


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_experts_reach_the_maximum_that_flexmix_is_below(name: str) -> None:
    case, fit, ours = fitted(name)
    maximum, errors = case.values["maximum"], case.values["standard_errors"]
    assert fit.log_likelihood >= case.values["loglik"] - 1e-6
    left = decrement_bound(case.rows.n)  # in likelihood, at most, where a fit stops; √(2 left) standard errors
    assert fit.log_likelihood == pytest.approx(maximum["loglik"], abs=left)
    reach = np.sqrt(2 * left)
    assert distance(coefficients(ours), maximum["coefficients"], case.errors) < reach
    assert distance(gate_contrasts(ours), maximum["gate"], errors["gate"]) < reach
    log_sigma = 0.5 * np.log(ours.experts.variances[:, 0])
    assert distance(log_sigma, maximum["log_sigma"], errors["log_sigma"]) < reach


@pytest.mark.parametrize("name", GAUSSIAN)
def test_the_variance_factor_of_flexmix_reproduces_its_gaussian_experts(name: str) -> None:
    case = case_of(name)
    penalty = case.specification.penalty(column_summary(case.rows))
    n, p = case.rows.n, case.rows.X.shape[1] + 1

    def m_step(mixture: Mixture, resp: np.ndarray | None = None) -> Mixture:
        new = mixture.maximise(expect(mixture, case.rows, given=resp), penalty)
        experts = new.experts
        return replace(new, experts=GaussianExperts(experts.B, experts.covariance * n / (n - p), experts.structure))

    mixture = case.start
    for _ in range(2000):
        before, mixture = mixture, m_step(mixture)
        if np.abs(coefficients(mixture) - coefficients(before)).max() < 1e-12:
            break
    ours = case.aligned(mixture)
    assert distance(coefficients(ours), case.values["coefficients"], case.errors) < 1e-5
    assert np.allclose(np.sqrt(ours.experts.variances[:, 0]), case.values["sigma"], atol=1e-6)
    if "gate" in case.values:
        gate = np.array(case.values["gate"])[1:]
        assert distance(gate_contrasts(ours), gate, case.values["standard_errors"]["gate"]) < 1e-5


@pytest.mark.parametrize("name", GATED)
def test_gates_agree_as_far_as_flexmix_solves_them(name: str) -> None:
    case, fit, ours = fitted(name)
    theirs, errors = case.values["default_gate"], case.values["standard_errors"]
    reach = 5e-3 if name in OTHERS else 5e-2  # Gaussian ones are off by the variance factor as well
    assert distance(gate_contrasts(ours), np.array(theirs["gate"])[1:], errors["gate"]) < reach
    assert log_likelihood(case, fit) >= theirs["loglik"] - 1e-6


@pytest.mark.parametrize("name", CASES)
def test_standard_errors_are_those_of_a_numerical_hessian(name: str) -> None:
    case, fit, _ = fitted(name)
    inference = infer(fit, case.rows)
    se = inference.estimates.like(np.sqrt(np.diagonal(inference.covariance)))
    order = linear_sum_assignment(
        np.abs(coefficients(fit.mixture)[:, None] - np.array(case.values["coefficients"])).max(axis=2).T
    )[1]
    assert np.allclose(se.experts[order, 0], case.errors, rtol=2e-2)
    if "log_sigma" in case.values["standard_errors"]:
        found = 0.5 * se.log_shapes[order, 0]
        assert np.allclose(found, case.values["standard_errors"]["log_sigma"], rtol=2e-2)


@pytest.mark.parametrize("name", CASES)
def test_degrees_of_freedom_shares_and_aic_agree(name: str) -> None:
    case, fit, ours = fitted(name)
    assert fit.mixture.parameter_count == case.values["df"]
    assert aic(log_likelihood(case, fit), case.values["df"]) == pytest.approx(case.values["aic"], abs=0.03)
    shares = ours.responsibilities(case.rows).mean(axis=0)
    assert np.allclose(shares, case.values["prior"], atol=5e-3)
