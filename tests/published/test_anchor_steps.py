"""Steps of anchors: against sums over pairs, written out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import Design, Groups, Rows
from consilience.published.client_steps import anchor_step, anchor_steps, client_sizes, leading_step


def over_pairs(E: np.ndarray) -> np.ndarray:
    """The mean of ``e_i e_jᵀ`` over all ordered pairs of distinct columns."""
    n = E.shape[1]
    pairs = [np.outer(E[:, i], E[:, j]) for i in range(n) for j in range(n) if i != j]
    return np.mean(pairs, axis=0)


def drawn(seed: int, *, f: int = 3, n: int = 9, mean: float = 2.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return mean * rng.normal(size=(f, 1)) + rng.normal(size=(f, n))


@given(st.integers(0, 500))
def test_the_step_is_the_leading_direction_of_the_pairs(seed: int) -> None:
    E = drawn(seed)
    step, A = leading_step(E, np.ones(9)), over_pairs(E)
    top = np.linalg.eigvalsh(A)[-1]
    assert step @ step == pytest.approx(max(top, 0.0), abs=1e-10)
    np.testing.assert_allclose(A @ step, top * step, atol=1e-9)


@given(st.integers(0, 500))
def test_the_sign_is_that_of_the_mean(seed: int) -> None:
    E = drawn(seed)
    step = leading_step(E, np.ones(9))
    assert step @ E.sum(axis=1) >= 0
    np.testing.assert_allclose(leading_step(-E, np.ones(9)), -step, atol=1e-12)


def test_the_mean_over_disjoint_pairs_averages_to_the_same_matrix() -> None:
    """All pairs are what disjoint pairs are on average, over every way to pair rows."""
    E, rng = drawn(1, n=6), np.random.default_rng(0)
    draws = []
    for _ in range(20_000):
        order = rng.permutation(6)
        draws.append(E[:, order[::2]] @ E[:, order[1::2]].T / 3)
    np.testing.assert_allclose(np.mean(draws, axis=0), over_pairs(E), atol=0.1)


def test_a_row_of_weight_two_is_a_row_twice() -> None:
    E, w = drawn(2), np.array([0, 1, 2, 1, 2, 0, 1, 1, 2])
    np.testing.assert_allclose(leading_step(E, w.astype(float)), leading_step(np.repeat(E, w, axis=1), np.ones(10)))


def test_pairs_that_point_nowhere_make_no_step() -> None:
    np.testing.assert_array_equal(leading_step(np.array([[1.0, -1.0]]), np.ones(2)), [0.0])
    np.testing.assert_array_equal(leading_step(np.ones((2, 1)), np.ones(1)), [0.0, 0.0])
    np.testing.assert_array_equal(leading_step(np.empty((2, 0)), np.empty(0)), [0.0, 0.0])


def rows_of(sizes: tuple[int, ...], d: int = 3, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return Rows(rng.normal(size=(len(groups), d)), rng.normal(size=(len(groups), 1)), groups=Groups.of(groups))


def test_an_anchor_is_asked_about_its_own_rows() -> None:
    rows, rng = rows_of((4, 6, 5)), np.random.default_rng(1)
    design, theta, basis = Design(rng.normal(size=3), rng.uniform(1, 2, 3)), rng.normal(size=4), rng.normal(size=(4, 2))
    own = rows.groups.codes == 1
    panel = design.panel(rows.X[own])
    E = basis.T @ (panel * (rows.Y[own, 0] - theta @ panel))
    np.testing.assert_allclose(anchor_step(rows, 1, design, theta, basis), leading_step(E, np.ones(6)))


def test_the_step_points_to_the_coefficients_of_the_client() -> None:
    rng = np.random.default_rng(0)
    X, own, basis = (
        rng.normal(size=(20_000, 5)),
        np.array([1.0, -2.0, 0, 0, 0.5]),
        np.linalg.qr(rng.normal(size=(5, 3)))[0],
    )
    rows = Rows(X, (X @ own + 0.1 * rng.normal(size=20_000))[:, None])
    theta = rng.normal(size=5)
    step = anchor_step(rows, 0, Design.raw(5, intercept=False), theta, basis)
    np.testing.assert_allclose(step, basis.T @ (own - theta), atol=0.1)


@given(cut=st.integers(0, 5))
def test_places_are_counted_over_all_pieces(cut: int) -> None:
    rows, rng = rows_of((4, 6, 5, 2, 3)), np.random.default_rng(1)
    theta, basis = rng.normal(size=(3, 4)), rng.normal(size=(3, 4, 2))
    pieces = [rows.take(np.flatnonzero(rows.groups.codes < cut)), rows.take(np.flatnonzero(rows.groups.codes >= cut))]
    whole = anchor_steps([rows], (0, 2, 4), Design.raw(3), theta, basis).step
    np.testing.assert_allclose(anchor_steps(pieces, (0, 2, 4), Design.raw(3), theta, basis).step, whole)


def test_who_is_not_there_has_no_step() -> None:
    step = anchor_steps([rows_of((4, 6))], (1, 2), Design.raw(3), np.zeros((2, 4)), np.ones((2, 4, 1))).step
    np.testing.assert_array_equal(np.isnan(step).ravel(), [False, True])


def test_sizes_are_weights_of_clients_in_their_order() -> None:
    rows = rows_of((4, 6, 1))
    np.testing.assert_array_equal(client_sizes(rows).n, [4, 6, 1])
    weighted = Rows(rows.X, rows.Y, np.where(rows.groups.codes == 1, 0.5, 2.0), groups=rows.groups)
    np.testing.assert_array_equal(client_sizes(weighted).n, [8, 3, 2])
    np.testing.assert_array_equal(client_sizes(Rows(rows.X, rows.Y)).n, [11])
