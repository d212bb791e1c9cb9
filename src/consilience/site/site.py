"""A site: its rows, in memory or in a file, read in chunks."""

from __future__ import annotations

import copy
import logging
import secrets
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from consilience.data import Shard
from consilience.errors import InvalidInputError
from consilience.fit.specification import check_labels
from consilience.fit.starts import SUBSAMPLE
from consilience.messages import FailureCode, SiteError
from consilience.messages.codec import MODULUS
from consilience.model import Groups, Rows
from consilience.model.clients import as_clients
from consilience.numerics.arrays import Array, IntArray
from consilience.site.account import Account
from consilience.site.masks import Masks

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
    yield None if rows.clusters is None else rows.clusters.codes.astype(np.float64)


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


def hidden(found: int, key: bytes) -> int:
    """Return a keyed hash of a fingerprint, which is a random number to whoever lacks the key.

    A fingerprint itself is a sum over rows: whatever its key, it is 0 without rows, and even if all rows are in pairs.

    Examples
    --------
    >>> hidden(0, b"secret of a run") == 0, hidden(1, b"one") == hidden(1, b"other")
    (False, False)
    """
    data = found.to_bytes(8, "little")
    return int.from_bytes(blake2b(data, digest_size=8, key=key[:64], person=b"consilience-rows").digest(), "little")


# ---------------------------------------------------------------- site

KEPT_TRACES = 20
MOST_KNOWN_FILES = 100_000
KNOWN_FILES: dict[tuple[Shard, bytes, tuple[int, ...] | None], int] = {}
"""Fingerprints of local files that have been read, by size and time of change: unchanged files are not hashed again."""
_log = logging.getLogger("consilience.site")
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, eq=False)
class Site:
    """Named rows of one site.

    Parameters
    ----------
    name : str
    data : Rows or Shard
        Rows in memory, or a file that is read in chunks at every question.
    keep : bool
        Whether the rows of a file are kept in memory once they have been read.
    key : bytes
        Secret of the site's fingerprint; empty for data of the coordinator's own.
    account : Account or None
        What the site may spend on private answers; it then gives no others. None for a site without noise.
    masks : Masks or None
        With what private answers are masked; the site then gives no others. None for a site without masks.
    traces : deque of str
        Full tracebacks of the last 20 failures. They stay at the site and go to the logger ``consilience.site``; only
        a code and the number of the traceback leave the site.
    reasons : deque of (int, str)
        Reasons of the same failures in one line, by the number of the traceback. They stay at the site too.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.model import Rows
    >>> from consilience.site import Site
    >>> site = Site("north", Rows(np.zeros((5, 2)), np.zeros((5, 1))))
    >>> [chunk.n for chunk in site.chunks()]
    [5]
    """

    name: str
    data: Rows | Shard
    keep: bool = False
    key: bytes = field(default=b"", repr=False)
    account: Account | None = None
    masks: Masks | None = None
    _memory: list[Rows] = field(default_factory=list, init=False, repr=False)
    _fingerprints: list[int] = field(default_factory=list, init=False, repr=False)
    _references: Iterator[int] = field(default_factory=lambda: iter(range(1, 2**62)), init=False, repr=False)
    traces: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_TRACES), repr=False)
    reasons: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=KEPT_TRACES), repr=False)

    def chunks(self) -> Iterator[Rows]:
        """Yield the rows in chunks, at least one; groups are never split."""
        if isinstance(self.data, Rows):
            yield self.data
        elif self.keep:
            yield self._kept
        else:
            yield from self._read(self.data)

    def _read(self, shard: Shard) -> Iterator[Rows]:
        """Yield the chunks of a file, and compute its fingerprint unless the file is known to be the same."""
        known = KNOWN_FILES.get(state := (shard, self.key, shard.state()))
        total = 0
        for rows in _or_empty(shard):
            total += 0 if known is not None else fingerprint(rows, self.key)
            yield rows
        found = total % MODULUS if known is None else known
        if shard.state() == state[2] is not None and len(KNOWN_FILES) < MOST_KNOWN_FILES:
            KNOWN_FILES[state] = found
        self._keep_fingerprint(found)

    def _keep_fingerprint(self, found: int) -> None:
        if self._fingerprints and self._fingerprints[0] != found:
            raise SiteError(FailureCode.DATA_CHANGED)
        self._fingerprints[:] = [found]

    def watched(self) -> Site:
        """Return the same site for one answer, in which all passes over its data must have the same fingerprint."""
        twin = copy.copy(self)
        if isinstance(self.data, Shard) and not self.keep:
            object.__setattr__(twin, "_fingerprints", [])
        return twin

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the rows, as they were read last; that of a site with noise says only whether they changed."""
        if not self._fingerprints:
            if isinstance(self.data, Rows) or self.keep:
                self._keep_fingerprint(fingerprint(self._kept, self.key))
            else:
                deque(self.chunks(), maxlen=0)
        return self._fingerprints[0] if self.account is None else hidden(self._fingerprints[0], self.key)

    def sample(self, rng: np.random.Generator, size: int = SUBSAMPLE) -> Rows:
        """Draw at most ``size`` rows without replacement; all rows if there are groups."""
        if isinstance(self.data, Shard) and not self.keep:
            n, grouped = self.data.count(), self.data.columns.groups is not None
        else:
            n, grouped = self._kept.n, self._kept.groups is not None
        if n <= size or grouped:
            return join_chunks(list(self.chunks()))
        wanted = np.sort(rng.choice(n, size, replace=False))
        return join_chunks([rows.take(index) for rows, index in _places(self.chunks(), wanted)])

    def loaded(self) -> Site:
        """Return the same site with its rows in memory."""
        return self if isinstance(self.data, Rows) else replace(self, data=join_chunks(list(self.chunks())))

    def private(self, rho: Fraction, parts: int, rows_each: int | None = None) -> Site:
        """Return the same site with a new account, and a new secret of its fingerprint.

        If persons are protected, who are the clusters of the rows, no more than ``rows_each`` rows of each are kept.

        Examples
        --------
        >>> from fractions import Fraction
        >>> import numpy as np
        >>> from consilience.model import Rows
        >>> from consilience.site import Site
        >>> site = Site("north", Rows(np.zeros((5, 2)), np.zeros((5, 1))))
        >>> site.private(Fraction(1, 40), parts=8).account.parts
        8
        """
        account = Account(rho, parts, rows_each or 1)
        data = self.data if rows_each is None else first_of_clusters(self.data, rows_each)
        return replace(self, data=data, account=account, key=secrets.token_bytes(32))

    def by_client(self) -> Site:
        """Return the same site with its groups as clients; without groups all its rows are one client."""
        if isinstance(self.data, Rows):
            return replace(self, data=as_clients(self.data))
        if self.data.columns.groups is None:
            raise InvalidInputError("this method has one label per client: pass the column of client names as groups")
        return self

    @property
    def _kept(self) -> Rows:
        if isinstance(self.data, Rows):
            return self.data
        if not self._memory:
            self._memory.append(join_chunks(list(_or_empty(self.data))))
        return self._memory[0]

    @property
    def clustered(self) -> bool:
        """Whether the rows have clusters."""
        return (self.data if isinstance(self.data, Rows) else self.data.columns).clusters is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of covariates and number of responses."""
        if isinstance(self.data, Rows):
            return int(self.data.X.shape[1]), int(self.data.Y.shape[1])
        return self.data.columns.terms, len(self.data.columns.target)

    def keep_trace(self, error: Exception) -> int:
        """Store the traceback of an exception; return its number, counted from 1, which may leave the site."""
        reference = next(self._references)
        self.traces.append("".join(traceback.format_exception(error)))
        reason = error.detail if isinstance(error, SiteError) else f"{type(error).__name__}: {error}"
        self.reasons.append((reference, reason))
        _log.error("site %s could not answer (reference %d)", self.name, reference, exc_info=error)
        return reference


def _or_empty(shard: Shard) -> Iterator[Rows]:
    """Yield the chunks of a shard, or one empty chunk if it has no rows."""
    empty = True
    for rows in shard.chunks():
        empty = False
        yield rows
    if empty:
        yield Rows(np.empty((0, shard.columns.terms)), np.empty((0, len(shard.columns.target))))


def _places(chunks: Iterator[Rows], wanted: IntArray) -> Iterator[tuple[Rows, IntArray]]:
    """Yield chunks with the positions in them of the ``wanted`` rows, which are sorted."""
    first = 0
    for rows in chunks:
        inside = wanted[(wanted >= first) & (wanted < first + rows.n)] - first
        first += rows.n
        yield rows, inside


def join_chunks(parts: list[Rows]) -> Rows:
    """Concatenate chunks; features stay contiguous."""
    if len(parts) == 1:
        return parts[0]
    X = np.concatenate([part.X.T for part in parts], axis=1).T
    Y = np.concatenate([part.Y.T for part in parts], axis=1).T
    weights = [part.weight for part in parts if part.weight is not None]
    exposures = [part.exposure for part in parts if part.exposure is not None]
    groups = [part.groups for part in parts if part.groups is not None]
    clusters = [part.clusters for part in parts if part.clusters is not None]
    return Rows(
        X,
        Y,
        np.concatenate(weights) if weights else None,
        np.concatenate(exposures) if exposures else None,
        _joined_groups(groups) if groups else None,
        _joined_groups(clusters) if clusters else None,
    )


def _joined_groups(parts: list[Groups]) -> Groups:
    """Return the index of the groups of joined rows; no group is in two parts."""
    sizes = np.concatenate([np.diff(part.bounds) for part in parts])
    rows = np.cumsum([0, *(len(part.codes) for part in parts)])
    codes = np.cumsum([0, *(len(part.bounds) - 1 for part in parts)])
    return Groups(
        np.concatenate([part.order + first for part, first in zip(parts, rows, strict=False)]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
        np.concatenate([part.codes + first for part, first in zip(parts, codes, strict=False)]),
    )


def first_of_clusters(rows: Rows | Shard, most: int) -> Rows:
    """Return the first ``most`` rows of each cluster, without clusters."""
    if not isinstance(rows, Rows):
        raise InvalidInputError("unit='person' is for rows in memory: the rows of a person may be in several chunks")
    if rows.clusters is None:
        raise InvalidInputError("unit='person' needs to know whose rows they are: pass the persons as clusters")
    return replace(rows.take(np.flatnonzero(rows.clusters.first_of_each(most))), clusters=None)


def check_label_count(sites: Sequence[Site], K: int) -> None:
    """Raise a named error for fewer labels than experts over all sites whose rows are in memory."""
    held = [site.data for site in sites if isinstance(site.data, Rows)]
    if held:
        check_labels(held, K)
