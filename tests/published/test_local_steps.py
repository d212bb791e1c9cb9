"""Local steps: against their definition, written out client by client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import ConstantGate, Design, GaussianExperts, Groups, Mixture, Rows
from consilience.published.client_steps import ClusterSums, local_steps

HOW = {"one": {"steps": 1}, "five": {"steps": 5}, "prox": {"steps": 1, "prox": True}}
hows = pytest.mark.parametrize("how", HOW.values(), ids=list(HOW))


def problem(
    seed: int = 0, *, K: int = 3, d: int = 4, sizes: tuple[int, ...] = (1, 2, 7, 3, 7, 9), weighted: bool = False
) -> tuple[Mixture, Rows]:
    """Rows in no order of clients, on covariates that are not standardised, and any mixture."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    n = len(groups)
    X, y = 2 + 3 * rng.normal(size=(n, d)), rng.normal(size=(n, 1))
    weight = rng.integers(0, 3, n).astype(float) if weighted else None
    design = Design(rng.normal(size=d), rng.uniform(1, 3, d))
    experts = GaussianExperts(rng.normal(size=(K, 1, d + 1)), rng.uniform(0.5, 2, (K, 1, 1)))
    mixture = Mixture(design, ConstantGate(rng.dirichlet(np.ones(K))), experts)
    return mixture, Rows(X, y, weight, groups=Groups.of(groups))


def moved(
    X: np.ndarray, y: np.ndarray, w: np.ndarray, theta: np.ndarray, *, steps: int, rate: float, prox: bool = False
) -> np.ndarray:
    """Where one client ends, by the definition."""
    n = w.sum()
    if prox:
        A = X.T @ (w[:, None] * X) / n + np.eye(len(theta)) / rate
        return np.linalg.solve(A, X.T @ (w * y) / n + theta / rate)
    for _ in range(steps):
        theta = theta - rate * X.T @ (w * (X @ theta - y)) / n
    return theta


def by_definition(mixture: Mixture, rows: Rows, *, rate: float, steps: int, prox: bool = False) -> ClusterSums:
    K, B, X = mixture.K, mixture.experts.B[:, 0], mixture.design.panel(rows.X).T
    w = np.ones(rows.n) if rows.weight is None else rows.weight
    total, counts, clients, squares = np.zeros_like(B), np.zeros(K), np.zeros(K), np.zeros(K)
    for g in range(len(rows.groups.bounds) - 1):
        own = np.flatnonzero(rows.groups.codes == g)
        if w[own].sum() == 0:
            continue
        rss = np.array([w[own] @ (rows.Y[own, 0] - X[own] @ theta) ** 2 for theta in B])
        k = int(rss.argmin())
        end = moved(X[own], rows.Y[own, 0], w[own], B[k], steps=steps, rate=rate, prox=prox)
        total[k] += w[own].sum() * (end - B[k])
        counts[k] += w[own].sum()
        clients[k] += 1
        squares[k] += rss[k]
    return ClusterSums(total, counts, clients, squares, float(mixture.log_density(rows).sum()))


def assert_same(a: ClusterSums, b: ClusterSums, rtol: float = 1e-10) -> None:
    for name, value in vars(a).items():
        np.testing.assert_allclose(value, getattr(b, name), rtol=rtol, atol=rtol, err_msg=name)


@hows
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 4, 12])
def test_steps_are_those_of_the_definition(how: dict, weighted: bool, d: int) -> None:
    mixture, rows = problem(d=d, weighted=weighted)
    assert_same(local_steps(mixture, rows, rate=0.05, **how), by_definition(mixture, rows, rate=0.05, **how))


@pytest.mark.parametrize("d", [2, 20])
def test_a_proximal_step_minimises_its_objective(d: int) -> None:
    mixture, rows = problem(K=1, d=d, sizes=(6,))
    X, y, theta, rate = mixture.design.panel(rows.X).T, rows.Y[:, 0], mixture.experts.B[0, 0], 0.7
    end = theta + local_steps(mixture, rows, steps=1, rate=rate, prox=True).moved[0] / rows.n
    gradient = X.T @ (X @ end - y) / rows.n + (end - theta) / rate
    np.testing.assert_allclose(gradient, 0, atol=1e-10)


def test_many_gradient_steps_end_at_least_squares() -> None:
    mixture, rows = problem(K=1, d=2, sizes=(30,))
    X = mixture.design.panel(rows.X).T
    fit = np.linalg.lstsq(X, rows.Y[:, 0], rcond=None)[0]
    sums = local_steps(mixture, rows, steps=5_000, rate=0.1)
    np.testing.assert_allclose(mixture.experts.B[0, 0] + sums.moved[0] / rows.n, fit, atol=1e-8)


@hows
@given(cut=st.integers(0, 6), seed=st.integers(0, 100))
def test_sums_over_any_partition_of_clients_are_the_same(how: dict, cut: int, seed: int) -> None:
    mixture, rows = problem(seed, weighted=True)
    order = np.random.default_rng(seed).permutation(6)
    parts = [rows.take(np.flatnonzero(np.isin(rows.groups.codes, own))) for own in (order[:cut], order[cut:])]
    a, b = (local_steps(mixture, part, rate=0.05, **how) for part in parts)
    assert_same(a + b, local_steps(mixture, rows, rate=0.05, **how))


@hows
def test_a_row_of_weight_two_is_a_row_twice_and_of_weight_zero_none(how: dict) -> None:
    mixture, rows = problem(weighted=True)
    assert 0 in rows.weight
    assert 2 in rows.weight
    repeated = rows.take(np.repeat(np.arange(rows.n), rows.weight.astype(int)))
    plain = Rows(repeated.X, repeated.Y, groups=repeated.groups)
    assert_same(local_steps(mixture, rows, rate=0.05, **how), local_steps(mixture, plain, rate=0.05, **how))


@hows
def test_a_client_without_weight_is_none(how: dict) -> None:
    mixture, rows = problem()
    weight = (rows.groups.codes != 2).astype(float)
    without = rows.take(np.flatnonzero(weight))
    weighted = Rows(rows.X, rows.Y, weight, groups=rows.groups)
    assert_same(local_steps(mixture, weighted, rate=0.05, **how), local_steps(mixture, without, rate=0.05, **how))


@hows
def test_another_order_of_experts_is_another_order_of_the_sums(how: dict) -> None:
    mixture, rows = problem()
    order = np.array([2, 0, 1])
    sums, other = (local_steps(m, rows, rate=0.05, **how) for m in (mixture, mixture.permuted(order)))
    for name in ("moved", "rows", "clients", "squares"):
        np.testing.assert_allclose(getattr(other, name), getattr(sums, name)[order], rtol=1e-12)
    assert other.log_likelihood == pytest.approx(sums.log_likelihood, rel=1e-12)


def test_rows_without_groups_are_one_client() -> None:
    mixture, rows = problem(sizes=(5,))
    assert_same(
        local_steps(mixture, Rows(rows.X, rows.Y), steps=2, rate=0.1), local_steps(mixture, rows, steps=2, rate=0.1)
    )


def test_no_rows_make_no_sums() -> None:
    mixture, rows = problem()
    sums = local_steps(mixture, rows.take(np.zeros(0, dtype=int)), steps=1, rate=0.1)
    assert sums.moved.shape == (3, 5)
    assert sums.rows.sum() == sums.clients.sum() == sums.log_likelihood == 0


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture, rows = problem(sizes=(3,) * 40)
    whole = local_steps(mixture, rows, steps=3, rate=0.1)
    monkeypatch.setattr("consilience.published.client_steps.block_rows", lambda p, weights: 7)
    assert_same(local_steps(mixture, rows, steps=3, rate=0.1), whole)
