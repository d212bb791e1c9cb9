"""The mixture as a value: its density is one, and neither names nor coordinates change it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from consilience.model import ConstantGate, Design, GaussianExperts, Groups, Mixture, Penalty, Rows, expect
from consilience.model.kernels import panels
from families import GAUSSIAN
from strategies import FAMILIES, GATES, Shape, random_design, shapes

gaussian = st.sampled_from(GAUSSIAN)


# ---------------------------------------------------------------------- normalisation


def grid(mixture, panel, q, points):
    """A grid over q responses that covers eight standard deviations around every expert, and its cell volume."""
    means, sd = mixture.experts.mean(panel)[:, :, 0], np.sqrt(mixture.experts.variances)
    axes = [
        np.linspace(*ends, points)
        for ends in zip((means - 8 * sd).min(axis=0), (means + 8 * sd).max(axis=0), strict=True)
    ]
    volume = np.prod([axis[1] - axis[0] for axis in axes])
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, q), volume


@given(shape=shapes(family=gaussian, q=st.integers(1, 2), labels="row", weights=None, n=1))
def test_gaussian_density_integrates_to_one(shape):
    mixture, rows = shape.problem()
    Y, volume = grid(mixture, mixture.design.panel(rows.X), shape.q, points={1: 400, 2: 120}[shape.q])
    density = np.exp(mixture.log_density(Rows(np.repeat(rows.X, len(Y), axis=0), Y)))
    assert density.sum() * volume == pytest.approx(1, abs=1e-8)  # the trapezoid rule is exact for smooth tails
    mean = (density @ Y) * volume
    np.testing.assert_allclose(mean, mixture.mean(rows.X)[0], rtol=1e-7, atol=1e-8)


@given(shape=shapes(family="categorical", labels="row", weights=None, n=3))
def test_categorical_density_sums_to_one_over_the_classes(shape):
    mixture, rows = shape.problem()
    density = np.exp([mixture.log_density(replace(rows, Y=np.full((3, 1), float(c)))) for c in range(shape.C)])
    np.testing.assert_allclose(density.sum(axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(density.T, mixture.mean(rows.X), rtol=1e-10)


@given(shape=shapes(family="poisson", labels="row", weights=None, n=1))
def test_poisson_density_sums_to_one_over_the_counts(shape):
    mixture, rows = shape.problem()
    rate = mixture.experts.mean(mixture.design.panel(rows.X)).max() * rows.exposure[0]
    counts = np.arange(np.ceil(stats.poisson(rate).isf(1e-14)) + 10)
    many = Rows(np.repeat(rows.X, len(counts), axis=0), counts[:, None], exposure=np.repeat(rows.exposure, len(counts)))
    density = np.exp(mixture.log_density(many))
    assert density.sum() == pytest.approx(1, abs=1e-9)
    assert density @ counts == pytest.approx(mixture.mean(rows.X)[0, 0] * rows.exposure[0], rel=1e-7)


@given(shape=shapes(family="categorical", labels="row", weights=None, n=3, C=st.integers(2, 3)))
def test_density_of_a_group_sums_to_one_over_all_its_responses(shape):
    mixture, rows = shape.problem()
    together = replace(rows, groups=Groups.of(np.zeros(3)))
    outcomes = [np.array(Y, dtype=float)[:, None] for Y in product(range(shape.C), repeat=3)]
    total = sum(np.exp(mixture.log_density(replace(together, Y=Y))[0]) for Y in outcomes)
    assert total == pytest.approx(1, rel=1e-12)


# ---------------------------------------------------------------------- names and coordinates


def assert_same_law(a, b, rows, rtol=1e-9):
    np.testing.assert_allclose(a.log_density(rows), b.log_density(rows), rtol=rtol, atol=1e-10)
    np.testing.assert_allclose(a.mean(rows.X), b.mean(rows.X), rtol=rtol, atol=1e-10)
    assert a.parameter_count == b.parameter_count


@given(shape=shapes())
def test_relabelling_experts_leaves_the_law_and_permutes_the_labels(shape):
    mixture, rows = shape.problem()
    order = np.random.default_rng(shape.seed).permutation(shape.K)
    other = mixture.permuted(order)
    assert_same_law(mixture, other, rows)
    np.testing.assert_allclose(other.gate_weights(rows.X), mixture.gate_weights(rows.X)[:, order], rtol=1e-10)
    np.testing.assert_allclose(
        other.responsibilities(rows), mixture.responsibilities(rows)[:, order], rtol=1e-9, atol=1e-12
    )
    back = other.permuted(np.argsort(order))
    assert np.array_equal(back.experts.B, mixture.experts.B)


@given(shape=shapes())
def test_relabelling_experts_leaves_the_penalised_likelihood(shape):
    mixture, rows = shape.problem()
    other = mixture.permuted(np.random.default_rng(shape.seed).permutation(shape.K))
    penalty = Penalty(gate_ridge=0.7, expert_ridge=0.3)
    a, b = (m.penalised(expect(m, rows), penalty) for m in (mixture, other))
    assert a == pytest.approx(b, rel=1e-11, abs=1e-11)


@given(shape=shapes())
def test_changing_coordinates_leaves_the_law(shape):
    mixture, rows = shape.problem()
    design = random_design(shape.d, shape.intercept, np.random.default_rng(shape.seed))
    for other in (mixture.in_coordinates(design), mixture.raw(), mixture.raw().in_coordinates(design)):
        assert_same_law(mixture, other, rows)
        np.testing.assert_allclose(other.gate_weights(rows.X), mixture.gate_weights(rows.X), rtol=1e-9)
    assert mixture.raw().design.is_raw
    back = mixture.in_coordinates(design).in_coordinates(mixture.design)
    np.testing.assert_allclose(back.experts.B, mixture.experts.B, rtol=1e-9, atol=1e-10)


@given(shape=shapes(d=2, intercept=True))
def test_moving_and_scaling_the_covariates_is_a_change_of_coordinates(shape):
    mixture, rows = shape.problem()
    D, c = np.array([3.0, 0.2]), np.array([-1.0, 5.0])
    moved = replace(rows, X=rows.X * D + c)
    design = Design(mixture.design.centre * D + c, mixture.design.scale * D)
    same = replace(mixture, design=design)  # the same coefficients on the same standardised covariates
    np.testing.assert_allclose(same.log_density(moved), mixture.log_density(rows), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------- use


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_rows_give_empty_answers_of_the_right_shape(family, gate):
    mixture, rows = Shape(family=family, gate=gate, K=3, q=2, C=4, n=1).problem()
    none, X, rng = rows.take(np.arange(0)), np.empty((0, 2)), np.random.default_rng(0)
    width = 4 if mixture.experts.classes else mixture.experts.q
    assert mixture.log_density(none).shape == (0,)
    assert mixture.responsibilities(none).shape == (0, 3)
    assert mixture.gate_weights(X).shape == (0, 3)
    assert mixture.mean(X).shape == (0, width)
    Y, labels = mixture.sample(X, rng)
    assert Y.shape == (0, mixture.experts.q)
    assert labels.shape == (0,)


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_do_not_depend_on_the_block_size(family, monkeypatch):
    mixture, rows = Shape(family=family, K=3, q=2, n=25).problem()
    whole = (
        mixture.log_density(rows),
        mixture.responsibilities(rows),
        mixture.gate_weights(rows.X),
        mixture.mean(rows.X),
    )
    monkeypatch.setattr(panels, "BLOCK_ROWS", 4)
    parts = (
        mixture.log_density(rows),
        mixture.responsibilities(rows),
        mixture.gate_weights(rows.X),
        mixture.mean(rows.X),
    )
    for ours, theirs in zip(whole, parts, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


@given(shape=shapes(max_n=3))
def test_parameters_are_counted(shape):
    mixture, _ = shape.problem()
    K, p, q, C = shape.K, mixture.design.p, shape.q, shape.C
    gate = (K - 1) * (p if shape.gate == "softmax" else 1)
    shapes_of = {"full": K * q * (q + 1) // 2, "tied": q * (q + 1) // 2, "diag": K * q, "spherical": K}
    experts = {"categorical": K * (C - 1) * p} | {
        f"gaussian-{structure}": K * q * p + count for structure, count in shapes_of.items()
    }
    of_one_predictor = K * p + mixture.experts.shapes * (1 if mixture.experts.ties_shapes else K)
    assert mixture.parameter_count == gate + experts.get(shape.family, of_one_predictor)


@pytest.mark.parametrize(
    ("family", "gate", "K", "expected"),
    [
        ("gaussian-full", "constant", 3, False),
        ("gaussian-full", "softmax", 1, False),
        ("gaussian-full", "softmax", 3, True),
        ("poisson", "constant", 3, True),
        ("categorical", "constant", 1, True),
    ],
)
def test_a_closed_form_needs_no_safeguard(family, gate, K, expected):
    assert Shape(family=family, gate=gate, K=K).problem()[0].newton_type is expected


# ---------------------------------------------------------------------- sampling


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_samples_follow_gate_and_experts(family, gate):
    n = 20_000
    mixture, _ = Shape(family=family, gate=gate, K=3, d=1, q=2, n=1).problem()
    X = np.random.default_rng(1).normal(size=(n, 1))
    Y, labels = mixture.sample(X, np.random.default_rng(0))
    assert Y.shape == (n, 2 if family in GAUSSIAN else 1)
    pi = mixture.gate_weights(X)
    excess = np.eye(3)[labels] - pi  # mean zero, also against any function of x
    for test in (np.ones(n), X[:, 0], X[:, 0] > 0):
        sigma = np.sqrt((test[:, None] ** 2 * pi * (1 - pi)).sum(axis=0))
        assert np.all(np.abs(test @ excess) < 5 * sigma)
    seen = np.eye(3)[Y[:, 0].astype(int)] if family == "categorical" else Y
    error = seen - mixture.mean(X)
    for test in (np.ones(n), X[:, 0]):
        sigma = np.sqrt((test[:, None] ** 2 * error**2).sum(axis=0))
        assert np.all(np.abs(test @ error) < 5 * sigma)


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_keep_the_labels_they_are_given(family):
    mixture, rows = Shape(family=family, K=2, q=2, n=30).problem()
    labels = np.arange(30) % 2
    Y, same = mixture.sample(rows.X, np.random.default_rng(0), labels)
    assert np.array_equal(same, labels)
    again, _ = mixture.sample(rows.X, np.random.default_rng(0), labels)
    assert np.array_equal(Y, again)


def test_exposure_reaches_the_samples_block_by_block(monkeypatch):
    monkeypatch.setattr(panels, "BLOCK_ROWS", 7)
    mixture, rows = Shape(family="poisson", K=2, n=40).problem()
    exposure = np.where(np.arange(40) % 2, 1e-9, 1e6)
    Y, _ = mixture.sample(rows.X, np.random.default_rng(0), exposure=exposure)
    assert np.array_equal(Y[:, 0] > 0, exposure > 1)


# ---------------------------------------------------------------------- quantiles


@pytest.mark.slow
@settings(max_examples=60)
@given(shape=shapes(family=gaussian, q=1), probability=st.floats(0.001, 0.999))
def test_a_gaussian_quantile_has_the_probability_below_it(shape, probability):
    mixture, rows = shape.problem()
    y = mixture.quantile(rows.X, probability)
    below = mixture.gate_weights(rows.X).T * mixture.experts.cdf(mixture.design.panel(rows.X), y)
    np.testing.assert_allclose(below.sum(axis=0), probability, rtol=0, atol=1e-9)


@settings(max_examples=60)
@given(shape=shapes(family="poisson"), probability=st.floats(0.001, 0.999))
def test_a_poisson_quantile_is_the_least_count_that_reaches_the_probability(shape, probability):
    mixture, rows = shape.problem()
    y, panel, pi = mixture.quantile(rows.X, probability), mixture.design.panel(rows.X), mixture.gate_weights(rows.X).T
    reached, before = ((pi * mixture.experts.cdf(panel, y - step)).sum(axis=0) for step in (0, 1))
    assert np.array_equal(y, np.round(y))
    assert np.all(y >= 0)
    assert np.all(reached >= probability - 1e-9)
    assert np.all(before < probability + 1e-9)


def test_classes_have_no_quantiles():
    mixture, rows = Shape(family="categorical").problem()
    with pytest.raises(TypeError, match="no order"):
        mixture.quantile(rows.X, 0.5)


@pytest.mark.parametrize("value", [1e160, 1e300, -1e300])
@pytest.mark.parametrize("d", [1, 2])
def test_a_response_too_far_for_floating_point_has_log_density_minus_infinity(value, d):
    experts = GaussianExperts(np.array([np.zeros((d, 1)), np.ones((d, 1))]), np.stack([np.eye(d), 2 * np.eye(d)]))
    mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.5, 0.5])), experts)
    rows = Rows(np.empty((2, 0)), np.array([np.full(d, value), np.zeros(d)]))
    far, near = mixture.log_density(rows)
    assert far == -np.inf
    assert np.isfinite(near)
    assert np.all(np.isfinite(mixture.responsibilities(rows)))


# ---------------------------------------------------------------------- averages


@given(shape=shapes())
def test_a_mixture_is_the_one_of_its_vector(shape):
    mixture, rows = shape.problem()
    vector = mixture.to_vector()
    other = replace(
        mixture,
        experts=mixture.experts.moved(
            np.ones(mixture.experts.free_coefficients().size), np.zeros(mixture.experts.shape_parameters)
        ),
    )
    again = other.with_vector(vector)
    np.testing.assert_allclose(again.to_vector(), vector, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(again.log_density(rows), mixture.log_density(rows), rtol=1e-6, atol=1e-6)
