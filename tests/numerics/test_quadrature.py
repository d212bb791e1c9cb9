"""Gauss-Hermite nodes: exact for polynomials, good for the functions that mixtures need."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from scipy.integrate import quad

from consilience.numerics.quadrature import hermite_nodes
from consilience.published.critic import NODES


@pytest.mark.parametrize("count", [1, 2, 5, 8, 12])
def test_moments_of_a_normal_are_exact(count: int) -> None:
    t, w = hermite_nodes(count)
    for degree in range(2 * count):
        expected = prod(range(1, degree, 2)) if degree % 2 == 0 else 0.0
        scale = w @ np.abs(t) ** degree
        assert abs(w @ t**degree - expected) <= 1e-12 * max(scale, 1.0)


def test_weights_are_shares_and_nodes_mirror() -> None:
    t, w = hermite_nodes(NODES)
    assert len(t) == len(w) == NODES
    assert np.all(w > 0)
    assert w.sum() == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(t, -t[::-1], atol=1e-14)
    np.testing.assert_allclose(w, w[::-1], rtol=1e-12)


@pytest.mark.parametrize("a", [0.1, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_eight_nodes_do_for_a_log_of_a_sum_of_exponentials(a: float) -> None:
    t, w = hermite_nodes(NODES)

    def f(e: float) -> float:
        return float(np.logaddexp(a * (a + e), -a * (a + e)))

    exact = quad(lambda e: f(e) * np.exp(-(e**2) / 2) / np.sqrt(2 * np.pi), -12, 12, epsabs=1e-12, points=[-a])[0]
    assert abs(w @ np.array([f(e) for e in t]) - exact) < 3e-3


def test_nodes_that_are_shared_cannot_be_changed() -> None:
    t, w = hermite_nodes(NODES)
    assert hermite_nodes(NODES)[0] is t
    for array in (t, w):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
