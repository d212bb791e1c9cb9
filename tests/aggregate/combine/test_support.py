"""Covariates in few numbers: the moments of the data, draws that look like them, and no row among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from consilience.aggregate.combine.site_model import (
    COMPONENTS,
    LEAST_HELD,
    LEAST_ROWS,
    RARE,
    RIDGE,
    CovariateSummary,
    covariate_summary,
)
from consilience.numerics.arrays import Array, unpack


def described(X: Array, weight: Array | None = None, seed: int = 0) -> CovariateSummary:
    return covariate_summary(X, np.ones(len(X)) if weight is None else weight, np.random.default_rng(seed))


def patients(n: int, seed: int = 0) -> Array:
    """Two measurements that depend on a flag, a code of three values, and a column that does not vary."""
    rng = np.random.default_rng(seed)
    flag = (rng.random(n) < 0.3).astype(float)
    age = rng.normal(50 + 10 * flag, 5)
    dose = 0.02 * age + rng.normal(0, 0.1, n)
    return np.column_stack([age, dose, flag, rng.choice([1.0, 2.0, 5.0], n, p=[0.5, 0.3, 0.2]), np.full(n, 0.1)])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Array, Array]:
    """Rows with weights: columns of many values or of few, of any size and place; some do not vary."""
    n, rng = draw(st.integers(1, 80)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = []
    for _ in range(draw(st.integers(1, 4))):
        values = draw(st.sampled_from([1, 2, 5, 0]))
        drawn = rng.normal(size=n) if values == 0 else rng.integers(0, values, n).astype(float)
        columns.append(draw(st.sampled_from([1e-6, 1.0, 1e4])) * drawn + draw(st.sampled_from([0.0, -3.0, 1e3])))
    weight = rng.uniform(0.1, 3.0, n) if draw(st.booleans()) else np.ones(n)
    return np.column_stack(columns), weight


# ---------------------------------------------------------------------- moments


@given(tables())
def test_the_moments_are_those_of_the_data(table: tuple[Array, Array]) -> None:
    X, weight = table
    summary = described(X, weight)
    mean, variance = summary.moments()
    share = weight / weight.sum()
    centre, spread = share @ X, share @ (X - share @ X) ** 2
    reach, size = np.ptp(X, axis=0), np.abs(X).max(axis=0)
    for j in range(X.shape[1]):
        off, wide = abs(mean[j] - centre[j]), abs(variance[j] - spread[j])
        rounding = 1e-12 * size[j] ** 2
        if j in summary.many:
            unit = spread[j] if spread[j] > 0 else 1.0
            assert off <= 1e-12 * size[j] + 1e-10 * reach[j]
            assert abs(variance[j] - spread[j] - RIDGE * unit) <= rounding + 1e-9 * spread[j]
        else:  # a share is added for values that a class has not seen, and values of few rows are told as others
            claim = COMPONENTS * RARE + share[~np.isin(X[:, j], summary.levels[j])].sum()
            assert off <= 1e-12 * size[j] + claim * reach[j]
            assert wide <= rounding + 3 * claim * reach[j] ** 2


@given(tables(), st.integers(0, 2**32 - 1))
def test_every_table_can_be_described_drawn_from_and_weighed(table: tuple[Array, Array], seed: int) -> None:
    X, weight = table
    summary = described(X, weight, seed)
    drawn = summary.sample(50, np.random.default_rng(seed))
    assert drawn.shape == (50, X.shape[1])
    assert np.all(np.isfinite(drawn))
    assert np.all(np.isfinite(summary.log_density(drawn)))
    assert np.all(np.isfinite(summary.log_density(X)))
    assert summary.weights.sum() == pytest.approx(1.0)
    for values, shares in zip(summary.levels, summary.shares, strict=True):
        if len(values):
            np.testing.assert_allclose(shares.sum(axis=1), 1.0)
            assert shares.min() > 0


@pytest.mark.slow
@given(tables(), st.integers(0, 2**32 - 1))
def test_units_do_not_matter(table: tuple[Array, Array], seed: int) -> None:
    X, weight = table
    rng = np.random.default_rng(seed)
    slope = 2.0 ** rng.integers(-3, 4, X.shape[1])  # the same bits in other units
    here, there = described(X, weight), described(slope * X, weight)
    np.testing.assert_allclose(there.weights, here.weights, rtol=1e-9)
    np.testing.assert_allclose(there.moments()[0], slope * here.moments()[0], rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------- draws


def test_draws_have_the_means_spreads_and_shares_of_the_data() -> None:
    X = patients(2_000)
    drawn = described(X).sample(40_000, np.random.default_rng(1))
    se = X.std(axis=0) / np.sqrt(40_000)
    assert np.all(np.abs(drawn.mean(axis=0) - X.mean(axis=0)) <= 4 * se + 2 * RARE * np.ptp(X, axis=0) + 1e-12)
    np.testing.assert_allclose(drawn[:, :4].std(axis=0), X[:, :4].std(axis=0), rtol=0.03)
    for j in (2, 3, 4):
        values = np.unique(X[:, j])
        assert set(drawn[:, j]) == set(values)
        for value in values:
            assert np.mean(drawn[:, j] == value) == pytest.approx(np.mean(X[:, j] == value), abs=0.015)


def test_columns_that_go_together_do_so_in_draws() -> None:
    X = patients(2_000)
    drawn = described(X).sample(40_000, np.random.default_rng(1))
    np.testing.assert_allclose(np.corrcoef(drawn[:, :3].T), np.corrcoef(X[:, :3].T), atol=0.1)


def test_classes_that_lie_apart_are_found() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 0.1, (300, 2)) for c in (-5, 0, 5)])
    drawn = described(X).sample(3_000, rng)
    distance = np.abs(drawn[:, :1] - np.array([-5, 0, 5])).min(axis=1)
    assert np.mean(distance < 0.5) > 0.99


def test_few_draws_have_classes_in_their_shares() -> None:
    summary = CovariateSummary(
        np.array([0.5, 0.3, 0.2]), np.array([[0.0], [10.0], [20.0]]), np.full((3, 1), 1e-4), (np.empty(0),), ()
    )
    for seed in range(20):
        drawn = summary.sample(10, np.random.default_rng(seed))
        assert np.bincount(np.round(drawn[:, 0] / 10).astype(int)).tolist() == [5, 3, 2]
    assert summary.sample(0, np.random.default_rng(0)).shape == (0, 1)


def test_a_seed_draws_the_same_again() -> None:
    X = patients(500)
    one, two = (described(X, seed=3).sample(100, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(one, two)


# ---------------------------------------------------------------------- density


def test_the_density_of_one_class_is_the_normal_one() -> None:
    X = np.random.default_rng(0).multivariate_normal([1.0, -2.0], [[2.0, 0.6], [0.6, 1.0]], 25)
    summary = described(X)
    assert len(summary.weights) == 1
    at = np.random.default_rng(1).normal(size=(40, 2))
    normal = multivariate_normal(X.mean(axis=0), np.cov(X.T, bias=True) * (np.ones((2, 2)) + RIDGE * np.eye(2)))
    np.testing.assert_allclose(summary.log_density(at), normal.logpdf(at) + np.log(2 * np.pi), rtol=1e-8)


def test_a_flag_adds_the_logarithm_of_its_share() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=28), np.arange(28) % 4 == 0])
    summary = described(X)
    assert len(summary.weights) == 1
    with_flag, without = (summary.log_density(np.column_stack([np.zeros(1), [flag]])) for flag in (1.0, 0.0))
    assert with_flag - without == pytest.approx(np.log(0.25 / 0.75), abs=2 * RARE)


def test_the_density_is_that_of_the_draws() -> None:
    summary = described(patients(2_000)[:, :2])
    rng = np.random.default_rng(2)
    drawn = summary.sample(20_000, rng)
    box = np.abs(drawn - drawn.mean(axis=0)) < 0.5 * drawn.std(axis=0)
    inside = box.all(axis=1).mean()
    width = drawn.std(axis=0)
    grid = drawn.mean(axis=0) + width * (rng.random((20_000, 2)) - 0.5)
    volume = np.mean(np.exp(summary.log_density(grid)) / (2 * np.pi)) * np.prod(width)
    assert volume == pytest.approx(inside, rel=0.05)


def test_a_value_that_the_site_has_never_seen_is_unlikely_there() -> None:
    rng = np.random.default_rng(0)
    summary = described(np.column_stack([rng.normal(size=200), np.zeros(200)]))  # nobody has the flag
    seen, unseen = summary.log_density(np.array([[0.0, 0.0], [0.0, 1.0]]))
    assert unseen < seen - 3


# ---------------------------------------------------------------------- weights


@given(st.integers(0, 2**32 - 1))
def test_a_weight_is_a_repetition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, weight = patients(30, seed), rng.integers(1, 4, 30).astype(float)
    repeated = np.repeat(X, weight.astype(int), axis=0)
    one, two = (described(A, w) for A, w in ((X, weight), (repeated, np.ones(len(repeated)))))
    for a, b in zip(one.moments(), two.moments(), strict=True):
        np.testing.assert_allclose(a[:2], b[:2], rtol=1e-9)  # of columns with many values
        np.testing.assert_allclose(a[2:], b[2:], atol=10 * COMPONENTS * RARE)
    assert [v.tolist() for v in one.levels] == [v.tolist() for v in two.levels]


def test_in_one_class_a_weight_is_a_repetition_in_every_number() -> None:
    X, weight = patients(12), np.arange(12) % 3 + 1.0
    repeated = np.repeat(X, weight.astype(int), axis=0)
    one, two = (described(A, w) for A, w in ((X, weight), (repeated, np.ones(len(repeated)))))
    assert len(one.weights) == len(two.weights) == 1
    np.testing.assert_allclose(one.means, two.means, rtol=1e-12)
    np.testing.assert_allclose(one.covariances, two.covariances, rtol=1e-9)
    for a, b in zip(one.shares, two.shares, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_size_of_weights_does_not_matter() -> None:
    X, weight = patients(400), np.random.default_rng(0).uniform(0.5, 2, 400)
    one, two = described(X, weight), described(X, 1024 * weight)
    np.testing.assert_array_equal(one.means, two.means)
    np.testing.assert_array_equal(one.covariances, two.covariances)


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize(("n", "classes"), [(1, 1), (29, 1), (39, 1), (5_000, 4)])
def test_few_rows_have_few_classes(n: int, classes: int) -> None:
    X = np.random.default_rng(0).normal(size=(n, 2))
    assert len(described(X).weights) == classes


@given(tables(), st.integers(0, 2**32 - 1))
def test_a_class_stands_for_twenty_rows_or_more(table: tuple[Array, Array], seed: int) -> None:
    X, weight = table
    summary = described(X, weight, seed)
    assert len(summary.weights) == 1 or weight.sum() * summary.weights.min() >= LEAST_ROWS


@given(tables())
def test_a_value_that_is_told_is_held_by_five_rows_or_more(table: tuple[Array, Array]) -> None:
    X, _ = table
    for values, column in zip(described(X).levels, X.T, strict=True):
        assert all(np.sum(column == value) >= LEAST_HELD for value in values)


def test_one_row_has_no_spread() -> None:
    mean, variance = described(np.array([[3.0, -1.0]])).moments()
    np.testing.assert_allclose(mean, [3.0, -1.0])
    assert variance.max() < 1e-5


def test_a_row_without_weight_is_not_there() -> None:
    X, weight = patients(300), np.ones(300)
    X[7], weight[7] = 99.0, 0.0
    kept = np.delete(np.arange(300), 7)
    one, two = described(X, weight), described(X[kept])
    for a, b in zip(one.moments(), two.moments(), strict=True):
        np.testing.assert_allclose(a[:2], b[:2], rtol=1e-9)
    assert [values.tolist() for values in one.levels] == [values.tolist() for values in two.levels]


def test_a_column_that_does_not_vary_stays_as_it_is() -> None:
    X = np.column_stack([np.random.default_rng(0).normal(size=300), np.full(300, 0.1)])
    summary = described(X)
    assert summary.many.tolist() == [0]
    assert np.all(summary.sample(500, np.random.default_rng(0))[:, 1] == 0.1)
    assert summary.moments()[1][1] == pytest.approx(0.0, abs=1e-15)


def test_columns_that_repeat_each_other_can_be_drawn() -> None:
    x = np.random.default_rng(0).normal(size=300)
    summary = described(np.column_stack([x, 2 * x, -x]))
    drawn = summary.sample(200, np.random.default_rng(1))
    np.testing.assert_allclose(drawn[:, 1], 2 * drawn[:, 0], atol=0.02)
    assert np.all(np.isfinite(summary.log_density(drawn)))


def test_eight_values_are_codes_and_nine_are_measurements() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 8, 500), rng.integers(0, 9, 500)]).astype(float)
    summary = described(X)
    assert [len(values) for values in summary.levels] == [8, 0]
    assert summary.many.tolist() == [1]


# ---------------------------------------------------------------------- nobody's row


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_no_draw_has_a_value_of_the_data(seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(200, 3))
    drawn = described(X, seed=seed).sample(1_000, np.random.default_rng(seed + 1))
    assert not set(drawn.ravel()) & set(X.ravel())


def numbers(summary: CovariateSummary) -> Array:
    parts = (summary.weights, summary.means, summary.covariances, *summary.levels, *summary.shares)
    return np.concatenate([part.ravel() for part in parts])


def is_disclosed(values: Array, summary: CovariateSummary) -> bool:
    """Whether one of the numbers is a value of the data, up to rounding."""
    return bool(np.isclose(numbers(summary)[:, None], values, rtol=1e-9, atol=0.0).any())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_no_number_of_a_description_is_a_value_of_the_data(seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(200, 3))
    assert not is_disclosed(X.ravel(), described(X, seed=seed))
    assert unpack(described(X, seed=seed).covariances).shape[1:] == (3, 3)


def test_a_row_far_from_the_others_is_not_given_away() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[7] = 60.125, -45.5
    assert not any(is_disclosed(X[7], described(X, seed=seed)) for seed in range(5))


def test_the_values_of_few_rows_are_not_given_away() -> None:
    X = np.random.default_rng(0).normal(size=(8, 2))
    assert not is_disclosed(X.ravel(), described(X))


def test_a_rare_value_of_a_column_with_few_is_not_given_away() -> None:
    X = patients(500)
    X[3, 2] = 17.375  # one patient
    assert not is_disclosed(np.array([17.375]), described(X))
