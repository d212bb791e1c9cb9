"""The discrete Gaussian sampler against exact probabilities, and against another library's."""

from __future__ import annotations

import inspect
import secrets
from collections import Counter
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp

from consilience.errors import InvalidInputError
from consilience.numerics.discrete_gaussian import discrete_gaussian, discrete_laplace, happens


def test_small_variances_have_the_exact_probabilities():
    for seed, variance in enumerate([Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(25)]):
        draws = discrete_gaussian(variance, 20_000, Random(seed).randrange)
        compare(draws, lambda x, v=float(variance): np.exp(-(x**2) / (2 * v)))


def test_the_laplace_distribution_has_the_exact_probabilities():
    for t in (1, 2, 7):
        source = Random(t).randrange
        compare([discrete_laplace(t, source) for _ in range(20_000)], lambda x, t=t: np.exp(-np.abs(x) / t))


def compare(draws, density):
    """Compare counts with probabilities by a chi-square test over the integers expected at least five times."""
    support = np.arange(-500, 501)
    probability = density(support) / density(support).sum()
    common = len(draws) * probability >= 5
    counts = Counter(draws)
    observed = np.array([counts[int(x)] for x in support[common]])
    expected = len(draws) * probability[common]
    rest = len(draws) - expected.sum()
    if rest >= 5:
        observed, expected = np.append(observed, len(draws) - observed.sum()), np.append(expected, rest)
    else:
        expected = expected * observed.sum() / expected.sum()
    assert chisquare(observed, expected).pvalue > 1e-4


def test_events_have_the_probability_of_an_exponential():
    for num, den in ((0, 1), (1, 3), (1, 1), (5, 2), (10**30, 7 * 10**29)):
        source = Random(num).randrange
        share = np.mean([happens(num, den, source) for _ in range(20_000)])
        p = np.exp(-num / den)
        assert abs(share - p) <= 4.5 * np.sqrt(p * (1 - p) / 20_000), (num, den)


def test_large_variances_are_those_asked_for():
    for seed, deviation in enumerate([10, 10**3, 10**6, 10**12]):
        draws = np.array(discrete_gaussian(deviation**2, 4000, Random(seed).randrange), dtype=float) / deviation
        assert abs(np.mean(draws**2) - 1) < 4.5 * np.sqrt(2 / 4000)
        assert abs(draws.mean()) < 4.5 / np.sqrt(4000)


def test_noise_comes_from_the_operating_system():
    for function in (discrete_gaussian, discrete_laplace, happens):
        assert inspect.signature(function).parameters["randbelow"].default is secrets.randbelow
    assert discrete_gaussian(10**30, 3) != discrete_gaussian(10**30, 3)


def test_draws_are_whole_numbers_of_any_size():
    draws = discrete_gaussian(10**60, 20, Random(1).randrange)
    assert all(type(x) is int for x in draws)
    assert 10**29 < max(map(abs, draws)) < 10**31


def test_a_variance_that_is_not_positive_is_refused():
    for variance in (0, -1, Fraction(-1, 3)):
        with pytest.raises(InvalidInputError, match="variance"):
            discrete_gaussian(variance, 1)


@pytest.mark.long
def test_another_library_draws_from_the_same_distribution():
    dp = pytest.importorskip("opendp.prelude", reason="pip install --group referee (265 MB)")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    for seed, scale in enumerate([1.0, 4.0, 1000.0]):
        theirs = (space >> dp.m.then_gaussian(scale=scale))([0] * 20_000)
        ours = discrete_gaussian(int(scale) ** 2, 20_000, Random(seed).randrange)
        assert ks_2samp(ours, theirs).pvalue > 1e-4
