"""Divergences against integrals, sums over rows against moments, transport against a dense linear program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import multivariate_normal, poisson

from consilience.aggregate import exact_cost, exact_transport, relaxed_transport, support_costs
from families import GAUSSIAN
from strategies import FAMILIES, Shape, shapes


def two_mixtures(shape: Shape):
    mixture, rows = shape.problem()
    other, _ = shape.but(seed=shape.seed + 1, K=shape.K + 1).problem()
    return mixture, other.in_coordinates(mixture.design), rows


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
def test_divergence_is_nothing_to_itself_and_never_negative(family: str, data: st.DataObject) -> None:
    mixture, other, rows = two_mixtures(data.draw(shapes(family=family)))
    panel = mixture.design.panel(rows.X)
    own = mixture.experts.divergence(mixture.experts, panel)
    np.testing.assert_allclose(np.einsum("kkn->kn", own), 0.0, atol=1e-12)
    across = mixture.experts.divergence(other.experts, panel)
    assert across.shape == (mixture.K, other.K, rows.n)
    assert across.min() >= -1e-12


def test_gaussian_divergence_is_the_integral() -> None:
    mixture, other, rows = two_mixtures(Shape(q=2, K=2, n=3))
    panel = mixture.design.panel(rows.X)
    rng = np.random.default_rng(0)
    for k in range(2):
        for l in range(3):
            f = multivariate_normal(mixture.experts.mean(panel)[k, :, 0], mixture.experts.matrices[k])
            g = multivariate_normal(other.experts.mean(panel)[l, :, 0], other.experts.matrices[l])
            y = f.rvs(200_000, random_state=rng)
            terms = f.logpdf(y) - g.logpdf(y)
            value = mixture.experts.divergence(other.experts, panel)[k, l, 0]
            assert value == pytest.approx(terms.mean(), abs=5 * terms.std() / np.sqrt(len(y)))


def test_poisson_divergence_is_the_sum() -> None:
    mixture, other, rows = two_mixtures(Shape("poisson", K=2, n=4))
    panel = mixture.design.panel(rows.X)
    y = np.arange(400)
    for k, l, i in np.ndindex(2, 3, 4):
        mu, nu = mixture.experts.mean(panel)[k, 0, i], other.experts.mean(panel)[l, 0, i]
        expected = np.sum(poisson.pmf(y, mu) * (poisson.logpmf(y, mu) - poisson.logpmf(y, nu)))
        assert mixture.experts.divergence(other.experts, panel)[k, l, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_categorical_divergence_is_the_sum() -> None:
    mixture, other, rows = two_mixtures(Shape("categorical", K=2, n=4))
    panel = mixture.design.panel(rows.X)
    p, q = mixture.experts.mean(panel), other.experts.mean(panel)
    expected = np.sum(p[:, None] * np.log(p[:, None] / q), axis=2)
    np.testing.assert_allclose(mixture.experts.divergence(other.experts, panel), expected, atol=1e-12)


@given(shapes(family=st.sampled_from(GAUSSIAN), labels="row", weights=None))
def test_costs_from_moments_are_those_over_the_rows(shape: Shape) -> None:
    mixture, other, rows = two_mixtures(shape)
    panel, tau = mixture.design.panel(rows.X), mixture.responsibilities(rows).T
    second = np.einsum("kn,an,bn->kab", tau, panel, panel)
    ours = mixture.experts.moment_costs(other.experts, tau.sum(axis=1), second)
    np.testing.assert_allclose(ours, support_costs(mixture.experts, other.experts, panel, tau), rtol=1e-9, atol=1e-9)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_exact_cost_is_that_of_the_linear_program(K: int, L: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    share, target, cost = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(L)), rng.exponential(size=(K, L))
    A = np.vstack([np.kron(np.eye(K), np.ones(L)), np.kron(np.ones(K), np.eye(L))])
    program = linprog(cost.ravel(), A_eq=A[:-1], b_eq=np.concatenate([share, target])[:-1], bounds=(0, None))
    assert exact_cost(share, target, cost) == pytest.approx(program.fun, abs=1e-9)


@pytest.mark.slow
@given(shapes(max_n=5))
def test_relaxed_transport_is_below_the_exact_one_and_both_vanish_at_home(shape: Shape) -> None:
    mixture, other, rows = two_mixtures(shape)
    exact, relaxed = exact_transport(mixture, other, rows.X), relaxed_transport(mixture, other, rows.X)
    assert -1e-12 <= relaxed <= exact + 1e-9 * (1 + abs(exact))
    turned = mixture.permuted(np.arange(mixture.K)[::-1])
    assert exact_transport(mixture, turned, rows.X) == pytest.approx(0.0, abs=1e-9)
    assert relaxed_transport(mixture, turned, rows.X) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
@given(shapes(max_n=5))
def test_transport_does_not_depend_on_labels_or_coordinates(shape: Shape) -> None:
    mixture, other, rows = two_mixtures(shape)
    turned = other.permuted(np.arange(other.K)[::-1]).raw()
    for distance in (relaxed_transport, exact_transport):
        here = distance(mixture, other, rows.X)
        assert distance(mixture.permuted(np.arange(mixture.K)[::-1]), turned, rows.X) == pytest.approx(
            here, rel=1e-6, abs=1e-9
        )
