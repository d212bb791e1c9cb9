from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import ConstantGate, Design, GaussianExperts, Rows
from consilience.model.information import coefficient_slice, move_parameters
from consilience.model.mixture import Mixture, alignment, matching
from strategies import random_design, shapes


@given(shape=shapes(max_n=1), noise=st.sampled_from([0.0, 1e-6]))
def test_a_relabelled_mixture_finds_its_names_again(shape, noise):
    """Also in other coordinates, and after a change smaller than what is between two experts."""
    mixture, _ = shape.problem()
    rng = np.random.default_rng(shape.seed)
    order = rng.permutation(shape.K)
    delta = np.zeros(mixture.parameter_count)
    where = coefficient_slice(mixture)
    delta[where] = noise * rng.normal(size=len(delta[where]))
    other = move_parameters(mixture, delta).permuted(order).in_coordinates(random_design(shape.d, shape.intercept, rng))
    assert np.array_equal(order[alignment(other, mixture)], np.arange(shape.K))


@given(shape=shapes(max_n=1, K=st.integers(2, 4)))
def test_no_other_order_is_nearer(shape):
    mixture, _ = shape.problem()
    reference, _ = shape.but(seed=(shape.seed + 1) % 2**32).problem()
    rng = np.random.default_rng(shape.seed)

    def distance(order):
        ours = mixture.in_coordinates(reference.design).permuted(order).experts.free_coefficients()
        return np.sum((ours - reference.experts.free_coefficients()) ** 2)

    best = distance(alignment(mixture, reference))
    assert all(best <= distance(rng.permutation(shape.K)) + 1e-9 for _ in range(10))


def test_experts_with_equal_coefficients_are_matched_by_their_variances():
    experts = GaussianExperts(np.zeros((2, 1, 1)), np.array([[[1.0]], [[16.0]]]))
    mixture = Mixture(Design.raw(0), ConstantGate(np.array([0.7, 0.3])), experts)
    rows = Rows(np.empty((50, 0)), np.random.default_rng(0).normal(0, 3, (50, 1)))
    near = replace(mixture, experts=replace(experts, B=np.array([[[0.1]], [[-0.1]]])))
    found = matching(near.permuted(np.array([1, 0])), mixture.responsibilities(rows), rows)
    assert np.array_equal(found.permutation, [1, 0])
    assert found.clear


def test_a_match_of_two_experts_to_one_is_not_clear():
    def three(means):
        experts = GaussianExperts(np.array(means).reshape(3, 1, 1), np.ones((3, 1, 1)))
        return Mixture(Design.raw(0), ConstantGate(np.full(3, 1 / 3)), experts)

    rows = Rows(np.empty((300, 0)), np.repeat([0.0, 10.0, 30.0], 100)[:, None])
    reference = three([0.0, 10.0, 30.0]).responsibilities(rows)
    assert matching(three([0.1, 10.2, 29.9]), reference, rows).clear
    assert not matching(three([0.0, 30.0, 30.0]), reference, rows).clear
