"""Transport against a dense linear program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from benchmarks.lib.metrics import exact_cost, exact_transport, relaxed_transport
from strategies import Shape, shapes


def two_mixtures(shape: Shape):
    mixture, rows = shape.problem()
    other, _ = shape.but(seed=shape.seed + 1, K=shape.K + 1).problem()
    return mixture, other.in_coordinates(mixture.design), rows


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
