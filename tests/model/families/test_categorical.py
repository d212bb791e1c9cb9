import numpy as np
import pytest
from hypothesis import given

from consilience.model import CategoricalExperts, ConstantGate, Design, Mixture, Rows, SoftmaxGate
from strategies import Shape, shapes


@given(shape=shapes(family="categorical", labels="row"))
def test_log_density_is_the_log_of_the_probability_of_the_observed_class(shape):
    mixture, rows = shape.problem()
    log_density = np.hstack([at.at.log_density for _, at in mixture.posteriors(rows)])
    probability = mixture.experts.mean(mixture.design.panel(rows.X))  # (K, C, n)
    observed = probability[:, rows.Y[:, 0].astype(int), np.arange(rows.n)]
    np.testing.assert_allclose(np.exp(log_density), observed, rtol=1e-10)


@given(shape=shapes(family="categorical"))
def test_probabilities_sum_to_one(shape):
    mixture, rows = shape.problem()
    np.testing.assert_allclose(mixture.experts.mean(mixture.design.panel(rows.X)).sum(axis=1), 1, rtol=1e-13)


def test_two_classes_are_logistic_regression():
    b, x = np.array([0.3, -1.2]), np.array([[1.0, 1.0], [0.5, -2.0]])
    experts = CategoricalExperts(np.array([[-b / 2, b / 2]]))
    np.testing.assert_allclose(experts.mean(x)[0, 1], 1 / (1 + np.exp(-b @ x)))


def test_huge_coefficients_do_not_overflow():
    B = 1e5 * np.array([[[1.0], [-1.0]], [[-1.0], [1.0]]])
    mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), CategoricalExperts(B))
    rows = Rows(np.empty((2, 0)), np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(mixture.log_density(rows), np.log(0.5))
    np.testing.assert_allclose(mixture.responsibilities(rows), np.eye(2), atol=1e-12)


def test_one_expert_is_a_gate_of_its_own():
    """Experts that each always say their own class turn a gate into a softmax regression."""
    gate_mixture, rows = Shape(family="categorical", K=3, C=3, d=2).problem()
    sure = np.where(np.eye(3), 60.0, 0.0)[:, :, None] * np.array([1.0, 0.0, 0.0])  # intercepts only
    gated = Mixture(gate_mixture.design, gate_mixture.gate, CategoricalExperts(sure - sure.mean(axis=1, keepdims=True)))
    single = Mixture(
        gate_mixture.design, SoftmaxGate(np.zeros((1, 3))), CategoricalExperts(gate_mixture.gate.alpha[None])
    )
    np.testing.assert_allclose(gated.mean(rows.X), single.mean(rows.X), atol=1e-12)
    np.testing.assert_allclose(gated.log_density(rows), single.log_density(rows), atol=1e-12)


def test_classes_have_no_order():
    experts = CategoricalExperts(np.zeros((1, 2, 1)))
    with pytest.raises(TypeError, match="no order"):
        experts.cdf(np.ones((1, 1)), np.zeros(1))
    with pytest.raises(TypeError, match="no order"):
        experts.quantile(np.ones((1, 1)), 0.5)


def test_frequencies_of_sampled_classes_are_their_probabilities():
    n, rng = 40_000, np.random.default_rng(0)
    probability = np.array([[0.1, 0.2, 0.7], [0.5, 0.5 - 1e-9, 1e-9]])
    experts = CategoricalExperts(np.log(probability)[:, :, None])
    labels = np.arange(n) % 2
    codes = experts.sample(np.ones((1, n)), labels, rng)[:, 0]
    for k in range(2):
        m = (labels == k).sum()
        counts = np.bincount(codes[labels == k].astype(int), minlength=3)
        room = 5 * np.sqrt(m * probability[k] * (1 - probability[k])) + 1
        assert np.all(np.abs(counts - m * probability[k]) < room)
