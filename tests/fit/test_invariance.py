"""What must not matter: repetition or weight, order of rows, names of experts, units of covariates, groups of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.fit import Fit, Inference, Specification, fit_mixture, infer
from consilience.fit.parameters import parameters
from consilience.model import Groups, Rows
from consilience.model.mixture import Mixture, alignment
from consilience.numerics.arrays import Array
from families import SIZED
from simulated import FAMILIES, Simulated, simulated
from strategies import unweighted

GATES = ("softmax", "constant")

CLASSES_LONG = [pytest.param(f, marks=pytest.mark.long) if f == "categorical" else f for f in FAMILIES]


def fitted(rows: Rows, specification: Specification, start: Mixture | None = None) -> tuple[Fit, Inference]:
    fit = fit_mixture(rows, specification, rng=np.random.default_rng(0), start=start)
    return fit, infer(fit, rows)


def all_errors(inference: Inference) -> Array:
    """Standard errors whether withheld or not: the rule for showing them is not the subject here."""
    return np.sqrt(np.diagonal(inference.covariance))


def assert_same(a: Inference, b: Inference, tolerance: float = 1e-6) -> None:
    """Equal estimates in units of standard errors, and equal standard errors; only shapes at a bound have none."""
    se, shapes = all_errors(a), a.estimates.log_shapes.size
    assert np.all(np.isfinite(se[: len(se) - shapes]))
    reach = np.nan_to_num(se) + np.abs(a.estimates.flat())
    assert np.all(np.abs(a.estimates.flat() - b.estimates.flat()) <= tolerance * reach)
    assert np.allclose(all_errors(b), se, rtol=tolerance, atol=1e-14, equal_nan=True)


def data_of(family: str, gate: str = "softmax", **options: object) -> Simulated:
    return simulated(family, gate=gate, group_size=4, exposure=family in SIZED, **options)


def ungrouped(data: Simulated) -> Rows:
    return replace(data.rows, groups=None)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("grouped", [False, True])
def test_weight_two_is_the_row_twice_and_weight_zero_is_the_row_gone(family: str, gate: str, grouped: bool) -> None:
    data = data_of(family, gate, weights=True)
    rows = data.rows if grouped else ungrouped(data)
    a = fitted(rows, data.specification, data.truth)[1]
    b = fitted(unweighted(rows), data.specification, data.truth)[1]
    assert_same(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("family", CLASSES_LONG)
def test_starts_too_see_weights_as_repetition_and_no_order(family: str) -> None:
    data = data_of(family, n=120, weights=True)
    rows = ungrouped(data)
    repeated = unweighted(rows)
    shuffled = repeated.take(np.random.default_rng(1).permutation(repeated.n))
    fits = [fitted(some, data.specification) for some in (rows, repeated, shuffled)]
    assert np.allclose(fits[0][0].starts.values, fits[1][0].starts.values, rtol=1e-9)
    assert fits[1][0].starts.values == pytest.approx(fits[2][0].starts.values, rel=1e-12)
    for fit, inference in fits[1:]:
        assert_same(fits[0][1], inference)
        assert fit.log_likelihood == pytest.approx(fits[0][0].log_likelihood, rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("grouped", [False, True])
def test_rows_may_be_permuted(family: str, grouped: bool) -> None:
    data = data_of(family)
    rows = data.rows if grouped else ungrouped(data)
    shuffled = rows.take(np.random.default_rng(1).permutation(rows.n))
    assert_same(fitted(rows, data.specification, data.truth)[1], fitted(shuffled, data.specification, data.truth)[1])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
def test_experts_of_the_start_may_be_relabelled(family: str, gate: str) -> None:
    data = data_of(family, gate)
    swapped = data.truth.permuted(np.array([1, 0]))
    (a, of_a), (b, of_b) = (fitted(data.rows, data.specification, start) for start in (data.truth, swapped))
    assert np.array_equal(a.permutation, b.permutation[::-1] if np.array_equal(a.permutation, [0, 1]) else [1, 0])
    assert_same(of_a, of_b)


def to_new_units(mixture: Mixture, D: Array, c: Array) -> Mixture:
    """The mixture of ``X D + c`` that is the given one of ``X``."""
    T = np.eye(mixture.design.p)
    offset = int(mixture.design.intercept)
    T[offset:, offset:] = np.diag(1 / D)
    if offset:
        T[0, 1:] = -c / D
    return replace(mixture, gate=mixture.gate.transformed(T), experts=mixture.experts.transformed(T))


def back_to_old_units(inference: Inference, D: Array, c: Array, *, intercept: bool) -> tuple[Array, Array]:
    """Estimates and standard errors on ``X``, from those on ``X D + c``."""
    p = len(D) + intercept
    T = np.eye(p)
    T[int(intercept) :, int(intercept) :] = np.diag(D)
    if intercept:
        T[0, 1:] = c
    estimates = inference.estimates
    gate_size = estimates.gate.size
    gate = np.kron(np.eye(len(estimates.gate)), T) if estimates.gate.shape[1] == p else np.eye(gate_size)
    experts = np.kron(np.eye(estimates.experts.size // p), T)
    A = np.eye(len(estimates.flat()))
    A[:gate_size, :gate_size] = gate
    A[gate_size : gate_size + len(experts), gate_size : gate_size + len(experts)] = experts
    known = np.isfinite(np.diagonal(inference.covariance))  # shapes at a bound have no standard error; A leaves them
    covariance = np.where(np.outer(known, known), inference.covariance, 0.0)
    return A @ estimates.flat(), np.where(known, np.sqrt(np.diagonal(A @ covariance @ A.T)), np.nan)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    ("D", "c", "intercept"),
    [
        ((1e3, -0.02), (5.0, -3e2), True),
        ((-7.0, 0.3), (0.0, 0.0), False),
    ],
)
def test_units_of_covariates_change_nothing_but_units(family: str, gate: str, D, c, intercept: bool) -> None:
    D, c = np.array(D), np.array(c)
    data = data_of(family, gate, intercept=intercept)
    moved = replace(data.rows, X=data.X * D + c)
    before = fitted(data.rows, data.specification, data.truth)[1]
    after = fitted(moved, data.specification, to_new_units(data.truth, D, c))[1]
    estimates, se = back_to_old_units(after, D, c, intercept=intercept)
    reach = np.nan_to_num(all_errors(before)) + np.abs(estimates)
    assert np.all(np.abs(estimates - before.estimates.flat()) <= 1e-6 * reach)
    assert np.allclose(se, all_errors(before), rtol=1e-6, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", CLASSES_LONG)
def test_own_starts_do_not_depend_on_positive_units(family: str) -> None:
    data = data_of(family, n=120)
    D, c = np.array([1e4, 1e-3]), np.array([-2e3, 7.0])
    rows, moved = ungrouped(data), replace(ungrouped(data), X=data.X * D + c)
    (a, before), (b, after) = (fitted(some, data.specification) for some in (rows, moved))
    assert np.allclose(a.starts.values, b.starts.values, rtol=1e-7)
    estimates, se = back_to_old_units(after, D, c, intercept=True)
    assert np.all(np.abs(estimates - before.estimates.flat()) <= 1e-6 * (all_errors(before) + np.abs(estimates)))
    assert np.allclose(se, all_errors(before), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
def test_one_row_per_group_is_row_labels(family: str, gate: str) -> None:
    data = data_of(family, gate)
    rows = ungrouped(data)
    alone = replace(rows, groups=Groups.of(np.random.default_rng(2).permutation(rows.n)))
    (a, by_row), (b, by_group) = (fitted(some, data.specification, data.truth) for some in (rows, alone))
    assert_same(by_row, by_group)
    assert a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-12)
    assert_same(infer(a, rows, kind="sandwich"), infer(b, alone, kind="sandwich"))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gate", GATES)
def test_groups_that_share_a_label_are_recovered(family: str, gate: str) -> None:
    data = simulated(family, gate=gate, n=600, group_size=12, exposure=family in SIZED)
    fit, inference = fitted(data.rows, data.specification)
    order = alignment(data.truth, fit.mixture)
    found = fit.mixture.responsibilities(data.rows).argmax(axis=1)[data.rows.groups.codes]
    assert np.mean(order[found] == data.labels) > 0.99
    distance = inference.estimates.experts - parameters(data.truth.permuted(order)).experts
    assert np.all(np.abs(distance) < 4.5 * inference.standard_errors().experts)


@pytest.mark.parametrize("family", FAMILIES)
def test_gate_and_class_coefficients_sum_to_zero(family: str) -> None:
    data = data_of(family)
    fit, _ = fitted(data.rows, data.specification, data.truth)
    assert np.allclose(fit.mixture.gate.alpha.sum(axis=0), 0, atol=1e-9)
    if family == "categorical":
        assert np.allclose(fit.mixture.experts.B.sum(axis=1), 0, atol=1e-9)
