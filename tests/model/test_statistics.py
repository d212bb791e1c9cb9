"""Statistics add over any partition of the labels, do not see blocks, and travel as flat arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.model import Statistics, expect, layout_of
from consilience.model.families.negative_binomial import NegativeBinomialExperts
from consilience.model.families.student import StudentExperts
from consilience.model.families.zero_inflated_poisson import ZeroInflatedPoissonExperts
from consilience.model.kernels import panels
from strategies import (
    FAMILIES,
    GATES,
    LABELS,
    Shape,
    assert_same_sums,
    contributions,
    label_count,
    one_label_each,
    shapes,
    take_labels,
)

# ---------------------------------------------------------------------- the sum


@pytest.mark.slow
@settings(max_examples=150)
@given(shape=shapes(), cut=st.integers(0, 14))
def test_statistics_of_two_parts_add_to_those_of_the_whole(shape, cut):
    mixture, rows = shape.problem()
    labels = np.random.default_rng(shape.seed).permutation(label_count(rows))
    a, b = take_labels(rows, labels[:cut]), take_labels(rows, labels[cut:])  # cut 0: no rows; 1: one label
    total = expect(mixture, a, information=True) + expect(mixture, b, information=True)
    assert_same_sums(total, expect(mixture, rows, information=True), contributions(mixture, rows))


@pytest.mark.slow
@given(shape=shapes())
def test_statistics_of_single_labels_add_to_those_of_the_whole(shape):
    mixture, rows = shape.problem()
    total = layout_of(mixture).zeros(information=True)
    for part in one_label_each(rows):
        total = total + expect(mixture, part, information=True)
    assert_same_sums(total, expect(mixture, rows, information=True), contributions(mixture, rows))


@given(shape=shapes(max_n=5), information=st.booleans())
def test_statistics_of_no_rows_are_zero(shape, information):
    mixture, rows = shape.problem()
    nothing = expect(mixture, rows.take(np.arange(0)), information=information)
    zeros = layout_of(mixture).zeros(information=information)
    assert np.array_equal(nothing.to_array(), zeros.to_array())
    assert np.array_equal((zeros + zeros).to_array(), zeros.to_array())


@pytest.mark.slow
@settings(max_examples=80)
@given(shape=shapes(), rows_per_block=st.integers(1, 5))
def test_statistics_do_not_depend_on_the_block_size(shape, rows_per_block):
    mixture, rows = shape.problem()
    whole = expect(mixture, rows, information=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "BLOCK_ROWS", rows_per_block)
        assert mixture.block_size() == rows_per_block
        in_blocks = expect(mixture, rows, information=True)
    assert_same_sums(in_blocks, whole, contributions(mixture, rows))


@pytest.mark.slow
@settings(max_examples=80)
@given(shape=shapes(), rows_per_block=st.sampled_from([2, panels.BLOCK_ROWS]))
def test_statistics_do_not_depend_on_how_second_moments_are_summed(shape, rows_per_block):
    mixture, rows = shape.problem()
    shared = expect(mixture, rows, information=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "SHARED_PRODUCTS_UP_TO", 0)
        patch.setattr(panels, "BLOCK_ROWS", rows_per_block)
        one_by_one = expect(mixture, rows, information=True)
    assert_same_sums(one_by_one, shared, contributions(mixture, rows))


def test_a_sum_has_the_information_only_if_both_terms_have_it():
    mixture, rows = Shape().problem()
    plain, informed = expect(mixture, rows), expect(mixture, rows, information=True)
    assert (informed + informed).information is not None
    assert (plain + informed).information is None
    assert (informed + plain).information is None


# ---------------------------------------------------------------------- the flat array


@given(shape=shapes(), information=st.booleans())
def test_statistics_survive_the_flat_array(shape, information):
    mixture, rows = shape.problem()
    sent = expect(mixture, rows, information=information)
    received = Statistics.from_array(sent.to_array(), layout_of(mixture))
    for ours, theirs in [(sent.gate, received.gate), (sent.experts, received.experts)]:
        assert np.array_equal(ours.plain, theirs.plain)
        assert np.array_equal(ours.first, theirs.first)
        assert np.array_equal(ours.second, theirs.second)
    assert received.log_likelihood == sent.log_likelihood
    assert received.absolute == sent.absolute
    assert received.weight == sent.weight
    if information:
        scale = np.abs(sent.information).max()
        np.testing.assert_allclose(received.information, sent.information, rtol=0, atol=1e-12 * scale)  # one triangle
    else:
        assert received.information is None


@given(shape=shapes(max_n=3), information=st.booleans())
def test_flat_array_has_the_announced_length(shape, information):
    mixture, rows = shape.problem()
    flat = expect(mixture, rows, information=information).to_array()
    assert flat.shape == (layout_of(mixture).size(information=information),)


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("information", [False, True])
def test_a_flat_array_of_another_length_is_refused(information, change):
    layout = layout_of(Shape().problem()[0])
    wrong = np.zeros(layout.size(information=information) + change)
    with pytest.raises(ValueError, match=r"numbers where \d+ or \d+ were expected"):
        Statistics.from_array(wrong, layout)


def test_a_flat_array_of_two_axes_is_refused():
    layout = layout_of(Shape().problem()[0])
    with pytest.raises(ValueError, match="were expected"):
        Statistics.from_array(np.zeros((1, layout.size(information=False))), layout)


# ---------------------------------------------------------------------- relabelling


@pytest.mark.slow
@given(shape=shapes(labels="row", K=st.integers(2, 4)))
def test_relabelling_experts_permutes_their_statistics(shape):
    mixture, rows = shape.problem()
    K = mixture.K
    order = np.random.default_rng(shape.seed).permutation(K)
    old, new = expect(mixture, rows), expect(mixture.permuted(order), rows)
    scale = contributions(mixture, rows)[: len(old.to_array())].max() * 1e-12

    def close(actual, expected):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=scale)

    close([new.log_likelihood, new.absolute, new.weight], [old.log_likelihood, old.absolute, old.weight])
    close(new.experts.plain[:K], old.experts.plain[:K][order])
    by_kind = (StudentExperts, NegativeBinomialExperts, ZeroInflatedPoissonExperts)
    experts_first = not isinstance(mixture.experts, by_kind)

    def of_experts(sums):  # (K, ...): sums of one kind for all experts follow each other in the other families
        return sums.reshape(K, -1) if experts_first else np.moveaxis(sums.reshape(-1, K, sums[0].size), 1, 0)

    for name in ("first", "second"):
        close(of_experts(getattr(new.experts, name)), of_experts(getattr(old.experts, name))[order])
    close(of_experts(new.experts.plain[K:]), of_experts(old.experts.plain[K:])[order])
    close(new.gate.plain.reshape(-1, K), old.gate.plain.reshape(-1, K)[:, order])
    if shape.gate == "softmax":  # the gradient of the last expert is minus the sum of the others
        close(_all_experts(new.gate.first), _all_experts(old.gate.first)[order])


def _all_experts(gradient):
    return np.vstack([gradient, -gradient.sum(axis=0)])


# ---------------------------------------------------------------------- what the scalars are


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_scalars_are_the_weighted_sums_of_the_log_density(family, gate, labels):
    mixture, rows = Shape(family=family, gate=gate, labels=labels, weights="counts", q=2, n=20).problem()
    statistics, ll = expect(mixture, rows), mixture.log_density(rows)
    counts_once = labels == "group"  # if any of its rows has weight
    mass = (np.bincount(rows.groups.codes, rows.weight) > 0).astype(float) if counts_once else rows.weight
    assert statistics.weight == mass.sum()
    assert statistics.log_likelihood == pytest.approx(mass @ ll, rel=1e-13)
    assert statistics.absolute == pytest.approx(mass @ np.abs(ll), rel=1e-13)
    np.testing.assert_allclose(statistics.gate.plain[: mixture.K], mass @ mixture.responsibilities(rows), rtol=1e-12)
