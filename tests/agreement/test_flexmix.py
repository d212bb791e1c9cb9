"""Agreement with R flexmix and glm, in the way the conventions say; ``flexmix/README.md`` tells what the values are.

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

from benchmarks.lib.datasets import DataNotFoundError, load_table
from consilience.fit import Fit, Specification, aic, bic, fit_mixture
from consilience.fit.climb import decrement_bound, newton_step
from consilience.fit.criteria import entropy, log_likelihood
from consilience.fit.inference import inverse_information
from consilience.fit.parameters import Parameters, jacobian, parameters
from consilience.fit.starts import mixture_from, start_sample
from consilience.model import (
    ConstantGate,
    Design,
    GaussianExperts,
    Groups,
    Mixture,
    Penalty,
    Rows,
    SoftmaxGate,
    expect,
    mixture_of_regressions,
)
from consilience.model.families.gamma import GammaExperts
from consilience.model.information import move_parameters
from consilience.model.summary import column_summary

HERE = Path(__file__).parent / "flexmix"
VALUES = json.loads((HERE / "values.json").read_text())
CASES, REGRESSIONS, OWN_GAMMA = VALUES["cases"], VALUES["regressions"], VALUES["flexmix_gamma"]
GAUSSIAN = [name for name, case in CASES.items() if case["family"] == "gaussian"]
OTHERS = [name for name, case in CASES.items() if case["family"] != "gaussian"]
GAMMA = [name for name, case in CASES.items() if case["family"] == "gamma"]
COUNTS = [name for name, case in CASES.items() if case["family"] in ("poisson", "binomial")]
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
    if name in simulation().TABLES:
        return simulation().TABLES[name]()
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
    made = {
        "I(x^2)": lambda: table["x"] ** 2,
        "I(Equivalence^2)": lambda: table["Equivalence"] ** 2,
        "log(Day)": lambda: np.log(table["Day"]),
    }
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
    def posteriors(self) -> np.ndarray:
        """Those of the start, ``(K, m)``."""
        own, other = VALUES["start"]["own"], VALUES["start"]["other"]
        resp = np.where(np.arange(self.specification.K)[:, None] == self.labels, own, other)
        return resp / resp.sum(axis=0)

    @property
    def start(self) -> Mixture:
        ground = start_sample(self.rows, self.specification, column_summary(self.rows))
        return mixture_from(self.posteriors, ground)

    @property
    def penalty(self) -> Penalty:
        return self.specification.penalty(column_summary(self.rows))

    def aligned(self, mixture: Mixture) -> Mixture:
        """The mixture in raw coordinates with its experts in flexmix's order."""
        distance = np.abs(coefficients(mixture)[:, None] - np.array(self.values["coefficients"])) / self.errors
        return mixture.raw().permuted(linear_sum_assignment(distance.max(axis=2).T)[1])

    @property
    def errors(self) -> np.ndarray:
        return np.array(self.values["standard_errors"]["coefficients"])


def rows_of(values: dict[str, Any]) -> Rows:
    """Rows of a problem; those of binomial experts have trials."""
    table = columns_of(values["data"])
    Y = responses(table, values["formula"])
    terms = [*values["columns"][1:], *values.get("gate_columns", ())]
    X = np.column_stack([np.empty((len(Y), 0)), *(design_column(table, term) for term in terms)])
    size = np.asarray(table[values["exposure"]], dtype=float) if "exposure" in values else None
    if values["family"] == "binomial":
        Y, size = Y[:, 0], Y.sum(axis=1)
    groups = Groups.of(np.asarray(table[values["groups"]])) if "groups" in values else None
    return Rows(X, Y.reshape(-1, 1), None, size, groups)


def specification_of(values: dict[str, Any]) -> Specification:
    return Specification(
        K=values.get("n_components", 1),
        family=values["family"],
        gate="softmax" if "gate" in values else "constant",
        gate_ridge=0.0,
        expert_ridge=0.0,
        reg_covar=0.0,
        **columns_read(values),
    )


def columns_read(values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Columns of experts and gate where they differ: those of the gate stand last."""
    own, other = len(values["columns"]) - 1, len(values.get("gate_columns", ()))
    return {"expert_columns": tuple(range(own)), "gate_columns": tuple(range(own, own + other))} if other else {}


def case_of(values: dict[str, Any]) -> Case:
    rows = rows_of(values)
    given = values["start"]["labels"] if "start" in values else columns_of(values["data"])["start"]
    labels = np.array(given, dtype=int)
    if rows.groups is not None:
        labels = labels[rows.groups.order[rows.groups.bounds[:-1]]]
    return Case(values, rows, specification_of(values), labels)


def in_classes(case: Case) -> Case:
    """A binomial case as one of categorical experts: a record of trials is a group of two weighted 0/1 rows."""
    rows = case.rows
    codes = np.arange(rows.n) if rows.groups is None else rows.groups.codes
    weight = np.column_stack([rows.Y[:, 0], rows.exposure - rows.Y[:, 0]]).ravel()
    Y = np.tile([1.0, 0.0], rows.n)[:, None]
    weighted = Rows(np.repeat(rows.X, 2, axis=0), Y, weight, None, Groups.of(np.repeat(codes, 2)))
    return replace(case, rows=weighted, specification=replace(case.specification, family="categorical"))


def fit_from_start(case: Case) -> tuple[Fit, Mixture]:
    start = None if "gate_columns" in case.values else case.start  # from there Newton steps lead to a lower maximum
    fit = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=start, max_iter=2000)
    assert fit.ascent.stop.converged
    return fit, case.aligned(fit.mixture)


@cache
def fitted(name: str) -> tuple[Case, Fit, Mixture]:
    case = case_of(CASES[name])
    return case, *fit_from_start(case)


def polished(case: Case, mixture: Mixture) -> Mixture:
    """The maximum near a fit, which stops before it: three Newton steps, in raw coordinates and flexmix's order."""
    mixture = mixture.in_coordinates_of(case.specification.blank(column_summary(case.rows)))
    for _ in range(3):
        step = newton_step(mixture, expect(mixture, case.rows, information=True), case.penalty)
        mixture = move_parameters(mixture, step.direction)
    return case.aligned(mixture)


def information_errors(fit: Fit, rows: Rows) -> Parameters:
    """Standard errors from the inverse information alone, as R's: without our correction for degrees of freedom."""
    mixture = fit.ascent.mixture
    inverse = inverse_information(mixture, expect(mixture, rows, information=True), fit.penalty)
    D = jacobian(mixture, fit.permutation)
    return parameters(fit.mixture).like(np.sqrt(np.diagonal(D @ inverse @ D.T)))


def settled(case: Case, mixture: Mixture) -> Mixture:
    """The M-step for the posteriors of the start, in raw coordinates: our step, repeated until nothing moves."""
    for _ in range(50):
        mixture = mixture.maximise(expect(mixture, case.rows, given=case.posteriors), case.penalty)
    return mixture.raw()


def coefficients(mixture: Mixture) -> np.ndarray:
    """``(K, p)``; for two classes the log odds of a success."""
    return of_columns_read(parameters(mixture).experts[:, 0])


def of_columns_read(values: np.ndarray) -> np.ndarray:
    """Values ``(K, p)`` without those of columns that are not read, which are 0."""
    return values[:, np.any(values != 0, axis=0)]


def log_shapes(mixture: Mixture) -> np.ndarray:
    """``log ν (K,)`` of gamma experts: we report log dispersions."""
    return -parameters(mixture).log_shapes[:, 0]


def gate_contrasts(mixture: Mixture) -> np.ndarray:
    """Against the first expert ``(K - 1, p)``; log odds where the gate is constant."""
    gate = mixture.gate
    scores = of_columns_read(gate.alpha) if isinstance(gate, SoftmaxGate) else np.log(gate.probabilities)[:, None]
    return scores[1:] - scores[:1]


def remaining(fit: Fit) -> tuple[float, float]:
    """What is left to the maximum where a fit stops: log-likelihood (its Newton decrement) and standard errors."""
    decrement = newton_step(fit.ascent.mixture, fit.ascent.statistics, fit.penalty).decrement
    assert decrement < decrement_bound(fit.ascent.statistics.weight)
    return decrement, np.sqrt(2 * decrement)


def distance(ours: np.ndarray, theirs: Any, errors: Any) -> float:
    """Largest difference in standard errors."""
    return float(np.abs((ours - np.array(theirs)) / np.array(errors)).max())


# ---------------------------------------------------------------------- agreement


@pytest.mark.parametrize("name", ["simulated", *VALUES["table_checksums"]])
def test_the_simulated_tables_are_those_r_saw(name: str) -> None:
    found = simulation().checksums(columns_of(name))
    expected = VALUES["simulated_checksums"] if name == "simulated" else VALUES["table_checksums"][name]
    assert found.keys() == expected.keys()
    for column, sums in expected.items():
        assert np.allclose(found[column], sums, rtol=0, atol=1e-12 * sums[1]), column


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_poisson_and_binomial_experts_agree(name: str) -> None:
    case, fit, ours = fitted(name)
    left, reach = remaining(fit)
    assert fit.log_likelihood + left == pytest.approx(case.values["loglik"], abs=1e-6)
    assert distance(coefficients(ours), case.values["coefficients"], case.errors) < reach + 1e-5
    gate = case.values["maximum"]["gate"]
    assert distance(gate_contrasts(ours), gate, case.values["standard_errors"]["gate"]) < reach + 1e-5


@pytest.mark.parametrize("name", GAMMA)
def test_gamma_experts_agree(name: str) -> None:
    case, fit, ours = fitted(name)
    errors = case.values["standard_errors"]
    left = decrement_bound(case.rows.n)  # as for Gaussian experts
    assert fit.log_likelihood == pytest.approx(case.values["loglik"], abs=left)
    reach = np.sqrt(2 * left)
    assert distance(coefficients(ours), case.values["coefficients"], case.errors) < reach
    assert distance(gate_contrasts(ours), case.values["maximum"]["gate"], errors["gate"]) < reach
    assert distance(log_shapes(ours), np.log(case.values["shape"]), errors["log_shape"]) < reach


@pytest.mark.parametrize("name", OTHERS)
def test_the_maximum_near_a_fit_is_that_of_flexmix(name: str) -> None:
    case, fit, _ = fitted(name)
    values, errors = case.values, case.values["standard_errors"]
    ours = polished(case, fit.mixture)
    assert log_likelihood(ours, case.rows) == pytest.approx(values["loglik"], abs=1e-9)
    assert distance(gate_contrasts(ours), values["maximum"]["gate"], errors["gate"]) < 1e-5
    for theirs in (values, values["independent"]) if "independent" in values else (values,):
        assert distance(coefficients(ours), theirs["coefficients"], case.errors) < 1e-5
        if values["family"] == "gamma":
            assert distance(log_shapes(ours), np.log(theirs["shape"]), errors["log_shape"]) < 1e-5


@pytest.mark.parametrize("name", ["betablocker", "small_binomial_gate"])
def test_categorical_experts_on_weighted_rows_agree_with_binomial_ones(name: str) -> None:
    case = in_classes(case_of(CASES[name]))
    fit, ours = fit_from_start(case)
    choose = case.values["log_binomial_coefficients"]
    assert fit.log_likelihood + choose == pytest.approx(case.values["loglik"], abs=1e-6)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", GAUSSIAN)
def test_the_variance_factor_of_flexmix_reproduces_its_gaussian_experts(name: str) -> None:
    case = case_of(CASES[name])
    n, p = case.rows.n, case.rows.X.shape[1] + 1

    def m_step(mixture: Mixture, resp: np.ndarray | None = None) -> Mixture:
        new = mixture.maximise(expect(mixture, case.rows, given=resp), case.penalty)
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
    assert fit.log_likelihood + remaining(fit)[0] >= theirs["loglik"] - 1e-6


@pytest.mark.parametrize("name", CASES)
def test_standard_errors_are_those_of_a_numerical_hessian(name: str) -> None:
    case, fit, _ = fitted(name)
    se = information_errors(fit, case.rows)
    order = linear_sum_assignment(
        np.abs(coefficients(fit.mixture)[:, None] - np.array(case.values["coefficients"])).max(axis=2).T
    )[1]
    assert np.allclose(of_columns_read(se.experts[order, 0]), case.errors, rtol=2e-2)
    for shape, factor in (("log_sigma", 0.5), ("log_shape", 1.0)):  # our log shapes: 2 log σ and -log ν
        if shape in case.values["standard_errors"]:
            found = factor * se.log_shapes[order, 0]
            assert np.allclose(found, case.values["standard_errors"][shape], rtol=2e-2)


@pytest.mark.parametrize("name", CASES)
def test_degrees_of_freedom_shares_and_aic_agree(name: str) -> None:
    case, fit, ours = fitted(name)
    assert fit.parameter_count == case.values["df"]
    assert aic(fit.log_likelihood, case.values["df"]) == pytest.approx(case.values["aic"], abs=0.03)
    shares = ours.responsibilities(case.rows).mean(axis=0)
    assert np.allclose(shares, case.values["prior"], atol=5e-3)


FLEXMIX_ICL = 1369.175329
"""``ICL(fit)`` of flexmix 2.3.18 for the case ``npreg_gaussian``."""


def test_the_icl_of_flexmix_takes_the_likeliest_expert_and_ours_all_of_them() -> None:
    values = CASES["npreg_gaussian"]
    rows, sigma = rows_of(values), np.array(values["sigma"])
    theirs = mixture_of_regressions(np.array(values["prior"]), np.array(values["coefficients"]), sigma**2)
    schwarz = bic(log_likelihood(theirs, rows), values["df"], rows.n)
    assert schwarz == pytest.approx(values["bic"], abs=1e-4)
    tau = theirs.responsibilities(rows)
    assert schwarz - 2 * np.log(tau.max(axis=1)).sum() == pytest.approx(FLEXMIX_ICL, abs=1e-3)
    ours = schwarz + 2 * entropy(theirs, rows)
    assert ours > FLEXMIX_ICL
    _, fit, _ = fitted("npreg_gaussian")  # figures of the documentation, from the maximum of the likelihood
    at_maximum = bic(fit.log_likelihood, values["df"], rows.n)
    assert at_maximum == pytest.approx(1332.7, abs=0.1)
    assert at_maximum + 2 * entropy(fit.mixture, rows) == pytest.approx(1387.6, abs=0.1)
    clear = np.log(fit.mixture.responsibilities(rows).max(axis=1)).sum()
    assert at_maximum - 2 * clear == pytest.approx(1368.8, abs=0.1)


# ---------------------------------------------------------------------- single regressions


@pytest.mark.parametrize("name", REGRESSIONS)
def test_one_expert_is_the_regression_of_glm(name: str) -> None:
    values = REGRESSIONS[name]
    rows, errors = rows_of(values), values["standard_errors"]
    fit = fit_mixture(rows, specification_of(values), rng=np.random.default_rng(0))
    se = information_errors(fit, rows)
    observed = values.get("standard_errors_observed", errors)  # one and the same where the link is canonical
    assert fit.ascent.stop.converged
    assert fit.mixture.parameter_count == values["df"]
    assert fit.log_likelihood == pytest.approx(values["loglik"], abs=1e-9)
    assert aic(fit.log_likelihood, values["df"]) == pytest.approx(values["aic"], abs=2e-9)
    assert distance(coefficients(fit.mixture), values["coefficients"], errors["coefficients"]) < 1e-6
    assert np.allclose(se.experts[:, 0], observed["coefficients"], rtol=1e-6, atol=0)
    if values["family"] == "gamma":
        assert distance(log_shapes(fit.mixture), np.log(values["shape"]), errors["log_shape"]) < 1e-6
        assert np.allclose(se.log_shapes[:, 0], observed["log_shape"], rtol=1e-6, atol=0)


# ---------------------------------------------------------------------- flexmix's own gamma family


def gamma_mixture(values: dict[str, Any]) -> Mixture:
    """The mixture of flexmix's means, shapes and shares: its link is another one, which does not matter here."""
    experts = GammaExperts(np.array(values["log_coefficients"]), np.array(values["shape"]))
    return Mixture(Design.raw(experts.p - 1), ConstantGate(np.array(values["prior"])), experts)


@pytest.mark.parametrize("step", ["first_step", "fit"])
@pytest.mark.parametrize("name", OWN_GAMMA)
def test_the_gamma_density_and_posteriors_are_those_of_flexmix(name: str, step: str) -> None:
    rows = rows_of(OWN_GAMMA[name])
    values = OWN_GAMMA[name] if step == "fit" else OWN_GAMMA[name][step]
    mixture = gamma_mixture(values)
    posterior = mixture.responsibilities(rows)  # (n, K)
    assert log_likelihood(mixture, rows) == pytest.approx(values["loglik"], abs=1e-9)
    assert np.allclose(posterior[:5], values["posterior_head"], rtol=0, atol=1e-12)
    found = simulation().checksums(dict(enumerate(posterior.T)))
    assert np.allclose(list(found.values()), values["posterior_checksums"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", OWN_GAMMA)
def test_the_gamma_m_step_is_that_of_maximum_likelihood(name: str) -> None:
    case, values = case_of(OWN_GAMMA[name]), OWN_GAMMA[name]["first_step"]
    ours = settled(case, case.start)
    assert np.allclose(coefficients(ours), values["ml_log_coefficients"], rtol=0, atol=1e-12)
    assert np.allclose(np.exp(log_shapes(ours)), values["ml_shape"], rtol=1e-12, atol=0)
    assert np.allclose(ours.gate.probabilities, values["prior"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OWN_GAMMA)
def test_maximum_likelihood_shapes_reach_the_maximum_that_flexmix_is_below(name: str) -> None:
    case, theirs = case_of(OWN_GAMMA[name]), OWN_GAMMA[name]["independent"]
    start = None if "gate_columns" in case.values else case.start  # from there Newton steps lead to a lower maximum
    fit = fit_mixture(case.rows, case.specification, rng=np.random.default_rng(0), start=start, max_iter=2000)
    assert fit.ascent.stop.converged
    assert fit.log_likelihood > case.values["loglik"] + 1
    assert fit.log_likelihood == pytest.approx(theirs["loglik"], abs=decrement_bound(case.rows.n))
