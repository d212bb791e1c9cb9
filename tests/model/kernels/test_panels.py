import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.model.kernels import Workspace, block_rows, first_moments, panels, second_moments
from consilience.numerics.arrays import pack


@given(
    p=st.integers(0, 6),
    n=st.integers(0, 9),
    weight_rows=st.integers(0, 4),
    room=st.integers(0, 9),
    shared=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_moments_are_the_weighted_sums_over_rows(p, n, weight_rows, room, shared, seed):
    rng = np.random.default_rng(seed)
    panel, weights = rng.normal(size=(p, n)), rng.normal(size=(weight_rows, n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "SHARED_PRODUCTS_UP_TO", 6 if shared else 0)
        patch.setattr(panels, "SHORT_CHUNK", 3)
        patch.setattr(panels, "LONG_CHUNK", 5)
        workspace = Workspace()
        second_moments(np.ones((p, room)), np.ones((1, room)), workspace)  # an earlier block, larger or smaller
        first, second = first_moments(panel, weights), second_moments(panel, weights, workspace)
    np.testing.assert_allclose(first, np.einsum("gn,pn->gp", weights, panel), atol=1e-13)
    np.testing.assert_allclose(second, pack(np.einsum("hn,an,bn->hab", weights, panel, panel)), atol=1e-13)


@pytest.mark.parametrize("p", [1, 21, 64, 65, 501, 5000])
@pytest.mark.parametrize("weight_rows", [1, 40, 2500])
def test_blocks_stay_small(p, weight_rows):
    n = block_rows(p, weight_rows)
    assert 16 <= n <= panels.BLOCK_ROWS
    assert n == 16 or 8 * n * (p + weight_rows) <= panels.BLOCK_BYTES
