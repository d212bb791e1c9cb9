"""Answers that only the coordinator can read: X25519, HKDF-SHA256 and ChaCha20-Poly1305, by the package cryptography.

Who carries or stores a sealed answer sees run, round, site, the question that it answers and its size. These are bound
to the box: changed or moved to another place, it does not open.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from consilience.errors import InvalidInputError
from consilience.files.json_text import canonical_bytes, parse_json, write_json
from consilience.kit.folder import SiteIdentity
from consilience.kit.letters import MOST_ROUNDS, AnswerLetter, as_bytes, as_hash, as_name, as_text
from consilience.kit.roster import KEY_BYTES, NEEDED

MARK = "x25519:"
NONCE_BYTES = 12
PURPOSE = "consilience key for answers 1"
CHANGED = "the sealed answer does not open: it was changed or moved, or was sealed for another coordinator"


def answer_box(identity: SiteIdentity) -> str:
    """Return the public key for which answers to a coordinator are sealed, ``x25519:...``."""
    return MARK + as_text(identity.exchange_key(PURPOSE).public_key().public_bytes_raw())


@dataclass(frozen=True)
class SealedAnswer:
    """An answer of a site that only the coordinator can open.

    Parameters
    ----------
    run, asked : str
        Identity of the run, and content hash of the question, ``sha256:...``.
    number : int
        Number of the round, from 1.
    site : str
    box : bytes
        A public key, a nonce, and the encrypted text of the answer's letter.
    """

    kind: ClassVar[str] = "consilience sealed answer"
    run: str
    number: int
    site: str
    asked: str
    box: bytes

    @property
    def head(self) -> dict[str, Any]:
        """What is said outside, and is bound to the box."""
        return {"run": self.run, "round": self.number, "site": self.site, "asked": self.asked}

    @property
    def bound(self) -> bytes:
        """The bytes of the head, without which the box does not open."""
        return canonical_bytes(self.head)

    def to_text(self) -> str:
        """Return the file as JSON text."""
        return write_json({"format": self.kind, "version": 1, **self.head, "box": as_text(self.box)})

    @classmethod
    def from_text(cls, text: str) -> SealedAnswer:
        """Read a file from JSON text; raise an error if it is damaged, or is of another kind."""
        document = parse_json(text, f"a {cls.kind}")
        try:
            return cls._of(document)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise InvalidInputError(f"not a valid {cls.kind}: {type(error).__name__}") from error

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> SealedAnswer:
        if set(document) != {"format", "version", "run", "round", "site", "asked", "box"}:
            raise ValueError
        number, box = document["round"], as_bytes(document["box"])
        if (document["format"], document["version"]) != (cls.kind, 1) or type(number) is not int:
            raise ValueError
        if not 1 <= number <= MOST_ROUNDS or len(box) <= KEY_BYTES + NONCE_BYTES:
            raise ValueError
        return cls(as_hash(document["run"]), number, as_name(document["site"]), as_hash(document["asked"]), box)


AnyAnswer = AnswerLetter | SealedAnswer


def seal_answer(letter: AnswerLetter, box: str) -> SealedAnswer:
    """Encrypt the letter of an answer for the public key of a coordinator.

    Raises
    ------
    InvalidInputError
        If the key is not one.
    ImportError
        If the package cryptography is missing.
    """
    x25519, _ = _library()
    to = _key_bytes(box)
    once = x25519.X25519PrivateKey.generate()
    public, nonce = once.public_key().public_bytes_raw(), os.urandom(NONCE_BYTES)
    shared = once.exchange(x25519.X25519PublicKey.from_public_bytes(to))
    found = SealedAnswer(letter.run, letter.number, letter.site, letter.asked, b"")
    data = _cipher(shared, public, to).encrypt(nonce, letter.to_text().encode(), found.bound)
    return replace(found, box=public + nonce + data)


def open_answer(sealed: SealedAnswer, identity: SiteIdentity) -> AnswerLetter:
    """Decrypt an answer with the key of the coordinator.

    Raises
    ------
    InvalidInputError
        If it was changed or moved, was sealed for another key, or says something else outside than inside.
    """
    x25519, invalid = _library()
    mine = identity.exchange_key(PURPOSE)
    public, rest = sealed.box[:KEY_BYTES], sealed.box[KEY_BYTES:]
    nonce, data = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
    try:
        shared = mine.exchange(x25519.X25519PublicKey.from_public_bytes(public))
        cipher = _cipher(shared, public, mine.public_key().public_bytes_raw())
        text = cipher.decrypt(nonce, data, sealed.bound).decode()
    except (invalid, ValueError) as error:
        raise InvalidInputError(CHANGED) from error
    letter = AnswerLetter.from_text(text)
    inside = {"run": letter.run, "round": letter.number, "site": letter.site, "asked": letter.asked}
    if inside != sealed.head:
        raise InvalidInputError("the sealed answer says something else outside than inside")
    return letter


def opened_or_why(sealed: SealedAnswer, identity: SiteIdentity | None) -> AnswerLetter | str:
    """Return the letter of a sealed answer, or the reason why it cannot be used."""
    if identity is None:
        return "it is sealed, and the coordinator's key was not named"
    try:
        return open_answer(sealed, identity)
    except InvalidInputError as error:
        return str(error)


def _key_bytes(box: str) -> bytes:
    try:
        data = as_bytes(box.removeprefix(MARK)) if box.startswith(MARK) else b""
    except (ValueError, binascii.Error):
        data = b""
    if len(data) != KEY_BYTES:
        raise InvalidInputError(f"expected {MARK} and the base64 of {KEY_BYTES} bytes")
    return data


def _library() -> tuple[Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError as error:
        raise ImportError(NEEDED) from error
    return x25519, InvalidTag


def _cipher(shared: bytes, public: bytes, to: bytes) -> Any:
    """Return the cipher for one answer; its key depends on both public keys."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = b"consilience sealed answer 1" + public + to
    return ChaCha20Poly1305(HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared))
