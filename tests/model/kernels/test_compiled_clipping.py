"""Compiled lengths and centres have the bits of numpy, also where numbers are hostile, and columns do not meet."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from consilience.datasets import soft
from consilience.fit.private_step import PublicStep
from consilience.model import Rows
from consilience.model.contributions import contributions
from consilience.model.kernels import clipping, compiled_clipping, panels

ARGUMENTS = {
    "R": st.integers(1, 9),
    "N": st.integers(1, 24),
    "n": st.sampled_from([0, 1, 2, 127, 128, 129, 256, 300]),
    "seed": st.integers(0, 2**32 - 1),
    "kind": st.sampled_from(["ordinary", "not definite", "hostile"]),
    "clip": st.sampled_from([1.0, 3.0, 1e-300, 0.0, -1.0, np.inf, np.nan]),
}
HOSTILE = np.array([np.nan, np.inf, -np.inf, 1e200, -1e200, 1e-300, 0.0, -0.0])


def numbers_of(R, N, n, seed, kind):
    rng = np.random.default_rng(seed)
    a, A, w = rng.normal(size=(R, N, n)), rng.normal(size=(R, R, n)), rng.random((N, n))
    Q = np.einsum("rsn,tsn->rtn", A, A) if kind == "ordinary" else A + A.transpose(1, 0, 2)
    if kind == "hostile":
        a = np.where(rng.random(a.shape) < 0.1, rng.choice(HOSTILE, a.shape), a)
        Q = np.where(rng.random(Q.shape) < 0.05, rng.choice(HOSTILE, Q.shape), Q)
    return a, w / w.sum(axis=0), Q


@settings(max_examples=60, deadline=None)
@given(**ARGUMENTS)
def test_compiled_functions_have_the_bits_of_numpy(R, N, n, seed, kind, clip):
    a, w, Q = numbers_of(R, N, n, seed, kind)
    with np.errstate(all="ignore"):
        expected = clipping.shrinkage(a, Q, clip), clipping.centre(a, w, Q, clip, 4)
        found = compiled_clipping.shrinkage(a, Q, clip), compiled_clipping.centre(a, w, Q, clip, 4)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=30, deadline=None)
@given(**ARGUMENTS, columns=st.integers(1, 200))
def test_a_column_does_not_depend_on_others(R, N, n, seed, kind, clip, columns):
    a, w, Q = numbers_of(R, N, n + 2, seed, kind)
    whole = compiled_clipping.centre(a, w, Q, clip, 3)
    some = np.random.default_rng(seed).integers(0, n + 2, size=columns + 1)
    part = compiled_clipping.centre(a[:, :, some], w[:, some], Q[:, :, some], clip, 3)
    np.testing.assert_array_equal(part, whole[:, some])


def test_contributions_and_steps_have_the_bits_of_numpy(monkeypatch):
    data = soft(600, random_state=0)
    rows, mixture = Rows(data.X, data.y[:, None]), data.truth
    found = []
    for choose in (
        lambda n: clipping.NUMPY,
        lambda n: clipping.Clipping(compiled_clipping.shrinkage, compiled_clipping.centre),
    ):
        for module in ("model.contributions", "fit.private_step"):
            monkeypatch.setattr(f"consilience.{module}.clipping_for", choose)
        step = PublicStep.at(mixture, data.X[:300])
        found.append((step.factor, step.slope, step.spread, contributions(mixture, rows, step.factor, step.clip)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_compiled_functions_are_taken_for_many_rows_or_once_numba_is_loaded():
    assert panels.compiled_kernel() is not None
    assert clipping.clipping_for(10).centre is compiled_clipping.centre
    panels.compiled_kernel.cache_clear()
    assert clipping.clipping_for(10) is clipping.NUMPY
    assert clipping.clipping_for(panels.COMPILED_FROM).centre is compiled_clipping.centre
