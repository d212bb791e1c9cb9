import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model.families import covariance as cov
from consilience.model.families.covariance import STRUCTURES
from consilience.numerics.linalg import symmetric_exponential
from families import random_covariance

structures, seeds = st.sampled_from(STRUCTURES), st.integers(0, 2**32 - 1)
every_structure = pytest.mark.parametrize("structure", STRUCTURES)


def random_scatter(structure, K, q, rank, rng):
    A = rng.normal(size=(K, q, rank))
    S = A @ A.transpose(0, 2, 1)
    return S if cov.has_matrices(structure) else np.einsum("kqq->kq", S)


def floor_like(structure, q, rng):
    """A floor that the structure can lie on: any matrix, a diagonal or a multiple of the identity."""
    A = rng.normal(size=(q, q))
    full = A @ A.T + 0.1 * np.eye(q)
    if structure == "diag":
        return np.diag(np.diagonal(full))
    return np.eye(q) * full[0, 0] if structure == "spherical" else full


def likelihood(covariance, scatter, n, structure):
    """``-Σ_k n_k log|Σ_k| - tr(Σ_k⁻¹ scatter_k)``."""
    K, q = len(n), scatter.shape[1]
    total = 0.0
    for k, Sigma in enumerate(cov.matrices(covariance, structure, K, q)):
        S = scatter[k] if cov.has_matrices(structure) else np.diag(scatter[k])
        total -= n[k] * np.linalg.slogdet(Sigma)[1] + np.trace(np.linalg.solve(Sigma, S))
    return total


@given(structure=structures, K=st.integers(1, 3), q=st.integers(1, 3), rank=st.integers(0, 3), seed=seeds)
def test_maximiser_is_above_the_floor_and_no_other_covariance_there_is_better(structure, K, q, rank, seed):
    rng = np.random.default_rng(seed)
    scatter, n = random_scatter(structure, K, q, rank, rng), rng.uniform(0.5, 5, K)
    floor = floor_like(structure, q, rng) * 0.3
    start = random_covariance(structure, K, q, rng)
    best = cov.maximiser(scatter, n, structure, start, floor)
    assert best.shape == start.shape
    assert cov.is_above(best, structure, floor)
    value = likelihood(best, scatter, n, structure)
    for share in (1e-3, 0.1, 1.0):
        above = {"full": floor, "tied": floor, "diag": np.diagonal(floor), "spherical": floor[0, 0]}[structure]
        rival = (1 - share) * best + share * (above + random_covariance(structure, K, q, rng))  # above the floor
        assert likelihood(rival, scatter, n, structure) <= value + 1e-9 * (1 + abs(value))


@every_structure
def test_without_floor_the_maximiser_is_the_mean_scatter(structure):
    rng = np.random.default_rng(0)
    scatter, n = random_scatter(structure, 2, 3, 5, rng), np.array([4.0, 7.0])
    found = cov.maximiser(scatter, n, structure, np.zeros(1), np.zeros((1, 1)))
    mean = scatter / n.reshape(2, *(1,) * (scatter.ndim - 1))
    expected = {
        "full": mean,
        "diag": mean,
        "spherical": mean.mean(axis=-1),
        "tied": scatter.sum(axis=0) / n.sum(),
    }[structure]
    np.testing.assert_allclose(found, expected)


@every_structure
def test_an_expert_without_rows_keeps_its_covariance(structure):
    rng = np.random.default_rng(0)
    old = random_covariance(structure, 2, 3, rng)
    scatter, n = random_scatter(structure, 2, 3, 5, rng), np.array([4.0, 0.0])
    scatter[1] = 0.0
    new = cov.maximiser(scatter, n, structure, old, np.zeros((3, 3)))
    if structure == "tied":
        np.testing.assert_allclose(new, scatter[0] / 4.0)
    else:
        assert np.array_equal(new[1], old[1])
        assert not np.allclose(new[0], old[0])
    assert np.array_equal(cov.maximiser(0 * scatter, 0 * n, structure, old, np.zeros((3, 3))), old)


@given(structure=structures, K=st.integers(1, 3), q=st.integers(1, 3), seed=seeds)
def test_matrices_are_stored_as_they_were(structure: str, K: int, q: int, seed: int) -> None:
    covariance = random_covariance(structure, K, q, np.random.default_rng(seed))
    matrices = cov.matrices(covariance, structure, K, q)
    stored = cov.store_covariances(matrices, structure)
    assert stored.shape == covariance.shape
    np.testing.assert_allclose(stored, covariance, rtol=1e-14)  # the mean of equal variances may round
    np.testing.assert_allclose(cov.matrices(stored, structure, K, q), matrices, rtol=1e-14)


def test_stored_variances_are_no_view_of_the_matrices() -> None:
    matrices = np.tile(np.eye(2), (3, 1, 1))
    for structure in ("diag", "spherical"):
        cov.store_covariances(matrices, structure)[...] = 7.0  # a read-only view of a diagonal would refuse
    np.testing.assert_array_equal(matrices, np.tile(np.eye(2), (3, 1, 1)))


@given(structure=structures, K=st.integers(1, 3), q=st.integers(1, 3), seed=seeds)
def test_factors_are_those_of_the_matrices(structure, K, q, seed):
    covariance = random_covariance(structure, K, q, np.random.default_rng(seed))
    L, Linv = cov.factors(covariance, structure, K, q)
    Sigma = cov.matrices(covariance, structure, K, q)
    np.testing.assert_allclose(L @ L.transpose(0, 2, 1), Sigma, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(Linv @ L, np.broadcast_to(np.eye(q), (K, q, q)), atol=1e-12)


def test_a_covariance_that_is_not_positive_definite_is_an_error():
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cov.factors(np.zeros((1, 2, 2)), "full", 1, 2)


# ---------------------------------------------------------------------- the floor


@given(structure=structures, q=st.integers(1, 3), seed=seeds)
def test_a_covariance_is_above_a_lower_floor_and_below_a_higher_one(structure, q, seed):
    rng = np.random.default_rng(seed)
    covariance = random_covariance(structure, 2, q, rng)
    values = np.linalg.eigvalsh(cov.matrices(covariance, structure, 2, q))
    assert cov.is_above(covariance, structure, 0.9 * values.min() * np.eye(q))
    assert not cov.is_above(covariance, structure, 1.1 * values.max() * np.eye(q))


@given(structure=structures, q=st.integers(1, 3), seed=seeds)
def test_the_floor_itself_is_above_the_floor_and_stays_there_in_its_chart(structure, q, seed):
    floor = floor_like(structure, q, np.random.default_rng(seed))
    stored = {"full": floor[None], "tied": floor, "diag": np.diagonal(floor)[None], "spherical": floor[0, :1]}[
        structure
    ]
    assert cov.is_above(stored, structure, floor)
    L, _ = cov.factors(stored, structure, 1, q)
    again = L[0] @ symmetric_exponential(np.zeros((q, q))) @ L[0].T
    stored = {"full": again[None], "tied": again, "diag": np.diagonal(again)[None], "spherical": again[0, :1]}[
        structure
    ]
    assert cov.is_above(stored, structure, floor)


@every_structure
def test_without_floor_every_covariance_is_above(structure):
    assert cov.is_above(random_covariance(structure, 2, 2, np.random.default_rng(0)), structure, np.zeros((2, 2)))


# ---------------------------------------------------------------------- the moves


@given(structure=structures, q=st.integers(1, 4))
def test_the_basis_spans_the_moves_of_the_structure(structure, q):
    E = cov.basis(structure, q)
    assert E.shape == (cov.shape_count(structure, q), q, q)
    assert np.array_equal(E, E.transpose(0, 2, 1))
    assert np.linalg.matrix_rank(E.reshape(len(E), -1)) == len(E)
    assert cov.scatter_size(structure, q) == (q * (q + 1) // 2 if structure in ("full", "tied") else q)
