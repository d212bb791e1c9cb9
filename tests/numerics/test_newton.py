"""Newton steps that are shortened: a convex function whose full steps overshoot."""

import numpy as np

from consilience.numerics.solvers import minimise


def test_steps_that_overshoot_are_shortened():
    def value(x):
        return float(np.sum(np.sqrt(1 + x**2)))

    def step(x):
        return -x * (1 + x**2)  # Newton: from 5 it leads to -125

    found = minimise(np.array([5.0, -3.0]), value, step)
    np.testing.assert_allclose(found, 0.0, atol=1e-6)


def test_where_no_step_lowers_the_value_it_stays():
    assert minimise(np.array([2.0]), lambda x: float(x[0]), lambda x: np.ones(1)) == 2.0
