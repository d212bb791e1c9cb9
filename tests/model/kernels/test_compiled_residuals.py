"""The compiled sums over residuals of a Gaussian mixture are those of numpy, for all sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from consilience import GaussianMixture
from consilience.model import Rows, expect
from consilience.model.kernels import compiled_residuals
from consilience.model.kernels import panels as choice
from consilience.model.kernels import panels as residuals

SIZES = {
    "K": st.integers(1, 4),
    "q": st.integers(2, 23),
    "n": st.sampled_from([0, 1, 7, 8, 127, 128, 129, 256, 600]),
    "seed": st.integers(0, 2**32 - 1),
}


@settings(max_examples=60, deadline=None)
@given(**SIZES, layout=st.sampled_from(["C", "F", "readonly", "every second"]))
def test_distances_are_those_of_numpy(K, q, n, seed, layout):
    rng = np.random.default_rng(seed)
    Y, means, factors = rng.normal(size=(n, q)), rng.normal(size=(K, q)), np.tril(rng.normal(size=(K, q, q)))
    Y = {"F": np.asfortranarray(Y), "every second": Y[::2]}.get(layout, Y)
    Y.flags.writeable = layout != "readonly"
    for each in (factors, factors[:, :, 0]):
        found = compiled_residuals.distances(Y, means, each)
        np.testing.assert_allclose(found, residuals.distances(Y, means, each), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(**SIZES, matrices=st.booleans())
def test_scatter_is_that_of_numpy(K, q, n, seed, matrices):
    rng = np.random.default_rng(seed)
    Y, means, tau = rng.normal(size=(n, q)), rng.normal(size=(K, q)), rng.random((K, n))
    found = compiled_residuals.scatter(Y, means, tau, matrices=matrices)
    for a, b in zip(found, residuals.scatter(Y, means, tau, matrices=matrices), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_a_response_that_is_not_finite_stays_with_its_row():
    Y = np.array([[0.0, np.inf], [np.nan, 0.0], [1.0, 1.0]])
    found = compiled_residuals.distances(Y, np.zeros((1, 2)), np.ones((1, 2)))
    np.testing.assert_array_equal(found, [[np.inf, np.nan, 2.0]])


@pytest.mark.parametrize("structure", ["full", "diag", "spherical", "tied"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_pass_has_the_statistics_of_numpy(structure, weighted, monkeypatch):
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(5000, 3)) + 4 * rng.integers(2, size=(5000, 1))
    weight = rng.random(5000) if weighted else None
    mixture = GaussianMixture(2, covariance_type=structure, random_state=0).fit(Y).mixture_
    rows = Rows(np.empty((5000, 0)), Y, weight)
    plain = expect(mixture, rows, information=True)
    monkeypatch.setattr(choice, "COMPILED_FROM", 1)
    fast = expect(mixture, rows, information=True)
    np.testing.assert_allclose(fast.to_array(), plain.to_array(), rtol=1e-9, atol=1e-8)
