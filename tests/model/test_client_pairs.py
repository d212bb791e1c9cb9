"""Sums over pairs of a client's rows: against the double loop, and unbiased where squares are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import Groups, Rows
from consilience.model import clients as pairs
from consilience.model.clients import PairSums, as_clients, pair_sums
from consilience.model.design import Design
from consilience.numerics.arrays import Array
from strategies import SUM_TOLERANCE, Shape, label_count, shapes, unweighted

CLIENTS = {"family": "gaussian-full", "gate": "constant", "labels": "group", "q": 1}


def residual_vectors(rows: Rows, design: Design, theta: Array, *, absolute: bool = False) -> Array:
    """``(y - x̃ᵀθ) x̃`` of each row, ``(n, p)``; with ``absolute``, the size of its terms."""
    panel = design.panel(rows.X)
    if absolute:
        return (np.abs(panel) * (np.abs(rows.Y[:, 0]) + np.abs(theta) @ np.abs(panel))).T
    return (panel * (rows.Y[:, 0] - theta @ panel)).T


def looped(rows: Rows, design: Design, theta: Array, *, absolute: bool = False) -> PairSums:
    """The definition: every ordered pair of distinct rows of a client, over its rows."""
    E = residual_vectors(rows, design, theta, absolute=absolute)
    product, count = np.zeros((design.p, design.p)), 0.0
    for g in range(label_count(rows)):
        mine = np.flatnonzero(rows.groups.codes == g)
        count += len(mine) - 1
        for i in mine:
            for j in mine:
                if i != j or absolute:  # the terms of i = j are added and taken away
                    product += np.outer(E[i], E[j]) / len(mine)
    return PairSums(product, count)


def coefficients(shape: Shape, p: int) -> Array:
    return np.random.default_rng([shape.seed, 2]).normal(size=p)


@given(shape=shapes(weights=None, **CLIENTS))
def test_sums_are_those_of_the_double_loop(shape: Shape) -> None:
    mixture, rows = shape.problem()
    theta = coefficients(shape, mixture.design.p)
    found, expected = pair_sums(rows, mixture.design, theta), looped(rows, mixture.design, theta)
    size = looped(rows, mixture.design, theta, absolute=True).product
    assert np.all(np.abs(found.product - expected.product) <= SUM_TOLERANCE * size)
    assert found.pairs == expected.pairs


@given(shape=shapes(weights="counts", **CLIENTS))
def test_weight_two_is_the_row_twice(shape: Shape) -> None:
    mixture, rows = shape.problem()
    theta, repeated = coefficients(shape, mixture.design.p), unweighted(rows)
    found, expected = pair_sums(rows, mixture.design, theta), looped(repeated, mixture.design, theta)
    size = looped(repeated, mixture.design, theta, absolute=True).product
    assert np.all(np.abs(found.product - expected.product) <= SUM_TOLERANCE * size)
    assert found.pairs == expected.pairs


@given(shape=shapes(weights="counts", **CLIENTS), K=st.integers(1, 3))
def test_with_a_basis_the_sum_is_multiplied_by_it(shape: Shape, K: int) -> None:
    mixture, rows = shape.problem()
    theta, p = coefficients(shape, mixture.design.p), mixture.design.p
    U = np.random.default_rng(shape.seed).normal(size=(p, K))
    whole, few = pair_sums(rows, mixture.design, theta), pair_sums(rows, mixture.design, theta, U)
    size = looped(unweighted(rows), mixture.design, theta, absolute=True).product @ np.abs(U)
    assert few.product.shape == (p, K)
    assert np.all(np.abs(few.product - whole.product @ U) <= SUM_TOLERANCE * size)
    assert few.pairs == whole.pairs


def test_clients_with_one_row_add_nothing() -> None:
    mixture, rows = Shape(n=20, **CLIENTS).problem()
    theta = coefficients(Shape(), mixture.design.p)
    alone = replace(rows, groups=Groups.of(np.arange(20)))
    found = pair_sums(alone, mixture.design, theta)
    np.testing.assert_array_equal(found.product, 0.0)
    assert found.pairs == 0.0
    names = np.where(np.arange(20) < 12, 0, np.arange(20))
    some = pair_sums(replace(rows, groups=Groups.of(names)), mixture.design, theta)
    first = pair_sums(replace(rows.take(np.arange(12)), groups=None), mixture.design, theta)
    np.testing.assert_allclose(some.product, first.product, rtol=1e-12, atol=1e-12 * np.abs(first.product).max())
    assert some.pairs == first.pairs == 11.0


def test_sums_add_over_clients_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture, rows = Shape(n=120, weights="counts", **CLIENTS).problem()
    theta = coefficients(Shape(), mixture.design.p)
    whole = pair_sums(rows, mixture.design, theta)
    size = looped(unweighted(rows), mixture.design, theta, absolute=True).product
    low, high = (rows.take(np.flatnonzero(mask)) for mask in (rows.groups.codes < 17, rows.groups.codes >= 17))
    both = pair_sums(low, mixture.design, theta) + pair_sums(high, mixture.design, theta)
    assert np.all(np.abs(both.product - whole.product) <= SUM_TOLERANCE * size)
    read = []
    original = pairs._pairs_of_block
    monkeypatch.setattr(pairs, "_pairs_of_block", lambda *block: read.append(0) or original(*block))
    monkeypatch.setattr("consilience.model.kernels.panels.BLOCK_ROWS", 16)
    apart = pair_sums(rows, mixture.design, theta)
    assert len(read) > 5
    assert np.all(np.abs(apart.product - whole.product) <= SUM_TOLERANCE * size)
    assert apart.pairs == both.pairs == whole.pairs


def test_no_rows_have_no_pairs() -> None:
    found = pair_sums(Rows(np.empty((0, 2)), np.empty((0, 1))), Design.raw(2), np.zeros(3), np.ones((3, 2)))
    np.testing.assert_array_equal(found.product, np.zeros((3, 2)))
    assert found.pairs == 0.0


@pytest.mark.parametrize("theta", [np.zeros(3), np.array([0.5, -1.0, 0.3])], ids=["from 0", "from elsewhere"])
def test_the_mean_over_pairs_is_unbiased_whatever_the_noise(theta: Array) -> None:
    """``E = Σ_k p_k Σ_x (θ_k - θ)(θ_k - θ)ᵀ Σ_x``; the mean of squares, pairs with themselves, is far off."""
    rng = np.random.default_rng(0)
    experts, shares = np.array([[1.0, 0.0, -1.0], [-0.5, 1.0, 0.0]]), np.array([0.3, 0.7])
    root = np.array([[1.0, 0.0, 0.0], [0.4, 0.8, 0.0], [0.0, -0.3, 1.2]])
    sizes = rng.choice([1, 2, 3, 6], 8000)  # sizes do not tell of labels: any weighting by them is unbiased
    groups = np.repeat(np.arange(8000), sizes)
    labels = rng.choice(2, 8000, p=shares)[groups]
    X = rng.normal(size=(len(groups), 3)) @ root.T
    y = np.sum(X * experts[labels], axis=1) + 3.0 * rng.normal(size=len(groups))
    Sigma = root @ root.T
    expected = sum(p * np.outer(Sigma @ (t - theta), Sigma @ (t - theta)) for p, t in zip(shares, experts, strict=True))
    design, rows = Design.raw(3, intercept=False), Rows(X, y[:, None], groups=Groups.of(groups))
    batches = [
        pair_sums(rows.take(np.flatnonzero(groups % 40 == i)), design, theta) for i in range(40)
    ]  # 40 independent means
    means = np.array([part.product / part.pairs for part in batches])
    error = means.mean(axis=0) - expected
    noise = means.std(axis=0, ddof=1) / np.sqrt(40)
    assert np.all(np.abs(error) <= 4 * noise)
    E = residual_vectors(as_clients(rows), design, theta)
    squares = E.T @ E / len(E)
    assert np.any(np.abs(squares - expected) > 20 * noise)
