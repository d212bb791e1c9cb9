"""Steps of private scoring: informations, the slope of a total, the trust region, and standard errors with noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.fit.private_step import (
    RADIUS,
    STEEPEST,
    PublicStep,
    averaged_noise,
    forecast,
    schedule,
    simulated_rows,
    within_box,
)
from consilience.model import Rows, expect
from consilience.model.contributions import contributions
from consilience.model.information import complete_information, move_parameters
from contributing import NAMES, mixture_of

GATES = ("softmax", "constant")


def covariates(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    X = rng.normal(size=(n, d))
    X[:, 0] = rng.random(n) < 0.3
    return X


def test_informations_are_those_of_rows_from_the_mixture():
    """The sums over nodes agree with the information of many rows that the mixture draws, for every family and gate."""
    wrong = {}
    for place, name in enumerate(NAMES):
        for gate in GATES:
            rng = np.random.default_rng([1, place])
            mixture = mixture_of(name, rng, gate=gate)
            X = covariates(6000, 2, rng)
            step = PublicStep.at(mixture, X)
            statistics = expect(mixture, Rows(X, mixture.sample(X, rng)[0]), information=True)
            for found, exact in (
                (step.information, statistics.information / 6000),
                (step.complete, complete_information(mixture, statistics) / 6000),
            ):
                scale = np.sqrt(np.diagonal(step.complete))
                gap = np.abs(found - exact) / np.outer(scale, scale)
                if gap.max() > 0.15:
                    wrong[name, gate] = gap.max()
    assert not wrong


def test_without_a_clip_the_slope_is_the_information():
    rng = np.random.default_rng(2)
    mixture = mixture_of("gaussian-full", rng)
    step = PublicStep.at(mixture, covariates(1500, 2, rng))
    W, P = step.factor, mixture.parameter_count
    white = W.T @ step.information @ W
    assert np.linalg.norm(white - np.eye(P)) < 0.02 * P  # the ridge
    assert np.all(np.linalg.eigvalsh(white - step.slope) > -1e-6)  # clipped rows say less
    assert np.all(np.linalg.eigvalsh(step.slope - step.spread) > -1e-9)  # ω² ≤ ω
    assert np.trace(step.slope) > 0.5 * P


@pytest.mark.slow
def test_the_slope_is_the_derivative_of_the_mean_total():
    """Rows of a mixture that is δ away have the mean contribution ``H W⁻¹ δ``."""
    for place, (name, gate, K) in enumerate(
        [("gaussian-full", "softmax", 2), ("gamma", "constant", 1), ("poisson", "softmax", 1)]
    ):
        rng = np.random.default_rng([3, place])
        mixture = mixture_of(name, rng, gate=gate, K=K)
        X = covariates(60_000, 2, rng)
        step, P = PublicStep.at(mixture, X[:3000]), mixture.parameter_count
        z = rng.normal(size=P)
        delta = 0.15 * step.factor @ (z / np.linalg.norm(z))
        there = [move_parameters(mixture, sign * delta).sample(X, rng)[0] for sign in (1, -1)]
        ahead, behind = (contributions(mixture, Rows(X, Y), step.factor, step.clip).mean(axis=0) for Y in there)
        u = (ahead - behind) / 2 * step.unit
        expected = step.slope @ np.linalg.solve(step.factor, delta)
        assert np.linalg.norm(u - expected) < 0.2 * np.linalg.norm(expected), name
        assert np.linalg.norm(u + expected) > np.linalg.norm(expected)


def test_the_spread_is_the_covariance_of_contributions():
    rng = np.random.default_rng(4)
    for name in ("gaussian-full", "binomial"):
        mixture = mixture_of(name, rng)
        X = covariates(8000, 2, rng)
        step = PublicStep.at(mixture, X)
        u = contributions(mixture, Rows(X, mixture.sample(X, rng)[0]), step.factor, step.clip) * step.unit
        assert np.abs(np.cov(u.T) - step.spread).max() < 0.1


def test_steps_stay_in_the_trust_region_and_in_the_box():
    rng = np.random.default_rng(5)
    mixture = mixture_of("gaussian-full", rng, K=3)
    for damping in (0.6, 0.0):
        step = PublicStep.at(mixture, covariates(1500, 2, rng), damping)
        total = rng.normal(size=mixture.parameter_count)
        small, large = step.move(total, 1e9), step.move(total * 1e12, 1.0)
        gap = np.concatenate([large.gate.contrasts().ravel() - mixture.gate.contrasts().ravel()])
        assert np.abs(small.to_vector() - mixture.to_vector()).max() < 1e-6
        assert gap @ step.complete[: len(gap), : len(gap)] @ gap <= RADIUS**2 * 1.001
        assert not np.allclose(large.to_vector(), mixture.to_vector())
        assert np.all(np.abs(large.to_vector()[:-3] - mixture.to_vector()[:-3]) <= step.reach[:-3] * 1.001)
    empty = replace(mixture, gate=mixture.gate.moved(np.r_[-40.0, 0, 0, -40.0, 0, 0]))  # two experts without rows
    step = PublicStep.at(empty, covariates(1500, 2, rng))
    moved = step.move(rng.normal(size=mixture.parameter_count) * 1e9, 1000.0)
    assert np.abs(moved.experts.B - empty.experts.B).max() < 10
    steep = move_parameters(mixture, np.full(mixture.parameter_count, 10.0) * (np.arange(mixture.parameter_count) < 6))
    assert np.abs(within_box(steep).gate.contrasts()[:, 1:]).max() == pytest.approx(STEEPEST)


def test_a_step_without_noise_leads_to_the_maximum():
    """From a start that is off by 0.1, totals over the rows themselves lead within a few steps to where they vanish."""
    rng = np.random.default_rng(6)
    mixture = mixture_of("gaussian-full", rng)
    X = covariates(5000, 2, rng)
    rows = Rows(X, mixture.sample(X, rng)[0])
    here = move_parameters(mixture, 0.1 * rng.normal(size=mixture.parameter_count))
    for damping in (0.6, 0.3, 0.1, 0.0, 0.0, 0.0):
        step = PublicStep.at(here, X[:1500], damping)
        total = contributions(here, rows, step.factor, step.clip).sum(axis=0) * step.unit
        q, here = step.surprise(total, rows.n, 0.0), step.move(total, rows.n)
    assert q < 0.02
    errors = np.sqrt(np.diagonal(step.covariance(rows.n, 0.0)))
    gap = here.to_vector() - mixture.to_vector()
    assert np.sqrt(np.mean((gap[:7] / errors[:7]) ** 2)) < 3


def test_noise_makes_standard_errors_larger_by_what_it_adds():
    rng = np.random.default_rng(7)
    mixture = mixture_of("gamma", rng)
    step = PublicStep.at(mixture, covariates(1500, 2, rng))
    none, some = step.covariance(1000.0, 0.0), step.covariance(1000.0, 400.0)
    inverse = step.factor @ np.linalg.pinv(step.slope, rcond=1e-3)
    assert np.allclose(some - none, inverse @ inverse.T * 400.0 / 1e6)
    assert step.surprise(np.zeros(mixture.parameter_count), 1000.0, 1.0) == 0.0
    draws = rng.multivariate_normal(np.zeros(len(none)), 1000 * step.spread + 400.0 * np.eye(len(none)), size=2000)
    assert abs(np.mean([step.surprise(draw, 1000.0, 400.0) for draw in draws]) - 1) < 0.05


def test_forecasts_grow_with_noise_and_shrink_with_rows():
    rng = np.random.default_rng(8)
    mixture = mixture_of("gaussian-full", rng)
    X = covariates(1500, 2, rng)

    def ratio(n: float, rho: float, sites: int = 1) -> float:
        return forecast(mixture, X, n, [rho / 8, 3 * rho / 8], sites).ratio

    assert 1.0 < ratio(20_000, 1.0) < ratio(20_000, 0.2) < ratio(20_000, 0.02) < ratio(2_000, 0.02)
    assert ratio(20_000, 0.2) < ratio(20_000, 0.2, sites=10)


def test_weak_parameters_and_schedules():
    rng = np.random.default_rng(9)
    mixture = mixture_of("negative_binomial", rng)
    bound = move_parameters(mixture, np.r_[np.zeros(9), 50.0, 0.0])
    for _ in range(9):
        bound = move_parameters(bound, np.r_[np.zeros(9), 50.0, 0.0])
    step = PublicStep.at(bound, covariates(1500, 2, rng))
    assert step.information[-2, -2] == 0.0
    assert np.all(np.isfinite(step.covariance(100.0, 1.0)))
    assert [sum(schedule(T)[1]) for T in (1, 2, 3, 5, 7)] == [3, 5, 6, 8, 10]
    assert all(len(part) == T for T in range(1, 12) for part in schedule(T))
    assert schedule(5)[0] == (0.6, 0.3, 0.1, 0.0, 0.0)
    assert averaged_noise([4.0, 4.0], [1, 1]) == 2.0
    assert simulated_rows(100) == 3000
