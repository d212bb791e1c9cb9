"""Metrics against what they are defined by: all permutations, the parameters people read, scikit-learn, the E-step."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from benchmarks.lib.metrics import (
    cluster_labels,
    deficit_ratio,
    mean_log_likelihood,
    parameter_errors,
    relative_prediction_error,
)
from consilience.errors import InvalidInputError
from consilience.fit.parameters import parameters
from consilience.model import Mixture, Rows, SoftmaxGate, expect
from simulated import FAMILIES, simulated
from strategies import FAMILIES as SHAPES
from strategies import Shape, shapes, unweighted

# ---------------------------------------------------------------------- parameters


def read(mixture: Mixture, order: list[int] | None = None) -> tuple[np.ndarray, ...]:
    """What people read, expert by expert."""
    values = parameters(mixture if order is None else mixture.permuted(np.array(order)))
    return values.gate.ravel(), values.experts.ravel(), values.log_shapes.ravel()


@pytest.mark.slow
@pytest.mark.parametrize("family", SHAPES)
@given(data=st.data())
def test_errors_are_those_of_the_parameters_people_read(family: str, data: st.DataObject) -> None:
    shape = data.draw(shapes(family=family))
    mixture, _ = shape.problem()
    truth, _ = shape.but(seed=shape.seed + 1).problem()
    errors = parameter_errors(mixture, truth)
    candidates = []
    for order in permutations(range(mixture.K)):
        gaps = [a - b for a, b in zip(read(mixture, list(order)), read(truth), strict=True)]
        candidates.append([np.mean(g**2) if g.size else np.nan for g in (*gaps, np.concatenate(gaps))])
    best = [errors.gate, errors.experts, errors.log_shapes, errors.all]
    assert any(np.allclose(best, each, rtol=1e-7, atol=1e-12, equal_nan=True) for each in candidates)
    if not (family == "categorical" and shape.C > 2):  # matched by contrasts against the last class, read centred
        assert errors.experts == pytest.approx(min(each[1] for each in candidates), rel=1e-7)


@given(shapes())
def test_errors_do_not_depend_on_labels_or_coordinates(shape: Shape) -> None:
    mixture, _ = shape.problem()
    truth, _ = shape.but(seed=shape.seed + 1).problem()
    turn = np.random.default_rng(shape.seed).permutation(shape.K)
    here = parameter_errors(mixture, truth)
    there = parameter_errors(mixture.permuted(turn).raw(), truth.permuted(turn[::-1]).in_coordinates(mixture.design))
    for name in ("gate", "experts", "log_shapes", "all"):
        assert getattr(there, name) == pytest.approx(getattr(here, name), rel=1e-6, abs=1e-12, nan_ok=True)


@given(shapes())
def test_a_mixture_has_no_errors_at_home(shape: Shape) -> None:
    mixture, _ = shape.problem()
    errors = parameter_errors(mixture.permuted(np.arange(mixture.K)[::-1]), mixture)
    assert max(errors.gate, errors.experts, errors.all) < 1e-20
    assert np.isnan(errors.log_shapes) == (mixture.experts.shapes == 0)


def test_known_errors_and_a_gate_that_is_not_centred() -> None:
    truth = simulated("gaussian", d=2).truth
    same_gate = SoftmaxGate(truth.gate.alpha + np.array([3.0, 1.0, -2.0]))
    experts = replace(truth.experts, B=truth.experts.B + 0.5, covariance=truth.experts.covariance * np.exp(0.2))
    errors = parameter_errors(Mixture(truth.design, same_gate, experts), truth)
    assert errors.gate == pytest.approx(0.0, abs=1e-20)
    assert errors.experts == pytest.approx(0.25)
    assert errors.log_shapes == pytest.approx(0.04)
    assert errors.all == pytest.approx((6 * 0.25 + 2 * 0.04) / 14)


def test_a_constant_gate_is_compared_by_its_probabilities() -> None:
    truth = simulated("gaussian", gate="constant").truth
    other = replace(truth, gate=replace(truth.gate, probabilities=np.array([0.5, 0.5])))
    assert parameter_errors(other, truth).gate == pytest.approx(0.01)


@pytest.mark.parametrize(
    "other",
    [Shape(K=3), Shape(d=3), Shape(q=2), Shape(intercept=False, d=3), Shape(gate="constant"), Shape("poisson")],
    ids=["K", "d", "q", "intercept", "gate", "family"],
)
def test_what_cannot_be_compared_is_refused(other: Shape) -> None:
    truth, _ = Shape().problem()
    mixture, _ = other.problem()
    with pytest.raises(InvalidInputError, match=r"2 gaussian experts .* softmax gate.*; compare mixtures of one kind"):
        parameter_errors(mixture, truth)


# ---------------------------------------------------------------------- predictions


@pytest.mark.parametrize("q", [1, 3])
def test_relative_prediction_error(q: int) -> None:
    data = simulated("gaussian", q=q)
    predicted = data.truth.mean(data.X)
    assert relative_prediction_error(data.truth, data.X, predicted) == 0.0
    assert relative_prediction_error(data.truth, data.X, 2 * predicted) == pytest.approx(0.25)
    expected = np.sum((data.rows.Y - predicted) ** 2) / np.sum(data.rows.Y**2)
    assert relative_prediction_error(data.truth, data.X, data.y) == pytest.approx(expected)
    turned = data.truth.permuted(np.array([1, 0]))
    assert relative_prediction_error(turned, data.X, data.rows.Y) == pytest.approx(expected)


def test_class_codes_have_no_prediction_error() -> None:
    data = simulated("categorical")
    with pytest.raises(InvalidInputError, match="got 1 columns, the mixture predicts 3"):
        relative_prediction_error(data.truth, data.X, data.rows.Y)


# ---------------------------------------------------------------------- clusters


@pytest.mark.parametrize("group_size", [1, 5])
def test_clusters_are_the_labels_where_experts_are_far_apart(group_size: int) -> None:
    data = simulated("gaussian", group_size=group_size)
    found = cluster_labels(data.truth, data.rows)
    labels = data.labels[::group_size]
    assert found.shape == labels.shape
    assert np.mean(found == labels) > 0.85
    turned = cluster_labels(data.truth.permuted(np.array([1, 0])), data.rows)
    np.testing.assert_array_equal(turned, 1 - found)
    assert adjusted_rand_score(turned, found) == 1.0


# ---------------------------------------------------------------------- density


@given(shapes())
def test_the_mean_log_likelihood_is_that_of_the_e_step(shape: Shape) -> None:
    mixture, rows = shape.problem()
    statistics, found = expect(mixture, rows), mean_log_likelihood(mixture, rows)
    if statistics.weight == 0:
        assert np.isnan(found)
        return
    assert found == pytest.approx(statistics.log_likelihood / statistics.weight, rel=1e-10, abs=1e-10)
    if rows.weight is None:
        assert found == pytest.approx(mixture.log_density(rows).mean(), rel=1e-10, abs=1e-10)


@given(shapes(labels="row", weights="counts"))
def test_weights_are_repetitions(shape: Shape) -> None:
    mixture, rows = shape.problem()
    repeated = unweighted(rows)
    if repeated.n:
        assert mean_log_likelihood(mixture, rows) == pytest.approx(mean_log_likelihood(mixture, repeated), rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_is_more_likely_than_a_mixture_nearby(family: str) -> None:
    data = simulated(family, n=4000)
    other = replace(data.truth, experts=data.truth.experts.transformed(0.7 * np.eye(3)))
    assert mean_log_likelihood(other, data.rows) < mean_log_likelihood(data.truth, data.rows)


def test_no_rows_have_no_mean() -> None:
    assert np.isnan(mean_log_likelihood(simulated().truth, Rows(np.empty((0, 2)), np.empty((0, 1)))))


@given(st.floats(-5, 5), st.floats(0.01, 5), st.floats(-3, 3), st.floats(-10, 10))
def test_the_deficit_ratio_counts_losses_of_the_pooled_fit(
    truth: float, loss: float, times: float, shift: float
) -> None:
    pooled, method = truth - loss, truth - times * loss
    assert deficit_ratio(method, pooled, truth) == pytest.approx(times, abs=1e-9)
    assert deficit_ratio(method + shift, pooled + shift, truth + shift) == pytest.approx(times, abs=1e-9)
    assert deficit_ratio(pooled, pooled, truth) == 1.0


def test_without_a_loss_there_is_no_ratio() -> None:
    assert np.isnan(deficit_ratio(-2.0, -1.0, -1.0))
    assert np.isnan(deficit_ratio(-2.0, -1.0, -1.1))
