import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from consilience.numerics.arrays import SMALLEST_LOG_SHARE, log_softmax, log_sum_exp

RAISED = np.exp(SMALLEST_LOG_SHARE)

logits = arrays(float, array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.floats(-700, 700))


@given(A=logits)
def test_shares_are_positive_and_sum_to_one(A):
    total, share = log_sum_exp(A)
    assert total.shape == A.shape[1:]
    assert np.all(share >= 0)
    np.testing.assert_allclose(share.sum(axis=0), 1, rtol=1e-14)


@given(A=logits)
def test_total_is_the_log_of_the_sum(A):
    total, share = log_sum_exp(A)
    np.testing.assert_allclose(np.exp(A - total).sum(axis=0), 1, rtol=1e-11)
    np.testing.assert_allclose(share, np.exp(A - total), rtol=1e-11, atol=RAISED)
    np.testing.assert_allclose(log_softmax(A), A - total, rtol=0, atol=0)


@given(A=logits, shift=st.floats(-1e6, 1e6))
def test_a_common_shift_moves_the_total_alone(A, shift):
    total, share = log_sum_exp(A)
    moved_total, moved_share = log_sum_exp(A + shift)
    np.testing.assert_allclose(moved_total, total + shift, rtol=0, atol=1e-9)
    np.testing.assert_allclose(moved_share, share, rtol=1e-8, atol=1e-12)


def test_minus_infinity_has_no_share():
    A = np.array([[-np.inf, 1.0], [2.0, -np.inf], [2.0, 1.0]])
    total, share = log_sum_exp(A)
    np.testing.assert_allclose(total, [2 + np.log(2), 1 + np.log(2)])
    np.testing.assert_allclose(share, [[0, 0.5], [0.5, 0], [0.5, 0.5]], atol=RAISED)
    assert np.array_equal(np.isneginf(log_softmax(A)), np.isneginf(A))


@pytest.mark.parametrize("size", [1e4, 1e15, 1e300])
def test_huge_logits_do_not_overflow(size):
    total, share = log_sum_exp(np.array([[size, -size], [-size, -size]]))
    np.testing.assert_allclose(total, [size, -size], rtol=1e-4)
    np.testing.assert_allclose(share, [[1, 0.5], [0, 0.5]], atol=RAISED)


@given(A=logits)
def test_no_share_is_subnormal_nor_its_square(A):
    _, share = log_sum_exp(A)
    assert np.all(share**2 >= np.finfo(float).tiny)


def test_the_argument_is_left_alone():
    A = np.array([[1.0], [2.0]])
    log_sum_exp(A)
    log_softmax(A)
    assert np.array_equal(A, [[1.0], [2.0]])


def test_a_column_of_minus_infinity_has_total_minus_infinity_and_equal_shares():
    total, share = log_sum_exp(np.full((2, 3), -np.inf))
    assert np.all(np.isneginf(total))
    np.testing.assert_array_equal(share, 0.5)
