"""Responsibilities: Bayes' rule for rows and for groups, also where densities underflow."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, SoftmaxGate, expect
from families import GAUSSIAN
from strategies import FAMILIES, GATES, LABELS, Shape, label_count, one_label_each, shapes


@given(shape=shapes())
def test_responsibilities_are_probabilities(shape):
    mixture, rows = shape.problem()
    tau = mixture.responsibilities(rows)
    assert tau.shape == (label_count(rows), shape.K)
    assert tau.min() >= 0
    np.testing.assert_allclose(tau.sum(axis=1), 1, rtol=1e-13)


@given(shape=shapes(labels="row", weights=None))
def test_the_posterior_of_a_row_is_bayes_rule(shape):
    mixture, rows = shape.problem()
    density = np.exp(np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])).T  # (n, K)
    joint = mixture.gate_weights(rows.X) * density
    assume(joint.sum(axis=1).min(initial=1.0) > 1e-290)  # below, numbers lose digits
    np.testing.assert_allclose(np.exp(mixture.log_density(rows)), joint.sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(
        mixture.responsibilities(rows), joint / joint.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-300
    )


@given(shape=shapes(labels="group"))
def test_the_posterior_of_a_group_is_bayes_rule_for_the_product_of_its_rows(shape):
    mixture, rows = shape.problem()
    for g, group in enumerate(one_label_each(rows)):
        weight = np.ones(group.n) if group.weight is None else group.weight
        if not weight.any():
            assert mixture.log_density(rows)[g] == 0
            continue
        singles = replace(group, groups=None, weight=None)
        log_density = np.hstack([at.at.log_density for _, at in mixture.posteriors(singles)])  # (K, rows)
        centre = np.average(group.X, axis=0, weights=weight)[None]
        joint = mixture.gate_weights(centre)[0] * np.exp(log_density @ weight)
        np.testing.assert_allclose(mixture.log_density(rows)[g], np.log(joint.sum()), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(mixture.responsibilities(rows)[g], joint / joint.sum(), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", GAUSSIAN)
def test_far_outliers_have_finite_densities_and_responsibilities(family, gate, labels):
    mixture, rows = Shape(family=family, gate=gate, labels=labels, K=4, q=2, n=9).problem()
    Y = rows.Y.copy()
    Y[:3], Y[3, 0] = 1e8, -1e8
    assert_finite(mixture, replace(rows, Y=Y))


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_far_covariates_have_finite_densities_and_responsibilities(family, gate, labels):
    mixture, rows = Shape(family=family, gate=gate, labels=labels, K=4, q=2, n=9).problem()
    X = rows.X.copy()
    X[:3], X[3, 0] = 1e8, -1e8
    assert_finite(mixture, replace(rows, X=X))


@pytest.mark.parametrize("count", [0.0, 1e6, 1e15])
def test_extreme_counts_have_finite_densities_and_responsibilities(count):
    mixture, rows = Shape(family="poisson", K=3, n=5).problem()
    assert_finite(mixture, replace(rows, Y=np.full((5, 1), count)))


def assert_finite(mixture, rows):
    assert np.all(np.isfinite(mixture.log_density(rows)))
    tau = mixture.responsibilities(rows)
    assert tau.min() >= 0
    np.testing.assert_allclose(tau.sum(axis=1), 1, rtol=1e-13)
    assert np.all(np.isfinite(expect(mixture, rows, information=True).to_array()))


@given(log_ratio=st.floats(-1e6, 1e6))
def test_a_sharp_gate_decides_alone(log_ratio):
    """Two experts alike: responsibilities are the gate's, however sharp."""
    gate = SoftmaxGate(np.array([[log_ratio / 2], [-log_ratio / 2]]))
    mixture = Mixture(Design.raw(0), gate, GaussianExperts(np.zeros((2, 1, 1)), np.ones((2, 1, 1))))
    tau = mixture.responsibilities(Rows(np.empty((1, 0)), np.array([[30.0]])))[0]
    np.testing.assert_allclose(tau, mixture.gate_weights(np.empty((1, 0)))[0], rtol=1e-9, atol=1e-15)


def test_an_expert_of_probability_zero_has_no_rows():
    experts = GaussianExperts(np.array([[[0.0]], [[5.0]]]), np.ones((2, 1, 1)))
    mixture = Mixture(Design.raw(0), ConstantGate(np.array([1.0, 0.0])), experts)
    tau = mixture.responsibilities(Rows(np.empty((2, 0)), np.array([[0.0], [5.0]])))
    np.testing.assert_allclose(tau, [[1, 0], [1, 0]], atol=1e-100)
