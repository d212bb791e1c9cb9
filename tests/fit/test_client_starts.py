"""Starts from the moments of clients: clusters that are there are found, and experts that are idle are put to use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.fit.client_starts import (
    LEAST_NOISE,
    TOL,
    _ascent,
    _from_labels,
    _least_needed,
    _moved,
    _noise,
    _place,
    _reseeded,
    client_ascents,
)
from consilience.fit.climb import Ascent
from consilience.model import ConstantGate, Design, GaussianExperts, Groups, Mixture, Rows
from consilience.model.clients import ClientMoments, client_moments, expect_clients
from consilience.model.families.covariance import STRUCTURES
from consilience.numerics.arrays import Array, unpack

THETA = np.array([[3.0, 0.0], [-3.0, 1.0], [0.0, -4.0]])
SPREAD = np.mean(THETA**2, axis=0)


class Fleet:
    """Clients of three clusters in two directions, with their moments."""

    def __init__(self, G: int = 90, size: int = 6, noise: float = 0.5, theta: Array = THETA, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.labels = np.arange(G) % len(theta)
        self.groups = np.repeat(np.arange(G), size)
        self.X = rng.normal(size=(G * size, theta.shape[1]))
        noises = noise * rng.normal(size=G * size)
        self.y = np.sum(self.X * theta[self.labels[self.groups]], axis=1) + noises
        self.theta = theta

    def moments(self, Q: Array | None = None, scale: float = 1.0) -> ClientMoments:
        """In rotated directions, or of a response in other units."""
        X = self.X if Q is None else self.X @ Q
        rows = Rows(X, scale * self.y[:, None], groups=Groups.of(self.groups))
        f = X.shape[1]
        return client_moments(rows, Design.raw(f, intercept=False), np.zeros(f))

    def regressions(self, labels: Array) -> Array:
        """Least squares over the rows of each cluster."""
        mine = labels[self.groups]
        found = [np.linalg.lstsq(self.X[mine == k], self.y[mine == k], rcond=None)[0] for k in range(len(self.theta))]
        return np.array(found)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def truth_of(fleet: Fleet, moments: ClientMoments, structure: str = "full") -> Ascent:
    """Where EM ends from the true labels."""
    return _ascent(_from_labels(moments, fleet.labels, len(fleet.theta), structure), moments)


def mixture_at(B: Array, shares: Array | None = None, variance: float = 0.25) -> Mixture:
    K, f = B.shape
    gate = ConstantGate(np.full(K, 1 / K) if shares is None else shares)
    return Mixture(
        Design.raw(f, intercept=False), gate, GaussianExperts(B[:, None], np.full((K, 1, 1), variance), "full")
    )


def by_first(B: Array) -> Array:
    return B[np.lexsort(B.T[::-1])]


# ---------------------------------------------------------------------- mixtures from labels


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_mixture_from_labels_has_the_regressions_of_their_rows(fleet: Fleet, structure: str) -> None:
    moments = fleet.moments()
    found = _from_labels(moments, fleet.labels, 3, structure)
    B = fleet.regressions(fleet.labels)
    np.testing.assert_allclose(found.experts.B[:, 0], B, atol=1e-10)
    np.testing.assert_allclose(found.gate.probabilities, np.full(3, 1 / 3), atol=1e-12)
    residuals = fleet.y - np.sum(fleet.X * B[fleet.labels[fleet.groups]], axis=1)
    squares = np.array([np.mean(residuals[fleet.labels[fleet.groups] == k] ** 2) for k in range(3)])
    expected = np.full(3, np.mean(residuals**2)) if structure == "tied" else squares
    np.testing.assert_allclose(found.experts.variances[:, 0], expected, rtol=1e-9)
    assert found.experts.structure == structure


def test_noise_is_what_the_coefficients_leave(fleet: Fleet) -> None:
    moments = fleet.moments()
    square = np.mean(fleet.y**2)
    assert _noise(moments, np.array([1.0, 2.0])) == pytest.approx(square - 3.0)
    assert _noise(moments, np.array([square, 1.0])) == pytest.approx(LEAST_NOISE * square)


# ---------------------------------------------------------------------- clusters are found


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("seed", range(3))
def test_the_best_start_ends_where_the_true_labels_lead(structure: str, seed: int) -> None:
    fleet = Fleet(seed=seed)
    moments, rng = fleet.moments(), np.random.default_rng(seed)
    ends = client_ascents(moments, SPREAD, 3, structure, rng, n_init=3)
    truth = truth_of(fleet, moments, structure)
    assert ends[0].penalised >= truth.penalised - TOL * moments.G
    np.testing.assert_allclose(by_first(ends[0].mixture.coefficients), by_first(truth.mixture.coefficients), atol=1e-3)
    assert [end.penalised for end in ends] == sorted((end.penalised for end in ends), reverse=True)
    assert len(ends) == 4  # one for each clustering, and the best of them after it was looked at again


def test_clients_with_fewer_rows_than_directions_are_clustered_too() -> None:
    fleet = Fleet(G=240, size=1, noise=0.1)
    moments = fleet.moments()
    ends = client_ascents(moments, SPREAD, 3, "full", np.random.default_rng(0), n_init=6)
    assert ends[0].penalised >= truth_of(fleet, moments).penalised - TOL * moments.G


def test_one_expert_is_least_squares_over_all_rows(fleet: Fleet) -> None:
    moments = fleet.moments()
    ends = client_ascents(moments, SPREAD, 1, "full", np.random.default_rng(0), n_init=5)
    assert len(ends) == 2
    expected = np.linalg.lstsq(fleet.X, fleet.y, rcond=None)[0]
    for end in ends:
        np.testing.assert_allclose(end.mixture.coefficients[0], expected, atol=1e-9)


def test_clients_without_rows_change_nothing(fleet: Fleet) -> None:
    moments = fleet.moments()
    none = ClientMoments(np.zeros(3), np.zeros((3, 3)), np.zeros((3, 2)), np.zeros(3))
    some, all_ = (
        client_ascents(each, SPREAD, 3, "full", np.random.default_rng(0), n_init=3)[0]
        for each in (moments, moments + none)
    )
    assert all_.penalised == pytest.approx(some.penalised, rel=1e-12)
    assert all_.statistics.weight == moments.G


# ---------------------------------------------------------------------- invariances


def test_directions_may_be_turned(fleet: Fleet) -> None:
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(2, 2)))[0]
    even = np.full(2, SPREAD.mean())
    plain, turned = (
        client_ascents(fleet.moments(R), even, 3, "full", np.random.default_rng(0), n_init=2)[0] for R in (None, Q)
    )
    assert turned.penalised == pytest.approx(plain.penalised, rel=1e-10)
    np.testing.assert_allclose(turned.mixture.coefficients @ Q.T, plain.mixture.coefficients, atol=1e-8)


def test_the_response_may_have_other_units(fleet: Fleet) -> None:
    scale = 1e3
    plain, scaled = (
        client_ascents(fleet.moments(scale=s), s**2 * SPREAD, 3, "full", np.random.default_rng(0), n_init=2)[0]
        for s in (1.0, scale)
    )
    assert scaled.penalised == pytest.approx(plain.penalised - len(fleet.y) * np.log(scale), rel=1e-9)
    np.testing.assert_allclose(scaled.mixture.coefficients, scale * plain.mixture.coefficients, rtol=1e-6)


# ---------------------------------------------------------------------- experts are put where they are needed


def test_an_expert_without_clients_is_the_least_needed(fleet: Fleet) -> None:
    mixture = mixture_at(THETA, shares=np.array([0.6, 0.0, 0.4]))
    assert _least_needed(mixture, fleet.moments()) == 1


@pytest.mark.parametrize(("shares", "spare"), [((0.5, 0.3, 0.2), 2), ((0.3, 0.2, 0.5), 0)])
def test_of_two_experts_that_are_near_each_other_the_smaller_is_spare(
    fleet: Fleet, shares: tuple[float, ...], spare: int
) -> None:
    B = np.array([[3.0, 0.0], [0.0, -4.0], [3.1, 0.0]])
    assert _least_needed(mixture_at(B, shares=np.array(shares)), fleet.moments()) == spare


def test_a_spare_expert_goes_to_clients_that_the_others_explain_badly(fleet: Fleet) -> None:
    moments = fleet.moments()
    B = np.array([THETA[0], THETA[1], THETA[0] + 0.01])  # nobody is at the third
    fits = moments.ridge_fits(np.full(2, 1e-6))
    for seed in range(5):
        moved = _moved(mixture_at(B, shares=np.array([0.4, 0.35, 0.25])), moments, fits, np.random.default_rng(seed))
        np.testing.assert_allclose(by_first(moved.coefficients), by_first(THETA), atol=0.5)


BAD_STARTS = {
    "one expert covers two clusters, two share the third": np.array([[3.0, 0.1], [3.1, -0.1], [-1.5, -1.5]]),
    "two experts in one place": np.array([[3.0, 0.0], [-3.0, 1.0], [3.0, 0.0]]),
}


@pytest.mark.parametrize("B", BAD_STARTS.values(), ids=BAD_STARTS)
def test_double_experts_are_put_to_use(B: Array) -> None:
    fleet = Fleet(seed=5)
    moments = fleet.moments()
    stuck, truth = _ascent(mixture_at(B, variance=4.0), moments), truth_of(fleet, moments)
    assert stuck.penalised < truth.penalised - moments.G  # the start is as bad as it looks
    fits = moments.ridge_fits(_noise(moments, SPREAD) / SPREAD)
    better = _reseeded(stuck, moments, fits, np.random.default_rng(0))
    assert better.penalised >= truth.penalised - TOL * moments.G
    np.testing.assert_allclose(by_first(better.mixture.coefficients), by_first(truth.mixture.coefficients), atol=1e-3)


def test_an_expert_that_is_empty_is_put_to_use() -> None:
    fleet = Fleet(seed=2)
    moments = fleet.moments()
    B = np.array([[3.0, 0.0], [1e3, 1e3], [-1.5, -1.5]])
    stuck, truth = _ascent(mixture_at(B), moments), truth_of(fleet, moments)
    assert stuck.mixture.gate.probabilities.min() * moments.G < 1
    fits = moments.ridge_fits(_noise(moments, SPREAD) / SPREAD)
    better = _reseeded(stuck, moments, fits, np.random.default_rng(0))
    assert better.penalised >= truth.penalised - TOL * moments.G
    assert better.mixture.gate.probabilities.min() > 0.2


def test_where_nothing_is_to_be_gained_nothing_is_moved(fleet: Fleet) -> None:
    moments = fleet.moments()
    truth = truth_of(fleet, moments)
    fits = moments.ridge_fits(_noise(moments, SPREAD) / SPREAD)
    assert _reseeded(truth, moments, fits, np.random.default_rng(0)) is truth


def test_two_clusters_that_the_clusterings_miss_are_found_by_moving() -> None:
    """Many clusters, few starts: the end that was looked at again is never below the best of the others."""
    rng = np.random.default_rng(3)
    theta = 4 * rng.normal(size=(7, 3))
    gains = []
    for seed in range(4):
        fleet = Fleet(G=140, theta=theta, seed=seed)
        moments, spread = fleet.moments(), np.mean(theta**2, axis=0)
        ends = client_ascents(moments, spread, 7, "full", np.random.default_rng(seed), n_init=1)
        assert len(ends) == 2
        gains.append(ends[0].penalised - ends[1].penalised)
        assert ends[0].penalised >= truth_of(fleet, moments).penalised - TOL * moments.G
    assert max(gains) > 50


def test_an_end_with_an_expert_on_the_variance_floor_comes_last(fleet: Fleet) -> None:
    """Two experts that fit one client with one row exactly are likelier than any other, and are not what is meant."""
    moments = fleet.moments()
    tiny = 1e-6 * float(moments.c.sum() / moments.n.sum())
    truth = truth_of(fleet, moments)
    experts = truth.mixture.experts
    floored = replace(
        truth.mixture, experts=replace(experts, covariance=np.where(np.arange(3) == 1, tiny, 0.3)[:, None, None])
    )
    spurious = replace(truth, mixture=floored, trace=(truth.penalised + 100.0,))
    assert sorted([spurious, truth], key=lambda end: _place(end, moments)) == [truth, spurious]
    poor = replace(truth, trace=(truth.penalised - 100.0,))
    assert sorted([spurious, poor, truth], key=lambda end: _place(end, moments)) == [truth, poor, spurious]
    fits = moments.ridge_fits(_noise(moments, SPREAD) / SPREAD)
    better = _reseeded(spurious, moments, fits, np.random.default_rng(0))
    assert better.penalised == pytest.approx(truth.penalised, abs=TOL * moments.G)  # less likely, and not on the floor


def test_the_end_of_a_climb_is_of_these_clients(fleet: Fleet) -> None:
    moments = fleet.moments()
    best = client_ascents(moments, SPREAD, 3, "full", np.random.default_rng(0), n_init=2)[0]
    again = expect_clients(best.mixture, moments, np.zeros(2))
    assert best.statistics.log_likelihood == pytest.approx(again.log_likelihood, rel=1e-12)
    S = unpack(moments.S).sum(axis=0)
    np.testing.assert_allclose(unpack(best.statistics.experts.second).sum(axis=0), S, rtol=1e-10)
    assert replace(best.statistics, information=None).weight == moments.G
