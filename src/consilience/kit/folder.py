"""The folder of a site: its policy, secret, key and ledger, its fits and what it released; and the key that signs.

The names of its files are fixed. The folder stays at the site; what leaves is copied out of ``releases``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.errors import InvalidInputError
from consilience.files.json_text import read_capped
from consilience.kit import ledger
from consilience.kit.private_files import slug, write_once
from consilience.kit.roster import NEEDED, encode_key, signed_bytes
from consilience.kit.row_tags import SECRET
from consilience.messages.site_names import site_names

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

MOST_BYTES = 2**14
"""Maximum size of a file with a key."""


def is_available() -> bool:
    """Whether the package cryptography is installed; without it files are released unsigned."""
    return find_spec("cryptography") is not None


class SiteIdentity:
    """A private key, which is never shown.

    Parameters
    ----------
    key : Ed25519PrivateKey
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"SiteIdentity({self.public_key!r})"

    def __reduce__(self) -> Any:
        raise TypeError("a private key is not copied into other files")

    @classmethod
    def new(cls) -> SiteIdentity:
        """Make a new key."""
        _, ed25519, _ = _library()
        return cls(ed25519.Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> SiteIdentity:
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
        return encode_key(self._key.public_key().public_bytes_raw())

    def exchange_key(self, purpose: str) -> X25519PrivateKey:
        """Return the private key for secrets with others, which follows from this key and a purpose by HKDF-SHA256."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode()).derive
        return X25519PrivateKey.from_private_bytes(derive(self._key.private_bytes_raw()))

    def sign(self, content_hash: str) -> str:
        """Return the signature of a content hash, ``ed25519:...``."""
        return encode_key(self._key.sign(signed_bytes(content_hash)))


def _library() -> tuple[Any, Any, Any]:
    """Return modules and an error of the package cryptography, or raise an error with the command that installs it."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ImportError(NEEDED) from error
    return serialization, ed25519, UnsupportedAlgorithm


# ---------------------------------------------------------------- folder

POLICY, SECRET_FILE, KEY, LEDGER = "policy.toml", "secret.key", "identity.pem", "ledger.jsonl"
MAPPING = "mapping.toml"
FOLDERS = ("fits", "releases", "tags")
LOST = (
    f"If there is no backup, move {KEY} away if it is there, run 'consilience site key NAME --new', and give the new "
    "public key to the coordinator, for the roster"
)
"""What to do without the key of a site."""


@dataclass(frozen=True)
class SiteFolder:
    """A site's folder that was opened and checked.

    Parameters
    ----------
    path : Path
    name : str
        Name of the site.
    secret : bytes
        Secret for tags of rows.
    """

    path: Path
    name: str
    secret: bytes = field(repr=False)

    @classmethod
    def init(cls, name: str, policy: str, parent: str | Path = ".") -> SiteFolder:
        """Make the folder of a new site; raise an error if there is one, and leave it as it was.

        Parameters
        ----------
        name : str
        policy : str
            Text of the site's ``policy.toml``.
        parent : path
            Where the folder is made; its own name is the :func:`slug` of the site's.
        """
        (normal,) = site_names([name])
        goal = Path(parent) / slug(normal)
        if goal.exists():
            raise InvalidInputError(
                f"there is a folder {goal.name!r} already, and a site has one: use it, or rename it"
            )
        partial = goal.with_name(f".{goal.name}.partial-{secrets.token_hex(4)}")
        try:
            partial.mkdir(mode=0o700, parents=True)
            for part in FOLDERS:
                (partial / part).mkdir(mode=0o700)
            _fill(partial, normal, policy)
            partial.rename(goal)
        except OSError as error:
            raise InvalidInputError(f"the folder {goal.name!r} cannot be made: {error.strerror}") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return cls.open(goal)

    @classmethod
    def open(cls, path: str | Path) -> SiteFolder:
        """Open a site's folder; raise an error if something in it is missing, damaged or replaced."""
        goal = Path(path)
        absent = [part for part in (POLICY, SECRET_FILE, LEDGER) if not (goal / part).is_file()]
        absent += [part for part in FOLDERS if not (goal / part).is_dir()]
        if absent:
            raise InvalidInputError(
                f"{goal.name!r} is not the folder of a site: it lacks {', '.join(absent)}. Make one, or restore it"
            )
        entries = ledger.read(goal / LEDGER)
        details = entries[0].details if entries else {}
        if not entries or not isinstance(details.get("site"), str):
            raise InvalidInputError(f"the ledger in {goal.name!r} does not say which site it is of: restore it")
        secret = _secret(goal / SECRET_FILE)
        if details.get("secret") != _mark(secret):
            raise InvalidInputError(
                f"{SECRET_FILE} is not the secret with which this ledger began, and rows could not be compared with "
                "earlier ones: restore the file"
            )
        found = cls(goal, details["site"], secret)
        found._check_key()
        return found

    def _check_key(self) -> None:
        stated = self.public_key
        if stated is None or not is_available() or not (self.path / KEY).is_file():
            return
        if SiteIdentity.load(self.path / KEY).public_key != stated:
            raise InvalidInputError(f"{KEY} is not the key that the ledger names: restore the file. {LOST}")

    @property
    def entries(self) -> tuple[ledger.Entry, ...]:
        """Entries of the ledger."""
        return ledger.read(self.path / LEDGER)

    @property
    def policy(self) -> str:
        """Text of the policy."""
        try:
            return read_capped(self.path / POLICY, 2**20).decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{POLICY} is not text in UTF-8: save it as UTF-8") from error

    def record(self, kind: str, details: Mapping[str, Any], *, head: str | None = None) -> ledger.Entry:
        """Add an entry to the ledger, as :func:`consilience.kit.ledger.append` does, and return it."""
        return ledger.append(self.path / LEDGER, kind, details, head=head)

    @property
    def public_key(self) -> str | None:
        """Public key that the ledger names last; None if the site has no key and its files are unsigned."""
        keys = [entry.details.get("key") for entry in self.entries if entry.kind in ("init", "key")]
        return keys[-1]

    @property
    def identity(self) -> SiteIdentity | None:
        """Key with which files are signed; None if the site has none."""
        if self.public_key is None:
            return None
        if not (self.path / KEY).is_file():
            raise InvalidInputError(f"{KEY} is missing, and nothing can be signed: restore the file. {LOST}")
        return SiteIdentity.load(self.path / KEY)

    def make_key(self, *, lost: bool = False) -> str:
        """Make a key for a site that has none, or whose key was lost, and record it; return the public key."""
        if self.public_key is not None and not lost:
            raise InvalidInputError("the site has a key already, and it is never overwritten")
        if self.public_key is not None and (self.path / KEY).exists():
            raise InvalidInputError(f"{KEY} is there: move it away first, if nobody is to use it any more")
        if not (self.path / KEY).is_file():
            SiteIdentity.new().store(self.path / KEY)
        identity = SiteIdentity.load(self.path / KEY)
        self.record("key", {"key": identity.public_key})
        return identity.public_key


def _fill(path: Path, name: str, policy: str) -> None:
    """Write the files of a new site."""
    secret = secrets.token_bytes(SECRET)
    write_once(path / SECRET_FILE, secret.hex().encode() + b"\n")
    write_once(path / POLICY, policy.encode())
    details: dict[str, Any] = {"site": name, "secret": _mark(secret)}
    if is_available():
        identity = SiteIdentity.new()
        identity.store(path / KEY)
        details["key"] = identity.public_key
    ledger.append(path / LEDGER, "init", details)


def _secret(path: Path) -> bytes:
    text = read_capped(path, 2**10)
    if not re.fullmatch(rb"[0-9a-f]{%d}\r?\n?" % (2 * SECRET), text):
        raise InvalidInputError(f"{path.name} is damaged: expected {2 * SECRET} hexadecimal digits. Restore the file")
    return bytes.fromhex(text.decode())


def _mark(secret: bytes) -> str:
    """Return a hash by which a replaced secret is noticed, and that says nothing about it."""
    return hashlib.blake2b(b"", digest_size=8, key=secret, person=b"consilience-mark").hexdigest()
