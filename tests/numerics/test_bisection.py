import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilience.numerics.solvers import bisect


@given(roots=st.lists(st.floats(-100, 100), min_size=1, max_size=5), slope=st.floats(0.01, 100))
def test_the_root_of_an_increasing_function_is_found(roots, slope):
    roots = np.array(roots)
    found = bisect(lambda y: np.tanh(slope * (y - roots)), 0.0, roots - 7, roots + 11)
    np.testing.assert_allclose(found, roots, rtol=0, atol=1e-12)


def test_at_a_jump_the_least_point_that_reaches_the_target_is_found():
    found = bisect(np.floor, 3.0, np.array([0.5, 2.9]), np.array([3.7, 50.0]))
    assert np.all(found >= 3)
    np.testing.assert_allclose(found, 3, rtol=0, atol=1e-12)
