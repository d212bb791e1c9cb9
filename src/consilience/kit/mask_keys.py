"""Keys of sites for masked sums: derived from the key that signs, published with a signature of it.

The X25519 key of a site follows from its Ed25519 key by HKDF-SHA256, so that a folder has one secret that signs and no
other file to keep. What a site publishes for the roster is ``x25519:`` and the base64 of its public key and of the
signature of this key and the site's name. A site masks with keys alone that are so signed by the keys of the run; that
the run has the right keys, people compare by :func:`fingerprint_of`, once.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from consilience.errors import InvalidInputError, RefusedError
from consilience.files.json_text import content_hash
from consilience.kit.folder import SiteFolder, SiteIdentity
from consilience.kit.letters import RunFile
from consilience.kit.roster import KEY_BYTES, SIGNATURE_BYTES, decode_key, encode_key, verify_signature
from consilience.kit.sealed_answers import MARK
from consilience.site.masks import Masks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


def private_mask_key(identity: SiteIdentity) -> X25519PrivateKey:
    """Return the private key of a site for masks."""
    return identity.exchange_key("consilience key for masks 1")


def public_mask_key(name: str, identity: SiteIdentity) -> str:
    """Return the public key of a site for masks as it stands in a roster, with its signature."""
    key = private_mask_key(identity).public_key().public_bytes_raw()
    signature = decode_key(identity.sign(_signed(name, key)), SIGNATURE_BYTES)
    return MARK + base64.b64encode(key + signature).decode("ascii")


def verified_mask_key(name: str, public_key: str, text: str) -> bytes:
    """Return the bytes of a public key for masks; raise an error unless the site's key has signed it."""
    try:
        data = base64.b64decode(text.removeprefix(MARK), validate=True) if text.startswith(MARK) else b""
    except (binascii.Error, ValueError):
        data = b""
    key, signature = data[:KEY_BYTES], data[KEY_BYTES:]
    if len(signature) != SIGNATURE_BYTES or not verify_signature(public_key, encode_key(signature), _signed(name, key)):
        raise RefusedError(
            f"the key for masks of {name!a} is not signed with the key of this site: ask it for the line that "
            "'consilience site key --masks' prints"
        )
    return key


def _signed(name: str, key: bytes) -> str:
    return content_hash({"format": "consilience key for masks", "site": name, "key": key.hex()})


def keys_of_run(run: RunFile) -> dict[str, bytes]:
    """Return the keys for masks of all sites of a run; raise an error if one is missing, or is not signed."""
    lacking = [name for name in run.sites if name not in run.keys or name not in run.masks]
    if lacking:
        raise InvalidInputError(
            f"sums are masked, and the roster lacks key or masks of {', '.join(lacking)}: 'consilience site key' and "
            "'consilience site key --masks' print them"
        )
    return {name: verified_mask_key(name, run.keys[name], run.masks[name]) for name in run.sites}


def masks_of_run(folder: SiteFolder, run: RunFile, number: int, colluding: int) -> Masks:
    """Return the masks of a site in a round of a run."""
    identity = folder.identity
    if identity is None:
        raise RefusedError(
            "sums are masked, and this site has no key: run 'consilience site key', and send it to the coordinator"
        )
    context = f"{run.study}|{run.identity}|{number}"
    return Masks(folder.name, private_mask_key(identity), keys_of_run(run), context, colluding)


def fingerprint_of(run: RunFile) -> str:
    """Return sixteen digits by which people compare the names and keys of a run.

    Examples
    --------
    >>> run = RunFile(f"sha256:{64 * '0'}", ("north",), {}, f"sha256:{64 * '0'}")
    >>> len(fingerprint_of(run).split())
    4
    """
    found = content_hash([[name, run.keys.get(name, ""), run.masks.get(name, "")] for name in run.sites])
    digits = found.removeprefix("sha256:")[:16]
    return " ".join(digits[i : i + 4] for i in range(0, 16, 4))
