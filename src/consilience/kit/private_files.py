"""Files that stay at a site, written once and as a whole; and the names of files and folders of sites."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from consilience.errors import InvalidInputError
from consilience.messages.site_names import site_names

LONGEST = 60
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}
"""Names that Windows keeps for devices."""


def slug(name: str) -> str:
    """Return a site's name for files and folders: letters a to z, digits and hyphens, valid on every system."""
    (normal,) = site_names([name])
    plain = unicodedata.normalize("NFKD", normal).encode("ascii", "ignore").decode().lower()
    found = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    mark = hashlib.sha256(normal.encode()).hexdigest()[:8]
    if not found:
        return f"site-{mark}"
    if len(found) > LONGEST:
        return f"{found[:LONGEST].strip('-')}-{mark}"
    return f"site-{found}" if found in RESERVED else found


# ---------------------------------------------------------------- private files

OWNER_ONLY = 0o600
"""Permissions of a new file; Windows applies those of the folder instead."""
WITH_GROUP = 0o660
"""Permissions in a folder that its group may write to, so that several accounts can use it."""


def open_for_owner(path: Path, flags: int) -> int:
    """Open a file for its owner alone, or for its group too if the group may write to the folder."""
    is_new = bool(flags & os.O_CREAT) and not path.exists()
    handle = os.open(path, flags, OWNER_ONLY)
    if is_new and sys.platform != "win32" and path.parent.stat().st_mode & stat.S_IWGRP:
        os.fchmod(handle, WITH_GROUP)  # whatever the umask is
    return handle


@contextmanager
def write_alone(path: Path) -> Iterator[None]:
    """Keep other processes from writing to a file while this one does, by a lock on a file beside it.

    The system lets go of the lock when the process ends, however it ends.
    """
    try:
        handle = open_for_owner(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise InvalidInputError(f"{path.name} cannot be written: {error.strerror}") from error
    try:
        try:
            _lock(handle)
        except BlockingIOError as error:
            raise InvalidInputError(f"another process writes to {path.name}: wait until it has ended") from error
        yield
    finally:
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError from error
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_once(path: str | Path, data: bytes) -> None:
    """Write a new file and wait until it is on disk; raise an error if there is a file of that name.

    After an error there is no file, or the older one as it was.
    """
    goal = Path(path)
    try:
        handle = open_for_owner(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0))
    except FileExistsError as error:
        raise InvalidInputError(f"{goal.name} exists already and is never overwritten") from error
    except OSError as error:
        raise InvalidInputError(f"{goal.name} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            goal.unlink()
        raise InvalidInputError(f"{goal.name} cannot be written: {error.strerror}") from error
