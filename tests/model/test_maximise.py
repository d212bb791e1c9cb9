"""The M-step: it climbs, respects the floor, and leaves an expert without rows alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.model import Penalty, Rows, expect, multinomial
from families import GAUSSIAN
from strategies import FAMILIES, GATES, LABELS, Shape, label_count, shapes

ROUNDING = 1e-12  # of the terms of the likelihood
HALVINGS = 0.5 ** np.arange(40)  # far more than a fit tries: that the step goes uphill is what is tested


def with_floor(q, size=1e-3, expert_ridge=1e-2):
    return Penalty(gate_ridge=1e-2, expert_ridge=expert_ridge, floor=size * np.eye(q))


def room(statistics, rows):
    """Rounding of the likelihood: log densities near zero are still sums of terms of order one."""
    return ROUNDING * (statistics.absolute + rows.n)


def assert_climbs(mixture, rows, penalty, fractions, steps):
    """Each step, the first of ``fractions`` of it that climbs, does not lower the penalised likelihood."""
    statistics = expect(mixture, rows)
    for _ in range(steps):
        before = mixture.penalised(statistics, penalty)
        for fraction in fractions:
            new = mixture.maximise(statistics, penalty, fraction)
            answer = expect(new, rows)
            if new.penalised(answer, penalty) >= before - room(answer, rows):
                break
        else:
            pytest.fail(f"no step climbs from {before}; the last one ends at {new.penalised(answer, penalty)}")
        assert new.experts.admissible(penalty)
        mixture, statistics = new, answer


@pytest.mark.slow
@settings(max_examples=200)
@given(shape=shapes(max_n=25, family=st.sampled_from(GAUSSIAN), gate="constant"))
def test_an_exact_step_never_lowers_the_likelihood(shape):
    mixture, rows = shape.problem()
    assert_climbs(mixture, rows, with_floor(shape.q), fractions=[1.0], steps=5)


@pytest.mark.slow
@settings(max_examples=200)
@given(shape=shapes(max_n=25))
def test_some_fraction_of_a_newton_step_never_lowers_the_penalised_likelihood(shape):
    mixture, rows = shape.problem()
    assert_climbs(mixture, rows, with_floor(shape.q), HALVINGS, steps=4)


@pytest.mark.slow
@settings(max_examples=200)
@given(shape=shapes(max_n=25))
def test_some_fraction_of_a_step_with_the_bound_never_lowers_the_penalised_likelihood(shape):
    mixture, rows = shape.problem()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multinomial, "FULL_UP_TO", 0)
        assert_climbs(mixture, rows, with_floor(shape.q), HALVINGS, steps=4)


@given(shape=shapes(max_n=25))
def test_without_newton_blocks_the_rest_of_the_step_still_climbs(shape):
    mixture, rows = shape.problem()
    penalty = with_floor(shape.q)
    statistics = expect(mixture, rows)
    still = mixture.maximise(statistics, penalty, fraction=0.0)
    answer = expect(still, rows)
    assert still.penalised(answer, penalty) >= mixture.penalised(statistics, penalty) - room(answer, rows)
    if shape.gate == "softmax":
        assert np.array_equal(still.gate.alpha, mixture.gate.alpha)
    if mixture.experts.newton_type:
        np.testing.assert_allclose(still.experts.B, mixture.experts.B, atol=1e-12)


@given(shape=shapes(max_n=25, family=st.sampled_from(GAUSSIAN)))
def test_no_responsibility_weighted_likelihood_is_higher_than_after_the_step(shape):
    """Q, with responsibilities held fixed: random other coefficients and covariances are not better."""
    mixture, rows = shape.problem()
    penalty, rng = with_floor(shape.q, expert_ridge=0.0), np.random.default_rng(shape.seed)
    tau = mixture.responsibilities(rows).T
    best = mixture.maximise(expect(mixture, rows, given=tau), penalty)
    value = complete_likelihood(best, rows, tau)
    for size in (0.01, 0.1, 1.0):
        delta = size * rng.normal(size=best.experts.B.size)
        experts = best.experts.moved(delta, np.abs(size * rng.normal(size=best.experts.shape_parameters)))
        if experts.admissible(penalty):
            rival = complete_likelihood(replace(best, experts=experts), rows, tau)
            assert rival <= value + 1e-9 * (1 + abs(value))


def complete_likelihood(mixture, rows, tau):
    """``Σ_i w_i Σ_k τ_ik log f_k(y_i | x_i)``, the experts' part of Q."""
    log_density = np.hstack([at.at.log_density for _, at in mixture.posteriors(replace(rows, groups=None))])
    row_tau = tau if rows.groups is None else tau[:, rows.groups.codes]
    return float(np.sum(row_tau * log_density * (1.0 if rows.weight is None else rows.weight)))


# ---------------------------------------------------------------------- degenerate data


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("family", GAUSSIAN)
def test_the_floor_holds_where_the_residuals_vanish(family, q):
    mixture, rows = Shape(family=family, K=2, d=2, q=q, n=30).problem()
    coef = np.arange(3.0 * q).reshape(3, q)
    exact = Rows(rows.X, mixture.design.panel(rows.X).T @ coef)
    penalty = with_floor(q, 1e-4, expert_ridge=0.0)
    for _ in range(3):
        mixture = mixture.maximise(expect(mixture, exact), penalty)
        assert mixture.experts.admissible(penalty)
    np.testing.assert_allclose(mixture.experts.matrices, np.broadcast_to(1e-4 * np.eye(q), (2, q, q)), atol=1e-9)
    assert np.all(np.isfinite(mixture.log_density(exact)))


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_expert_without_rows_keeps_finite_parameters(family, gate, labels):
    mixture, rows = Shape(family=family, gate=gate, labels=labels, K=3, d=2, q=2, n=30).problem()
    to_the_first_two = np.eye(3)[np.arange(label_count(rows)) % 2].T
    penalty = with_floor(2)
    new = mixture.maximise(expect(mixture, rows, given=to_the_first_two), penalty)
    if family in GAUSSIAN:
        np.testing.assert_allclose(new.experts.B[2], mixture.experts.B[2])
    for _ in range(3):
        statistics = expect(new, rows, information=True)
        assert np.all(np.isfinite(statistics.to_array()))
        assert np.all(np.isfinite(new.log_density(rows)))
        new = new.maximise(statistics, penalty, fraction=0.5)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_rows_leave_a_finite_mixture(family, gate):
    mixture, rows = Shape(family=family, gate=gate, K=3, q=2).problem()
    new = mixture.maximise(expect(mixture, rows.take(np.arange(0))), with_floor(2))
    assert np.all(np.isfinite(new.log_density(rows)))
    if family in GAUSSIAN:
        assert np.array_equal(new.experts.B, mixture.experts.B)
        assert np.array_equal(new.experts.covariance, mixture.experts.covariance)


@given(shape=shapes(max_n=25))
def test_a_step_does_not_depend_on_the_names_of_the_experts(shape):
    mixture, rows = shape.problem()
    order = np.random.default_rng(shape.seed).permutation(shape.K)
    penalty = with_floor(shape.q)
    a = mixture.maximise(expect(mixture, rows), penalty, 0.1).permuted(order)
    b = mixture.permuted(order)
    b = b.maximise(expect(b, rows), penalty, 0.1)
    np.testing.assert_allclose(b.log_density(rows), a.log_density(rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_experts_without_a_ridge_by_default_can_lack_rank(family):
    mixture, rows = Shape(family=family, K=2, d=2, n=30).problem()
    constant = type(mixture)(type(mixture.design).raw(2), mixture.gate, mixture.experts)
    moments = expect(constant, replace(rows, X=np.ones((30, 2)))).experts
    assert mixture.experts.full_rank(moments) is (mixture.experts.default_ridge > 0)
    assert mixture.experts.admissible(Penalty())
