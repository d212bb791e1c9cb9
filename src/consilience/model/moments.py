"""Records of sums that add, and go to and from one flat array."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from consilience.numerics.arrays import Array, triangle_size


class Additive:
    """Mixin for frozen dataclasses whose fields add, one by one; None adds to nothing but None."""

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return type(self)(*(None if a is None or b is None else a + b for a, b in pairs))


@dataclass(frozen=True, eq=False)
class Weights:
    """What one part of a mixture wants summed over a block of n rows."""

    plain: Array  # (s,)      already summed over the rows
    first: Array  # (g, n)    wanted: Σ_i first_gi x_i
    second: Array  # (h, n)   wanted: Σ_i second_hi x_i x_iᵀ


@dataclass(frozen=True, eq=False)
class Moments(Additive):
    """Weighted sums of ``1``, ``x`` and ``x xᵀ`` over rows: all that a step of a mixture needs from data.

    Parameters
    ----------
    plain : (s,) array
        Sums of weights.
    first : (g, p) array
        ``Σ_i w_gi x_i``.
    second : (h, p (p + 1) / 2) array
        Upper triangles of ``Σ_i w_hi x_i x_iᵀ``.

    Examples
    --------
    >>> one = Moments(np.ones(1), np.ones((1, 2)), np.ones((1, 3)))
    >>> (one + one).first
    array([[2., 2.]])
    """

    plain: Array
    first: Array
    second: Array

    def to_array(self) -> Array:
        """All sums as one flat array."""
        return np.concatenate([self.plain, self.first.ravel(), self.second.ravel()])


@dataclass(frozen=True, eq=False)
class Layout:
    """Shape of a :class:`Moments`: ``s`` plain sums, ``g`` first and ``h`` second moments of ``p`` features."""

    s: int
    g: int
    h: int
    p: int

    @property
    def size(self) -> int:
        """Length of the flat array."""
        return self.s + self.g * self.p + self.h * triangle_size(self.p)

    def zeros(self) -> Moments:
        """Moments of no rows."""
        return self.from_array(np.zeros(self.size))

    def from_array(self, flat: Array) -> Moments:
        """Moments from a flat array of length ``size``; inverse of :meth:`Moments.to_array`."""
        plain, first, second = np.split(flat, [self.s, self.s + self.g * self.p])
        return Moments(plain, first.reshape(self.g, self.p), second.reshape(self.h, triangle_size(self.p)))
