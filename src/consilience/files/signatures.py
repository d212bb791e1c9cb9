"""Ed25519 signatures of content hashes (:rfc:`8032`), by the optional package cryptography.

A public key is written ``ed25519:`` and the base64 of its 32 bytes, a signature ``ed25519:`` and that of its 64 bytes.
What is signed are the ASCII bytes of ``consilience signature 1``, a line break and the content hash.
"""

from __future__ import annotations

import base64
import binascii
import re

from consilience.errors import InvalidInputError

MARK = "ed25519:"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
HASH = re.compile(r"sha256:[0-9a-f]{64}")
INSTALL = "python -m pip install 'consilience[secure]'"


def missing_package(error: ImportError) -> ImportError:
    """Return the error that names the command which installs what keys and signatures need."""
    found = ImportError(f"keys and signatures need the package cryptography: {INSTALL}")
    found.__cause__ = error
    return found


def signed_bytes(content_hash: str) -> bytes:
    """Return the bytes that are signed for a content hash.

    Examples
    --------
    >>> signed_bytes("sha256:" + 64 * "0")[:23]
    b'consilience signature 1'
    """
    if not HASH.fullmatch(content_hash):
        raise InvalidInputError("expected a content hash, sha256: and 64 hexadecimal digits")
    return f"consilience signature 1\n{content_hash}".encode("ascii")


def encoded(data: bytes) -> str:
    """Return a key or a signature as text."""
    return MARK + base64.b64encode(data).decode("ascii")


def decoded(text: object, size: int) -> bytes:
    """Return the bytes of a key or a signature; raise an error for text of another form.

    Examples
    --------
    >>> decoded(encoded(bytes(32)), 32) == bytes(32)
    True
    >>> decoded("ed25519:AAAA", 32)
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: expected ed25519: and the base64 of 32 bytes
    """
    said = f"expected {MARK} and the base64 of {size} bytes"
    if not isinstance(text, str) or not text.startswith(MARK) or len(text) > 200:
        raise InvalidInputError(said)
    try:
        data = base64.b64decode(text.removeprefix(MARK), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(said) from error
    if len(data) != size or encoded(data) != text:
        raise InvalidInputError(said)
    return data


def verified(public_key: str, signature: object, content_hash: str) -> bool:
    """Return whether a signature of a content hash was made with the private key of a public key.

    Raises
    ------
    ImportError
        If the package cryptography is missing.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise missing_package(error) from error
    key = Ed25519PublicKey.from_public_bytes(decoded(public_key, KEY_BYTES))
    try:
        key.verify(decoded(signature, SIGNATURE_BYTES), signed_bytes(content_hash))
    except (InvalidSignature, InvalidInputError):
        return False
    return True
