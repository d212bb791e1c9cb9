"""Gates and experts with too many coefficients for a full Hessian: the block-diagonal bound carries them."""

import numpy as np
import pytest

from consilience.model import (
    CategoricalExperts,
    ConstantGate,
    Design,
    GaussianExperts,
    Mixture,
    Penalty,
    Rows,
    SoftmaxGate,
    expect,
    layout_of,
    multinomial,
)


@pytest.mark.slow
def test_fifty_experts_with_five_hundred_features_take_a_step():
    K, d, n = 50, 500, 550
    rng = np.random.default_rng(0)
    X, alpha = rng.normal(size=(n, d)), 0.02 * rng.normal(size=(K, d + 1))
    rows = Rows(X, X[:, :1] + rng.normal(size=(n, 1)))
    experts = GaussianExperts(0.02 * rng.normal(size=(K, 1, d + 1)), np.full((K, 1, 1), 2.0))
    mixture = Mixture(Design.raw(d), SoftmaxGate(alpha - alpha.mean(axis=0)), experts)
    assert not multinomial.is_full(K, d + 1)
    statistics = expect(mixture, rows)
    assert statistics.to_array().shape == (layout_of(mixture).size(information=False),)
    assert statistics.log_likelihood == pytest.approx(mixture.log_density(rows).sum())
    new = mixture.maximise(statistics, Penalty(gate_ridge=1.0, floor=np.eye(1)))
    np.testing.assert_allclose(new.gate.alpha.sum(axis=0), 0, atol=1e-10)
    assert new.log_density(rows).sum() > statistics.log_likelihood


@pytest.mark.slow
def test_ten_classes_of_784_features_are_learnt():
    C, d, n = 10, 784, 300
    rng = np.random.default_rng(0)
    centres = 0.3 * rng.normal(size=(C, d))
    classes = rng.integers(0, C, n)
    rows = Rows(centres[classes] + rng.normal(size=(n, d)), classes[:, None].astype(float))
    B = 0.001 * rng.normal(size=(2, C, d + 1))
    experts = CategoricalExperts(B - B.mean(axis=1, keepdims=True))
    mixture = Mixture(Design.raw(d), ConstantGate(np.array([0.5, 0.5])), experts)
    assert not multinomial.is_full(C, d + 1)
    penalty, values = Penalty(expert_ridge=1.0), []
    for _ in range(4):
        statistics = expect(mixture, rows)
        values.append(mixture.penalised(statistics, penalty))
        mixture = mixture.maximise(statistics, penalty)
    assert np.all(np.diff(values) > 0)
    assert np.mean(mixture.mean(rows.X).argmax(axis=1) == classes) > 0.9
