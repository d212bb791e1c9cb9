"""Squared residuals in a private sum: their length, and that each row's integers depend on that row alone."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.errors import InvalidInputError
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows
from consilience.model.contributions import CHUNK, COUNTED, sensitivity
from consilience.model.squares import products, square_total, squares
from contributing import HOSTILE, hostile_factor

Rng = np.random.Generator


def one(d: int, rng: Rng, *, hostile: bool) -> Mixture:
    """One expert, of ordinary or of any size."""
    scale = 10.0 ** rng.integers(-8, 9, size=d) if hostile else np.ones(d)
    B = rng.normal(size=(1, 1, d + 1)) * (10.0 ** rng.integers(-9, 10, size=d + 1) if hostile else 1.0)
    variance = 10.0 ** (rng.integers(-9, 10) if hostile else 0)
    return Mixture(
        Design(np.zeros(d), scale), ConstantGate(np.ones(1)), GaussianExperts(B, np.full((1, 1, 1), variance))
    )


def rows_of(n: int, d: int, rng: Rng, *, hostile: bool) -> Rows:
    X, Y = rng.normal(size=(n, d)), 2 * rng.normal(size=(n, 1))
    if not hostile:
        return Rows(X, Y)

    def spoilt(cells: np.ndarray) -> np.ndarray:
        return np.where(rng.random(cells.shape) < 0.1, rng.choice(HOSTILE, cells.shape), cells)

    return Rows(spoilt(X * 10.0 ** rng.integers(-9, 10, X.shape)), spoilt(Y * 1e3))


def check(seed: int, n: int) -> tuple[int, int]:
    """Check lengths and single rows; return the numbers of rows, and of those that are not zero."""
    checked = moving = 0
    for case in range(10):
        rng = np.random.default_rng([seed, case])
        d, hostile = int(rng.integers(1, 4)), bool(case % 3)
        mixture, rows = one(d, rng, hostile=hostile), rows_of(n, d, rng, hostile=hostile)
        m = (d + 1) * (d + 2) // 2
        k = int(rng.integers(1, m + 1))
        factor = hostile_factor(m, rng)[:, :k] if hostile else np.eye(m)[:, :k]
        clip = float(rng.choice([1e-300, 1e-3, 3.0, 1e6, 1e300])) if hostile else 3.0
        found = squares(mixture, rows, factor, clip)
        assert found.dtype == np.int64
        assert found.shape == (n, k)
        assert max(sum(int(x) ** 2 for x in row) for row in found) <= sensitivity(k) ** 2
        for index in (np.delete(np.arange(n), int(rng.integers(n))), rng.permutation(n)[: CHUNK // 2]):
            assert np.array_equal(squares(mixture, rows.take(index), factor, clip), found[index])
        checked, moving = checked + n, moving + int(np.any(found != 0, axis=1).sum())
    return checked, moving


def test_a_row_moves_the_sum_by_its_own_bounded_vector():
    checked, moving = check(seed=1, n=300)
    assert checked == 3000
    assert moving >= checked / 4


@pytest.mark.long
def test_a_hundred_thousand_rows_move_the_sum_by_their_own_bounded_vectors():
    assert sum(check(seed, n=1000)[0] for seed in range(2, 12)) == 100_000


def test_rows_that_are_not_finite_are_zeros_and_counted():
    rng = np.random.default_rng(2)
    mixture, rows = one(2, rng, hostile=False), rows_of(20, 2, rng, hostile=False)
    X, Y = rows.X.copy(), rows.Y.copy()
    X[3, 1], Y[5, 0], Y[7, 0] = np.nan, np.inf, 1e300
    found, plain = (squares(mixture, each, np.eye(6), 3.0) for each in (Rows(X, Y), rows))
    assert not found[[3, 5]].any()
    others = np.delete(np.arange(20), [3, 5, 7])
    assert np.array_equal(found[others], plain[others])
    assert square_total(mixture, Rows(X, Y), np.eye(6), 3.0)[-1] == 20 * COUNTED
    assert squares(mixture, rows.take(np.arange(0)), np.eye(6), 3.0).shape == (0, 6)
    with pytest.raises(InvalidInputError, match="weights"):
        squares(mixture, Rows(X, Y, weight=np.ones(20)), np.eye(6), 3.0)


def test_a_contribution_is_the_squared_residual_times_products():
    mixture = Mixture(
        Design.raw(1), ConstantGate(np.ones(1)), GaussianExperts(np.array([[[1.0, 2.0]]]), np.full((1, 1, 1), 4.0))
    )
    (k,) = squares(mixture, Rows(np.array([[3.0]]), np.array([[1.0]])), np.eye(3), 2.0**20)
    assert k.tolist() == [8, 24, 72]  # (-6)² / 4 - 1 = 8, times 1, 3 and 9
    assert products(np.array([[1.0], [3.0]])).ravel().tolist() == [1.0, 3.0, 9.0]
