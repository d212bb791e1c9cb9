"""Additive records of sums, with conversion to and from a flat array."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from consilience.model.kernels import Products
from consilience.numerics.arrays import Array, triangle_size


class Additive:
    """Mixin for frozen dataclasses that add field by field; None adds only to None."""

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return type(self)(*(None if a is None or b is None else a + b for a, b in pairs))


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of the sums of one part of a mixture over a block of n rows.

    Parameters
    ----------
    plain : (s,) array
        Sums that are known already.
    first : (g, n) array
        Weights of ``Σ_i first_gi x_i``.
    second : (h, n) array
        Weights of ``Σ_i second_hi x_i x_iᵀ``.
    summed : (g, p) array or None
        ``Σ_i first_gi x_i`` where it is known; ``first`` is then empty.

    Examples
    --------
    >>> tau = np.full((2, 5), 0.5)
    >>> Weights(tau.sum(axis=1), tau, tau).plain
    array([2.5, 2.5])
    """

    plain: Array
    first: Array
    second: Array
    summed: Array | None = None


@dataclass(frozen=True, eq=False)
class ProductWeights:
    """Weights that are products of two rows of numbers each; otherwise as :class:`Weights`."""

    plain: Array
    first: Products
    second: Products
    summed: None = None


@dataclass(frozen=True, eq=False)
class Moments(Additive):
    """Weighted sums of ``1``, ``x`` and ``x xᵀ`` over rows: sufficient for an M-step.

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
        """Return all sums as one flat array."""
        return np.concatenate([self.plain, self.first.ravel(), self.second.ravel()])


@dataclass(frozen=True, eq=False)
class Layout:
    """Shape of a :class:`Moments`: ``s`` plain sums, ``g`` first and ``h`` second moments of ``p`` features.

    Examples
    --------
    >>> Layout(2, 2, 2, p=3).size
    20
    """

    s: int
    g: int
    h: int
    p: int

    @property
    def size(self) -> int:
        """Length of the flat array."""
        return self.s + self.g * self.p + self.h * triangle_size(self.p)

    def zeros(self) -> Moments:
        """Return the moments of an empty set of rows."""
        return self.from_array(np.zeros(self.size))

    def from_array(self, flat: Array) -> Moments:
        """Return moments from a flat array of length ``size``; inverse of :meth:`Moments.to_array`."""
        plain, first, second = np.split(flat, [self.s, self.s + self.g * self.p])
        return Moments(plain, first.reshape(self.g, self.p), second.reshape(self.h, triangle_size(self.p)))
