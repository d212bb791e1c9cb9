"""Generalised least squares over noisy totals, and the steps of a place on its own totals."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from consilience.fit.noisy_totals import Expected, NoisyTotal, explain_totals
from consilience.fit.own_steps import FAR_PLAN, NEAR_PLAN, PARTS, Asked, own_steps
from consilience.fit.private_step import PublicStep
from consilience.model import Mixture, mixture_of_experts
from consilience.model.information import move_parameters
from consilience.numerics.arrays import Array


def truth() -> Mixture:
    B = np.array([[-1.5, 0.8, -0.4], [1.5, -0.2, 0.6]])
    alpha = np.array([[0.1, 0.5, -0.2], [-0.1, -0.5, 0.2]])
    return mixture_of_experts(alpha, B, 0.4)


@cache
def covariates() -> Array:
    rng = np.random.default_rng(1)
    return np.column_stack([rng.random(600) < 0.4, rng.normal(size=600)]).astype(float)


def near(size: float, seed: int = 2) -> Mixture:
    return move_parameters(truth(), size * np.random.default_rng(seed).normal(size=truth().parameter_count))


def expected_totals(mixtures: list[Mixture], n: float, noise: float) -> list[NoisyTotal]:
    """Totals at mixtures, as they are on average for rows of the truth."""
    steps = [PublicStep.at(mixture, covariates()) for mixture in mixtures]
    means = Expected.under(truth(), steps, covariates()).means
    return [NoisyTotal(step, n * mean, noise, 1, n) for step, mean in zip(steps, means, strict=True)]


def test_under_its_own_mixture_a_total_is_zero_with_the_slope_and_the_spread_of_its_step() -> None:
    step = PublicStep.at(truth(), covariates())
    found = Expected.under(truth(), [step], covariates())
    assert np.abs(found.means).max() < 1e-3
    np.testing.assert_allclose(found.slopes[0], step.slope @ np.linalg.inv(step.factor), atol=2e-3)
    np.testing.assert_allclose(found.covariance, step.spread, atol=1e-5)


def test_slopes_are_the_derivatives_of_means() -> None:
    here, step, h = near(0.1), PublicStep.at(truth(), covariates()), 1e-3
    found = Expected.under(here, [step], covariates())
    z = np.random.default_rng(3).normal(size=truth().parameter_count)
    ahead, behind = (Expected.under(move_parameters(here, s * h * z), [step], covariates()).means[0] for s in (1, -1))
    slope = found.slopes[0] @ z
    assert np.abs((ahead - behind) / (2 * h) - slope).max() < 0.05 * np.abs(slope).max()


def test_totals_of_a_mixture_are_explained_by_it_wherever_they_were_asked() -> None:
    starts = [near(0.15, seed) for seed in (4, 5)]
    places = [expected_totals(starts, 400.0, 1.0), expected_totals(starts[:1], 900.0, 50.0)]
    found = explain_totals(starts[0], places, covariates())
    assert found.stands
    assert found.misfit < 1e-3
    gap = found.mixture.to_vector() - truth().to_vector()
    assert np.abs(gap).max() < 0.1 * np.sqrt(np.diagonal(found.covariance)).min()


def test_the_covariance_of_one_total_is_that_of_its_step_and_counts_the_noise() -> None:
    step = PublicStep.at(truth(), covariates())
    for noise in (1e-9, 2000.0):
        total = NoisyTotal(step, np.zeros(truth().parameter_count), noise, 1, 500.0)
        found = explain_totals(truth(), [[total]], covariates())
        wanted = step.covariance(500.0, noise)
        np.testing.assert_allclose(np.diagonal(found.covariance), np.diagonal(wanted), rtol=0.02)
    twice = explain_totals(truth(), [[total], [total]], covariates())
    np.testing.assert_allclose(2 * np.diagonal(twice.covariance), np.diagonal(found.covariance), rtol=0.02)


def test_noise_that_is_drawn_again_adds_what_it_says_and_rows_do_not_count_twice() -> None:
    step = PublicStep.at(truth(), covariates())
    total = NoisyTotal(step, np.zeros(truth().parameter_count), 2000.0, 1, 500.0)
    twice = explain_totals(truth(), [[total, total]], covariates())
    halved = explain_totals(truth(), [[replace(total, noise=1000.0)]], covariates())
    np.testing.assert_allclose(twice.covariance, halved.covariance, rtol=1e-6, atol=1e-9)


def test_totals_of_other_mixtures_are_misfits() -> None:
    one = expected_totals([near(0.15, 4)], 3000.0, 1.0)
    other = [replace(each, total=-each.total) for each in one]
    assert explain_totals(near(0.15, 4), [one, other], covariates()).misfit > 1.3


@pytest.mark.parametrize(("off", "plan"), [(0.0, NEAR_PLAN), (0.5, FAR_PLAN)])
def test_steps_follow_the_start_and_spend_every_part_once(off: float, plan: tuple[int, ...]) -> None:
    start = near(off)
    walk, shares, places = own_steps(start, covariates()), [], []
    asked = next(walk)
    assert asked.step.mixture is start
    while sum(shares) < PARTS:
        shares.append(asked.share)
        places.extend(range(asked.place, asked.place + asked.share))
        mean = Expected.under(truth(), [asked.step], covariates()).means[0]
        asked = _next(walk, NoisyTotal(asked.step, 2000.0 * mean, 10.0, asked.share, 2000.0), asked)
    assert tuple(shares) == plan
    assert places == list(range(PARTS))
    first, last = (np.abs(at.to_vector() - truth().to_vector()).max() for at in (start, asked.step.mixture))
    assert last < 0.02 + 0.2 * first


def _next(walk: Generator[Asked, NoisyTotal, None], total: NoisyTotal, last: Asked) -> Asked:
    """Return what is asked next; the last one if nothing is."""
    try:
        return walk.send(total)
    except StopIteration:
        return last
