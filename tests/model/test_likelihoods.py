"""Log densities in a private sum: their length, that a row's integers depend on that row alone, what they say."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.errors import InvalidInputError
from consilience.model import Mixture, Rows, expect
from consilience.model.contributions import COUNTED, GRID, sensitivity
from consilience.model.likelihoods import likelihood_total, likelihoods
from contributing import NAMES, ONE_RESPONSE, drawn_rows, hostile_mixture, hostile_rows, mixture_of

Rng = np.random.Generator


def check(names: tuple[str, ...], cases: int, n: int, rng: Rng) -> tuple[int, int]:
    """Check lengths and single rows; return the numbers of rows, and of those that are not zero."""
    checked = moving = 0
    for name in names:
        for case in range(cases):
            S, hostile = int(rng.integers(2, 5)), bool(case % 2)
            make = hostile_mixture if hostile else mixture_of
            mixtures = tuple(make(name, rng) for _ in range(S))
            rows = (hostile_rows if hostile else drawn_rows)(name, mixtures[0], n, rng)
            clip = float(rng.choice([1e-300, 1e-3, 3.0, 1e6, 1e300])) if hostile else 3.0
            found = likelihoods(mixtures, rows, clip)
            assert found.shape == (n, S)
            assert max(sum(int(x) ** 2 for x in row) for row in found) <= sensitivity(S) ** 2, (name, case)
            for index in (np.delete(np.arange(n), int(rng.integers(n))), rng.permutation(n)[: n // 2]):
                assert np.array_equal(likelihoods(mixtures, rows.take(index), clip), found[index]), (name, case)
            checked, moving = checked + n, moving + int(np.any(found != 0, axis=1).sum())
    return checked, moving


def test_a_row_moves_the_sums_by_its_own_bounded_vector() -> None:
    checked, moving = check(NAMES, 2, 40, np.random.default_rng(1))
    assert moving >= checked / 4


@pytest.mark.long
def test_a_hundred_thousand_rows_move_the_sums_by_their_own_bounded_vectors() -> None:
    rng = np.random.default_rng(2)
    assert check(ONE_RESPONSE, 40, 100_000 // (40 * len(ONE_RESPONSE)) + 1, rng)[0] >= 100_000


def test_a_wide_clip_gives_the_log_likelihoods() -> None:
    rng = np.random.default_rng(3)
    for name in NAMES:
        mixtures = tuple(mixture_of(name, rng) for _ in range(3))
        rows, clip = drawn_rows(name, mixtures[0], 100, rng), 2.0**20
        total = likelihood_total(mixtures, rows, clip)
        expected = np.array([expect(mixture, rows).log_likelihood for mixture in mixtures])
        found = np.array(total[:-1]) * clip / GRID
        assert np.allclose(found, expected - expected.mean(), atol=100.0), name  # rounded to 1 in each of 100 rows
        assert total[-1] == 100 * COUNTED


def test_the_mixture_that_the_rows_come_from_is_the_best() -> None:
    rng = np.random.default_rng(4)
    truth = mixture_of("gaussian-full", rng)
    other = Mixture(truth.design, truth.gate, truth.experts.transformed(0.5 * np.eye(3)))
    rows = drawn_rows("gaussian-full", truth, 500, rng)
    for mixtures, best in (((truth, other), 0), ((other, truth), 1)):
        assert int(np.argmax(likelihood_total(mixtures, rows, 2.8)[:-1])) == best


def test_rows_that_are_not_finite_are_zeros_and_counted() -> None:
    rng = np.random.default_rng(5)
    mixtures = tuple(mixture_of("gaussian-full", rng) for _ in range(2))
    rows = drawn_rows("gaussian-full", mixtures[0], 20, rng)
    X, Y = rows.X.copy(), rows.Y.copy()
    X[3, 1], Y[5, 0] = np.nan, np.inf
    found, plain = (likelihoods(mixtures, each, 3.0) for each in (Rows(X, Y), rows))
    others = np.delete(np.arange(20), [3, 5])
    assert not found[[3, 5]].any()
    assert np.array_equal(found[others], plain[others])
    assert likelihood_total(mixtures, Rows(X, Y), 3.0)[-1] == 20 * COUNTED
    assert likelihoods(mixtures, rows.take(np.arange(0)), 3.0).shape == (0, 2)
    with pytest.raises(InvalidInputError, match="weights"):
        likelihoods(mixtures, Rows(X, Y, weight=np.ones(20)), 3.0)
