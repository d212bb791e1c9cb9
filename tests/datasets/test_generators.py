"""The generators: what the text promises about them, and what a user may ask of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from consilience.datasets import generators, paper, soft
from consilience.errors import InvalidInputError
from consilience.model import Rows

GENERATORS = [paper, soft]
both = pytest.mark.parametrize("generate", GENERATORS, ids=lambda generate: generate.__name__)


def entropy(simulation):
    pi = simulation.truth.gate_weights(simulation.X)
    return -np.sum(pi * np.log(np.maximum(pi, 1e-300)), axis=1).mean()


@both
def test_shapes_and_coordinates(generate):
    simulation = generate(1_001, n_experts=3, n_features=5, random_state=0)
    assert simulation.X.shape == (1_001, 5)
    assert simulation.y.shape == simulation.labels.shape == (1_001,)
    assert simulation.X.dtype == simulation.y.dtype == np.float64
    assert set(np.unique(simulation.labels)) == {0, 1, 2}
    truth = simulation.truth
    assert truth.design.is_raw
    assert truth.gate.alpha.shape == (3, 6)
    assert truth.experts.B.shape == (3, 1, 6)
    assert np.all(truth.experts.covariance == np.ones((3, 1, 1)))
    np.testing.assert_allclose(truth.gate.alpha.sum(axis=0), 0, atol=1e-12)


def test_paper_coefficients_are_integers_up_to_the_centring():
    truth = paper(10, random_state=3).truth
    assert np.array_equal(truth.experts.B, np.round(truth.experts.B))
    assert np.abs(truth.experts.B).max() == 5
    contrasts = truth.gate.alpha - truth.gate.alpha[0]
    np.testing.assert_allclose(contrasts, np.round(contrasts), atol=1e-12)


def test_paper_and_soft_differ_by_the_gate_only():
    sharp, gentle = (generate(10, n_experts=1, random_state=0).truth for generate in GENERATORS)
    assert np.all(sharp.experts.B == gentle.experts.B)


def test_soft_logits_are_zero_on_average():
    simulation = soft(200_000, random_state=4)
    mean = np.append(1.0, simulation.X.mean(axis=0))
    np.testing.assert_allclose(simulation.truth.gate.alpha @ mean, 0, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("generate", "low", "high"), [(paper, 0.04, 0.06), (soft, 0.8, 0.9)])
def test_mean_gate_entropy(generate, low, high):
    values = [entropy(generate(1_000, random_state=seed)) for seed in range(200)]
    assert low < np.mean(values) < high


def test_paper_gate_is_nearly_hard():
    undecided = []
    for seed in range(40):
        simulation = paper(2_000, random_state=seed)
        undecided.append(np.mean(simulation.truth.gate_weights(simulation.X).max(axis=1) < 0.99))
    assert 0.10 < np.mean(undecided) < 0.15


@both
@pytest.mark.parametrize("seed", range(5))
def test_no_expert_is_smaller_than_five_percent(generate, seed):
    labels = generate(20_000, random_state=seed).labels
    assert np.bincount(labels, minlength=4).min() > 0.04 * 20_000  # 5 % in expectation


def test_covariates_lie_around_the_centres_with_the_stated_covariance(monkeypatch):
    monkeypatch.setattr(generators, "LARGEST", 0)  # all centres at the origin
    X = paper(100_000, n_experts=2, n_features=4, random_state=0).X
    index = np.arange(4)
    np.testing.assert_allclose(np.cov(X.T), 0.25 ** np.abs(index[:, None] - index), atol=0.02)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=0.02)


@pytest.mark.parametrize("n", [1, 3, 7, 16_385])
def test_centres_get_equal_counts_and_rows_are_shuffled(monkeypatch, n):
    shuffled = []

    class Spy(np.random.Generator):
        def shuffle(self, x, axis=0):
            shuffled.append(x.copy())
            super().shuffle(x, axis)

    rng = Spy(np.random.PCG64(0))
    monkeypatch.setattr(np.random, "default_rng", lambda state: rng)
    assert len(soft(n, n_features=2, random_state=0).y) == n
    counts = np.bincount(shuffled[0], minlength=4)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == n


@both
def test_labels_follow_the_gate_and_responses_the_experts(generate):
    simulation = generate(50_000, random_state=2)
    truth, n = simulation.truth, len(simulation.y)
    pi = truth.gate_weights(simulation.X)
    observed = np.eye(4)[simulation.labels]
    spread = np.sqrt(np.sum(pi * (1 - pi), axis=0))
    assert np.all(np.abs((observed - pi).sum(axis=0)) < 5 * spread)
    design = np.column_stack([np.ones(n), simulation.X])
    residuals = simulation.y - np.sum(design * truth.experts.B[simulation.labels, 0], axis=1)
    assert abs(residuals.mean()) < 5 / np.sqrt(n)
    assert abs(residuals.std() - 1) < 5 / np.sqrt(2 * n)
    assert np.all(np.abs(design.T @ residuals) < 5 * np.linalg.norm(design, axis=0))


@both
def test_the_truth_beats_other_parameters(generate):
    simulation = generate(2_000, random_state=5)
    rows = Rows(simulation.X, simulation.y[:, None])
    other = generate(1, random_state=6).truth
    assert simulation.truth.log_density(rows).sum() > other.log_density(rows).sum()


@both
def test_same_seed_same_data(generate):
    first, second = (generate(300, random_state=7) for _ in range(2))
    for name in ("X", "y", "labels"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@both
def test_truth_state_fixes_the_truth_and_random_state_the_rows(generate):
    a = generate(300, random_state=1, truth_state=9)
    b = generate(300, random_state=2, truth_state=9)
    c = generate(300, random_state=9)
    for other in (b, c):
        np.testing.assert_array_equal(a.truth.gate.alpha, other.truth.gate.alpha)
        np.testing.assert_array_equal(a.truth.experts.B, other.truth.experts.B)
        assert not np.any(a.y == other.y)
    d = generate(300, random_state=1, truth_state=8)
    assert not np.array_equal(a.truth.experts.B, d.truth.experts.B)


def test_a_generator_is_used_up_and_none_is_fresh():
    rng = np.random.default_rng(0)
    first, second = soft(20, random_state=rng), soft(20, random_state=rng)
    again = soft(20, random_state=np.random.default_rng(0))
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.truth.experts.B, second.truth.experts.B)
    assert not np.array_equal(soft(20).y, soft(20).y)
    fixed = [soft(20, random_state=rng, truth_state=3) for _ in range(2)]
    assert np.array_equal(fixed[0].truth.experts.B, fixed[1].truth.experts.B)
    assert not np.array_equal(fixed[0].y, fixed[1].y)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 0},
        {"n": 2.5},
        {"n": True},
        {"n": 10, "n_experts": 0},
        {"n": 10, "n_features": -1},
        {"n": 10, "random_state": -1},
        {"n": 10, "random_state": 0, "truth_state": "seed"},
    ],
)
def test_bad_arguments_are_named(arguments):
    with pytest.raises(InvalidInputError, match=next(reversed(arguments))):
        soft(**arguments)


def test_too_many_experts_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(generators, "MAX_DRAWS", 3)
    with pytest.raises(InvalidInputError, match="take fewer experts"):
        paper(10, n_experts=40, random_state=0)


def test_memory_is_little_more_than_the_result():
    tracemalloc.start()
    try:
        simulation = soft(300_000, random_state=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    kept = simulation.X.nbytes + simulation.y.nbytes + simulation.labels.nbytes
    assert peak < kept + 20e6  # a few blocks
