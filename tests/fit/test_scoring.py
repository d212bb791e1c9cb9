"""The simulated information against the observed one, and what a simulation needs to know of the sites."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from consilience.datasets import soft
from consilience.fit.simulated_information import SimulatedInformation, complete_statistics
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, expect
from consilience.model.expectation import score_sums
from consilience.model.summary import ColumnSummary, column_summary


@cache
def soft_rows(n: int = 20_000) -> tuple[Mixture, Rows]:
    data = soft(n, n_experts=3, n_features=4, random_state=0)
    return data.truth, Rows(data.X, data.y[:, None])


def test_the_simulated_information_is_close_to_the_observed() -> None:
    truth, rows = soft_rows()
    simulation = SimulatedInformation.normal([column_summary(rows)], seed=3)
    found = simulation.statistics(truth, rows.n).information
    observed = expect(truth, rows, information=True).information
    ratios = np.sqrt(np.diag(np.linalg.inv(found)) / np.diag(np.linalg.inv(observed)))
    assert np.all((ratios > 0.85) & (ratios < 1.15))


def test_sites_are_drawn_by_their_weight_with_their_means_and_covariances() -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(3, 3))
    parts = [rng.normal(size=(n, 3)) @ mixed + shift for n, shift in ((300, 0.0), (900, 10.0))]
    simulation = SimulatedInformation.normal([column_summary(Rows(X, X[:, :1])) for X in parts], seed=0)
    X = simulation.drawn(8_000)
    assert 8_000 <= len(X) <= 8_002
    drawn = X[:2_000], X[2_000:]
    for here, there in zip(parts, drawn, strict=True):
        np.testing.assert_allclose(there.mean(axis=0), here.mean(axis=0), atol=0.15)
        np.testing.assert_allclose(np.cov(there.T), np.cov(here.T), atol=0.35)


def test_constant_columns_stay_constant_and_nothing_depends_on_another_draw() -> None:
    summary = ColumnSummary(9.0, np.array([2.0, 0.0]), np.diag([0.0, 9.0]), np.zeros(1), np.eye(1))
    simulation = SimulatedInformation.normal([summary], seed=1)
    X = simulation.drawn(100)
    assert np.all(X[:, 0] == 2.0)
    np.testing.assert_array_equal(X, simulation.drawn(100))


def test_only_second_moments_and_information_are_simulated() -> None:
    truth, rows = soft_rows(500)
    scores, simulation = score_sums(truth, rows), SimulatedInformation.normal([column_summary(rows)], seed=0)
    found = complete_statistics(truth, scores, simulation)
    assert (found.log_likelihood, found.absolute, found.weight) == (
        scores.log_likelihood,
        scores.absolute,
        scores.weight,
    )
    for mine, exact in ((found.gate, scores.gate), (found.experts, scores.experts)):
        np.testing.assert_array_equal(mine.plain, exact.plain)
        np.testing.assert_array_equal(mine.first, exact.first)
    full = expect(truth, rows, information=True)
    assert found.experts.second.shape == full.experts.second.shape
    assert found.information.shape == full.information.shape


@pytest.mark.parametrize("K", [1, 2])
def test_mixtures_without_covariates_are_simulated(K: int) -> None:
    experts = GaussianExperts(np.arange(K, dtype=float)[:, None, None] * 5, np.ones((K, 1, 1)))
    mixture = Mixture(Design.raw(0), ConstantGate(np.full(K, 1 / K)), experts)
    summary = ColumnSummary(50.0, np.zeros(0), np.zeros((0, 0)), np.zeros(1), 50 * np.eye(1))
    found = SimulatedInformation.normal([summary], seed=0).statistics(mixture, 50.0)
    assert found.weight == pytest.approx(50.0)
    assert found.information.shape == (mixture.parameter_count, mixture.parameter_count)
