import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import Design
from strategies import random_design

designs = st.builds(
    lambda d, intercept, seed: random_design(d, intercept, np.random.default_rng(seed)),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)


@given(design=designs, n=st.integers(0, 5))
def test_panel_has_design_rows_as_columns(design, n):
    X = np.random.default_rng(n).normal(size=(n, design.d))
    panel = design.panel(X)
    assert panel.shape == (design.p, n)
    np.testing.assert_allclose(panel[design.p - design.d :].T, (X - design.centre) / design.scale, rtol=1e-12)
    if design.intercept:
        assert np.all(panel[0] == 1)


@given(design=designs, n=st.integers(0, 5))
def test_panel_can_be_written_into_a_buffer(design, n):
    X = np.random.default_rng(n).normal(size=(n, design.d))
    buffer = np.full((design.p, n), np.nan)
    assert design.panel(X, out=buffer) is buffer
    assert np.array_equal(buffer, design.panel(X))


@given(design=designs, n=st.integers(1, 5))
def test_raw_coefficients_give_the_same_linear_predictor(design, n):
    rng = np.random.default_rng(n)
    X, b = rng.normal(size=(n, design.d)), rng.normal(size=design.p)
    raw = Design.raw(design.d, design.intercept)
    np.testing.assert_allclose((design.to_raw() @ b) @ raw.panel(X), b @ design.panel(X), rtol=1e-10, atol=1e-12)


@given(design=designs)
def test_to_raw_and_from_raw_are_inverse(design):
    np.testing.assert_allclose(design.to_raw() @ design.from_raw(), np.eye(design.p), atol=1e-12)
    np.testing.assert_allclose(design.from_raw() @ design.to_raw(), np.eye(design.p), atol=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_raw_design_is_the_identity(intercept):
    X, raw = np.arange(6.0).reshape(3, 2), Design.raw(2, intercept)
    assert raw.is_raw
    assert raw.p == 2 + intercept
    assert np.array_equal(raw.panel(X)[-2:], X.T)
    assert np.array_equal(raw.to_raw(), np.eye(raw.p))
    assert not Design(np.zeros(2), np.array([1.0, 2.0])).is_raw
    assert not Design(np.array([1.0, 0.0]), np.ones(2)).is_raw


def test_standardising_does_not_touch_the_data():
    X = np.arange(6.0).reshape(3, 2)
    Design(np.ones(2), np.full(2, 2.0)).panel(X)
    assert np.array_equal(X, np.arange(6.0).reshape(3, 2))
