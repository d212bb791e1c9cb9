"""Contributions of groups to a private sum: their length, that each is of its group alone, that their mean is 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilience.errors import InvalidInputError
from consilience.fit.private_step import score_factor
from consilience.model import Groups, Mixture, Rows, expect
from consilience.model.contributions import COUNTED, GRID, Frame, sensitivity, total_sensitivity
from consilience.model.expectation import observed_scores
from consilience.model.group_contributions import (
    SETS,
    GroupedCovariates,
    Seen,
    batches,
    centre_of,
    group_contributions,
    group_scores,
    group_total,
    rows_at_once,
)
from contributing import (
    GATES,
    NAMES,
    asked_of_each,
    gate_of,
    mixture_of,
    squared_lengths,
)
from grouped import drawn_groups, grouped_rows, hostile_groups, without


def check_neighbours(seed: int, groups_of_each: int) -> tuple[int, int]:
    """Check lengths and single groups over families and gates; return the numbers of groups, and of those not zero."""
    checked = moving = 0
    for asked in asked_of_each(seed):
        mixture, rng, P = asked.mixture, asked.rng, asked.mixture.parameter_count
        rows = hostile_groups(asked.name, mixture, groups_of_each, rng, most=int(rng.integers(1, 7)))
        k = group_contributions(mixture, rows, asked.factor, asked.clip)
        assert k.dtype == np.int64
        assert k.shape == (groups_of_each, P)
        assert max(squared_lengths(k)) <= sensitivity(P) ** 2, (asked.name, asked.gate)
        gone = int(rng.integers(groups_of_each))
        rest = group_contributions(mixture, without(rows, gone), asked.factor, asked.clip)
        assert np.array_equal(rest, np.delete(k, gone, axis=0)), (asked.name, asked.gate)
        checked, moving = checked + len(k), moving + int(np.any(k != 0, axis=1).sum())
    return checked, moving


def test_a_group_moves_the_sum_by_its_own_bounded_vector():
    """Adding or removing a group changes the sum by exactly its integers, whatever the question and the rows."""
    checked, moving = check_neighbours(seed=1, groups_of_each=60)
    assert checked >= 1400
    assert moving >= checked / 4  # groups of zeros only would show nothing


@pytest.mark.long
def test_fifty_thousand_groups_move_the_sum_by_their_own_bounded_vectors():
    found = [check_neighbours(seed, groups_of_each=420) for seed in range(2, 7)]
    assert sum(checked for checked, _ in found) >= 50_000


def test_groups_with_the_same_rows_add_one_vector_each():
    """Their draws differ, by how many equal groups there were before; one group fewer is one vector fewer."""
    rng = np.random.default_rng(8)
    mixture = mixture_of("binomial", rng, d=1)
    X = GroupedCovariates(rng.integers(0, 2, size=(400, 1)).astype(float), np.full(200, 2))
    rows, P = drawn_groups(mixture, X, rng), mixture.parameter_count
    W, clip = np.eye(P), float(np.sqrt(P))
    k = group_contributions(mixture, rows, W, clip)
    assert len(np.unique(np.hstack([rows.X.reshape(200, 2), rows.Y.reshape(200, 2)]), axis=0)) <= 16
    assert len(np.unique(k, axis=0)) > 100
    whole = group_total(mixture, rows, W, clip, Seen())
    assert whole[:-1] == [int(x) for x in k.sum(axis=0)]
    for group in range(0, 200, 9):
        rest = group_total(mixture, without(rows, group), W, clip, Seen())
        assert sum((a - b) ** 2 for a, b in zip(whole, rest, strict=True)) <= total_sensitivity(P) ** 2


def test_sums_do_not_depend_on_where_a_table_is_cut():
    """Equal groups in two chunks of a file are counted through."""
    rng = np.random.default_rng(9)
    mixture = mixture_of("binomial", rng, d=1)
    X = GroupedCovariates(rng.integers(0, 2, size=(120, 1)).astype(float), np.full(60, 2))
    rows, P = drawn_groups(mixture, X, rng), mixture.parameter_count
    whole = group_total(mixture, rows, np.eye(P), 1.0, Seen())
    for cut in (1, 17, 44):
        seen, parts = Seen(), (np.arange(2 * cut), np.arange(2 * cut, rows.n))
        found = [group_total(mixture, rows.take(part), np.eye(P), 1.0, seen) for part in parts]
        assert [a + b for a, b in zip(*found, strict=True)] == whole


def test_cancelling_predictors_do_not_depend_on_the_other_groups():
    rng = np.random.default_rng(5)
    plain = mixture_of("poisson", rng, d=12)
    B = plain.experts.B.copy()
    B[..., 1:] += 1e9 * np.resize([1.0, -1.0], 12)
    mixture = Mixture(plain.design, gate_of("softmax", 2, 13, rng), replace(plain.experts, B=B))
    rows = grouped_rows("poisson", plain, 90, rng)
    X = np.repeat(rng.normal(size=(rows.n, 6)), 2, axis=1) + 1e-9 * rows.X  # pairs of columns that nearly cancel
    rows = replace(rows, X=X)
    W = np.tril(rng.normal(size=(mixture.parameter_count,) * 2))
    k = group_contributions(mixture, rows, W, 1.0)
    for gone in (0, 31, 89):
        assert np.array_equal(group_contributions(mixture, without(rows, gone), W, 1.0), np.delete(k, gone, axis=0))


# ---------------------------------------------------------------- scores


def check_scores(name: str, mixture: Mixture, rows: Rows) -> None:
    expected = np.hstack([observed_scores(mixture, block, at) for block, at in mixture.posteriors(rows)])
    frame, found = Frame(mixture), np.zeros_like(expected)
    for places, batch in batches(frame, rows, Seen()):
        found[:, places] = group_scores(frame, batch).scores[:, 0, : len(places)]
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max()), name


def test_contributions_are_made_of_the_scores_of_ordinary_fits():
    rng = np.random.default_rng(2)
    for name in NAMES:
        for gate in GATES:
            mixture = mixture_of(name, rng, K=3, gate=gate, q=2 if name.startswith("gaussian") else 1)
            check_scores(name, mixture, grouped_rows(name, mixture, 25, rng))


def test_a_large_group_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(3)
    mixture = mixture_of("gamma", rng, d=3)
    rows = grouped_rows("gamma", mixture, 3, rng, most=1)
    many = rng.integers(0, 3, size=900)
    large = Rows(rows.X[many] + 0.1 * rng.normal(size=(900, 3)), rows.Y[many], groups=Groups.of(many))
    monkeypatch.setattr("consilience.model.group_contributions.CELLS", 2**14)
    assert rows_at_once(Frame(mixture)) < 50
    check_scores("gamma", mixture, large)


# ---------------------------------------------------------------- what is not counted


def test_a_cell_that_no_table_has_makes_zeros_of_its_group_only():
    rng = np.random.default_rng(4)
    for name in NAMES:
        mixture = mixture_of(name, rng)
        rows, P = grouped_rows(name, mixture, 12, rng), mixture.parameter_count
        k = group_contributions(mixture, rows, np.eye(P), np.sqrt(P))
        X, Y = rows.X.copy(), rows.Y.copy()
        first = rows.groups.order[rows.groups.bounds[[4, 7]]]
        X[first[0], 1], Y[first[1], 0] = np.nan, np.inf
        spoilt = group_contributions(mixture, replace(rows, X=X, Y=Y), np.eye(P), np.sqrt(P))
        assert not spoilt[[4, 7]].any(), name
        assert np.array_equal(np.delete(spoilt, [4, 7], axis=0), np.delete(k, [4, 7], axis=0)), name


def test_a_group_whose_responses_cannot_be_drawn_is_zeros(monkeypatch: pytest.MonkeyPatch):
    """A generator that refuses a number is no error: whether a site answers does not depend on its rows."""
    rng = np.random.default_rng(6)
    mixture = mixture_of("poisson", rng)
    rows, P = grouped_rows("poisson", mixture, 5, rng), mixture.parameter_count

    def refuse(*_: Any) -> None:
        raise ValueError("lam value too large")

    monkeypatch.setattr(type(mixture.experts), "sample", refuse)
    assert not group_contributions(mixture, rows, np.eye(P), 1.0).any()
    assert group_total(mixture, rows, np.eye(P), 1.0, Seen())[-1] == 5 * COUNTED


def test_rows_that_are_not_groups_are_refused():
    rng = np.random.default_rng(7)
    mixture = mixture_of("poisson", rng)
    rows, P = grouped_rows("poisson", mixture, 4, rng), mixture.parameter_count
    for more, said in (
        ({"clusters": rows.groups}, "clusters"),
        ({"weight": np.ones(rows.n)}, "weights"),
        ({"groups": None}, "need rows with groups"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            group_contributions(mixture, replace(rows, **more), np.eye(P), 1.0)
    assert group_contributions(mixture, rows.take(np.arange(0)), np.eye(P), 1.0).shape == (0, P)


# ---------------------------------------------------------------- the mean at the truth


def test_the_centre_makes_the_mean_over_all_sets_vanish():
    rng = np.random.default_rng(13)
    for P in (2, 5, 20):
        z = rng.normal(size=(P, SETS, 40)) + rng.exponential(size=(P, 1, 40))
        centre, omega = centre_of(z, np.sqrt(P) / 2)
        mean = np.mean(omega * (z - centre[:, None]), axis=1)
        assert np.sqrt(np.mean(mean**2)) < 2e-3 / np.sqrt(SETS)  # a mean of sets has 1 / √SETS
        assert 0.2 < np.mean(omega < 1) <= 1


def whitening(mixture: Mixture, rows: Rows) -> np.ndarray:
    return score_factor(expect(mixture, rows, information=True).information / (len(rows.groups.bounds) - 1))


def bias(mixture: Mixture, rows: Rows, width: float = 1.0) -> np.ndarray:
    """Mean contribution over groups from the mixture itself, in its standard errors, ``(P,)``."""
    k = group_contributions(mixture, rows, whitening(mixture, rows), width * np.sqrt(mixture.parameter_count))
    spread = k.std(axis=0)
    return k.mean(axis=0) / np.where(spread > 0, spread, 1.0) * np.sqrt(len(k))


def test_the_mean_contribution_at_the_truth_is_zero():
    """Within four standard errors of 1,500 groups, with a clip that cuts a large share of them."""
    found = {}
    for place, name in enumerate(name for name in NAMES if name not in ("gaussian-diag", "gaussian-spherical")):
        gate, rng = GATES[place % 2], np.random.default_rng([20, place])
        mixture = mixture_of(name, rng, d=3, gate=gate)
        z = bias(mixture, grouped_rows(name, mixture, 1500, rng), 0.7)
        if np.abs(z).max() > 4:
            found[name, gate] = z
    assert not found


def test_equal_groups_do_not_share_the_error_of_their_draws():
    """Two rows of one covariate with two values and a response with two have 16 forms: each has many groups."""
    rng = np.random.default_rng(22)
    mixture = mixture_of("binomial", rng, d=1, gate="constant")
    X = GroupedCovariates(rng.integers(0, 2, size=(24_000, 1)).astype(float), np.full(12_000, 2))
    assert np.abs(bias(mixture, drawn_groups(mixture, X, rng))).max() < 4


@pytest.mark.long
def test_the_mean_contribution_at_the_truth_is_zero_for_many_groups():
    """Within 4.5 standard errors of 25,000 groups in all 24 cases: an error of the centre is a fixed shift."""
    found = {}
    for place, name in enumerate(NAMES):
        for of_gate, gate in enumerate(GATES):
            rng = np.random.default_rng([21, place, of_gate])
            mixture = mixture_of(name, rng, d=3, gate=gate)
            z = bias(mixture, grouped_rows(name, mixture, 25_000, rng, most=4))
            if np.abs(z).max() > 4.5:
                found[name, gate] = z
    assert not found


def test_contributions_are_in_grid_units():
    rng = np.random.default_rng(14)
    mixture = mixture_of("gaussian-full", rng)
    rows, P = grouped_rows("gaussian-full", mixture, 60, rng), mixture.parameter_count
    k = group_contributions(mixture, rows, 100 * np.eye(P), 1.0)  # nearly all are clipped
    found = np.sqrt(np.array(squared_lengths(k), dtype=float)) / GRID
    assert np.mean(found > 0.999) > 0.8
