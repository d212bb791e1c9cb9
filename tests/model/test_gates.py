import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import ConstantGate, Penalty, SoftmaxGate
from consilience.model.statistics import Moments
from strategies import GATES, random_gate

random_gates = st.builds(
    lambda kind, K, p, seed: (random_gate(kind, K, p, np.random.default_rng(seed)), p),
    st.sampled_from(GATES),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)


@given(drawn=random_gates)
def test_probabilities_are_positive_sum_to_one_and_fit_their_logs(drawn):
    gate, p = drawn
    log_pi, pi = gate.evaluate(np.random.default_rng(0).normal(size=(p, 6)))
    assert np.all(pi > 0)
    np.testing.assert_allclose(pi.sum(axis=0), 1, rtol=1e-13)
    np.testing.assert_allclose(np.exp(log_pi), pi, rtol=1e-12)


@given(drawn=random_gates)
def test_log_odds_are_linear_in_the_covariates(drawn):
    gate, p = drawn
    panel = np.random.default_rng(0).normal(size=(p, 6))
    log_pi, _ = gate.evaluate(panel)
    reads = panel if gate.reads_covariates else np.ones((1, 1))
    np.testing.assert_allclose(log_pi[:-1] - log_pi[-1], gate.contrasts() @ reads, atol=1e-12)
    assert gate.contrasts().size == gate.parameter_count


@given(drawn=random_gates)
def test_a_move_is_added_to_the_contrasts(drawn):
    gate, _ = drawn
    delta = np.random.default_rng(0).normal(size=gate.parameter_count)
    new = gate.moved(delta)
    np.testing.assert_allclose(new.contrasts(), gate.contrasts() + delta.reshape(gate.contrasts().shape), atol=1e-12)


@given(drawn=random_gates)
def test_a_constant_gate_or_one_expert_has_no_ridge(drawn):
    gate, _ = drawn
    ridge = gate.penalty(Penalty(gate_ridge=2.0), intercept=False)
    if gate.K == 1 or not gate.reads_covariates:
        assert ridge == 0
    else:
        assert ridge == pytest.approx(np.sum(gate.alpha**2))


def test_constant_gate_is_the_share_of_each_expert():
    gate = ConstantGate(np.array([0.5, 0.5]))
    moments = Moments(np.array([0.3, 0.1]), np.empty((0, 2)), np.empty((0, 3)))
    new = gate.step(moments, Penalty(), intercept=True, fraction=0.1)  # closed form: the fraction does not matter
    np.testing.assert_allclose(new.probabilities, [0.75, 0.25])


def test_constant_gate_without_rows_stays():
    gate = ConstantGate(np.array([0.4, 0.6]))
    nothing = gate.layout(2).zeros()
    assert gate.step(nothing, Penalty(), intercept=True, fraction=1.0) is gate


def test_a_probability_of_zero_has_a_finite_log():
    log_pi, pi = ConstantGate(np.array([1.0, 0.0])).evaluate(np.empty((1, 3)))
    assert np.array_equal(pi.ravel(), [1.0, 0.0])
    assert np.all(np.isfinite(log_pi))
    assert log_pi[1, 0] < -600


def test_a_constant_gate_is_a_softmax_gate_without_slopes():
    constant = ConstantGate(np.array([0.2, 0.3, 0.5]))
    alpha = np.zeros((3, 3))
    alpha[:, 0] = np.log(constant.probabilities)
    panel = np.vstack([np.ones(4), np.random.default_rng(0).normal(size=(2, 4))])
    _, pi = SoftmaxGate(alpha).evaluate(panel)
    np.testing.assert_allclose(pi, np.broadcast_to(constant.probabilities[:, None], (3, 4)))
    assert constant.transformed(np.eye(3)) is constant


@pytest.mark.parametrize("seed", range(20))
def test_the_spread_of_a_certain_gate_is_not_rounded_below_zero(seed):
    gate, panel = SoftmaxGate(np.array([[900.0, 0.0], [0.0, 0.0]])), np.ones((2, 500))
    mass = np.random.default_rng(seed).uniform(0, 3, 500)
    _, pi = gate.evaluate(panel)
    weights = gate.weights(pi, pi * mass, mass, 2)
    assert np.all(weights.plain >= 0)
    assert weights.plain[2:] == pytest.approx(0.0, abs=1e-9)
