import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilience.model.alignment import alignment
from consilience.model.information import coefficient_slice, moved
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
    other = moved(mixture, delta).permuted(order).in_coordinates(random_design(shape.d, shape.intercept, rng))
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
