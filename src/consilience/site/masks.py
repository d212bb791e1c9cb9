"""Masks of a site: each pair of sites shares a random stream, which one adds and the other subtracts.

A masked vector is uniform on the integers modulo 2^64 for everybody who lacks the streams, and the sum over all sites
of a question is the sum of their vectors. A stream is ChaCha20 with a key that HKDF-SHA256 derives from the X25519
secret of the pair and from the study, the run, the round, the hash of the question, and the hash of the names and keys
of the sites in the sum: another question, or the same among other sites, has other streams. Needs the package
cryptography.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import content_hash
from consilience.messages import FailureCode, SiteError
from consilience.messages.questions import signed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

NEEDED = "masked sums need the package cryptography: python -m pip install 'consilience[secure]'"
Words = NDArray[np.uint64]
MOST_TOTAL = 2**62
"""Bound of the sum over all sites: each site's integers are cut at their share of it before they are masked."""


@dataclass(frozen=True, eq=False)
class Masks:
    """What a site needs to mask its sums in a run.

    Parameters
    ----------
    name : str
        Name of the site.
    key : X25519PrivateKey
    keys : mapping of str to bytes
        Public keys of all sites of the run, 32 bytes each; its own among them.
    context : str
        What the run is, and which round: no two have the same.
    colluding : int
        Number of sites that may tell the coordinator what they know, without more being learned of the others than the
        budget allows: each site adds the share of the noise that all but these are enough for.

    Examples
    --------
    >>> from consilience.messages import MaskedSums
    >>> sites = ("east", "north", "south")
    >>> masks = in_one_process(sites, colluding=1)
    >>> parts = [masked([5, -2], each.drawn(2, sites, b"question"), sites=3) for each in masks]
    >>> MaskedSums.opened([MaskedSums(part, 1.0, 1) for part in parts]).values
    (15, -6)
    """

    name: str
    key: X25519PrivateKey = field(repr=False)
    keys: Mapping[str, bytes] = field(repr=False)
    context: str
    colluding: int
    _secrets: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.keys.get(self.name) != self.key.public_key().public_bytes_raw():
            raise RefusedError(
                f"the run has another key for masks of {self.name!a} than this site's own: send the line that "
                "'consilience site key --masks' prints to the coordinator, who begins the run again"
            )

    def __reduce__(self) -> Any:
        raise TypeError("a private key is not copied into other processes")

    def check(self, sites: Sequence[str]) -> None:
        """Raise an error unless this site and others of the run are in a sum."""
        if self.name not in sites or not set(sites) <= set(self.keys) or len(set(sites)) < max(2, len(sites)):
            raise SiteError(FailureCode.REFUSED, "the sum is masked among other sites than those of the run")

    def drawn(self, size: int, sites: Sequence[str], question: bytes) -> Words:
        """Return the masks of a question: the sum of the streams of all pairs with this site, ``(size,)``."""
        self.check(sites)
        info, total = self._info(sites, question), np.zeros(size, dtype=np.uint64)
        for other in sites:
            if self.name < other:
                total += _stream(self._shared(other), info, size)
            elif self.name > other:
                total -= _stream(self._shared(other), info, size)
        return total

    def _info(self, sites: Sequence[str], question: bytes) -> bytes:
        """Return what the streams are for: study, run, round, question, and the names and keys in the sum."""
        roster = content_hash([[name, self.keys[name].hex()] for name in sorted(sites)])
        return f"consilience masks 1|{self.context}|{sha256(question).hexdigest()}|{roster}".encode()

    def _shared(self, other: str) -> bytes:
        """Return the secret that this site shares with another one."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        if other not in self._secrets:
            try:
                self._secrets[other] = self.key.exchange(X25519PublicKey.from_public_bytes(self.keys[other]))
            except ValueError as error:
                raise SiteError(FailureCode.REFUSED, f"the key for masks of {other!a} has no secret") from error
        return self._secrets[other]


def masked(values: Sequence[int], masks: Words, sites: int) -> tuple[int, ...]:
    """Return integers with masks, modulo 2^64, as numbers from -2^63 to 2^63 - 1.

    What is larger than its share of :data:`MOST_TOTAL` is cut, so that the sum over all sites is below it.
    """
    most = MOST_TOTAL // sites
    return tuple(signed(int(mask) + max(-most, min(value, most))) for mask, value in zip(masks, values, strict=True))


def _stream(secret: bytes, info: bytes, size: int) -> Words:
    """Return integers that are uniform to whoever lacks the secret, ``(size,)``."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
    found = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return np.frombuffer(found, dtype="<u8").astype(np.uint64)


def new_key() -> X25519PrivateKey:
    """Make a private key, or raise an error with the command that installs the package."""
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    except ImportError as error:
        raise ImportError(NEEDED) from error
    return X25519PrivateKey.generate()


def in_one_process(sites: Sequence[str], colluding: int) -> list[Masks]:
    """Return the masks of sites of one process, with new keys, for one run."""
    if len(sites) < 2:
        raise InvalidInputError("masked sums need at least two sites: use sums='each'")
    keys = [new_key() for _ in sites]
    public = {site: key.public_key().public_bytes_raw() for site, key in zip(sites, keys, strict=True)}
    return [Masks(site, key, public, "one process", colluding) for site, key in zip(sites, keys, strict=True)]
