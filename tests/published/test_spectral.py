"""The spectral start: exact where moments are the population's, the same in any coordinates, never without signal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import Design, Groups, Rows
from consilience.numerics.linalg import whitening
from consilience.published.spectral import LEAST_PART, squared_moments, symmetric_pair
from strategies import Shape, shapes, unweighted


def population(b: np.ndarray, S: np.ndarray, sigma2: float) -> tuple[np.ndarray, np.ndarray, float]:
    """``E y² x xᵀ``, ``E x xᵀ`` and ``E y²`` of ``y = ± xᵀ b + σ ε`` with ``x ~ N(0, S)``."""
    square = float(b @ S @ b) + sigma2
    return square * S + 2 * np.outer(S @ b, S @ b), S, square


def random_covariance(p: int, rng: np.random.Generator) -> np.ndarray:
    A = rng.normal(size=(p, p))
    return A @ A.T + 0.3 * np.eye(p)


@given(st.integers(1, 6), st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
def test_population_moments_give_back_what_made_them(p: int, noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, b = random_covariance(p, rng), rng.normal(size=p)
    b /= np.sqrt(b @ S @ b)
    found, sigma2 = symmetric_pair(*population(b, S, noise / (1 - noise)))
    sign = np.sign(found @ S @ b)
    np.testing.assert_allclose(sign * found, b, atol=1e-6)
    assert sigma2 == pytest.approx(noise / (1 - noise), rel=1e-6)
    assert found[np.abs(found).argmax()] > 0


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_pair_is_the_same_in_other_coordinates_and_units(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, T, c = rng.normal(size=(60, p)), random_covariance(p, rng), rng.uniform(0.1, 10)
    y = rng.choice([-1, 1], 60) * (X @ rng.normal(size=p)) + rng.normal(size=60)

    def pair(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        return symmetric_pair((X * (y**2)[:, None]).T @ X / 60, X.T @ X / 60, float(np.mean(y**2)))

    (b, sigma2), (other, variance) = pair(X, y), pair(X @ T, c * y)
    fitted, again = X @ b, X @ T @ other / c
    np.testing.assert_allclose(again * np.sign(again @ fitted), fitted, atol=1e-7 * np.abs(fitted).max())
    assert variance == pytest.approx(c**2 * sigma2, rel=1e-8)


def test_a_column_that_is_there_twice_changes_no_prediction() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = rng.choice([-1, 1], 500) * (X @ [1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=500)
    double = np.column_stack([X, X[:, 0]])
    (b, sigma2), (twice, variance) = (
        symmetric_pair((Z * (y**2)[:, None]).T @ Z / 500, Z.T @ Z / 500, float(np.mean(y**2))) for Z in (X, double)
    )
    np.testing.assert_allclose(np.abs(double @ twice), np.abs(X @ b), atol=1e-9)
    assert variance == pytest.approx(sigma2)


@pytest.mark.parametrize(("top", "part"), [(1.0, LEAST_PART), (100.0, 1 - LEAST_PART)], ids=["nothing", "too much"])
def test_neither_signal_nor_noise_is_ever_nothing(top: float, part: float) -> None:
    b, sigma2 = symmetric_pair(np.diag([1.0, 1.0, top]), np.eye(3), 2.0)
    assert b @ b == pytest.approx(2.0 * part)
    assert sigma2 == pytest.approx(2.0 * (1 - part))


def test_many_rows_give_a_start_near_the_truth() -> None:
    rng = np.random.default_rng(1)
    X, b = rng.normal(size=(20_000, 10)), rng.normal(size=10)
    b *= 3 / np.linalg.norm(b)
    y = rng.choice([-1, 1], 20_000) * (X @ b) + rng.normal(size=20_000)
    moments = squared_moments(Design.raw(10, intercept=False), Rows(X, y[:, None]))
    found, sigma2 = symmetric_pair(moments.second / moments.weight, X.T @ X / 20_000, float(np.mean(y**2)))
    assert min(np.linalg.norm(found - b), np.linalg.norm(found + b)) < 0.15
    assert 0.5 < sigma2 < 1.5


# ---------------------------------------------------------------------- sums over rows


@given(shapes(max_n=30, family="gaussian-full", q=1))
def test_squared_moments_are_the_sums_they_say(shape: Shape) -> None:
    mixture, rows = shape.problem()
    panel, w = mixture.design.panel(rows.X), np.ones(rows.n) if rows.weight is None else rows.weight
    found = squared_moments(mixture.design, rows)
    expected = np.einsum("n,an,bn->ab", w * rows.Y[:, 0] ** 2, panel, panel)
    np.testing.assert_allclose(found.second, expected, atol=1e-12 * np.abs(expected).max(initial=1.0))
    assert found.weight == pytest.approx(w.sum())


def test_squared_moments_add_and_weights_are_repetitions() -> None:
    mixture, rows = Shape(n=40, weights="counts", K=1).problem()
    parts = [rows.take(np.arange(40)[i::3]) for i in range(3)]
    whole, thrice, once = (
        squared_moments(mixture.design, rows),
        sum((squared_moments(mixture.design, part) for part in parts[1:]), squared_moments(mixture.design, parts[0])),
        squared_moments(mixture.design, unweighted(rows)),
    )
    for other in (thrice, once):
        np.testing.assert_allclose(other.second, whole.second, rtol=1e-12, atol=1e-12)
        assert other.weight == pytest.approx(whole.weight)


def test_groups_do_not_matter_to_squared_moments() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=(30, 1))
    grouped = Rows(X, Y, groups=Groups.of(rng.integers(0, 5, 30)))
    plain, other = (squared_moments(Design.raw(2), rows) for rows in (Rows(X, Y), grouped))
    np.testing.assert_allclose(other.second, plain.second, rtol=1e-12)
    assert other.weight == plain.weight == 30


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_whitening_whitens_what_has_rank(rank: int) -> None:
    A = np.random.default_rng(rank).normal(size=(4, rank))
    W = whitening(A @ A.T)
    assert W.shape == (4, rank)
    np.testing.assert_allclose(W.T @ A @ A.T @ W, np.eye(rank), atol=1e-10)
