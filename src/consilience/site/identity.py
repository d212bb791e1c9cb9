"""The identity of a site: an Ed25519 key with which it signs what it releases. It needs the extra ``secure``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.errors import InvalidInputError
from consilience.files.signatures import encoded, missing_package, signed_bytes, verified
from consilience.site.private_files import read_capped, write_once

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["Identity", "is_available", "verified"]

MOST_BYTES = 2**14
"""Maximum size of a file with a key."""


def is_available() -> bool:
    """Whether the package cryptography is installed; without it files are released unsigned."""
    return find_spec("cryptography") is not None


class Identity:
    """A private key, which is never shown.

    Parameters
    ----------
    key : Ed25519PrivateKey

    Examples
    --------
    >>> identity = Identity.new()
    >>> content_hash = "sha256:" + 64 * "0"
    >>> verified(identity.public_key, identity.sign(content_hash), content_hash)
    True
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"Identity({self.public_key!r})"

    def __reduce__(self) -> Any:
        raise TypeError("a private key is not copied into other files")

    @classmethod
    def new(cls) -> Identity:
        """Make a new key."""
        _, ed25519, _ = _library()
        return cls(ed25519.Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> Identity:
        """Read a key from a PEM file (PKCS #8, without a password)."""
        serialization, ed25519, unknown = _library()
        data = read_capped(path, MOST_BYTES)
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError, unknown) as error:
            raise InvalidInputError(f"{Path(path).name} is not a private key in PEM without a password") from error
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise InvalidInputError(f"{Path(path).name} is not an Ed25519 key")
        return cls(key)

    def store(self, path: str | Path) -> None:
        """Write the key to a new PEM file (PKCS #8) that only its owner can read; never overwrite one."""
        serialization, _, _ = _library()
        data = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_once(path, data)

    @property
    def public_key(self) -> str:
        """Public key as it stands in a roster, ``ed25519:...``."""
        return encoded(self._key.public_key().public_bytes_raw())

    def sign(self, content_hash: str) -> str:
        """Return the signature of a content hash, ``ed25519:...``."""
        return encoded(self._key.sign(signed_bytes(content_hash)))


def _library() -> tuple[Any, Any, Any]:
    """Return modules and an error of the package cryptography, or raise an error with the command that installs it."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise missing_package(error) from error
    return serialization, ed25519, UnsupportedAlgorithm
