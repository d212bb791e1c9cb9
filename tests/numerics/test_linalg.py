import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from consilience.numerics.linalg import (
    bound_below,
    cholesky_or_none,
    independent_columns,
    inverse_factor,
    solve_symmetric,
    symmetric_exponential,
)

sizes, seeds = st.integers(1, 6), st.integers(0, 2**32 - 1)


def positive(p, rng, rank=None):
    """A random positive semi-definite matrix of the given rank."""
    A = rng.normal(size=(p, p if rank is None else rank))
    return A @ A.T + (0.1 * np.eye(p) if rank is None else 0)


# ---------------------------------------------------------------------- factors


@given(p=st.integers(0, 6), seed=seeds, scale=st.sampled_from([1e-8, 1.0, 1e8]))
def test_cholesky_factor_gives_the_matrix_back(p, seed, scale):
    rng = np.random.default_rng(seed)
    units = scale ** rng.uniform(0, 1, p)  # columns of very different scale are no reason to refuse
    A = positive(p, rng) * units[:, None] * units
    L = cholesky_or_none(A)
    assert L is not None
    assert np.array_equal(L, np.tril(L))
    np.testing.assert_allclose(L @ L.T, A, rtol=1e-10, atol=0)
    np.testing.assert_allclose(inverse_factor(L) @ L, np.eye(p), atol=1e-8)


def test_a_factor_of_no_columns_has_an_inverse_of_no_columns():
    assert inverse_factor(np.empty((0, 0))).shape == (0, 0)


@pytest.mark.parametrize(
    "A",
    [
        np.diag([1.0, -1.0]),
        np.zeros((2, 2)),
        np.ones((2, 2)),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.array([[1.0, 1 - 1e-13], [1 - 1e-13, 1.0]]),
        np.array([[np.nan, 0.0], [0.0, 1.0]]),
        np.array([[1.0, np.nan], [np.nan, 1.0]]),
        np.array([[np.inf, 0.0], [0.0, 1.0]]),
    ],
    ids=["negative", "zero", "singular", "indefinite", "nearly singular", "nan pivot", "nan", "infinite"],
)
def test_cholesky_refuses_what_is_not_positive_definite(A):
    assert cholesky_or_none(A) is None


# ---------------------------------------------------------------------- systems


@given(p=st.integers(1, 6), m=st.integers(1, 3), seed=seeds)
def test_a_regular_system_is_solved(p, m, seed):
    rng = np.random.default_rng(seed)
    A, x = positive(p, rng), rng.normal(size=(p, m))
    solution, full_rank = solve_symmetric(A, A @ x)
    assert full_rank
    np.testing.assert_allclose(solution, x, rtol=1e-6, atol=1e-9)


@given(p=st.integers(2, 6), m=st.integers(1, 3), seed=seeds, data=st.data())
def test_a_singular_system_has_the_solution_of_least_norm(p, m, seed, data):
    rng = np.random.default_rng(seed)
    rank = data.draw(st.integers(0, p - 1))
    A = positive(p, rng, rank=rank)
    values = np.linalg.eigvalsh(A)[p - rank :]
    assume(rank == 0 or values.min() > 1e-4 * values.max())  # otherwise rounding decides on the rank
    b = A @ rng.normal(size=(p, m))
    solution, full_rank = solve_symmetric(A, b)
    assert not full_rank
    np.testing.assert_allclose(solution, np.linalg.pinv(A, rcond=1e-11, hermitian=True) @ b, rtol=1e-6, atol=1e-8)


def test_a_system_without_unknowns_has_an_empty_solution():
    solution, full_rank = solve_symmetric(np.empty((0, 0)), np.empty((0, 2)))
    assert solution.shape == (0, 2)
    assert full_rank


# ---------------------------------------------------------------------- bounds


def objective(Sigma, S):
    """Gaussian log-likelihood of a covariance, up to constants: ``-log|Σ| - tr(Σ⁻¹ S)``."""
    return -np.linalg.slogdet(Sigma)[1] - np.trace(np.linalg.solve(Sigma, S))


@settings(max_examples=100)
@given(q=st.integers(1, 4), seed=seeds, data=st.data())
def test_bounded_below_is_the_best_matrix_above_the_floor(q, seed, data):
    rng = np.random.default_rng(seed)
    floor = positive(q, rng)
    S = positive(q, rng, rank=data.draw(st.integers(0, q))) * rng.uniform(0, 3)
    best = bound_below(S, floor)
    value = objective(best, S)
    assert np.linalg.eigvalsh(best - floor).min() >= -1e-9 * np.abs(best).max()
    for size in (1e-3, 0.1, 10.0):
        rival = floor + positive(q, rng, rank=rng.integers(1, q + 1)) * size  # any feasible matrix …
        between = (1 - min(size, 1)) * best + min(size, 1) * rival  # … and one on the way to it: feasible, too
        assert objective(rival, S) <= value + 1e-9 * (1 + abs(value))
        assert objective(between, S) <= value + 1e-9 * (1 + abs(value))


@given(q=st.integers(1, 4), seed=seeds)
def test_a_matrix_above_the_floor_is_left_alone(q, seed):
    rng = np.random.default_rng(seed)
    floor = positive(q, rng)
    S = floor + positive(q, rng)
    assert bound_below(S, floor) is S


def test_no_floor_is_no_bound():
    S = np.diag([1.0, 0.0])
    assert bound_below(S, np.zeros((2, 2))) is S
    assert bound_below(S, np.zeros((1, 1))) is S


# ---------------------------------------------------------------------- exponential


@given(q=sizes, seed=seeds)
def test_exponential_of_a_symmetric_matrix(q, seed):
    A = np.random.default_rng(seed).normal(size=(q, q))
    E = A + A.T
    forth, back = symmetric_exponential(E), symmetric_exponential(-E)
    np.testing.assert_allclose(forth @ back, np.eye(q), atol=1e-8 * np.linalg.norm(forth) * np.linalg.norm(back))
    np.testing.assert_allclose(np.linalg.slogdet(forth)[1], np.trace(E), atol=1e-6)
    np.testing.assert_allclose(symmetric_exponential(E / 2) @ symmetric_exponential(E / 2), forth, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_independent_columns_are_the_first_of_each_dependence(scale: float) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(80, 3))
    X = np.column_stack([A[:, 0], scale * A[:, 0], A[:, 1], A[:, 0] - A[:, 1], A[:, 2], np.zeros(80)])
    norm = np.where(np.any(X != 0, axis=0), np.linalg.norm(X, axis=0), 1.0)
    C = (X / norm).T @ (X / norm)
    kept, combinations = independent_columns(C)
    assert kept.tolist() == [0, 2, 4]
    np.testing.assert_allclose((X / norm)[:, kept] @ combinations.T, (X / norm)[:, [1, 3, 5]], atol=1e-12)


def test_nearly_dependent_columns_are_kept() -> None:
    x = np.random.default_rng(0).normal(size=1000)
    X = np.column_stack([x, x + 1e-4 * np.random.default_rng(1).normal(size=1000)])
    assert independent_columns(np.corrcoef(X.T))[0].tolist() == [0, 1]
