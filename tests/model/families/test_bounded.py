import numpy as np

from consilience.model.families.base import Bounds
from consilience.model.families.gamma import latent_information

BOUNDS = Bounds(2.0, 50.0, longest=1.0)


def test_steps_are_no_longer_than_allowed_and_stay_inside():
    moved = BOUNDS.moved(np.array([10.0, 10.0, 2.5, 40.0]), np.array([0.3, 9.0, -9.0, 9.0]))
    np.testing.assert_allclose(moved, [10 * np.exp(0.3), 10 * np.e, 2.0, 50.0])


def test_scores_that_lead_outside_are_zero_and_others_are_kept():
    shape, score = np.array([2.0, 2.0, 50.0, 50.0, 7.0]), np.array([-1.0, 1.0, 1.0, -1.0, 3.0])
    np.testing.assert_array_equal(BOUNDS.inward(shape, score), [0.0, 1.0, 0.0, -1.0, 3.0])


def test_a_parameter_at_its_bound_is_apart_from_the_others():
    J = np.ones((2, 3, 3)) + 3 * np.eye(3)
    held = BOUNDS.held(np.array([10.0, 50.0]), J.copy(), np.array([7.0, 8.0]))
    np.testing.assert_array_equal(held[0], J[0])
    np.testing.assert_array_equal(held[1, :2, :2], J[1, :2, :2])
    np.testing.assert_array_equal(held[1, 2], [0.0, 0.0, 8.0])
    np.testing.assert_array_equal(held[1, :, 2], held[1, 2])


def test_latent_information_is_the_variance_of_the_score_of_log_k():
    k, rng = 3.0, np.random.default_rng(0)
    u = rng.gamma(k, 1 / k, 400_000)
    score = k * (np.log(k) + 1 + np.log(u) - u)
    assert abs(latent_information(np.array([k]))[0] / score.var() - 1) < 0.02
