"""Divergences against integrals, sums over rows against moments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, poisson

from consilience.aggregate import support_costs
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
