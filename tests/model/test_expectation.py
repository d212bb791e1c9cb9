"""A pass: weights are frequencies, groups of one are rows, and neither the order of rows nor their names matter."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.datasets import soft
from consilience.model import Groups, Rows, expect
from consilience.model.expectation import score_products
from consilience.numerics.arrays import Array, pack
from families import GAUSSIAN
from strategies import SUM_TOLERANCE, Shape, assert_same_sums, contributions, label_count, shapes, unweighted


def assert_same_pass(mixture, a, b):
    """Statistics, information and outer products of the scores agree between two ways to write the same data."""
    scale = contributions(mixture, a)
    informed = expect(mixture, a, information=True)
    assert_same_sums(informed, expect(mixture, b, information=True), scale)
    difference = pack(np.abs(score_products(mixture, a).products - score_products(mixture, b).products))
    assert np.all(difference <= SUM_TOLERANCE * scale[-len(difference) :])


@pytest.mark.slow
@settings(max_examples=100)
@given(shape=shapes(weights="counts"))
def test_weight_two_is_the_row_twice_and_weight_zero_is_the_row_gone(shape):
    mixture, rows = shape.problem()
    assert_same_pass(mixture, rows, unweighted(rows))


@pytest.mark.slow
@given(shape=shapes(weights=None))
def test_unit_weights_are_no_weights(shape):
    mixture, rows = shape.problem()
    assert_same_pass(mixture, rows, replace(rows, weight=np.ones(rows.n)))


@pytest.mark.slow
@given(shape=shapes(labels="row"), factor=st.floats(0.1, 10))
def test_statistics_are_homogeneous_in_the_weights_of_rows(shape, factor):
    mixture, rows = shape.problem()
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    once = expect(mixture, rows, information=True)
    scaled = expect(mixture, replace(rows, weight=factor * weight), information=True)
    difference = np.abs(scaled.to_array() - factor * once.to_array())
    assert np.all(difference <= SUM_TOLERANCE * factor * contributions(mixture, rows))


@pytest.mark.slow
@settings(max_examples=60)
@given(shape=shapes(labels="row", weights=None), unit_weights=st.booleans())
def test_one_row_per_group_is_row_labels(shape, unit_weights):
    mixture, rows = shape.problem()
    names = np.random.default_rng(shape.seed).permutation(rows.n)
    rows = replace(rows, weight=np.ones(rows.n) if unit_weights else None)
    assert_same_pass(mixture, rows, replace(rows, groups=Groups.of(names)))


@pytest.mark.slow
@given(shape=shapes())
def test_order_of_rows_does_not_matter(shape):
    mixture, rows = shape.problem()
    order = np.random.default_rng(shape.seed).permutation(rows.n)
    assert_same_pass(mixture, rows, rows.take(order))


@pytest.mark.slow
@given(shape=shapes(labels="group"))
def test_names_of_groups_do_not_matter(shape):
    mixture, rows = shape.problem()
    names = np.array([f"patient {name}" for name in np.random.default_rng(shape.seed).permutation(rows.n)])
    assert_same_pass(mixture, rows, replace(rows, groups=Groups.of(names[rows.groups.codes])))


@given(shape=shapes(gate="constant", labels="group", weights=None, K=1))
def test_with_one_expert_groups_do_not_matter(shape):
    mixture, rows = shape.problem()
    grouped, single = expect(mixture, rows, information=True), expect(mixture, replace(rows, groups=None))
    assert grouped.log_likelihood == pytest.approx(single.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(grouped.experts.to_array(), single.experts.to_array(), rtol=1e-9, atol=1e-10)


# ---------------------------------------------------------------------- responsibilities that are given


@pytest.mark.slow
@given(shape=shapes())
def test_given_the_own_responsibilities_nothing_changes(shape):
    mixture, rows = shape.problem()
    own = mixture.responsibilities(rows).T
    assert_same_sums(expect(mixture, rows, given=own), expect(mixture, rows), contributions(mixture, rows))


@given(shape=shapes(family=st.sampled_from(GAUSSIAN), K=3))
def test_given_labels_each_expert_sums_its_own_rows(shape):
    mixture, rows = shape.problem()
    labels = np.random.default_rng(shape.seed).integers(0, 3, label_count(rows))
    moments = expect(mixture, rows, given=np.eye(3)[labels].T).experts
    row_labels = labels if rows.groups is None else labels[rows.groups.codes]
    weight = np.ones(rows.n) if rows.weight is None else rows.weight
    panel = mixture.design.panel(rows.X)
    upper = np.triu_indices(mixture.design.p)
    for k in range(3):
        w = weight * (row_labels == k)
        np.testing.assert_allclose(moments.plain[k], w.sum(), rtol=1e-12)
        np.testing.assert_allclose(moments.second[k], ((panel * w) @ panel.T)[upper], rtol=1e-12, atol=1e-12)


def test_given_responsibilities_are_read_block_by_block(monkeypatch):
    mixture, rows = Shape(K=3, n=50).problem()
    labels = np.eye(3)[np.arange(50) % 3].T
    whole = expect(mixture, rows, given=labels)
    monkeypatch.setattr("consilience.model.kernels.panels.BLOCK_ROWS", 7)
    assert_same_sums(expect(mixture, rows, given=labels), whole, contributions(mixture, rows))


@pytest.mark.parametrize("by_leverage", [False, True])
def test_score_products_are_summed_over_all_blocks(monkeypatch, by_leverage: bool) -> None:
    mixture, rows = Shape(K=3, n=50).problem()
    second = expect(mixture, rows).experts.second if by_leverage else None
    whole = score_products(mixture, rows, second).products
    monkeypatch.setattr("consilience.model.kernels.panels.BLOCK_ROWS", 7)
    in_blocks = score_products(mixture, rows, second).products
    np.testing.assert_allclose(in_blocks, whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


def test_weights_of_grouped_rows_are_frequencies_in_their_leverages() -> None:
    data = soft(300, n_experts=2, n_features=5, random_state=0)
    codes = np.arange(300) // 3
    X, y, codes2 = np.r_[data.X, data.X], np.r_[data.y, data.y][:, None], Groups.of(np.r_[codes, codes])

    def meat(rows: Rows) -> Array:
        return score_products(data.truth, rows, expect(data.truth, rows).experts.second).products

    twice = meat(Rows(data.X, data.y[:, None], np.full(300, 2.0), groups=Groups.of(codes)))
    np.testing.assert_allclose(twice, meat(Rows(X, y, groups=codes2)), rtol=1e-9)
    once = meat(Rows(data.X, data.y[:, None], groups=Groups.of(codes)))
    padded = Rows(X, y, np.repeat([1.0, 0.0], 300), groups=codes2)
    np.testing.assert_allclose(meat(padded), once, rtol=1e-9)
