"""Moments of clients: against sums over their rows, and the pass over clients against the pass over rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import InvalidInputError
from consilience.model import Groups, Rows, expect
from consilience.model import clients as module
from consilience.model.clients import ClientMoments, as_clients, client_moments, client_products, expect_clients
from consilience.model.design import Design
from consilience.model.families.covariance import STRUCTURES
from consilience.model.information import score
from consilience.numerics.arrays import Array, pack, unpack
from strategies import SUM_TOLERANCE, Shape, contributions, label_count, shapes, unweighted

REGRESSIONS = {"gate": "constant", "labels": "group", "q": 1}
FEW = {**REGRESSIONS, "family": st.sampled_from([f"gaussian-{structure}" for structure in STRUCTURES])}


def directions(shape: Shape, p: int) -> tuple[Array, Array]:
    """Coefficients to take residuals from, and two directions."""
    rng = np.random.default_rng([shape.seed, 1])
    return rng.normal(size=p), rng.normal(size=(p, 2))


def direct(rows: Rows, design: Design, theta: Array, basis: Array, *, absolute: bool = False) -> ClientMoments:
    """The definitions, client by client; with ``absolute``, the sums of absolute contributions."""
    size = np.abs if absolute else np.asarray
    out: list[list[Array]] = [[], [], [], []]
    for g in range(label_count(rows)):
        mine = rows.groups.codes == g
        panel, y = design.panel(rows.X[mine]), rows.Y[mine, 0]
        w = np.ones(mine.sum()) if rows.weight is None else rows.weight[mine]
        V, r = size(basis).T @ size(panel), size(y) + size(-theta) @ size(panel)
        for part, value in zip(out, (w.sum(), pack((V * w) @ V.T), V @ (w * r), w @ r**2), strict=True):
            part.append(value)
    return ClientMoments(*(np.array(part) for part in out))


def assert_same_moments(actual: ClientMoments, expected: ClientMoments, scale: ClientMoments) -> None:
    for name, size in vars(scale).items():
        difference = np.abs(getattr(actual, name) - getattr(expected, name))
        assert difference.shape == size.shape
        assert np.all(difference <= SUM_TOLERANCE * size), name


# ---------------------------------------------------------------------- the moments


@given(shape=shapes(family="gaussian-full", **REGRESSIONS), few=st.booleans())
def test_moments_are_sums_over_the_rows_of_each_client(shape: Shape, few: bool) -> None:
    mixture, rows = shape.problem()
    theta, basis = directions(shape, mixture.design.p)
    basis = basis if few else np.eye(mixture.design.p)
    found = client_moments(rows, mixture.design, theta, basis if few else None)
    assert (found.G, found.f) == (label_count(rows), basis.shape[1])
    sums, sizes = (direct(rows, mixture.design, theta, basis, absolute=absolute) for absolute in (False, True))
    assert_same_moments(found, sums, sizes)


@given(shape=shapes(family="gaussian-full", weights="counts", **REGRESSIONS))
def test_weight_two_is_the_row_twice_and_weight_zero_is_the_row_gone(shape: Shape) -> None:
    mixture, rows = shape.problem()
    theta, basis = directions(shape, mixture.design.p)
    weighted, sizes = (direct(rows, mixture.design, theta, basis, absolute=absolute) for absolute in (False, True))
    repeated = client_moments(unweighted(rows), mixture.design, theta, basis)
    left = weighted.n > 0  # a client without weight has moments of 0, one without rows is not there
    chosen, chosen_sizes = (ClientMoments(*(part[left] for part in vars(m).values())) for m in (weighted, sizes))
    assert_same_moments(repeated, chosen, chosen_sizes)
    found = client_moments(rows, mixture.design, theta, basis)
    for part in vars(found).values():
        np.testing.assert_array_equal(part[~left], 0.0)


def test_clients_come_in_the_order_of_their_groups_whatever_that_of_the_rows() -> None:
    mixture, rows = Shape(n=30, **REGRESSIONS).problem()
    design, (theta, basis) = mixture.design, directions(Shape(), mixture.design.p)
    shuffled = rows.take(np.random.default_rng(0).permutation(30))
    sizes = direct(rows, design, theta, basis, absolute=True)
    assert_same_moments(
        client_moments(shuffled, design, theta, basis), client_moments(rows, design, theta, basis), sizes
    )
    named = replace(rows, groups=Groups.of(-rows.groups.codes))
    backwards = client_moments(named, design, theta, basis)
    for name, part in vars(client_moments(rows, design, theta, basis)).items():
        np.testing.assert_array_equal(getattr(backwards, name), part[::-1])


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture, rows = Shape(n=120, weights="counts", **REGRESSIONS).problem()
    theta, basis = directions(Shape(), mixture.design.p)
    whole = client_moments(rows, mixture.design, theta, basis)
    read: list[int] = []
    original = module._of_block

    def recorded(block, theta, basis):
        read.append(block.panel.shape[1])
        return original(block, theta, basis)

    monkeypatch.setattr(module, "_of_block", recorded)
    monkeypatch.setattr("consilience.model.kernels.panels.BLOCK_ROWS", 16)
    apart = client_moments(rows, mixture.design, theta, basis)
    assert len(read) > 5
    assert sum(read) == 120
    assert_same_moments(apart, whole, direct(rows, mixture.design, theta, basis, absolute=True))


def test_a_sum_of_lists_is_both_lists() -> None:
    mixture, rows = Shape(n=20, **REGRESSIONS).problem()
    _, others = Shape(n=15, seed=1, **REGRESSIONS).problem()
    theta = np.zeros(mixture.design.p)
    one, two = (client_moments(part, mixture.design, theta) for part in (rows, others))
    both = one + two
    assert both.G == one.G + two.G
    for name, part in vars(both).items():
        np.testing.assert_array_equal(part, np.concatenate([getattr(one, name), getattr(two, name)]))


def test_no_rows_are_no_clients() -> None:
    rows = Rows(np.empty((0, 2)), np.empty((0, 1)))
    found = client_moments(rows, Design.raw(2), np.zeros(3), np.eye(3)[:, :2])
    assert (found.G, found.f, found.S.shape) == (0, 2, (0, 3))


def test_rows_without_groups_are_one_client() -> None:
    _, rows = Shape(n=9, **REGRESSIONS).problem()
    single = replace(rows, groups=None)
    np.testing.assert_array_equal(as_clients(single).groups.codes, np.zeros(9))
    assert as_clients(rows) is rows
    found = client_moments(single, Design.raw(2), np.zeros(3))
    one = replace(rows, groups=Groups.of(np.zeros(9)))
    assert_same_moments(
        found,
        direct(one, Design.raw(2), np.zeros(3), np.eye(3)),
        direct(one, Design.raw(2), np.zeros(3), np.eye(3), absolute=True),
    )


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8), seed=st.integers(0, 2**32 - 1))
def test_products_of_clients_are_those_of_their_columns(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, sum(sizes))), rng.normal(size=(3, sum(sizes)))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    found = client_products(A, B, starts, np.array(sizes))
    for g, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        part = slice(start, start + size)
        np.testing.assert_allclose(found[g], A[:, part] @ B[:, part].T, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------- what is read off them


@pytest.fixture
def five() -> ClientMoments:
    """Clients with four coefficients each."""
    mixture, rows = Shape(d=3, n=40, **REGRESSIONS).problem()
    return client_moments(rows, mixture.design, np.array([0.5, -1.0, 2.0, 0.0]))


@pytest.mark.parametrize("f", [1, 2, 4])
def test_leading_directions_are_a_corner_of_each_matrix(five: ClientMoments, f: int) -> None:
    few = five.leading(f)
    np.testing.assert_array_equal(unpack(few.S), unpack(five.S)[:, :f, :f])
    np.testing.assert_array_equal(few.b, five.b[:, :f])
    np.testing.assert_array_equal(few.n, five.n)
    np.testing.assert_array_equal(few.c, five.c)


def test_projected_moments_are_those_in_the_directions() -> None:
    mixture, rows = Shape(d=3, n=40, weights="positive", **REGRESSIONS).problem()
    theta, basis = directions(Shape(d=3), 4)
    scale = direct(rows, mixture.design, theta, basis, absolute=True)
    projected = client_moments(rows, mixture.design, theta).projected(basis)
    assert_same_moments(projected, client_moments(rows, mixture.design, theta, basis), scale)
    first = client_moments(rows, mixture.design, theta).projected(np.eye(4)[:, :2])
    assert_same_moments(
        first,
        client_moments(rows, mixture.design, theta).leading(2),
        direct(rows, mixture.design, theta, np.eye(4)[:, :2], absolute=True),
    )


def test_squares_are_those_of_residuals() -> None:
    mixture, rows = Shape(d=2, n=40, weights="positive", **REGRESSIONS).problem()
    theta = np.array([0.5, -1.0, 2.0])
    moments = client_moments(rows, mixture.design, theta)
    B = np.random.default_rng(0).normal(size=(5, 3))
    panel = mixture.design.panel(rows.X)
    found = moments.squares(B)
    assert found.shape == (5, moments.G)
    for k in range(5):
        r2 = rows.weight * (rows.Y[:, 0] - (theta + B[k]) @ panel) ** 2
        np.testing.assert_allclose(found[k], np.bincount(rows.groups.codes, r2), rtol=1e-10)


def test_squares_of_a_perfect_fit_are_never_negative() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    rows = Rows(X, (X @ [1e4, -2e4, 3e3])[:, None], groups=Groups.of(np.arange(200) // 4))
    moments = client_moments(rows, Design.raw(3, intercept=False), np.zeros(3))
    squares = moments.squares(np.array([[1e4, -2e4, 3e3]]))
    assert squares.min() >= 0
    assert squares.max() < 1e-12 * moments.c.max()


def test_ridge_fits_solve_the_penalised_normal_equations(five: ClientMoments) -> None:
    ridge = np.array([0.3, 1.0, 2.0, 0.1])
    fits = five.ridge_fits(ridge)
    for g in range(five.G):
        S = unpack(five.S[g]) + np.diag(ridge)
        np.testing.assert_allclose(S @ fits[g], five.b[g], rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------- the pass over clients


def assert_same_pass(shape: Shape, *, given: bool = False) -> None:
    """Statistics and information from moments are those from rows."""
    mixture, rows = shape.problem()
    theta, _ = directions(shape, mixture.design.p)
    labels = np.random.default_rng(shape.seed).dirichlet(np.ones(shape.K), label_count(rows)).T if given else None
    from_rows = expect(mixture, rows, information=True, given=labels)
    moments = client_moments(rows, mixture.design, theta)
    found = expect_clients(mixture, moments, theta, information=True, given=labels)
    scale = contributions(mixture, rows) + 1.0  # residuals are taken back from others: by their size, not their own
    difference = np.abs(found.to_array() - from_rows.to_array())
    assert np.all(difference <= 1e-10 * scale), difference.max()
    if not given:
        plain = expect_clients(mixture, moments, theta)
        assert plain.information is None
        np.testing.assert_array_equal(plain.to_array(), replace(found, information=None).to_array())


@pytest.mark.slow
@given(shape=shapes(**FEW))
def test_a_pass_over_clients_is_the_pass_over_their_rows(shape: Shape) -> None:
    assert_same_pass(shape)


@pytest.mark.slow
@given(shape=shapes(weights="counts", **FEW))
def test_clients_without_weight_count_for_nothing(shape: Shape) -> None:
    mixture, rows = shape.problem()
    weight = np.where(rows.groups.codes == 0, 0.0, rows.weight)
    empty = replace(rows, weight=weight)
    moments = client_moments(empty, mixture.design, np.zeros(mixture.design.p))
    found = expect_clients(mixture, moments, np.zeros(mixture.design.p), information=True)
    assert found.weight == len(np.unique(rows.groups.codes[weight > 0]))
    some = ClientMoments(*(part[moments.n > 0] for part in vars(moments).values()))
    without = expect_clients(mixture, some, np.zeros(mixture.design.p), information=True)
    np.testing.assert_allclose(found.to_array(), without.to_array(), rtol=1e-12, atol=1e-12)
    difference = np.abs(found.to_array() - expect(mixture, empty, information=True).to_array())
    assert np.all(difference <= 1e-10 * (contributions(mixture, empty) + 1.0))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("K", [1, 2, 4])
def test_responsibilities_may_be_given(structure: str, K: int) -> None:
    assert_same_pass(Shape(family=f"gaussian-{structure}", K=K, n=40, weights="positive", **REGRESSIONS), given=True)


def test_the_information_of_many_clients_is_summed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture, rows = Shape(K=3, n=60, **REGRESSIONS).problem()
    moments = client_moments(rows, mixture.design, np.zeros(3))
    whole = expect_clients(mixture, moments, np.zeros(3), information=True)
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    single = expect_clients(mixture, moments, np.zeros(3), information=True)
    difference = np.abs(single.to_array() - whole.to_array())
    assert np.all(difference <= SUM_TOLERANCE * contributions(mixture, rows))


def test_where_residuals_were_taken_from_does_not_matter() -> None:
    mixture, rows = Shape(K=3, d=3, n=60, **REGRESSIONS).problem()
    passes = [
        expect_clients(mixture, client_moments(rows, mixture.design, theta), theta, information=True)
        for theta in (np.zeros(4), np.array([1.0, -3.0, 0.5, 2.0]))
    ]
    difference = np.abs(passes[0].to_array() - passes[1].to_array())
    assert np.all(difference <= 1e-10 * (contributions(mixture, rows) + 1.0))


def test_the_information_is_the_derivative_of_the_score() -> None:
    """By central differences in the coefficients of the first expert."""
    mixture, rows = Shape(K=2, d=1, n=45, **REGRESSIONS).problem()
    theta = np.array([0.5, -0.5])
    moments = client_moments(rows, mixture.design, theta)
    at = expect_clients(mixture, moments, theta, information=True)
    h = 1e-5
    for j in range(2):
        scores = []
        for sign in (1, -1):
            B = mixture.experts.B.copy()
            B[0, 0, j] += sign * h
            moved = replace(mixture, experts=replace(mixture.experts, B=B))
            scores.append(score(moved, expect_clients(moved, moments, theta)))
        slope = -(scores[0] - scores[1]) / (2 * h)
        np.testing.assert_allclose(slope, at.information[j], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "shape", [Shape(), Shape(gate="constant", q=2), Shape(gate="constant", family="poisson")], ids=repr
)
def test_other_mixtures_have_no_such_moments(shape: Shape) -> None:
    mixture, rows = shape.problem()
    moments = client_moments(rows, mixture.design, np.zeros(mixture.design.p))
    with pytest.raises(InvalidInputError, match=r"expected Gaussian experts|expected regressions with one response"):
        expect_clients(mixture, moments, np.zeros(mixture.design.p))
