"""The compiled operations are those of numpy, for all sizes and for special numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from consilience.model.kernels import NUMPY, Products, Workspace, compiled
from consilience.numerics.arrays import log_sum_exp


@settings(max_examples=60, deadline=None)
@given(
    p=st.integers(0, 9),
    n=st.sampled_from([0, 1, 7, 8, 255, 256, 257, 600]),
    rows=st.tuples(st.integers(0, 23), st.integers(0, 23)),
    products=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_moments_are_those_of_numpy(p, n, rows, products, seed):
    rng = np.random.default_rng(seed)
    panel, first, second = (rng.normal(size=(k, n)) for k in (p, *rows))
    parts = [first], [second[: len(second) // 2], second[len(second) // 2 :]]
    if products and rows[1]:
        i, j = rng.integers(0, rows[1], (2, 13))
        parts[1].append(Products(second, second + 1, i, j))
    for a, b in zip(
        compiled.moments(panel, *parts, Workspace()), NUMPY.moments(panel, *parts, Workspace()), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-11)


def test_a_workspace_with_other_numbers_in_it_does_not_matter():
    workspace, rng = Workspace(), np.random.default_rng(0)
    panel, weights = rng.normal(size=(3, 300)), rng.normal(size=(3, 300))
    compiled.moments(np.full((5, 999), np.nan), [np.full((9, 999), np.inf)], [np.full((9, 999), np.nan)], workspace)
    again = compiled.moments(panel[:, :13], [weights[:, :13]], [weights[:, :13]], workspace)
    alone = compiled.moments(panel[:, :13], [weights[:, :13]], [weights[:, :13]], Workspace())
    np.testing.assert_array_equal(again[0], alone[0])
    np.testing.assert_array_equal(again[1], alone[1])


@pytest.mark.parametrize("shape", [(1, 5), (4, 3000), (3, 2, 700), (2, 0)])
def test_softmax_is_that_of_numpy(shape):
    A = 30 * np.random.default_rng(0).normal(size=shape)
    for a, b in zip(compiled.log_sum_exp(A), log_sum_exp(A), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=4e-15)


def test_softmax_of_logits_that_are_not_finite_or_far_apart():
    A = np.array([[-np.inf, -np.inf, 0.0, np.nan, 0.0, 1e308], [-np.inf, 1.0, -1e4, 0.0, np.nan, 0.0]])
    with np.errstate(invalid="ignore"):
        expected = log_sum_exp(A)
    for a, b in zip(compiled.log_sum_exp(A), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("layout", ["C", "F", "readonly", "every second", "float32"])
def test_panels_have_the_bits_of_numpy_in_every_layout(layout):
    rng = np.random.default_rng(0)
    X, centre, factor = rng.normal(size=(130, 4)), rng.normal(size=4), rng.normal(size=4)
    X = {"F": np.asfortranarray(X), "every second": X[::2], "float32": X.astype(np.float32)}.get(layout, X)
    X.flags.writeable = layout != "readonly"
    a, b = np.empty((4, len(X))), np.empty((4, len(X)))
    compiled.standardise(X, centre, factor, a)
    NUMPY.standardise(X, centre, factor, b)
    np.testing.assert_array_equal(a, b)
