"""Contributions of rows to a private sum: their length, that each depends on its row alone, that their mean is 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience.errors import InvalidInputError
from consilience.model import Design, Experts, GaussianExperts, Groups, Mixture, Rows, expect
from consilience.model.contributions import CHUNK, DRAWS, GRID, Frame, contributions, portions, rounded, sensitivity
from consilience.model.expectation import observed_scores
from contributing import (
    GATES,
    NAMES,
    ONE_RESPONSE,
    asked_of_each,
    drawn_rows,
    gate_of,
    hostile_rows,
    mixture_of,
    squared_lengths,
)


def check_neighbours(seed: int, rows_of_each: int) -> tuple[int, int]:
    """Check lengths and single rows over all families and gates; return the numbers of rows, and of those not zero."""
    checked = moving = 0
    for asked in asked_of_each(seed):
        mixture, rng, P = asked.mixture, asked.rng, asked.mixture.parameter_count
        rows = hostile_rows(asked.name, mixture, rows_of_each, rng)
        k = contributions(mixture, rows, asked.factor, asked.clip)
        assert k.dtype == np.int64
        assert k.shape == (rows.n, P)
        assert max(squared_lengths(k)) <= sensitivity(P) ** 2, (asked.name, asked.gate)
        for index in (
            np.delete(np.arange(rows.n), int(rng.integers(rows.n))),
            rng.permutation(rows.n)[: CHUNK // 2],
        ):
            some = contributions(mixture, rows.take(index), asked.factor, asked.clip)
            assert np.array_equal(some, k[index]), (asked.name, asked.gate)
        checked, moving = checked + rows.n, moving + int(np.any(k != 0, axis=1).sum())
    return checked, moving


def test_a_row_moves_the_sum_by_its_own_bounded_vector():
    """Adding or removing a row changes the sum by exactly that row's integers, whatever the question and the rows."""
    checked, moving = check_neighbours(seed=1, rows_of_each=230)
    assert checked >= 5000
    assert moving >= checked / 4  # rows of zeros only would show nothing


@pytest.mark.long
def test_a_hundred_thousand_rows_move_the_sum_by_their_own_bounded_vectors():
    found = [check_neighbours(seed, rows_of_each=460) for seed in range(2, 13)]
    assert sum(checked for checked, _ in found) >= 100_000


def test_cancelling_predictors_do_not_depend_on_the_other_rows():
    """Products of matrices round by the place of a row: a removed row would move all others, if these cancel."""
    rng = np.random.default_rng(5)
    for name in ("gaussian-spherical", "poisson", "categorical"):
        plain = mixture_of(name, rng, d=24)
        B = plain.experts.B.copy()
        B[..., 1:] += 1e9 * np.resize([1.0, -1.0], 24)
        experts = type(plain.experts)(**{field: getattr(plain.experts, field) for field in fields_of(plain)} | {"B": B})
        mixture = Mixture(Design.raw(24), gate_of("softmax", 2, 25, rng), experts)
        rows = drawn_rows(name, plain, 290, rng)
        X = np.repeat(rng.normal(size=(290, 12)), 2, axis=1) + 1e-9 * rows.X  # pairs of columns that nearly cancel
        rows = Rows(X, rows.Y, exposure=rows.exposure)
        W = np.tril(rng.normal(size=(mixture.parameter_count,) * 2))
        k = contributions(mixture, rows, W, 1.0)
        for index in (np.arange(1, 290), np.arange(7, 12), np.array([3])):
            assert np.array_equal(contributions(mixture, rows.take(index), W, 1.0), k[index]), name


def fields_of(mixture: Mixture) -> tuple[str, ...]:
    return tuple(type(mixture.experts).message_fields)


def test_several_responses_are_bounded_and_depend_on_their_row_alone():
    rng = np.random.default_rng(8)
    for name in ("gaussian-full", "gaussian-diag", "gaussian-spherical", "gaussian-tied"):
        mixture = mixture_of(name, rng, q=2)
        rows, P = drawn_rows(name, mixture, 40, rng), mixture.parameter_count
        k = contributions(mixture, rows, np.eye(P), np.sqrt(P))
        assert max(squared_lengths(k)) <= sensitivity(P) ** 2
        assert np.array_equal(contributions(mixture, rows.take(np.arange(3, 20)), np.eye(P), np.sqrt(P)), k[3:20])


def scores_of(mixture: Mixture, rows: Rows, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whitened scores ``(n, P)`` by numbers times covariates, and by the pass of ordinary fits."""
    frame = Frame(mixture)
    parts = []
    for chunk in portions(frame, rows):
        points = frame.points(chunk)
        parts.append(frame.combined(points.observed, points, np.tril(W)).T)
    scores = np.hstack([observed_scores(mixture, block, at) for block, at in mixture.posteriors(rows)])
    return np.concatenate(parts)[: rows.n], scores.T @ np.tril(W)


def test_contributions_are_made_of_the_scores_of_ordinary_fits():
    rng = np.random.default_rng(2)
    for name in NAMES:
        for gate in GATES:
            for q in (1, 2) if name.startswith("gaussian") else (1,):
                mixture = mixture_of(name, rng, K=3, gate=gate, q=q)
                rows = drawn_rows(name, mixture, 60, rng)
                found, expected = scores_of(mixture, rows, rng.normal(size=(mixture.parameter_count,) * 2))
                assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max()), (name, gate, q)


def test_a_gate_with_covariates_of_its_own():
    rng = np.random.default_rng(3)
    base = mixture_of("gaussian-full", rng, d=3)
    gate_design = Design(np.zeros(1), np.ones(1), columns=(1,), others=np.zeros((2, 2)))
    mixture = Mixture(base.design, gate_of("softmax", 2, 2, rng), base.experts, gate_design)
    rows = drawn_rows("gaussian-full", mixture, 60, rng)
    found, expected = scores_of(mixture, rows, rng.normal(size=(mixture.parameter_count,) * 2))
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_products_give_the_length_of_whitened_scores():
    rng = np.random.default_rng(12)
    for name in ("gaussian-full", "zero_inflated_poisson", "categorical"):
        for gate in GATES:
            mixture = mixture_of(name, rng, K=3, gate=gate)
            frame, W = Frame(mixture), np.tril(rng.normal(size=(mixture.parameter_count,) * 2))
            (chunk,) = portions(frame, drawn_rows(name, mixture, 50, rng))
            points = frame.points(chunk)
            Q, u = frame.products(points, W @ W.T), frame.combined(points.observed, points, W)
            squares = np.einsum("rn,rsn,sn->n", points.observed, Q, points.observed)
            assert np.allclose(squares, np.sum(u**2, axis=0), rtol=1e-9)


def test_the_centre_has_mean_zero_and_drawn_parts_cancel():
    """Σ_j w_j ω_j (a_j - a(x)) vanishes after enough rounds; without nodes, the mean of the draws is subtracted."""
    rng = np.random.default_rng(13)
    for name, q in (("gamma", 1), ("gaussian-full", 2)):
        mixture = mixture_of(name, rng, q=q)
        frame, P = Frame(mixture), mixture.parameter_count
        (chunk, *_) = portions(frame, drawn_rows(name, mixture, 50, rng))
        points = frame.points(chunk)
        Q = frame.products(points, np.eye(P))
        assert points.drawn == (q == 2)
        if not points.drawn:
            b, omega = points.spread(Q, np.sqrt(P))
            assert np.abs(np.sum(points.weights * omega * b, axis=1)).max() < 0.02
        else:
            same = replace(points, observed=points.numbers[:, 3])
            each = [replace(points, observed=points.numbers[:, s]).clipped(Q, 1.0) for s in range(DRAWS)]
            assert np.abs(np.mean(each, axis=0)).max() < 1e-12
            assert np.any(same.clipped(Q, 1.0))


def test_the_length_is_checked_in_integers_and_last():
    P, Delta = 9, sensitivity(9)
    u = np.ones((P, 1)) * np.array([[1.0, 1e300, np.nan, np.inf, 0.0, 1e-320]])
    k = rounded(u, np.sqrt(P) / 2, np.ones(6, dtype=bool))
    squares = [sum(int(x) ** 2 for x in row) for row in k.T]
    assert squares[2] == squares[3] == squares[4] == 0
    assert 0.99 * Delta**2 < squares[0] <= Delta**2
    assert 0.99 * Delta**2 < squares[1] <= Delta**2
    assert not rounded(u[:, :1], 1.0, np.array([False])).any()
    for clip in (np.nan, np.inf, -1.0, 0.0, 1e-320):
        with np.errstate(all="ignore"):
            found = rounded(u, clip, np.ones(6, dtype=bool))
        assert max(squared_lengths(found.T)) <= Delta**2


def test_what_a_fault_of_floats_leaves_too_long_is_zero(monkeypatch):
    monkeypatch.setattr("consilience.model.contributions._sum_of_squares", lambda u: np.zeros(u.shape[1]))
    k = rounded(np.array([[1.0, 0.2], [1.0, 0.2]]), 1.0, np.ones(2, dtype=bool))
    assert not k[:, 0].any()
    assert k[:, 1].tolist() == [209715, 209715]


def test_the_sensitivity_counts_the_rounding():
    for P in (1, 2, 9, 26, 400, 3000):
        assert sensitivity(P) >= GRID + np.sqrt(P) / 2 + 1
        assert sensitivity(P) <= GRID * (1 + 1e-4)


def test_a_cell_that_no_table_has_makes_zeros_of_its_row_only():
    rng = np.random.default_rng(4)
    for name in NAMES:
        mixture = mixture_of(name, rng)
        rows, P = drawn_rows(name, mixture, 30, rng), mixture.parameter_count
        k = contributions(mixture, rows, np.eye(P), np.sqrt(P))
        X, Y = rows.X.copy(), rows.Y.copy()
        X[4, 1], Y[7, 0], Y[9, 0] = np.nan, np.nan, -0.5 if "gaussian" not in name and name != "student" else np.inf
        spoilt = contributions(mixture, Rows(X, Y, exposure=rows.exposure), np.eye(P), np.sqrt(P))
        bad = [4, 7, 9]
        assert not spoilt[bad].any(), name
        assert np.array_equal(np.delete(spoilt, bad, axis=0), np.delete(k, bad, axis=0)), name


def test_supports_agrees_with_in_range():
    rng = np.random.default_rng(6)
    for name in NAMES:
        mixture = mixture_of(name, rng)
        rows = hostile_rows(name, mixture, 200, rng)
        sizes = rows.exposure
        if sizes is not None:
            sizes = np.where(np.isfinite(sizes) & (sizes > 0) & (sizes < 1e17), sizes, 2.0)
            sizes = np.floor(sizes) + 1 if name == "binomial" else sizes
        Y = np.where(np.isfinite(rows.Y), rows.Y, 0.0)
        one = Y[:, : mixture.experts.q]
        found = mixture.experts.supports(one, sizes)
        expected = [
            mixture.experts.in_range(Rows(np.zeros((1, 2)), y[None], exposure=None if sizes is None else s[None]))
            for y, s in zip(one, np.ones(len(one)) if sizes is None else sizes[:, None], strict=True)
        ]
        assert np.array_equal(Experts.supports(mixture.experts, one, sizes), expected), name
        assert not np.any(found & ~np.array(expected)), name
        if name != "categorical":  # whose in_range allows codes with fractions
            assert np.array_equal(found, expected), name


def test_rows_that_are_not_single_are_refused():
    rng = np.random.default_rng(7)
    mixture = mixture_of("poisson", rng)
    rows = drawn_rows("poisson", mixture, 6, rng)
    labels = Groups.of(np.array([0, 0, 1, 1, 2, 2]))
    P = mixture.parameter_count
    for field, value, said in (
        ("groups", labels, "groups"),
        ("clusters", labels, "clusters"),
        ("weight", np.ones(6), "weights"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            contributions(mixture, Rows(rows.X, rows.Y, **{field: value}), np.eye(P), 1.0)
    assert contributions(mixture, rows.take(np.arange(0)), np.eye(P), 1.0).shape == (0, P)


def test_the_chunk_depends_on_the_mixture_alone():
    rng = np.random.default_rng(9)
    assert Frame(mixture_of("poisson", rng)).chunk == CHUNK
    assert Frame(mixture_of("gaussian-full", rng, q=2)).chunk == 1
    wide = Mixture(
        Design.raw(0), gate_of("constant", 300, 1, rng), GaussianExperts(np.zeros((300, 1, 1)), np.ones((300, 1, 1)))
    )
    assert Frame(wide).chunk == 1


# ---------------------------------------------------------------- the mean at the truth


def bias(name: str, mixture: Mixture, n: int, rng: np.random.Generator, clip: float) -> np.ndarray:
    """Mean contribution over rows from the mixture itself, in its standard errors, ``(P,)``."""
    rows = drawn_rows(name, mixture, n, rng)
    P = mixture.parameter_count
    J = expect(mixture, rows, information=True).information / n
    values, vectors = np.linalg.eigh(J)
    W = np.linalg.cholesky((vectors / np.maximum(values, 1e-4 * values.max())) @ vectors.T)
    k = contributions(mixture, rows, W, clip * np.sqrt(P)).astype(float)
    spread = k.std(axis=0)
    return k.mean(axis=0) / np.where(spread > 0, spread, 1.0) * np.sqrt(n)


CASES_OF_BIAS = [(name, gate) for name in (*ONE_RESPONSE, "gaussian-full") for gate in GATES]


def test_the_mean_contribution_at_the_truth_is_zero():
    """Within four standard errors of 4,000 rows, with a clip that cuts a large share of them."""
    found = {}
    for place, (name, gate) in enumerate(CASES_OF_BIAS):
        rng = np.random.default_rng([20, place])
        z = bias(name, mixture_of(name, rng, d=3, gate=gate), 4000, rng, 1.0)
        if np.abs(z).max() > 4:
            found[name, gate] = z
    assert not found


@pytest.mark.long
def test_the_mean_contribution_at_the_truth_is_zero_for_many_rows():
    """Within four standard errors of 100,000 rows: an error of the quadrature is a fixed shift."""
    found = {}
    for place, (name, gate) in enumerate(CASES_OF_BIAS):
        for seed in range(2):
            rng = np.random.default_rng([21, place, seed])
            z = bias(name, mixture_of(name, rng, d=3, gate=gate), 100_000, rng, 1.0)
            if np.abs(z).max() > 4:
                found[name, gate, seed] = z
    assert not found
