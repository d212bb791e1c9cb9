"""Files that stay at a site: written once and as a whole, for the owner's eyes, and never overwritten."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from consilience.errors import InvalidInputError

OWNER_ONLY = 0o600
"""Permissions of a new file; Windows applies those of the folder instead."""


def write_once(path: str | Path, data: bytes) -> None:
    """Write a new file and wait until it is on disk; raise an error if there is a file of that name.

    After an error there is no file, or the older one as it was.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "secret.key"
    >>> write_once(path, b"one")
    >>> write_once(path, b"two")
    Traceback (most recent call last):
    ...
    consilience.errors.InvalidInputError: secret.key exists already and is never overwritten
    >>> path.read_bytes()
    b'one'
    """
    goal = Path(path)
    try:
        handle = os.open(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), OWNER_ONLY)
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


def read_capped(path: str | Path, most: int) -> bytes:
    """Return the bytes of a file; raise an error if it is missing or has more than ``most`` of them."""
    goal = Path(path)
    try:
        with goal.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InvalidInputError(f"{goal.name} cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise InvalidInputError(f"{goal.name} has more than {most:,} bytes, the most that are read")
    return data
