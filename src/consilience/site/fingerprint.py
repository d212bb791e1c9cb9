"""A fingerprint of rows, by which changed data are noticed: keyed, and independent of the order of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from consilience.messages.codec import MODULUS
from consilience.model.rows import Rows
from consilience.numerics.arrays import Array

BLOCK = 32_768
_HALF = np.uint64(32)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Odd multipliers that spread the bits of a row's sum (those of the splitmix64 generator)."""


def fingerprint(rows: Rows, key: bytes = b"") -> int:
    """Compute the sum over rows, modulo 2^64, of a keyed hash of each row's numbers.

    The fingerprint of parts is the sum of their fingerprints. Rows that differ in one bit have different fingerprints
    but for a chance below 2^-30. Without the key nobody can test a guess of the rows against it.

    Parameters
    ----------
    rows : Rows
    key : bytes
        Secret of the site; empty for data of the coordinator's own.

    Examples
    --------
    >>> rows = Rows(np.arange(6.0).reshape(3, 2), np.ones((3, 1)))
    >>> fingerprint(rows) == fingerprint(rows.take(np.array([2, 0, 1])))
    True
    >>> fingerprint(rows) == fingerprint(rows.take(np.array([0, 1])))
    False
    """
    columns = list(_columns(rows))
    factors = _factors(key, len(columns))
    total = 0
    for start in range(0, rows.n, BLOCK):
        part = slice(start, min(start + BLOCK, rows.n))
        sums = np.zeros(part.stop - start, dtype=np.uint64)
        hashed = np.empty_like(sums)
        for factor, column in zip(factors, columns, strict=True):
            if column is not None:
                bits = np.ascontiguousarray(column[part], dtype=np.float64).view(np.uint64)
                np.right_shift(bits, _HALF, out=hashed)
                hashed ^= bits
                hashed *= factor
                sums += hashed
        total += int(_mixed(sums).sum(dtype=np.uint64))
    return total % MODULUS


def _columns(rows: Rows) -> Iterator[Array | None]:
    """Yield the columns of rows; those that are absent as None, so that the others keep their place."""
    yield rows.weight
    yield rows.exposure
    yield None if rows.groups is None else rows.groups.codes.astype(np.float64)
    yield from rows.X.T
    yield from rows.Y.T


@lru_cache(maxsize=16)
def _factors(key: bytes, count: int) -> tuple[np.uint64, ...]:
    """Derive one odd number for each column from the key."""
    hashed = (blake2b(j.to_bytes(4, "little"), digest_size=8, key=key[:64]).digest() for j in range(count))
    return tuple(np.uint64(int.from_bytes(each, "little") | 1) for each in hashed)


def _mixed(sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each row's sum, so that sums of hashes do not depend on sums of columns."""
    for factor in _MIX:
        sums = (sums ^ (sums >> _HALF)) * factor
    return sums ^ (sums >> _HALF)
