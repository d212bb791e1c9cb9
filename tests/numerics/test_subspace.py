"""Leading subspaces: eigenvectors by definition, and how many stand out of noise that is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.numerics.linalg import count_above_noise, leading_eigenpairs, orthonormalise

SEEDS = st.integers(0, 2**32 - 1)


@given(p=st.integers(1, 6), seed=SEEDS, data=st.data())
def test_leading_vectors_are_eigenvectors_of_the_largest_values_in_size(p: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(p, p))
    A = A + A.T
    k = data.draw(st.integers(1, p))
    values, vectors = leading_eigenpairs(A, k)
    assert (values.shape, vectors.shape) == ((k,), (p, k))
    np.testing.assert_allclose(A @ vectors, vectors * values, atol=1e-12 * np.abs(A).max() * p)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(np.abs(values), np.sort(np.abs(np.linalg.eigvalsh(A)))[::-1][:k], rtol=1e-9)


def test_all_directions_of_more_than_there_are() -> None:
    values, vectors = leading_eigenpairs(np.diag([1.0, -2.0]), 5)
    np.testing.assert_array_equal(values, [-2.0, 1.0])
    assert vectors.shape == (2, 2)


def test_of_a_matrix_that_rounding_has_made_unsymmetric_both_halves_count() -> None:
    A = np.array([[2.0, 1.0 + 1e-6], [1.0 - 1e-6, 5.0]])
    np.testing.assert_allclose(leading_eigenpairs(A, 2)[0], leading_eigenpairs((A + A.T) / 2, 2)[0], rtol=1e-14)
    np.testing.assert_allclose(leading_eigenpairs(A, 2)[0], leading_eigenpairs(A.T, 2)[0], rtol=1e-14)


@given(p=st.integers(1, 6), seed=SEEDS, data=st.data())
def test_an_orthonormal_basis_spans_the_columns(p: int, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, p))
    A = np.random.default_rng(seed).normal(size=(p, k))
    Q = orthonormalise(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(Q @ (Q.T @ A), A, atol=1e-12 * p * np.abs(A).max())


def test_orthogonal_iteration_ends_in_the_leading_subspace() -> None:
    rng = np.random.default_rng(0)
    V = orthonormalise(rng.normal(size=(6, 6)))
    A = (V * [5.0, -4.0, 1.0, 0.5, -0.2, 0.1]) @ V.T
    U = orthonormalise(rng.normal(size=(6, 2)))
    for _ in range(40):
        U = orthonormalise(A @ U)
    np.testing.assert_allclose(U @ U.T, V[:, :2] @ V[:, :2].T, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ([3.0, 2.0, 0.5, -0.4], 2),  # 0.5 is below twice 0.4
        ([3.0, 2.0, 0.9, -0.4], 3),
        ([-3.0, 2.0, 1.0], 0),
        ([3.0, 2.0, 0.0], 2),  # nothing negative: all that is positive stands out
        ([0.0], 0),
        ([-1.0], 0),
    ],
)
def test_what_stands_out_is_above_twice_the_most_negative_value(values: list[float], number: int) -> None:
    assert count_above_noise(np.array(values)) == number


@pytest.mark.parametrize("K", [1, 2, 4])
def test_a_low_rank_matrix_stands_out_of_symmetric_noise(K: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=(40, 40))
        noise = 0.02 * (noise + noise.T) / 2  # eigenvalues up to about 0.02 √(2 · 40) = 0.18 to both sides
        V = orthonormalise(rng.normal(size=(40, K)))
        assert count_above_noise(leading_eigenpairs((V * np.linspace(2.0, 1.0, K)) @ V.T + noise, 40)[0]) == K
