import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilience.model.statistics import Layout

layouts = st.builds(Layout, st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))


@given(layout=layouts)
def test_moments_survive_the_flat_array(layout):
    flat = np.random.default_rng(layout.size).normal(size=layout.size)
    moments = layout.from_array(flat)
    assert moments.first.shape == (layout.g, layout.p)
    assert moments.second.shape == (layout.h, layout.p * (layout.p + 1) // 2)
    assert np.array_equal(moments.to_array(), flat)


@given(layout=layouts)
def test_moments_add_entry_by_entry(layout):
    a, b = np.random.default_rng(layout.size).normal(size=(2, layout.size))
    assert np.array_equal((layout.from_array(a) + layout.from_array(b)).to_array(), a + b)
    assert np.array_equal((layout.from_array(a) + layout.zeros()).to_array(), a)
