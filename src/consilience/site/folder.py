"""The folder of a site: its policy, secret, key and ledger, its fits and what it released. Names in it are fixed.

The folder stays at the site. What leaves is copied out of ``releases``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.file_names import slug
from consilience.messages.site_names import site_names
from consilience.site import ledger
from consilience.site.identity import Identity, is_available
from consilience.site.private_files import read_capped, write_once
from consilience.site.row_tags import SECRET

POLICY, SECRET_FILE, KEY, LEDGER = "policy.toml", "secret.key", "identity.pem", "ledger.jsonl"
FOLDERS = ("fits", "releases", "tags")


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

    Examples
    --------
    >>> import tempfile
    >>> folder = SiteFolder.init("Hospital North", "# policy", tempfile.mkdtemp())
    >>> folder.path.name, SiteFolder.open(folder.path).name
    ('hospital-north', 'Hospital North')
    >>> [entry.kind for entry in folder.entries]
    ['init']
    """

    path: Path
    name: str
    secret: bytes = field(repr=False)

    @classmethod
    def init(cls, name: str, policy: str, parent: str | Path = ".", now: datetime | None = None) -> SiteFolder:
        """Make the folder of a new site; raise an error if there is one, and leave it as it was.

        Parameters
        ----------
        name : str
        policy : str
            Text of the site's ``policy.toml``.
        parent : path
            Where the folder is made; its own name is the :func:`slug` of the site's.
        now : datetime, optional
            Time of the first entry of the ledger.
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
                (partial / part).mkdir()
            _fill(partial, normal, policy, now)
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
        if Identity.load(self.path / KEY).public_key != stated:
            raise InvalidInputError(f"{KEY} is not the key that the ledger names: restore the file")

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

    @property
    def public_key(self) -> str | None:
        """Public key that the ledger names last; None if the site has no key and its files are unsigned."""
        keys = [entry.details.get("key") for entry in self.entries if entry.kind in ("init", "key")]
        return keys[-1]

    @property
    def identity(self) -> Identity | None:
        """Key with which files are signed; None if the site has none."""
        if self.public_key is None:
            return None
        return Identity.load(self.path / KEY)

    def make_key(self, now: datetime | None = None) -> str:
        """Make a key for a site that has none, and record it; return the public key."""
        if self.public_key is not None:
            raise InvalidInputError("the site has a key already, and it is never overwritten")
        identity = Identity.load(self.path / KEY) if (self.path / KEY).is_file() else Identity.new()
        if not (self.path / KEY).is_file():
            identity.store(self.path / KEY)
        ledger.append(self.path / LEDGER, "key", {"key": identity.public_key}, now=now)
        return identity.public_key


def _fill(path: Path, name: str, policy: str, now: datetime | None) -> None:
    """Write the files of a new site."""
    secret = secrets.token_bytes(SECRET)
    write_once(path / SECRET_FILE, secret.hex().encode() + b"\n")
    write_once(path / POLICY, policy.encode())
    details: dict[str, Any] = {"site": name, "secret": _mark(secret)}
    if is_available():
        identity = Identity.new()
        identity.store(path / KEY)
        details["key"] = identity.public_key
    ledger.append(path / LEDGER, "init", details, now=now)


def _secret(path: Path) -> bytes:
    text = read_capped(path, 2**10)
    if not re.fullmatch(rb"[0-9a-f]{%d}\r?\n?" % (2 * SECRET), text):
        raise InvalidInputError(f"{path.name} is damaged: expected {2 * SECRET} hexadecimal digits. Restore the file")
    return bytes.fromhex(text.decode())


def _mark(secret: bytes) -> str:
    """Return a hash by which a replaced secret is noticed, and that says nothing about it."""
    return hashlib.blake2b(b"", digest_size=8, key=secret, person=b"consilience-mark").hexdigest()
