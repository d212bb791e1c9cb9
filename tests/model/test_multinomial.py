"""Softmax regression: the bound on its curvature, steps that climb, and a ridge without a favourite class."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.model import multinomial
from consilience.model.statistics import quadratic, slope_mask
from consilience.numerics.arrays import log_softmax, pack, triangle_size, unpack

seeds, classes, features = st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 4)
RIDGE = 0.1


def ridge_of(p, ridge=RIDGE, intercept=True):
    return np.diag(ridge * slope_mask(p, intercept))


class Problem:
    """Random rows with soft classes ``tau`` and weights: the log-likelihood ``Σ w τ_c log π_c(x)`` and its moments."""

    def __init__(self, C, p, seed, n=30, scale=1.0):
        rng = np.random.default_rng(seed)
        self.panel = np.vstack([np.ones(n), scale * rng.normal(size=(p - 1, n))])
        self.tau = rng.dirichlet(np.full(C, 0.3), n).T
        self.weight = rng.uniform(0, 2, n)
        coef = 0.5 * rng.normal(size=(C, p))
        self.coef = coef - coef.mean(axis=0)

    def value(self, coef):
        likelihood = np.sum(self.weight * self.tau * log_softmax(coef @ self.panel))
        return likelihood - quadratic(coef, ridge_of(coef.shape[1]))

    def moments(self, coef):
        pi = np.exp(log_softmax(coef @ self.panel))
        gradient = (self.weight * (self.tau - pi))[:-1] @ self.panel.T
        rows = multinomial.curvature_rows(pi, self.weight, len(self.panel))
        return gradient, pack(np.einsum("hn,an,bn->hab", rows, self.panel, self.panel))

    def step(self, coef, fraction=1.0):
        return multinomial.step(coef, *self.moments(coef), fraction=fraction, ridge=ridge_of(coef.shape[1]))


@pytest.fixture(params=["full", "bound"])
def curvature(request, monkeypatch):
    if request.param == "bound":
        monkeypatch.setattr(multinomial, "FULL_UP_TO", 0)
    return request.param


# ---------------------------------------------------------------------- curvature


@given(C=classes, seed=seeds, sharpness=st.sampled_from([0.01, 1.0, 20.0]))
def test_twice_the_degrees_dominate_the_laplacian(C, seed, sharpness):
    pi = np.exp(log_softmax(sharpness * np.random.default_rng(seed).normal(size=C)))
    gap = 2 * np.diag(pi * (1 - pi)) - (np.diag(pi) - np.outer(pi, pi))
    assert np.linalg.eigvalsh(gap).min() >= -1e-12


@given(C=classes, p=features, seed=seeds)
def test_the_block_diagonal_bound_dominates_the_full_hessian(C, p, seed):
    problem = Problem(C, p, seed)
    _, packed = problem.moments(problem.coef)
    full = multinomial.blocks_to_matrix(packed, C - 1, p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multinomial, "FULL_UP_TO", 0)
        _, blocks = problem.moments(problem.coef)
    assert len(blocks) == C
    bound = np.zeros((C, p, C, p))
    bound[np.arange(C), :, np.arange(C)] = unpack(blocks)
    to_all = np.kron(np.vstack([np.eye(C - 1), -np.ones(C - 1)]), np.eye(p))  # all C classes from C - 1 contrasts
    centring = np.kron(np.vstack([np.eye(C - 1), np.zeros(C - 1)]) - 1 / C, np.eye(p))
    for chart in (centring, np.kron(np.eye(C)[:, :-1], np.eye(p)), to_all):
        contrast = np.kron(np.eye(C)[:-1] - np.eye(C)[-1], np.eye(p)) @ chart  # what the move is in contrasts
        gap = chart.T @ bound.reshape(C * p, C * p) @ chart - contrast.T @ full @ contrast
        assert np.linalg.eigvalsh(gap).min() >= -1e-10 * np.abs(full).max()


@given(C=st.integers(1, 5), p=features)
def test_curvature_has_the_announced_number_of_rows(C, p):
    pi = np.full((C, 3), 1 / C)
    for full_up_to in (0, 1500):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(multinomial, "FULL_UP_TO", full_up_to)
            rows = multinomial.curvature_rows(pi, 1.0, p)
            assert rows.shape == (multinomial.curvature_row_count(C, p), 3)
    assert len(multinomial.pair_rows(pi)) == triangle_size(C - 1)


def test_the_full_hessian_is_used_up_to_1500_parameters():
    assert multinomial.is_full(4, 500)
    assert not multinomial.is_full(4, 501)
    assert not multinomial.is_full(50, 501)
    assert not multinomial.is_full(10, 785)


# ---------------------------------------------------------------------- steps


def climbed(problem, coef, steps, full_up_to):
    """Coefficients after some steps, each halved until it climbs: at most 8 times, as in a fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multinomial, "FULL_UP_TO", full_up_to)
        for _ in range(steps):
            allowed = problem.value(coef) - 1e-12 * abs(problem.value(coef))
            coef = next(new for f in 0.5 ** np.arange(9) if problem.value(new := problem.step(coef, f)) >= allowed)
    return coef


@pytest.mark.slow
@settings(max_examples=60)
@given(C=classes, p=features, seed=seeds)
def test_safeguarded_steps_climb_to_the_same_top_with_the_hessian_and_with_the_bound(C, p, seed):
    problem = Problem(C, p, seed)
    newton, bound = (climbed(problem, problem.coef, 40, full_up_to) for full_up_to in (1500, 0))
    first, _ = problem.moments(newton)
    pull = (RIDGE * slope_mask(p, intercept=True) * newton)[:-1]
    np.testing.assert_allclose(first, pull, atol=1e-6)  # the top: the likelihood balances the ridge
    top, gained = problem.value(newton), problem.value(newton) - problem.value(problem.coef)
    assert top - 0.05 * gained - 1e-9 <= problem.value(bound) <= top + 1e-9


@given(C=classes, p=features, seed=seeds, size=st.sampled_from([0.1, 1.0, 5.0]))
def test_a_step_with_the_bound_goes_uphill(C, p, seed, size):
    problem = Problem(C, p, seed)
    coef, before = size * problem.coef, problem.value(size * problem.coef)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multinomial, "FULL_UP_TO", 0)
        gradient = (problem.value(problem.step(coef, 1e-6)) - before) / 1e-6
    assert gradient >= -1e-6 * abs(before)


@given(p=features, seed=seeds)
def test_for_two_classes_the_bound_is_the_newton_step(p, seed):
    problem = Problem(2, p, seed)
    newton = problem.step(problem.coef)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multinomial, "FULL_UP_TO", 0)
        np.testing.assert_allclose(problem.step(problem.coef), newton, rtol=1e-7, atol=1e-9)


@given(C=classes, p=features, seed=seeds)
def test_newton_is_at_rest_where_the_gradient_vanishes(C, p, seed):
    problem = Problem(C, p, seed)
    coef = problem.coef
    pi = np.exp(log_softmax(coef @ problem.panel))
    mask = RIDGE * slope_mask(p, intercept=True)
    _, curvature = problem.moments(coef)
    pull = (mask * coef)[:-1]  # the gradient of the likelihood that balances the ridge
    still = multinomial.step(coef, pull, curvature, fraction=1.0, ridge=ridge_of(p))
    np.testing.assert_allclose(still, coef, atol=1e-9)
    assert pi.shape == problem.tau.shape


@pytest.mark.parametrize("C", [2, 3, 5])
def test_steps_do_not_depend_on_the_order_of_classes(C, curvature):
    problem = Problem(C, 3, seed=C)
    order = np.random.default_rng(C).permutation(C)
    new = problem.step(problem.coef)
    problem.tau = problem.tau[order]
    np.testing.assert_allclose(problem.step(problem.coef[order]), new[order], rtol=1e-9, atol=1e-11)


def test_steps_keep_coefficients_summing_to_zero(curvature):
    problem = Problem(4, 3, seed=0)
    np.testing.assert_allclose(problem.step(problem.coef).sum(axis=0), 0, atol=1e-12)


def test_a_fraction_of_a_step_is_on_the_way(curvature):
    problem = Problem(3, 3, seed=0)
    full, half = problem.step(problem.coef), problem.step(problem.coef, 0.5)
    np.testing.assert_allclose(half, (full + problem.coef) / 2, atol=1e-12)
    assert problem.step(problem.coef, 0.0) is problem.coef


def test_one_class_has_nothing_to_learn(curvature):
    coef = np.zeros((1, 3))
    assert multinomial.step(coef, np.zeros((0, 3)), np.zeros((1, 6)), fraction=1.0, ridge=ridge_of(3)) is coef


def test_a_class_nobody_is_in_stays_finite(curvature):
    problem = Problem(3, 3, seed=0)
    problem.tau[0], problem.tau[1:] = 0.0, problem.tau[1:] / problem.tau[1:].sum(axis=0)
    coef = problem.coef
    for _ in range(50):
        coef = problem.step(coef)
    assert np.all(np.isfinite(coef))


# ---------------------------------------------------------------------- coordinates and the ridge


@given(C=st.integers(1, 5), p=features, seed=seeds)
def test_contrasts_and_centred_coefficients_are_two_names_of_one_thing(C, p, seed):
    free = np.random.default_rng(seed).normal(size=(C - 1, p))
    coef = multinomial.centre_coefficients(free)
    np.testing.assert_allclose(coef.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(multinomial.contrasts(coef), free, atol=1e-12)


@given(C=st.integers(1, 5), p=features, seed=seeds, intercept=st.booleans())
def test_the_ridge_in_contrasts_is_the_sum_of_squared_slopes(C, p, seed, intercept):
    free = np.random.default_rng(seed).normal(size=(C - 1, p))
    R = multinomial.ridge_matrix(C, ridge_of(p, 0.3, intercept))
    value = quadratic(multinomial.centre_coefficients(free), ridge_of(p, 0.3, intercept))
    assert value == pytest.approx(0.5 * free.ravel() @ R @ free.ravel(), abs=1e-12)


@given(C=classes, p=features, seed=seeds)
def test_the_ridge_has_no_favourite_class(C, p, seed):
    rng = np.random.default_rng(seed)
    coef, order = multinomial.centre_coefficients(rng.normal(size=(C - 1, p))), rng.permutation(C)
    theta, relabelled = (multinomial.contrasts(b).ravel() for b in (coef, coef[order]))
    R = multinomial.ridge_matrix(C, ridge_of(p, 0.3))
    assert relabelled @ R @ relabelled == pytest.approx(theta @ R @ theta, rel=1e-10, abs=1e-12)


def test_intercepts_are_free():
    coef = np.array([[5.0, 0.0], [-5.0, 0.0]])
    assert quadratic(coef, ridge_of(coef.shape[1], 1.0)) == 0
    assert quadratic(coef, ridge_of(coef.shape[1], 1.0, intercept=False)) == 25
    assert np.array_equal(slope_mask(2, intercept=False), [1, 1])
