"""How much sites differ: the textbook's formulas, the law of Q where they do not, and what is found where they do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from combining import soft_models
from consilience.aggregate.combine.combiner import combine_models
from consilience.aggregate.combine.heterogeneity import Heterogeneity, heterogeneity
from consilience.model import Design
from consilience.numerics.arrays import Array


def textbook(b: Array, v: Array) -> tuple[float, float, float]:
    """Q, I² and DerSimonian and Laird's τ² of one coefficient, written out."""
    w = [1 / x for x in v]
    mean = sum(x * y for x, y in zip(w, b, strict=True)) / sum(w)
    Q = sum(x * (y - mean) ** 2 for x, y in zip(w, b, strict=True))
    df = len(b) - 1
    C = sum(w) - sum(x**2 for x in w) / sum(w)
    return Q, max(0.0, (Q - df) / Q) if Q > 0 else 0.0, max(0.0, (Q - df) / C)


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 5.0]))
def test_the_formulas_are_those_of_the_textbook(M: int, f: int, seed: int, between: float) -> None:
    rng = np.random.default_rng(seed)
    v = rng.uniform(0.2, 2.0, (M, f))
    b = between * rng.normal(size=(M, f)) + np.sqrt(v) * rng.normal(size=(M, f))
    found = heterogeneity(b, v)
    for j in range(f):
        Q, I2, tau2 = textbook(b[:, j], v[:, j])
        assert found.Q[0, j] == pytest.approx(Q)
        assert found.I2[0, j] == pytest.approx(I2, abs=1e-12)
        assert found.tau2[0, j] == pytest.approx(tau2, abs=1e-12)
        assert found.p_value[0, j] == pytest.approx(chi2.sf(Q, M - 1))
    assert np.all(found.df == M - 1)


def test_a_published_example() -> None:
    """Six trials of Borenstein et al., Introduction to Meta-Analysis (2009), chapter 14: Q = 12.00, τ² = 0.037."""
    effects = np.array([0.0945, 0.2774, 0.3665, 0.6644, 0.4618, 0.1852])[:, None]
    variances = np.array([0.0329, 0.0307, 0.0499, 0.0105, 0.0427, 0.0234])[:, None]
    found = heterogeneity(effects, variances)
    assert found.Q[0, 0] == pytest.approx(12.00, abs=0.02)
    assert found.I2[0, 0] == pytest.approx(0.5834, abs=0.002)
    assert found.tau2[0, 0] == pytest.approx(0.037, abs=0.001)
    assert found.p_value[0, 0] == pytest.approx(0.0347, abs=0.001)


@pytest.mark.parametrize("M", [2, 5, 20])
def test_where_sites_do_not_differ_q_is_chi_squared(M: int) -> None:
    rng = np.random.default_rng(M)
    v = rng.uniform(0.1, 3.0, (M, 4_000))
    found = heterogeneity(3.0 + np.sqrt(v) * rng.normal(size=v.shape), v)
    assert kstest(found.Q.ravel(), chi2(M - 1).cdf).pvalue > 1e-3
    assert kstest(found.p_value.ravel(), "uniform").pvalue > 1e-3


def test_the_variance_between_sites_is_found() -> None:
    rng = np.random.default_rng(0)
    v = rng.uniform(0.5, 1.5, (30, 2_000))
    found = heterogeneity(np.sqrt(0.8 + v) * rng.normal(size=v.shape), v)
    assert found.tau2.mean() == pytest.approx(0.8, rel=0.05)


@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_units_order_and_place_do_not_matter(M: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, v = rng.normal(size=(M, 3)), rng.uniform(0.5, 2.0, (M, 3))
    order = rng.permutation(M)
    here, there = heterogeneity(b, v), heterogeneity(7.0 - 4.0 * b[order], 16.0 * v[order])
    for name, scale in (("Q", 1.0), ("I2", 1.0), ("tau2", 16.0), ("df", 1.0)):
        np.testing.assert_allclose(getattr(there, name), scale * getattr(here, name), rtol=1e-9, atol=1e-12)


def test_equal_estimates_have_none() -> None:
    found = heterogeneity(np.ones((4, 2)), np.ones((4, 2)))
    assert np.all(found.Q == 0)
    assert np.all(found.I2 == 0)
    assert np.all(found.tau2 == 0)
    assert np.all(found.p_value == 1)


@pytest.mark.parametrize("M", [0, 1])
def test_of_fewer_than_two_sites_nothing_is_said(M: int) -> None:
    found = heterogeneity(np.ones((M, 3)), np.ones((M, 3)))
    assert found.Q.shape == (1, 3)
    for part in (found.Q, found.I2, found.tau2, found.p_value):
        assert np.isnan(part).all()
    assert np.all(found.df == 0)


def test_experts_stand_one_after_the_other() -> None:
    parts = [heterogeneity(np.array([[0.0], [x]]), np.ones((2, 1))) for x in (1.0, 2.0)]
    assert Heterogeneity.stacked(parts).Q.ravel().tolist() == [0.5, 2.0]


@pytest.mark.usefixtures("few_points")
def test_sites_of_one_truth_do_not_differ_and_a_moved_coefficient_is_found() -> None:
    models = soft_models(12, 600)
    found = combine_models(models, 3, design=Design.raw(4)).heterogeneity
    assert found.Q.shape == (3, 5)
    assert np.mean(found.Q / found.df) == pytest.approx(1.0, abs=0.35)
    assert found.p_value.min() > 1e-4
    moved = {}
    for i, (name, model) in enumerate(models.items()):
        experts = model.mixture.experts
        B = experts.B.copy()
        B[:, 0, 2] += 0.2 * (-1) ** i  # one slope is higher in every other site
        mixture = type(model.mixture)(model.mixture.design, model.mixture.gate, type(experts)(B, experts.covariance))
        moved[name] = type(model)(**{**vars(model), "mixture": mixture})
    other = combine_models(moved, 3, design=Design.raw(4)).heterogeneity
    assert np.all(other.p_value[:, 2] < 1e-6)
    assert np.all(other.I2[:, 2] > 0.5)
    for j in (1, 3, 4):  # the order of experts is any
        assert np.all(np.sort(other.Q[:, j]) <= np.sort(found.Q[:, j]) + 1e-9)  # variances include the moved slope
    np.testing.assert_allclose(other.tau2[:, 2], 0.04, rtol=0.5)


@pytest.mark.usefixtures("few_points")
def test_the_coefficients_of_each_site_are_kept_in_raw_coordinates() -> None:
    models = soft_models(4, 600, K=2, d=2)
    design = Design(np.array([3.0, -1.0]), np.array([0.5, 4.0]))
    combination = combine_models(models, 2, design=design)
    found = combination.coefficients
    assert sorted(found.sites) == sorted(models)
    for m, name in enumerate(found.sites):
        own = models[name].mixture.permuted(np.argsort(-models[name].label_counts)).experts.B[:, 0]
        for j, k in enumerate(combination.plan[name]):
            np.testing.assert_allclose(found.estimates[k, m], own[j], rtol=1e-8)
    for k in range(2):
        again = heterogeneity(found.estimates[k], found.variances[k])
        np.testing.assert_array_equal(again.Q[0], combination.heterogeneity.Q[k])
    turned = combination.permuted(np.array([1, 0])).coefficients
    np.testing.assert_array_equal(turned.estimates, found.estimates[::-1])
    np.testing.assert_array_equal(turned.variances, found.variances[::-1])


@pytest.mark.usefixtures("few_points")
def test_an_expert_of_too_few_rows_has_no_coefficients() -> None:
    models = soft_models(3, 600, K=2, d=2) | {
        f"small {i}": m for i, m in enumerate(soft_models(1, 25, K=2, d=2).values())
    }
    found = combine_models(models, 2, design=Design.raw(2)).coefficients
    small = found.sites.index("small 0")
    assert np.isnan(found.estimates[:, small]).any()
    assert np.isfinite(np.delete(found.estimates, small, axis=1)).all()
