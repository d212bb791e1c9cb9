"""The critic's sums: gradients by finite differences, and what must not change them."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, expect
from consilience.model.information import coefficient_slice, score
from consilience.numerics.quadrature import hermite_nodes
from consilience.published.critic import NODES, MinimaxSums, minimax_sums
from strategies import random_design, unweighted

GRADIENTS = ("above", "below", "B")


def mixture_of(design: Design, B: np.ndarray, pi: np.ndarray, sigma2: float) -> Mixture:
    return Mixture(design, ConstantGate(pi), GaussianExperts(B[:, None], np.full((len(B), 1, 1), sigma2)))


class Case:
    """A mixture, a critic and rows, none of which is at an optimum."""

    def __init__(self, K: int, n: int = 40, d: int = 3, seed: int = 0, weights: str | None = "positive") -> None:
        rng = np.random.default_rng([seed, K])
        self.design = random_design(d, True, rng)
        self.B, self.above, self.below = rng.normal(size=(3, K, self.design.p))
        self.pi, self.sigma2 = rng.dirichlet(np.full(K, 5.0)), float(rng.uniform(0.5, 1.5))
        weight = {None: None, "positive": rng.uniform(0.2, 2.0, n), "counts": rng.integers(0, 3, n).astype(float)}
        self.rows = Rows(rng.normal(size=(n, d)), 2 * rng.normal(size=(n, 1)), weight[weights])

    @property
    def mixture(self) -> Mixture:
        return mixture_of(self.design, self.B, self.pi, self.sigma2)

    def sums(self, rows: Rows | None = None, **changes: np.ndarray) -> MinimaxSums:
        at = {name: changes.get(name, getattr(self, name)) for name in GRADIENTS}
        mixture = mixture_of(self.design, at["B"], self.pi, self.sigma2)
        return minimax_sums(mixture, at["above"], at["below"], self.rows if rows is None else rows)


def flat(sums: MinimaxSums) -> np.ndarray:
    return np.concatenate([np.ravel(getattr(sums, field.name)) for field in fields(sums)])


def assert_close(a: MinimaxSums, b: MinimaxSums, tolerance: float = 1e-12) -> None:
    scale = np.abs(flat(b)).max()
    np.testing.assert_allclose(flat(a), flat(b), rtol=1e-10, atol=tolerance * scale)


# ---------------------------------------------------------------------- what the sums are


@pytest.mark.parametrize("K", [1, 2, 3, 4])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_value(K: int, name: str) -> None:
    case, h = Case(K), 1e-5
    gradient, at = getattr(case.sums(), name), getattr(case, name)
    for place in np.ndindex(*at.shape):
        step = np.zeros_like(at)
        step[place] = h
        up, down = (case.sums(**{name: at + sign * step}).value for sign in (1, -1))
        assert abs((up - down) / (2 * h) - gradient[place]) < 1e-7


@pytest.mark.slow
def test_the_value_is_data_against_the_expectation_at_the_same_covariates() -> None:
    case = Case(3, n=6)
    panel, sigma = case.design.panel(case.rows.X), np.sqrt(case.sigma2)

    def side(gamma: np.ndarray, x: np.ndarray, y: float) -> float:
        return float(logsumexp(np.log(case.pi) - (y - gamma @ x) ** 2 / (2 * case.sigma2)))

    def psi(x: np.ndarray, y: float) -> float:
        return side(case.above, x, y) - side(case.below, x, y)

    total = 0.0
    for x, y, w in zip(panel.T, case.rows.Y[:, 0], case.rows.weight, strict=True):
        expectation = sum(
            pi * quad(lambda t, m=float(b @ x), x=x: psi(x, m + sigma * t) * norm.pdf(t), -10, 10, epsabs=1e-10)[0]
            for pi, b in zip(case.pi, case.B, strict=True)
        )
        total += w * (psi(x, y) - expectation)
    assert abs(case.sums().value - total) < 0.01 * np.sum(case.rows.weight)  # eight nodes


def test_a_critic_without_an_opinion_says_nothing() -> None:
    case = Case(3)
    sums = case.sums(below=case.above)
    assert abs(sums.value) < 1e-12
    np.testing.assert_allclose(sums.B, 0.0, atol=1e-12)
    np.testing.assert_allclose(sums.above, -sums.below)


def test_critics_exchanged_turn_the_sign() -> None:
    case = Case(2)
    sums, turned = case.sums(), case.sums(above=case.below, below=case.above)
    assert turned.value == pytest.approx(-sums.value)
    np.testing.assert_allclose(turned.B, -sums.B, atol=1e-12)
    np.testing.assert_allclose(turned.above, -sums.below, atol=1e-12)


def test_a_critic_at_the_mixture_is_pulled_by_the_score_of_the_likelihood() -> None:
    """The model's own score has mean zero, so that only that of the data is left."""
    rng = np.random.default_rng(0)
    design, B = Design.raw(2), np.array([[1.0, 2.0, -1.0], [-1.0, 0.0, 2.0]])
    mixture = mixture_of(design, B, np.array([0.6, 0.4]), 1.0)
    X = rng.normal(size=(4000, 2))
    rows = Rows(X, mixture.sample(X, rng)[0])
    sums = minimax_sums(mixture, B, B, rows)
    gradient = score(mixture, expect(mixture, rows))[coefficient_slice(mixture)].reshape(2, 3)
    np.testing.assert_allclose(sums.above, gradient, atol=0.01 * np.sqrt(4000))  # a hundredth of what chance makes it


@pytest.mark.parametrize("weights", [None, "positive"])
def test_the_sums_of_the_e_step_are_those_of_a_pass(weights: str | None) -> None:
    case = Case(3, weights=weights)
    sums, statistics = case.sums(), expect(case.mixture, case.rows)
    np.testing.assert_allclose(sums.shares, statistics.gate.plain)
    assert sums.squares == pytest.approx(statistics.experts.plain[3:].sum())
    assert sums.log_likelihood == pytest.approx(statistics.log_likelihood)
    assert sums.weight == pytest.approx(statistics.weight)


def test_two_regressions_that_mirror_have_the_objective_of_the_symmetric_problem() -> None:
    """``log 2cosh(y γᵀx)`` with ``γ = g / σ²``: what is left of the general critic where covariates cancel."""
    rng = np.random.default_rng(3)
    n, d, sigma2 = 50, 3, 0.7
    X, y = rng.normal(size=(n, d)), 2 * rng.normal(size=n)
    b, g, h = rng.normal(size=(3, d))
    pairs = [np.array([v, -v]) for v in (b, g, h)]
    design = Design.raw(d, intercept=False)
    sums = minimax_sums(mixture_of(design, pairs[0], np.full(2, 0.5), sigma2), *pairs[1:], Rows(X, y[:, None]))
    t, w = hermite_nodes(NODES)
    drawn = (X @ b)[:, None] + np.sqrt(sigma2) * t  # (n, Q)

    def log_cosh(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.log(2 * np.cosh(y * (X @ v) / sigma2)), np.log(2 * np.cosh(drawn * (X @ v)[:, None] / sigma2)) @ w

    (up, up_drawn), (down, down_drawn) = log_cosh(g), log_cosh(h)
    assert sums.value == pytest.approx(float(np.sum(up - down - up_drawn + down_drawn)))
    gradient = (y * np.tanh(y * (X @ g) / sigma2) - (drawn * np.tanh(drawn * (X @ g)[:, None] / sigma2)) @ w) @ X
    np.testing.assert_allclose(sums.above[0] - sums.above[1], gradient / sigma2, atol=1e-10)
    T = [(X @ v) * (np.tanh(drawn * (X @ v)[:, None] / sigma2) @ w) for v in (g, h)]
    np.testing.assert_allclose(sums.B[0] - sums.B[1], -(T[0] - T[1]) @ X / sigma2, atol=1e-10)
    np.testing.assert_allclose(sums.B[0], -sums.B[1], atol=1e-10)


# ---------------------------------------------------------------------- what must not change them


@given(st.integers(1, 4), st.lists(st.integers(0, 3), min_size=40, max_size=40), st.integers(0, 100))
def test_sums_add_over_any_partition(K: int, parts: list[int], seed: int) -> None:
    case, place = Case(K, seed=seed), np.array(parts)
    pieces = [case.sums(case.rows.take(np.flatnonzero(place == part))) for part in range(4)]
    assert_close(reduce(add, pieces), case.sums())


def test_sums_do_not_depend_on_blocks() -> None:
    case = Case(4, n=20_000, d=1)
    halves = [case.sums(case.rows.take(np.arange(20_000)[half])) for half in (slice(0, 9_999), slice(9_999, None))]
    assert_close(halves[0] + halves[1], case.sums())


@given(st.integers(1, 3), st.integers(0, 100))
def test_a_weight_is_a_repetition(K: int, seed: int) -> None:
    case = Case(K, seed=seed, weights="counts")
    assert_close(case.sums(unweighted(case.rows)), case.sums())


def test_the_order_of_rows_does_not_matter() -> None:
    case = Case(3)
    assert_close(case.sums(case.rows.take(np.random.default_rng(0).permutation(40))), case.sums())


@pytest.mark.parametrize("order", [[1, 2, 0], [2, 1, 0]])
def test_experts_in_another_order_have_their_gradients_in_that_order(order: list[int]) -> None:
    case = Case(3)
    mixture = case.mixture.permuted(np.array(order))
    sums, other = case.sums(), minimax_sums(mixture, case.above[order], case.below[order], case.rows)
    expected = replace(sums, **{name: getattr(sums, name)[order] for name in (*GRADIENTS, "shares")})
    assert_close(other, expected)


def test_other_coordinates_change_gradients_only_as_they_must() -> None:
    case = Case(2)
    raw = case.mixture.raw()
    T = raw.design.from_raw() @ case.design.to_raw()  # b_raw = T b
    sums = case.sums()
    other = minimax_sums(raw, case.above @ T.T, case.below @ T.T, case.rows)
    assert other.value == pytest.approx(sums.value)
    np.testing.assert_allclose(other.above @ T, sums.above, atol=1e-9)
    np.testing.assert_allclose(other.B @ T, sums.B, atol=1e-9)


def test_an_expert_without_a_share_is_no_trouble() -> None:
    case = Case(2)
    mixture = mixture_of(case.design, case.B, np.array([1.0, 0.0]), 1.0)
    sums = minimax_sums(mixture, case.above, case.below, case.rows)
    assert np.all(np.isfinite(flat(sums)))
    np.testing.assert_allclose(sums.B[1], 0.0)
