import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model import Design, Rows
from consilience.model.summary import column_summary
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


# ---------------------------------------------------------------------- designs that read some of the covariates


def redundant() -> tuple[np.ndarray, Design]:
    """Four covariates, of which the second is a function of the first and the fourth is constant."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(3, 2, 50), rng.normal(size=50)
    X = np.column_stack([x, 5 - 2 * x, z, np.full(50, 7.0)])
    return X, column_summary(Rows(X, X[:, :1])).design(intercept=True)


def test_covariates_that_are_functions_of_earlier_ones_are_not_read() -> None:
    X, design = redundant()
    assert (design.columns, design.unread, design.d, design.p) == ((0, 2), (1, 3), 4, 3)
    np.testing.assert_allclose(X[:, [1, 3]], design.panel(X).T @ design.others.T, atol=1e-12)


def test_raw_coefficients_and_those_on_the_design_give_the_same_predictor() -> None:
    X, design = redundant()
    raw = np.array([1.0, 2.0, -3.0, 0.5, 4.0])
    whole = np.column_stack([np.ones(50), X]) @ raw
    np.testing.assert_allclose(design.panel(X).T @ (design.from_raw() @ raw), whole, atol=1e-10)
    back = design.to_raw() @ design.from_raw() @ raw
    assert np.all(back[[2, 4]] == 0)
    np.testing.assert_allclose(np.column_stack([np.ones(50), X]) @ back, whole, atol=1e-10)
    np.testing.assert_allclose(design.from_raw() @ design.to_raw(), np.eye(3), atol=1e-12)


def test_the_form_is_the_variance_of_the_linear_predictor_in_all_coordinates() -> None:
    X, design = redundant()
    summary, b = column_summary(Rows(X, X[:, :1])), np.array([5.0, 1.0, -2.0])
    assert b @ summary.form(intercept=True) @ b == pytest.approx(np.var(design.panel(X).T @ b))
    moved = column_summary(Rows(X @ np.diag([2.0, 1, 3, 1]) + 1, X[:, :1]))
    np.testing.assert_allclose(moved.form(intercept=True), summary.form(intercept=True), atol=1e-12)
