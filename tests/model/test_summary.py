"""The scale of the columns, from sums that add."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from consilience.model import Rows
from consilience.model.summary import BLOCK, ColumnSummary, column_summary
from strategies import Shape, shapes

FIELDS = ("weight", "x_mean", "x_products", "y_mean", "y_products")


def assert_same(a: ColumnSummary, b: ColumnSummary) -> None:
    for name in FIELDS:
        assert np.allclose(getattr(a, name), getattr(b, name), rtol=1e-12, atol=1e-12), name


@given(shapes(labels="row", n=12))
def test_summary_of_both_is_the_sum_of_summaries(shape: Shape) -> None:
    _, rows = shape.problem()
    for cut in (0, 1, 5):
        parts = [column_summary(rows.take(np.arange(*ends))) for ends in ((0, cut), (cut, 12))]
        assert_same(parts[0] + parts[1], column_summary(rows))
        assert_same(parts[1] + parts[0], column_summary(rows))


@given(shapes(labels="row", family="gaussian-full", weights="positive", n=12))
def test_summary_is_numpys_weighted_mean_and_covariance(shape: Shape) -> None:
    _, rows = shape.problem()
    summary = column_summary(rows)
    assert np.allclose(summary.x_mean, np.average(rows.X, axis=0, weights=rows.weight))
    assert np.allclose(summary.x_variance, np.average((rows.X - summary.x_mean) ** 2, axis=0, weights=rows.weight))
    expected = np.cov(rows.Y.T, aweights=rows.weight, bias=True)
    assert np.allclose(summary.y_covariance, expected)


def test_several_blocks_are_one_summary() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(1e6, 1.0, (BLOCK + 10, 1)), rng.normal(size=(BLOCK + 10, 1))
    summary = column_summary(Rows(X, Y))
    assert np.isclose(summary.x_variance[0], X.var(), rtol=1e-9)


def test_no_weight_has_no_variance() -> None:
    summary = column_summary(Rows(np.ones((3, 1)), np.ones((3, 1)), np.zeros(3)))
    assert summary.weight == 0
    assert np.all(summary.x_variance == 0)
    assert np.all(summary.y_covariance == 0)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e9, 1 / 3])
def test_constant_columns_are_seen_whatever_their_value(value: float) -> None:
    X = np.column_stack([np.full(50, value), np.linspace(0, 1, 50) + value])
    summary = column_summary(Rows(X, X))
    assert summary.constant_covariates.tolist() == [True, False]
    assert summary.constant_responses.tolist() == [True, False]
    design = summary.design(intercept=True)
    assert design.columns == (1,)
    np.testing.assert_allclose(design.others, [[value, 0.0]], atol=1e-9)


def test_standardised_columns_have_mean_zero_and_variance_one() -> None:
    X = np.random.default_rng(0).normal([3.0, -1e4], [1e-3, 50.0], (200, 2))
    panel = column_summary(Rows(X, X)).design(intercept=True).panel(X)
    assert np.allclose(panel[1:].mean(axis=1), 0, atol=1e-9)
    assert np.allclose(panel[1:].std(axis=1), 1)


def test_without_intercept_columns_are_scaled_and_not_moved() -> None:
    X = np.column_stack([np.linspace(1, 2, 10), np.zeros(10)])
    panel = column_summary(Rows(X, X)).design(intercept=False).panel(X)
    assert np.isclose(np.mean(panel[0] ** 2), 1)
    assert np.allclose(panel[0] / X[:, 0], panel[0, 0] / X[0, 0])
    assert len(panel) == 1  # a column of zeros is not read


def test_floor_is_a_fraction_of_the_covariance_and_of_its_diagonal_where_that_is_singular() -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(100, 2))
    none = np.empty((100, 0))
    assert np.allclose(column_summary(Rows(none, Y)).floor(0.1), 0.1 * np.cov(Y.T, bias=True))
    twice = np.column_stack([Y[:, 0], 2 * Y[:, 0]])
    floor = column_summary(Rows(none, twice)).floor(0.1)
    assert np.allclose(floor, 0.1 * np.diag(twice.var(axis=0)))
