"""Score and observed information against finite differences of the log-likelihood, and under changes of parameters.

A covariance moves as ``L exp(E) Lᵀ``, a chart at the current value: second derivatives must be second differences of
the likelihood along ``move_parameters(mixture, delta)``, not differences of the score, whose chart moves with the
mixture.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from consilience.model import Penalty, expect, multinomial
from consilience.model.expectation import score_products
from consilience.model.information import free_parameters, is_informable, move_parameters, ridge, score
from strategies import FAMILIES, GATES, LABELS, Shape, information_scale, label_count, random_design, shapes

STEP = 0.002
FIRST = np.array([-1, 9, -45, 0, 45, -9, 1]) / (60 * STEP)  # sixth-order stencils at -3 … 3 steps
SECOND = np.array([2, -27, 270, -490, 270, -27, 2]) / (180 * STEP**2)
TOLERANCE = 1e-6  # of the largest entry

families, gates, labelled = (
    pytest.mark.parametrize("family", FAMILIES),
    pytest.mark.parametrize("gate", GATES),
    pytest.mark.parametrize("labels", LABELS),
)
PENALTY = Penalty(gate_ridge=0.7, expert_ridge=1.3)
NO_PENALTY = Penalty(gate_ridge=0.0, expert_ridge=0.0)


def along(mixture, direction, value):
    """First and second derivative of ``value(mixture)`` at 0 along ``direction``."""
    values = np.array([value(move_parameters(mixture, t * STEP * direction)) for t in range(-3, 4)])
    return FIRST @ values, SECOND @ values


def penalised_likelihood(rows, penalty):
    """The penalised log-likelihood as a function of the mixture, without statistics."""

    def value(mixture):
        part = {"penalty": penalty, "intercept": mixture.design.intercept}
        ridges = mixture.gate.penalty(**part) + mixture.experts.penalty(**part)
        return mass_of(rows) @ mixture.log_density(rows) - ridges

    return value


def mass_of(rows):
    """Weight of each label; a group's weights are inside its density."""
    if rows.groups is not None:
        return np.ones(label_count(rows))
    return np.ones(rows.n) if rows.weight is None else rows.weight


def gradient_and_hessian(mixture, value):
    """By differences along every axis and every sum of two axes."""
    axes = np.eye(mixture.parameter_count)
    gradient, diagonal = np.array([along(mixture, e, value) for e in axes]).T
    hessian = np.diag(diagonal)
    for i, j in zip(*np.triu_indices(len(axes), 1), strict=True):
        _, both = along(mixture, axes[i] + axes[j], value)
        hessian[i, j] = hessian[j, i] = (both - diagonal[i] - diagonal[j]) / 2
    return gradient, hessian


def exact(mixture, rows, penalty):
    """Gradient and negative Hessian of the penalised log-likelihood, from one pass."""
    statistics, R = expect(mixture, rows, information=True), ridge(mixture, penalty)
    return score(mixture, statistics) - R @ free_parameters(mixture), statistics.information + R


# ---------------------------------------------------------------------- finite differences


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["row", pytest.param("group", marks=pytest.mark.slow)])
@gates
@families
def test_every_entry_of_score_and_information_matches_differences(family, gate, labels):
    mixture, rows = Shape(family=family, gate=gate, labels=labels, weights="positive", d=1, q=2, n=9).problem()
    g, J = exact(mixture, rows, PENALTY)
    gradient, hessian = gradient_and_hessian(mixture, penalised_likelihood(rows, PENALTY))
    np.testing.assert_allclose(gradient, g, rtol=0, atol=TOLERANCE * np.abs(g).max())
    np.testing.assert_allclose(-hessian, J, rtol=0, atol=TOLERANCE * np.abs(J).max())


@pytest.mark.slow
@settings(max_examples=100)
@given(shape=shapes(n=st.integers(4, 14)), penalty=st.sampled_from([PENALTY, NO_PENALTY]))
def test_score_and_information_match_differences_in_random_directions(shape, penalty):
    mixture, rows = shape.problem()
    assume(rows.weight is None or rows.weight.any())
    g, J = exact(mixture, rows, penalty)
    rng = np.random.default_rng(shape.seed)
    for _ in range(3):
        u = rng.normal(size=len(g))
        u /= np.linalg.norm(u)
        first, second = along(mixture, u, penalised_likelihood(rows, penalty))
        assert abs(first - g @ u) <= TOLERANCE * np.abs(g).max()
        assert abs(second + u @ J @ u) <= TOLERANCE * np.abs(J).max()


@pytest.mark.slow
@labelled
@gates
@families
def test_score_products_match_differences_of_each_label(family, gate, labels):
    mixture, rows = Shape(family=family, gate=gate, labels=labels, weights="counts", K=3, q=2, n=12).problem()
    S = np.array([along(mixture, e, lambda m: m.log_density(rows))[0] for e in np.eye(mixture.parameter_count)])
    meat = (S * mass_of(rows)) @ S.T
    np.testing.assert_allclose(
        score_products(mixture, rows).products, meat, rtol=0, atol=TOLERANCE * np.abs(meat).max()
    )


@pytest.mark.parametrize(
    ("family", "gate", "expected"),
    [
        ("gaussian-full", "constant", True),
        ("gaussian-full", "softmax", False),
        ("poisson", "constant", True),
        ("categorical", "constant", False),
    ],
)
def test_a_bound_in_place_of_the_hessian_gives_no_information(family, gate, expected, monkeypatch):
    mixture, rows = Shape(family=family, gate=gate, K=3).problem()
    assert is_informable(mixture)
    monkeypatch.setattr(multinomial, "FULL_UP_TO", 0)
    assert is_informable(mixture) is expected
    if not expected:
        with pytest.raises(ValueError, match="no information"):
            expect(mixture, rows, information=True)


def test_too_many_parameters_give_no_information():
    assert not is_informable(Shape(gate="constant", K=4, d=800).problem()[0])


# ---------------------------------------------------------------------- the free parameters


@given(shape=shapes())
def test_a_move_of_zero_changes_nothing(shape):
    mixture, rows = shape.problem()
    same = move_parameters(mixture, np.zeros(mixture.parameter_count))
    np.testing.assert_allclose(same.log_density(rows), mixture.log_density(rows), rtol=1e-12, atol=1e-12)


@given(shape=shapes())
def test_coefficients_move_by_what_is_added(shape):
    mixture, _ = shape.problem()
    delta = np.random.default_rng(shape.seed).normal(size=mixture.parameter_count)
    coefficients = len(delta) - mixture.experts.shape_parameters
    step = free_parameters(move_parameters(mixture, delta)) - free_parameters(mixture)
    np.testing.assert_allclose(step[:coefficients], delta[:coefficients], rtol=0, atol=1e-12)
    assert np.all(free_parameters(mixture)[coefficients:] == 0)


@given(shape=shapes(family=st.sampled_from(["gaussian-full", "gaussian-diag", "gaussian-spherical", "gaussian-tied"])))
def test_any_move_keeps_covariances_positive_definite_and_of_their_structure(shape):
    mixture, _ = shape.problem()
    delta = 3 * np.random.default_rng(shape.seed).normal(size=mixture.parameter_count)
    experts = move_parameters(mixture, delta).experts
    assert experts.structure == mixture.experts.structure
    assert experts.covariance.shape == mixture.experts.covariance.shape
    assert np.linalg.eigvalsh(experts.matrices).min() > 0


@given(shape=shapes())
def test_ridge_is_the_second_derivative_of_the_penalty(shape):
    mixture, rows = shape.problem()
    nothing = rows.take(np.arange(0))
    theta, R = free_parameters(mixture), ridge(mixture, PENALTY)
    assert mixture.penalised(expect(mixture, nothing), PENALTY) == pytest.approx(-0.5 * theta @ R @ theta, abs=1e-12)
    assert np.array_equal(R, R.T)


# ---------------------------------------------------------------------- changes of parameters


def jacobian(mixture, change, shapes_change):
    """Derivative of the free parameters of ``change(mixture)``: linear in the coefficients, given for the shapes."""
    P, S = mixture.parameter_count, mixture.experts.shape_parameters
    A = np.zeros((P, P))
    origin = free_parameters(change(mixture))
    for j, e in enumerate(np.eye(P)[: P - S]):
        A[:, j] = free_parameters(change(move_parameters(mixture, e))) - origin
    A[P - S :, P - S :] = shapes_change
    return A


def assert_transform(mixture, rows, change, A):
    old, new = expect(mixture, rows, information=True), expect(change(mixture), rows, information=True)
    g, h = score(mixture, old), A.T @ score(change(mixture), new)
    scale = information_scale(mixture, rows).max(initial=1.0)
    np.testing.assert_allclose(h, g, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(A.T @ new.information @ A, old.information, rtol=0, atol=1e-10 * scale)


@pytest.mark.slow
@given(shape=shapes())
def test_relabelling_experts_transforms_score_and_information(shape):
    mixture, rows = shape.problem()
    order = np.random.default_rng(shape.seed).permutation(mixture.K)
    names = np.eye(1) if mixture.experts.ties_shapes else np.eye(mixture.K)[order]
    A = jacobian(mixture, lambda m: m.permuted(order), np.kron(names, np.eye(mixture.experts.shapes)))
    assert_transform(mixture, rows, lambda m: m.permuted(order), A)


@pytest.mark.slow
@given(shape=shapes())
def test_changing_coordinates_transforms_score_and_information(shape):
    mixture, rows = shape.problem()
    design = random_design(shape.d, shape.intercept, np.random.default_rng(shape.seed))
    A = jacobian(mixture, lambda m: m.in_coordinates(design), np.eye(mixture.experts.shape_parameters))
    assert_transform(mixture, rows, lambda m: m.in_coordinates(design), A)
