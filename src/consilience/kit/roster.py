"""The roster of a study: the names of its sites and their public keys; and signatures of content hashes.

Signatures are Ed25519 (:rfc:`8032`), by the optional package cryptography.

A public key is written ``ed25519:`` and the base64 of its 32 bytes, a signature ``ed25519:`` and that of its 64 bytes.
What is signed are the ASCII bytes of ``consilience signature 1``, a line break and the content hash.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from consilience.errors import InvalidInputError
from consilience.files.documents import Part, Text
from consilience.files.json_text import content_hash as hash_of
from consilience.fit.left_out import check_institutions
from consilience.kit.toml_file import TomlFile, check_name, write_toml
from consilience.messages.site_names import site_names

MARK = "ed25519:"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
HASH = re.compile(r"sha256:[0-9a-f]{64}")
NEEDED = "keys and signatures need the package cryptography: python -m pip install 'consilience[secure]'"


def signed_hash(content: str, envelope: Mapping[str, Any]) -> str:
    """Return the hash that is signed: of the content hash and of the rest of the envelope, if it says so.

    Who leaves out that it says so has a signature of another hash.
    """
    rest = {name: value for name, value in envelope.items() if name != "signature"}
    return content if "covers" not in rest else hash_of({"content": content, "envelope": rest})


def signed_bytes(content_hash: str) -> bytes:
    """Return the bytes that are signed for a content hash."""
    if not HASH.fullmatch(content_hash):
        raise InvalidInputError("expected a content hash, sha256: and 64 hexadecimal digits")
    return f"consilience signature 1\n{content_hash}".encode("ascii")


def encode_key(data: bytes) -> str:
    """Return a key or a signature as text."""
    return MARK + base64.b64encode(data).decode("ascii")


def decode_key(text: object, size: int) -> bytes:
    """Return the bytes of a key or a signature; raise an error for text of another form."""
    said = f"expected {MARK} and the base64 of {size} bytes"
    if not isinstance(text, str) or not text.startswith(MARK) or len(text) > 200:
        raise InvalidInputError(said)
    try:
        data = base64.b64decode(text.removeprefix(MARK), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(said) from error
    if len(data) != size or encode_key(data) != text:
        raise InvalidInputError(said)
    return data


def verify_signature(public_key: str, signature: object, content_hash: str) -> bool:
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
        raise ImportError(NEEDED) from error
    key = Ed25519PublicKey.from_public_bytes(decode_key(public_key, KEY_BYTES))
    try:
        key.verify(decode_key(signature, SIGNATURE_BYTES), signed_bytes(content_hash))
    except (InvalidSignature, InvalidInputError):
        return False
    return True


# ---------------------------------------------------------------- roster

MOST_SITES = 10_000
"""Largest number of sites of a study; a run of more has regional coordinators."""
MOST_TRIED = 100
"""Largest number of keys that are tried to say whose a wrong signature is."""


class RosterSite(Part):
    """A site of the roster: name, public keys if it has any, and its institution if that has other sites."""

    name: Text
    key: Text | None = None
    masks: Text | None = None
    institution: Text | None = None


class Roster(TomlFile):
    """Names and public keys of the sites of a study."""

    called = "roster"
    kind = "consilience-roster"
    format: Literal["consilience-roster"]
    version: Literal[1]
    sites: Annotated[list[RosterSite], Field(min_length=1, max_length=MOST_SITES)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Check names and keys against each other; errors carry sentences."""
        for site in self.sites:
            check_name(site.name)
            if site.institution is not None:
                check_name(site.institution)
        site_names(self.names)
        check_institutions(self.institutions, self.names)
        owners: dict[bytes, str] = {}
        for site in self.sites:
            if site.key is None:
                continue
            try:
                key = decode_key(site.key, KEY_BYTES)
            except InvalidInputError as error:
                raise ValueError(f"the key of site {site.name!a}: {error}") from error
            if key in owners:
                raise ValueError(f"sites {owners[key]!a} and {site.name!a} have the same key: each needs its own")
            owners[key] = site.name
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(site.name for site in self.sites)

    @cached_property
    def by_name(self) -> dict[str, RosterSite]:
        """The sites by their names."""
        return {site.name: site for site in self.sites}

    @property
    def institutions(self) -> dict[str, str]:
        """Institution of each site that states one."""
        return {site.name: site.institution for site in self.sites if site.institution is not None}

    @property
    def keys(self) -> dict[str, str]:
        """Public key of each site that has one."""
        return {site.name: site.key for site in self.sites if site.key is not None}

    @property
    def masks(self) -> dict[str, str]:
        """Public key for masked sums of each site that has one, with its signature."""
        return {site.name: site.masks for site in self.sites if site.masks is not None}

    def key_of(self, name: str) -> str | None:
        """Return the public key of a site; None if the roster has none for it."""
        return self.by_name[name].key if name in self.by_name else None

    def to_text(self) -> str:
        """Return the roster as TOML text."""
        return write_toml(self.model_dump(exclude_none=True), {"sites": "Each site sends its name and its public key."})


@dataclass(frozen=True)
class Signature:
    """Whether the file of a site comes from that site, as far as a roster can tell.

    Parameters
    ----------
    status : {"signed", "unsigned", "refused"}
    said : str
        The status in a sentence; for a refused file also what to do.
    """

    status: Literal["signed", "unsigned", "refused"]
    said: str


class Signed(Protocol):
    """A file of a site that can be signed."""

    @property
    def site(self) -> str:
        """Name of the site."""
        ...

    @property
    def hash(self) -> str:
        """Hash of the content."""
        ...

    @property
    def envelope(self) -> Mapping[str, Any]:
        """Has the signature."""
        ...


def check_signature(file: Signed, roster: Roster | None, require_signatures: bool = False) -> Signature:
    """Check the signature of a file against a roster.

    A file without a signature is "unsigned" if the roster has no key for its site, or if there is no roster. If the
    roster has a key, a file without a signature is refused: otherwise it would suffice to remove it. A signature that
    no roster confirms counts as none.

    Parameters
    ----------
    file : Signed
        Its signature is ``file.envelope["signature"]``. It covers the content hash, with the name of the site, and the
        rest of the envelope; in files of earlier versions the content hash alone (:func:`signed_hash`).
    roster : Roster, optional
    require_signatures : bool
        Whether unsigned files are refused.

    Raises
    ------
    ImportError
        If there is a signature to check and the package cryptography is missing.
    """
    if roster is None:
        return _unsigned(f"the file of {file.site!a} was not checked against a roster", require_signatures)
    if file.site not in roster.by_name:
        return Signature("refused", _unknown(file.site, roster))
    key, signature = roster.key_of(file.site), file.envelope.get("signature")
    if key is None:
        return _unsigned(
            f"the roster has no key of {file.site!a}: anybody can have written the file", require_signatures
        )
    if signature is None:
        return Signature(
            "refused",
            f"the file of {file.site!a} has no signature although the roster has a key of this site: it was removed, "
            "or the site did not sign. Ask for the signed file",
        )
    if verify_signature(key, signature, signed_hash(file.hash, file.envelope)):
        return Signature("signed", f"signed by {file.site!a}")
    return Signature("refused", _forged(file, signature, roster))


def _unsigned(said: str, is_refused: bool) -> Signature:
    if is_refused:
        return Signature("refused", f"{said}. Signatures are required: use a roster with the site's public key")
    return Signature("unsigned", said)


def _unknown(name: str, roster: Roster) -> str:
    try:
        site_names([*roster.names, name])
    except InvalidInputError:
        return f"site {name!a} is not in the roster, but a name that looks alike is: ask where the file comes from"
    return f"site {name!a} is not in the roster: add it with its public key, or leave the file out"


def _forged(file: Signed, signature: object, roster: Roster) -> str:
    """Say how a signature fails: it is another site's, or nobody's; of a long roster, keys are not tried in turn."""
    for site in roster.sites[:MOST_TRIED]:
        if site.key is not None and verify_signature(site.key, signature, signed_hash(file.hash, file.envelope)):
            return f"the file says that it is of {file.site!a} and was signed with the key of {site.name!a}"
    return (
        f"the signature of the file of {file.site!a} does not fit its content and the key in the roster: the file was "
        "changed, or signed with another key. Ask the site for its file, and compare the public keys"
    )
