"""Coefficients that are equal in all experts: maxima in the free parameters, with their standard errors."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.linalg import block_diag

from consilience.fit import Fit, Specification, fit_mixture, infer
from consilience.fit.climb import StopReason, climb, drive
from consilience.fit.inference import inverse_information
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, Statistics, expect
from consilience.model.information import free_map, move_parameters, penalised_score, ridge, score
from simulated import FAMILIES, Simulated, simulated

BOTH = [(family, gate) for family in FAMILIES for gate in ("softmax", "constant")]


@cache
def case(family: str, gate: str, structure: str = "full", q: int = 1) -> Simulated:
    """Responses of two experts with the same last slope, and a specification that says so."""
    drawn = simulated(family, n=900, d=3, q=q, gate=gate, structure=structure, exposure=True)
    truth = replace(drawn.truth, experts=drawn.truth.experts.with_shared((3,)))
    Y, labels = truth.sample(drawn.X, np.random.default_rng(1), None, drawn.rows.exposure)
    return Simulated(replace(drawn.rows, Y=Y), truth, replace(drawn.specification, shared=(2,)), labels)


@cache
def fit_of(family: str, gate: str, structure: str = "full", q: int = 1) -> Fit:
    at = case(family, gate, structure, q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_mixture(at.rows, at.specification, rng=np.random.default_rng(0), n_init=2)


def free_score(fit: Fit, mixture: Mixture, rows: Rows) -> np.ndarray:
    return free_map(mixture, fit.penalty).T @ score(mixture, expect(mixture, rows))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate"), BOTH)
def test_every_family_ends_at_a_maximum_with_equal_coefficients(family: str, gate: str) -> None:
    fit, rows = fit_of(family, gate), case(family, gate).rows
    end, T = fit.ascent.mixture, free_map(fit.ascent.mixture, fit.penalty)
    assert fit.ascent.stop is StopReason.CONVERGED_NEWTON
    shared = fit.mixture.experts.B[..., 3]
    assert np.array_equal(shared[0], shared[1])
    assert fit.parameter_count == fit.mixture.parameter_count - fit.mixture.experts.channels
    uphill = T.T @ penalised_score(end, expect(end, rows), ridge(end, fit.penalty))
    inverse = inverse_information(end, fit.ascent.statistics, fit.penalty)
    assert inverse is not None
    back = np.linalg.pinv(T)
    assert uphill @ back @ inverse @ back.T @ uphill < 1e-8  # twice the log-likelihood that is left to gain
    assert fit.log_likelihood >= np.sum(case(family, gate).truth.log_density(rows))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate"), BOTH)
def test_the_information_is_that_of_finite_differences_in_the_free_parameters(family: str, gate: str) -> None:
    fit, rows = fit_of(family, gate), case(family, gate).rows
    end, T, step = fit.ascent.mixture, free_map(fit.ascent.mixture, fit.penalty), 1e-5
    J = np.empty((T.shape[1], T.shape[1]))
    for j, direction in enumerate(step * T.T):
        up, down = (free_score(fit, move_parameters(end, sign * direction), rows) for sign in (1, -1))
        J[j] = (down - up) / (2 * step)
    expected = T @ np.linalg.inv(J + T.T @ ridge(end, fit.penalty) @ T) @ T.T
    found = inverse_information(end, fit.ascent.statistics, fit.penalty)
    assert found is not None
    scale = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-4)


@pytest.mark.parametrize("structure", ["full", "diag", "spherical", "tied"])
def test_several_responses_share_one_coefficient_each(structure: str) -> None:
    fit = fit_of("gaussian", "constant", structure, 2)
    B = fit.mixture.experts.B
    assert np.array_equal(B[0, :, 3], B[1, :, 3])
    assert not np.any(B[0, :, :3] == B[1, :, :3])
    assert fit.parameter_count == fit.mixture.parameter_count - 2


def two_groups(n: int = 60) -> tuple[Rows, np.ndarray]:
    """Two groups of rows far apart, with other variances: labels are certain."""
    rng = np.random.default_rng(3)
    X, label = rng.normal([3.0, -8.0], size=(2 * n, 2)), np.repeat([0, 1], n)
    y = 1000.0 * label + X @ [1.0, 2.0] + label * X[:, 1] + (1.0 + 2.0 * label) * rng.normal(size=2 * n)
    return Rows(X, y[:, None]), label


def test_known_labels_give_weighted_least_squares_of_both_groups() -> None:
    rows, label = two_groups()
    fit = fit_mixture(rows, Specification(K=2, gate="constant", shared=(0,)), rng=np.random.default_rng(0))
    one = np.eye(2)[label]
    A = np.column_stack([one, rows.X[:, 0], one * rows.X[:, 1:]])  # two intercepts, one slope, two slopes
    variance = np.ones(2)
    for _ in range(200):
        w = 1 / variance[label]
        b = np.linalg.solve((A.T * w) @ A, (A.T * w) @ rows.Y[:, 0])
        variance = np.array([np.mean((rows.Y[:, 0] - A @ b)[label == k] ** 2) for k in (0, 1)])
    order = np.argsort(fit.mixture.experts.B[:, 0, 0])
    B = fit.mixture.experts.B[order, 0]
    np.testing.assert_allclose(B, [[b[0], b[2], b[3]], [b[1], b[2], b[4]]], rtol=1e-9)
    np.testing.assert_allclose(fit.mixture.experts.variances[order, 0], variance, rtol=1e-8)
    V = np.linalg.inv((A.T / variance[label]) @ A)
    se, degrees = infer(fit).standard_errors(), infer(fit).degrees_of_freedom()
    np.testing.assert_allclose(degrees.experts[:, 0], [[57.5, 115, 57.5]] * 2)  # 120 rows less 5 coefficients
    expected = np.sqrt(V[2, 2]), *np.sqrt(np.diagonal(V)[[3, 4]])
    found = se.experts[0, 0, 1], *se.experts[order, 0, 2]
    np.testing.assert_allclose(np.array(found) / np.sqrt(60 / 57.5), expected, rtol=1e-4)


def test_units_of_the_covariates_change_nothing() -> None:
    at = case("gaussian", "softmax")
    scale, shift = np.array([10.0, 0.01, 300.0]), np.array([5.0, -40.0, 1e3])
    moved = replace(at.rows, X=at.rows.X * scale + shift)
    fits = [fit_mixture(rows, at.specification, rng=np.random.default_rng(0), n_init=2) for rows in (at.rows, moved)]
    found, again = (infer(fit, rows) for fit, rows in zip(fits, (at.rows, moved), strict=True))
    np.testing.assert_allclose(again.estimates.experts[:, 0, 1:] * scale, found.estimates.experts[:, 0, 1:], rtol=1e-6)
    errors, others = found.standard_errors().experts[:, 0, 1:], again.standard_errors().experts[:, 0, 1:] * scale
    np.testing.assert_allclose(others, errors, rtol=1e-6)
    block = again.covariance[8:16, 8:16].reshape(2, 4, 2, 4)  # after the gate, by expert
    back = np.r_[1.0, shift]  # the intercept in the first units
    intercepts = np.sqrt([back @ block[k, :, k] @ back for k in range(2)])
    np.testing.assert_allclose(intercepts, found.standard_errors().experts[:, 0, 0], rtol=1e-6)


def test_no_step_lowers_the_likelihood_and_a_start_is_made_equal() -> None:
    at = case("gaussian", "constant")
    penalty, free = fit_of("gaussian", "constant").penalty, simulated(n=900, d=3, gate="constant").truth

    def respond(question: object) -> Statistics:
        return expect(question.mixture, at.rows)  # type: ignore[attr-defined]

    start = free.in_coordinates_of(fit_of("gaussian", "constant").ascent.mixture)
    end = drive(climb(start, penalty, newton=False, max_iter=200), respond)
    assert np.all(np.diff(end.trace) > -1e-9 * abs(end.trace[0]))
    assert end.halvings == 0
    assert end.penalised == pytest.approx(fit_of("gaussian", "constant").ascent.penalised, abs=1e-4)
    assert np.ptp(end.mixture.experts.B[:, 0, 3]) == 0


@pytest.mark.filterwarnings("ignore:the variance of expert:consilience.errors.DegenerateFitWarning")  # as wanted
def test_a_bound_of_the_variances_does_not_stop_the_climb() -> None:
    rows, _ = two_groups()
    bounded = Specification(K=2, gate="constant", shared=(0,), shape_ratio=1.5)  # the variances differ ninefold
    fit = fit_mixture(rows, bounded, rng=np.random.default_rng(0), newton=False)
    assert fit.ascent.stop is StopReason.CONVERGED_EM
    assert fit.ascent.halvings == 0
    assert np.ptp(np.log(fit.mixture.experts.variances)) == pytest.approx(np.log(1.5))


@pytest.mark.slow
def test_a_covariate_without_variation_in_an_expert_is_identified_by_the_others() -> None:
    rows, label = two_groups()
    X = np.column_stack([rows.X, (label == 0) * (np.arange(120) % 2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_mixture(
            Rows(X, rows.Y), Specification(K=2, gate="constant", shared=(2,)), rng=np.random.default_rng(0)
        )
    assert np.all(np.isfinite(infer(fit).standard_errors().experts))


@pytest.mark.slow
def test_intervals_of_a_shared_coefficient_cover_it() -> None:
    rng, truth = np.random.default_rng(0), 0.5
    mixture = Mixture(
        Design.raw(2),
        ConstantGate(np.array([0.6, 0.4])),
        GaussianExperts(np.array([[[0.0, truth, 2.0]], [[3.0, truth, -2.0]]]), np.array([[[1.0]], [[2.0]]])),
    )
    covered = []
    for _ in range(120):
        X = rng.normal(size=(150, 2))
        rows = Rows(X, mixture.sample(X, rng)[0])
        specification = Specification(K=2, gate="constant", shared=(0,))
        lower, upper = infer(fit_mixture(rows, specification, rng=rng, start=mixture), rows, kind="larger").interval()
        covered.append(lower.experts[0, 0, 1] <= truth <= upper.experts[0, 0, 1])
    assert 0.9 <= np.mean(covered) <= 0.99


def test_the_map_of_free_parameters_leaves_gate_and_shapes_alone() -> None:
    fit = fit_of("gaussian", "softmax")
    T = free_map(fit.ascent.mixture, fit.penalty)
    gate, P = fit.mixture.gate.parameter_count, fit.mixture.parameter_count
    sharing = fit.penalty.sharing(2, 1, 4)
    assert sharing is not None
    assert np.array_equal(T, block_diag(np.eye(gate), sharing, np.eye(P - gate - 8)))
