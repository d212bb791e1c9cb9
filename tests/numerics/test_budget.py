"""Conversion between ρ and (ε, δ), and the variance of the noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from consilience.errors import InvalidInputError
from consilience.numerics.budget import UNITS, epsilon_of, noise_variance, rho_of

TABLE = {1e-6: {1: 0.0244, 3: 0.1851, 8: 1.0524}, 1e-5: {1: 0.0306, 3: 0.2242, 8: 1.2297}}


def test_known_pairs():
    for delta, pairs in TABLE.items():
        for epsilon, rho in pairs.items():
            assert abs(float(rho_of(epsilon, delta)) - rho) < 6e-5
    assert abs(epsilon_of(0.05, 1e-6) - 1.4715948) < 1e-6  # OpenDP 0.16


def test_the_conversions_are_inverse_and_never_round_up():
    for delta in (1e-9, 1e-6, 1e-3):
        for epsilon in (0.05, 0.3, 1, 3, 8, 30):
            rho = rho_of(epsilon, delta)
            assert rho.denominator <= UNITS
            assert epsilon_of(rho, delta) <= epsilon
            assert epsilon_of(rho + Fraction(4, UNITS), delta) > epsilon


def test_the_conversions_are_monotone():
    grid = np.geomspace(1e-5, 100, 60)
    values = [epsilon_of(rho, 1e-6) for rho in grid]
    assert np.all(np.diff(values) > 0)
    assert epsilon_of(0.1, 1e-9) > epsilon_of(0.1, 1e-6)
    assert epsilon_of(0, 1e-6) == 0


def test_the_bound_lies_between_the_exact_one_of_continuous_noise_and_the_simple_one():
    def delta_of(epsilon, rho):  # Balle and Wang 2018: continuous noise of the same ρ
        m = np.sqrt(2 * rho)
        return norm.cdf(m / 2 - epsilon / m) - np.exp(epsilon) * norm.cdf(-m / 2 - epsilon / m)

    for rho in (0.0244, 0.1851, 1.0524, 10.0):
        epsilon = epsilon_of(rho, 1e-6)
        assert delta_of(epsilon, rho) < 1e-6
        assert epsilon < rho + 2 * np.sqrt(rho * np.log(1e6))


def test_the_variance_is_the_least_that_keeps_the_budget():
    for sensitivity in (1, 7, 2**20 + 5):
        for rho in (Fraction(1, 3), Fraction(1, 1000), rho_of(3, 1e-6)):
            variance = noise_variance(sensitivity, rho)
            assert Fraction(sensitivity**2, 2 * variance) <= rho
            assert variance == 1 or Fraction(sensitivity**2, 2 * (variance - 1)) > rho


def test_what_is_no_budget_is_refused():
    for epsilon, delta in ((0, 1e-6), (-1, 1e-6), (float("nan"), 1e-6), (1, 0), (1, 1), (1e9, 1e-6)):
        with pytest.raises(InvalidInputError):
            rho_of(epsilon, delta)
    with pytest.raises(InvalidInputError):
        noise_variance(1, Fraction(0))


@pytest.mark.long
def test_another_library_converts_alike():
    dp = pytest.importorskip("opendp.prelude", reason="pip install --group referee (265 MB)")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    for rho in (0.01, 0.05, 0.2, 1.0):
        noisy = dp.c.make_zCDP_to_approxDP(space >> dp.m.then_gaussian(scale=1000 / np.sqrt(2 * rho)))
        assert abs(noisy.map(d_in=1000.0).epsilon(delta=1e-6) / epsilon_of(rho, 1e-6) - 1) < 1e-5
