"""Starts of every kind, the sample they are made on, and the moves between them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product

import numpy as np
import pytest

from consilience.fit.specification import Specification
from consilience.fit.starts import (
    KINDS,
    SOFTNESS,
    StartSample,
    by_covariates,
    halves,
    merge_duplicates,
    merge_order,
    mixture_from,
    propose_moves,
    ridge_regression,
    soften_labels,
    start_sample,
    subsample,
)
from consilience.model import Groups, Rows
from consilience.model.families.covariance import STRUCTURES
from consilience.model.summary import column_summary
from families import SIZED
from pairwise import every_pair
from simulated import FAMILIES, Simulated, simulated
from strategies import unweighted


def ground_of(data: Simulated, K: int = 3) -> StartSample:
    return start_sample(data.rows, data.specification.with_order(K), column_summary(data.rows))


# ---------------------------------------------------------------------- kinds


EACH_KIND = sorted(set(KINDS), key=lambda kind: kind.__name__)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "family", "group_size", "n"), every_pair(product(EACH_KIND, FAMILIES, [1, 4], [8, 120]))
)
def test_each_kind_gives_one_label_below_K_per_row_or_group(kind, family: str, group_size: int, n: int) -> None:
    data = simulated(family, n=n, group_size=group_size, weights=True)
    ground = ground_of(data, K=2)
    labels = kind(ground, np.random.default_rng(0))
    assert labels.shape == (n // group_size,)
    assert set(labels) <= {0, 1}


@pytest.mark.parametrize("kind", EACH_KIND)
def test_each_kind_works_without_covariates(kind) -> None:
    rng = np.random.default_rng(0)
    rows = Rows(np.empty((40, 0)), np.concatenate([rng.normal(0, 1, (20, 2)), rng.normal(9, 1, (20, 2))]))
    ground = start_sample(rows, Specification(K=2, gate="constant"), column_summary(rows))
    assert set(kind(ground, rng)) <= {0, 1}


def test_without_covariates_k_means_reads_the_responses() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(np.empty((40, 0)), np.concatenate([rng.normal(0, 1, (20, 2)), rng.normal(9, 1, (20, 2))]))
    labels = by_covariates(start_sample(rows, Specification(K=2, gate="constant"), column_summary(rows)), rng)
    assert len(set(labels[:20])) == len(set(labels[20:])) == 1
    assert labels[0] != labels[-1]


def test_softened_labels_are_probabilities_that_favour_the_label() -> None:
    labels = np.array([0, 2, 1, 2])
    resp = soften_labels(labels, 3)
    assert np.allclose(resp.sum(axis=0), 1)
    assert np.array_equal(resp.argmax(axis=0), labels)
    assert np.isclose(resp.min(), SOFTNESS / 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_true_labels_make_a_mixture_near_the_truth(family: str) -> None:
    data = simulated(family, n=3000, exposure=family in SIZED)
    ground = ground_of(data, K=2)
    sharp = (np.arange(2)[:, None] == data.labels).astype(float)
    found = mixture_from(sharp, ground)
    assert found.design is not data.truth.design
    better, worse = (
        np.abs(found.raw().experts.B - data.truth.permuted(np.array(order)).experts.B).max()
        for order in ((0, 1), (1, 0))
    )
    assert better < worse / 2


def test_ridge_regression_is_least_squares_but_for_a_thousandth() -> None:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(200, 3)), rng.uniform(0.5, 2, 200)
    F = X @ rng.normal(size=(3, 2)) + 0.1 * rng.normal(size=(200, 2))
    exact = np.linalg.lstsq(X * np.sqrt(w)[:, None], F * np.sqrt(w)[:, None], rcond=None)[0]
    assert np.allclose(ridge_regression(X, F, w), exact, atol=5e-3)


def response_features(rows: Rows, specification: Specification) -> np.ndarray:
    return specification.blank(column_summary(rows)).experts.response_features(rows)


def test_terrain_of_groups_holds_weighted_means() -> None:
    data = simulated(n=60, group_size=6, weights=True)
    ground = ground_of(data)
    w, X, F = data.rows.weight, ground.specification, response_features(data.rows, data.specification)
    X = column_summary(data.rows).design(True).panel(data.X).T
    for g in range(10):
        inside = data.rows.groups.codes == g
        if w[inside].sum() > 0:
            assert np.allclose(ground.X[g], np.average(X[inside], axis=0, weights=w[inside]))
            assert np.allclose(ground.F[g], np.average(F[inside], axis=0, weights=w[inside]))


def test_response_features_are_numbers_that_separate_responses() -> None:
    Y = np.array([[0.0], [1.0], [2.0]])
    rows = Rows(np.empty((3, 0)), Y, exposure=np.array([1.0, 2.0, 4.0]))
    assert np.array_equal(response_features(rows, Specification(K=1, family="categorical", n_classes=3)), np.eye(3))
    log_rates = response_features(rows, Specification(K=1, family="poisson"))
    assert np.allclose(log_rates, np.log((Y + 0.5) / [[1.0], [2.0], [4.0]]))
    without = response_features(replace(rows, exposure=None), Specification(K=1, family="poisson"))
    assert np.allclose(without, np.log(Y + 0.5))
    scaled = response_features(rows, Specification(K=1))
    assert np.isclose(scaled.mean(), 0)
    assert np.isclose(scaled.std(), 1)


# ---------------------------------------------------------------------- the sample


def test_merged_rows_have_the_same_moments_in_any_order() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.integers(0, 3, (50, 2)).astype(float), rng.integers(0, 2, (50, 1)).astype(float)
    exposure = rng.integers(1, 3, 50).astype(float)
    rows = Rows(X, Y, None, exposure)
    few = merge_duplicates(rows)
    assert few.n < rows.n
    assert few.weight.sum() == rows.n
    assert np.allclose(few.weight @ few.X, X.sum(axis=0))
    assert np.isclose(few.weight @ few.exposure, exposure.sum())
    again = merge_duplicates(rows.take(rng.permutation(50)))
    for name in ("X", "Y", "weight", "exposure"):
        assert np.array_equal(getattr(few, name), getattr(again, name))


def test_merged_weights_are_sums_of_weights() -> None:
    rows = Rows(np.array([[1.0], [1.0], [2.0]]), np.zeros((3, 1)), np.array([0.5, 2.0, 1.0]))
    assert np.array_equal(merge_duplicates(rows).weight, [2.5, 1.0])
    assert merge_duplicates(rows).exposure is None


def test_subsample_of_rows_is_small_and_has_weight() -> None:
    data = simulated(n=300, weights=True)
    few = subsample(data.rows, 50, np.random.default_rng(0))
    assert few.n == 50
    assert np.all(few.weight > 0)
    everything = subsample(data.rows, 300, np.random.default_rng(0))
    assert everything.n == np.sum(data.rows.weight > 0)


def test_subsample_keeps_groups_whole() -> None:
    codes = np.random.default_rng(0).integers(0, 40, 300)
    data = simulated(n=300)
    rows = replace(data.rows, groups=Groups.of(codes))
    few = subsample(rows, 60, np.random.default_rng(1))
    assert 30 < few.n <= 60
    of_row = {tuple(x): code for x, code in zip(data.X, codes, strict=True)}
    present = [of_row[tuple(x)] for x in few.X]
    for code in set(present):
        assert present.count(code) == np.sum(codes == code)
    assert len(few.groups.bounds) - 1 == len(set(present))


def test_subsample_of_few_groups_is_everything_and_of_a_large_group_is_that_group() -> None:
    data = simulated(n=100, group_size=50)
    assert subsample(data.rows, 100, np.random.default_rng(0)) is data.rows
    assert subsample(data.rows, 10, np.random.default_rng(0)).n == 50


def test_subsample_of_groups_drops_rows_without_weight() -> None:
    data = simulated(n=100, group_size=5, weights=True)
    few = subsample(data.rows, 100, np.random.default_rng(0))
    assert np.all(few.weight > 0)
    assert few.n == np.sum(data.rows.weight > 0)


# ---------------------------------------------------------------------- moves


@pytest.mark.parametrize("group_size", [1, 4])
@pytest.mark.parametrize("K", [2, 4])
def test_moves_are_responsibilities(K: int, group_size: int) -> None:
    data = simulated(n=120, group_size=group_size)
    ground = ground_of(data, K=K)
    rng = np.random.default_rng(0)
    mixture = mixture_from(soften_labels(rng.integers(0, K, ground.m), K), ground)
    made = list(islice(propose_moves(mixture, ground, rng), 10))
    assert made
    for resp in made:
        assert resp.shape == (K, ground.m)
        assert np.all(resp > 0)
        assert np.allclose(resp.sum(axis=0), 1)


def test_no_move_splits_fewer_than_four_labels() -> None:
    data = simulated(n=3)
    ground = ground_of(data, K=2)
    mixture = mixture_from(soften_labels(np.array([0, 1, 0]), 2), ground)
    assert not list(propose_moves(mixture, ground, np.random.default_rng(0)))


def test_experts_that_share_rows_are_merged_first() -> None:
    resp = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert merge_order(resp)[0] == (0, 1)
    assert len(merge_order(resp)) == 3


def test_halves_are_two() -> None:
    ground = ground_of(simulated(n=60))
    rng = np.random.default_rng(0)
    for _ in range(6):
        side = halves(ground, np.arange(40), rng)
        assert set(side) == {0, 1}


# ---------------------------------------------------------------------- specification


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("gate", ["softmax", "constant"])
@pytest.mark.parametrize("intercept", [True, False])
def test_blank_mixture_has_equal_experts_with_the_moments_of_the_data(
    structure: str, gate: str, intercept: bool
) -> None:
    data = simulated(q=2, structure=structure, gate=gate, intercept=intercept)
    summary = column_summary(data.rows)
    blank = replace(data.specification, K=3).blank(summary)
    assert np.allclose(blank.gate_weights(data.X), 1 / 3)
    assert np.allclose(blank.mean(data.X), data.rows.Y.mean(axis=0) if intercept else 0.0)
    total = np.trace(blank.experts.matrices, axis1=1, axis2=2)
    assert np.allclose(total, np.trace(np.cov(data.rows.Y.T, bias=True)), rtol=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
def test_blank_experts_of_other_families_predict_nothing_yet(intercept: bool) -> None:
    data = simulated("categorical", C=4, intercept=intercept)
    summary = column_summary(data.rows)
    assert np.allclose(data.specification.blank(summary).mean(data.X), 0.25)
    counts = simulated("poisson", intercept=intercept)
    blank = counts.specification.blank(column_summary(counts.rows))
    assert np.allclose(blank.mean(counts.X), 1.0)
    if intercept:
        level = replace(blank, experts=blank.experts.at_level(counts.rows))
        size = 1.0 if counts.rows.exposure is None else counts.rows.exposure.mean()
        assert np.allclose(level.mean(counts.X), counts.rows.Y.mean() / size)


def test_penalty_has_a_floor_for_gaussian_experts_only() -> None:
    data = simulated()
    summary = column_summary(data.rows)
    penalty = data.specification.penalty(summary)
    assert np.allclose(penalty.floor, 1e-6 * np.var(data.y))
    assert np.all(Specification(K=2, family="poisson").penalty(summary).floor == 0)


def test_weights_and_repetition_make_the_same_start() -> None:
    data = simulated(n=100, weights=True)
    for rows in (data.rows, unweighted(data.rows)):
        sample = subsample(rows, 1000, np.random.default_rng(0))
        labels = by_covariates(ground_of(replace(data, rows=sample)), np.random.default_rng(0))
        if rows is data.rows:
            first = labels
    assert np.array_equal(first, labels)
