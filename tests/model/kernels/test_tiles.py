"""The smallest pieces of the compiled kernel: powers of two, products of vectors, and sums of a tile."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")
tiles = pytest.importorskip("consilience.model.kernels.tiles")


def test_power_of_two_from_the_last_bits():
    @numba.njit
    def power(k):
        return tiles.power_of_two(k + 1.5 * 2.0**52)

    assert [power(k) for k in (-433.0, -1.0, 0.0, 3.0)] == [2.0**-433, 0.5, 1.0, 8.0]


@pytest.mark.parametrize("size", tiles.SIZES)
def test_a_tile_adds_sums_of_products(size):
    tile, rng = tiles.TILES[size], np.random.default_rng(0)

    @numba.njit
    def added(weights, columns, out):
        at, rows = columns.ctypes.data, columns.shape[1]
        apart = 8 * rows
        tile(weights.ctypes.data, apart, at, at + apart, at + 2 * apart, at, rows, out.ctypes.data, 8 * out.shape[1])

    weights, columns = rng.normal(size=(size, 5 * tiles.LANES)), rng.normal(size=(3, 5 * tiles.LANES))
    out = np.ones((size, 2))
    added(weights, columns, out)
    expected = 1 + weights @ np.array([columns[0] * columns[1], columns[2] * columns[0]]).T
    np.testing.assert_allclose(out, expected, rtol=1e-13)


@pytest.mark.parametrize("with_factor", [False, True])
def test_vectors_are_copied_or_multiplied(with_factor):
    @numba.njit
    def written(out, source, factor, with_factor):
        other = factor.ctypes.data if with_factor else 0
        tiles.multiply_vectors(out.ctypes.data, source.ctypes.data, other)

    source, factor = np.arange(1.0, 1 + tiles.LANES), np.full(tiles.LANES, 3.0)
    out = np.empty(tiles.LANES)
    written(out, source, factor, with_factor)
    np.testing.assert_array_equal(out, source * (3.0 if with_factor else 1.0))
