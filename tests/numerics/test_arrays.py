import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.numerics.arrays import kronecker, pack, triangle_size, unpack

stacks = st.sampled_from([(), (3,), (2, 3), (0,)])


@given(p=st.integers(0, 60), stack=stacks, seed=st.integers(0, 2**32 - 1))
def test_symmetric_matrices_survive_packing(p, stack, seed):
    A = np.random.default_rng(seed).normal(size=(*stack, p, p))
    A = A + np.swapaxes(A, -1, -2)
    packed = pack(A)
    assert packed.shape == (*stack, triangle_size(p))
    assert np.array_equal(unpack(packed), A)


@given(p=st.integers(0, 60), stack=stacks, seed=st.integers(0, 2**32 - 1))
def test_triangles_survive_unpacking(p, stack, seed):
    triangle = np.random.default_rng(seed).normal(size=(*stack, triangle_size(p)))
    A = unpack(triangle)
    assert np.array_equal(A, np.swapaxes(A, -1, -2))
    assert np.array_equal(pack(A), triangle)


def test_packing_is_row_by_row():
    A = np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 4.0], [2.0, 4.0, 5.0]])
    assert np.array_equal(pack(A), np.arange(6))


@pytest.mark.parametrize("p", [501, 785, 4095])
def test_size_of_a_large_matrix_is_read_off_its_triangle(p):
    assert unpack(np.zeros((0, triangle_size(p)))).shape == (0, p, p)


def test_kronecker_is_the_product_of_linear_maps():
    rng = np.random.default_rng(0)
    A, B, x, y = rng.normal(size=(2, 3)), rng.normal(size=(4, 5)), rng.normal(size=3), rng.normal(size=5)
    np.testing.assert_allclose(kronecker(A, B) @ np.outer(x, y).ravel(), np.outer(A @ x, B @ y).ravel())
    assert np.array_equal(kronecker(A, B), np.kron(A, B))
    stacked = kronecker(np.stack([A, 2 * A]), B)
    assert np.array_equal(stacked, [np.kron(A, B), np.kron(2 * A, B)])
