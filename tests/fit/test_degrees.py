"""Degrees of freedom: exact for one regression, fewer where labels are not known, and withheld where rows are few."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import t as student

from consilience import MixtureOfExpertsRegressor, MixtureOfRegressions
from consilience.errors import DegenerateFitWarning, RankDeficientWarning
from consilience.fit import Specification, fit_mixture, infer
from consilience.fit.inference import (
    EFFECTIVE_ROWS,
    default_kind,
    effective_rows_of_experts,
    inverse_information,
    quantile,
)
from consilience.model import Rows
from simulated import simulated


def two_regressions(d: int, n: int = 300, slope: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    B = np.zeros((2, d))
    B[:, :5] = [[slope], [-slope]]
    X = rng.standard_normal((n, d))
    label = rng.integers(2, size=n)
    return X, np.sum(X * B[label], axis=1) + 3 * label + rng.standard_normal(n)


def test_one_regression_with_many_covariates_has_the_intervals_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    n, d = 60, 40
    X = rng.standard_normal((n, d))
    y = X[:, 0] + rng.standard_normal(n)
    rows = Rows(X, y[:, None])
    inference = infer(fit_mixture(rows, Specification(K=1, gate="constant"), rng=rng), rows)
    A = np.c_[np.ones(n), X]
    b, residual = np.linalg.lstsq(A, y, rcond=None)[:2]
    se = np.sqrt(residual / (n - d - 1) * np.diagonal(np.linalg.inv(A.T @ A)))
    lower, upper = inference.interval(0.9)
    reach = student.ppf(0.95, n - d - 1) * se
    np.testing.assert_allclose(lower.experts[0, 0], b - reach, rtol=1e-6)
    np.testing.assert_allclose(upper.experts[0, 0], b + reach, rtol=1e-6)


def test_unknown_labels_cost_rows() -> None:
    data = simulated(gate="constant", n=500)
    fit = fit_mixture(data.rows, data.specification, rng=np.random.default_rng(0), start=data.truth)
    mixture, statistics = fit.ascent.mixture, fit.ascent.statistics
    inverse = inverse_information(mixture, statistics, fit.penalty)
    assert inverse is not None
    rows = effective_rows_of_experts(mixture, statistics, inverse, fit.penalty)
    assert np.all(rows < statistics.experts.plain[:2])
    assert np.all(rows > 0.5 * statistics.experts.plain[:2])


def test_quantiles_go_from_student_to_normal() -> None:
    assert quantile(0.95, np.array([1e7]))[0] == pytest.approx(quantile(0.95, np.array([np.inf]))[0], rel=1e-5)
    assert np.all(np.diff(quantile(0.95, np.array([2.0, 5.0, 50.0, np.inf]))) < 0)


@pytest.mark.slow
def test_many_covariates_withhold_the_experts_and_name_the_figures() -> None:
    X, y = two_regressions(80, slope=6.0)  # two experts are better than one by BIC
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MixtureOfRegressions(2, random_state=0, n_init=2).fit(X, y)
    found = model.inference_.withheld
    assert {"expert 0", "expert 1"} <= set(found)
    assert "81 coefficients" in found["expert 0"]
    assert f"at least {EFFECTIVE_ROWS * 81:.0f}" in found["expert 0"]
    frame = model.to_frame()
    assert np.isnan(frame[frame["part"] == "expert"]["std_error"]).all()


@pytest.mark.slow
def test_fewer_covariates_keep_the_experts_but_not_always_their_variances() -> None:
    X, y = two_regressions(20, 260)
    inference = MixtureOfRegressions(2, random_state=0, n_init=2).fit(X, y).inference_
    assert "experts" not in inference.withheld
    X, y = two_regressions(30, 260)
    inference = MixtureOfRegressions(2, random_state=0, n_init=2).fit(X, y).inference_
    assert "experts" not in inference.withheld
    assert "31 coefficients" in inference.withheld["shapes"]
    assert np.isnan(inference.standard_errors().log_shapes).all()


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_more_parameters_than_rows_are_said() -> None:
    X, y = two_regressions(30, 60)
    model = MixtureOfRegressions(2, random_state=0, n_init=1, max_iter=20, expert_ridge=1e-3)
    with pytest.warns(DegenerateFitWarning, match="65 parameters on 60 rows"):
        model.fit(X, y)
    assert "65 parameters on 60 rows" in model.summary()


def test_where_the_variance_depends_on_a_covariate_its_slope_has_the_error_of_the_sandwich() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 2))
    X -= X.mean(axis=0)  # the intercept is compared at the mean of the covariates
    y = X[:, 0] + np.exp(X[:, 0]) * rng.standard_normal(800)
    rows = Rows(X, y[:, None])
    fit = fit_mixture(rows, Specification(K=1, gate="constant"), rng=rng)
    observed, sandwich, both = (
        infer(fit, rows, kind=kind).standard_errors().flat() for kind in ("observed", "sandwich", "larger")
    )
    np.testing.assert_allclose(both, np.maximum(observed, sandwich), rtol=1e-2)
    assert both[2] > 1.5 * observed[2]
    assert default_kind(800) == "larger"


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_errors_of_mean_responses_do_not_depend_on_the_origin_of_the_covariates(shift: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 2))
    y = X.sum(axis=1) + np.exp(0.5 * X[:, 0]) * rng.standard_normal(500)
    model = MixtureOfRegressions(1, random_state=0).fit(X + shift, y)
    errors = {}
    for kind in ("observed", "sandwich", "larger"):
        model.inference_ = model.infer(X + shift, y, kind=kind)
        errors[kind] = model.predict_experts(X.mean(axis=0, keepdims=True) + shift, return_std_error=True)[1].item()
    assert errors["larger"] == pytest.approx(max(errors["observed"], errors["sandwich"]), rel=1e-6)


def test_a_design_without_columns_has_no_parameters_to_centre() -> None:
    model = MixtureOfExpertsRegressor(1, fit_intercept=False, random_state=0)
    with pytest.warns(RankDeficientWarning):
        model.fit(np.zeros((2, 1)), np.array([0.6, 0.1]))
    assert np.all(np.isnan(model.inference_.standard_errors().experts))


def test_the_sandwich_of_one_regression_is_hc3_over_its_residual_degrees() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 2)) ** 3  # some rows of high leverage
    y = X @ [1.0, -1.0] + np.exp(X[:, 0] / 2) * rng.standard_normal(40)
    rows = Rows(X, y[:, None])
    fit = fit_mixture(rows, Specification(K=1), rng=rng)
    F = np.c_[np.ones(40), X]
    bread = np.linalg.inv(F.T @ F)
    residual = y - F @ (bread @ F.T @ y)
    leverage = np.sum(F @ bread * F, axis=1)
    assert leverage.max() > 0.5
    meat = (F * (residual / (1 - leverage))[:, None] ** 2).T @ F
    expected = np.sqrt(np.diag(bread @ meat @ bread) * 40 / (40 - 3))
    found = infer(fit, rows, kind="sandwich").standard_errors().experts[0, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
