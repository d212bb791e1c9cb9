"""Append-only file of records: framed, chained by digests, fsynced; a truncated end is distinguished from damage.

A record is ``mark | kind u8 | length u64 | CRC-32 of these | payload | digest``; the digest is over the digest of the
record before it and all of this one. An interrupted write leaves the beginning of a record at the end of the file and
nothing else; any other inconsistency is damage.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from consilience.errors import JournalError

MARK = b"CNSJ"
HEAD = struct.Struct("<4sBQ")
CRC = struct.Struct("<I")
DIGEST = 16
SEED = b"\0" * DIGEST
OWNER_ONLY = 0o600


def joined(parts: Sequence[bytes]) -> bytes:
    """Join parts into one payload.

    Examples
    --------
    >>> separated(joined([b"a", b"", b"bc"]))
    [b'a', b'', b'bc']
    """
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    return lengths + b"".join(parts)


def separated(payload: bytes) -> list[bytes]:
    """Split a payload into its parts; raise a :class:`ValueError` if it is not one of :func:`joined`."""
    try:
        (count,) = struct.unpack_from("<I", payload)
        lengths = struct.unpack_from(f"<{count}Q", payload, 4)
    except struct.error as error:
        raise ValueError("the payload is too short for its parts") from error
    parts, at = [], 4 + 8 * count
    for length in lengths:
        parts.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise ValueError(f"a payload of {len(payload)} bytes; its parts have {at}")
    return parts


class FrameFile:
    """Append-only file of records, opened for reading and then for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._chain = SEED

    def read(self) -> list[tuple[int, bytes]]:
        """Return all complete records as ``(kind, payload)``; truncate an incomplete end, raise an error for damage."""
        with named(self.path, "read"):
            data = self.path.read_bytes() if self.path.exists() else b""
        self._chain = SEED
        records: list[tuple[int, bytes]] = []
        at = 0
        while at < len(data):
            record = self._record(data, at, len(records))
            if record is None:
                with named(self.path, "written"):
                    os.truncate(self.path, at)
                break
            kind, payload, at = record
            records.append((kind, payload))
        return records

    def _record(self, data: bytes, at: int, index: int) -> tuple[int, bytes, int] | None:
        """Return the record at ``at`` and its end, or None if the file ends within it."""
        start = at + HEAD.size + CRC.size
        if not any(data[at:]):  # space that was allocated and never written
            return None
        if not MARK.startswith(data[at : at + len(MARK)]):
            raise JournalError(f"{self.path}: record {index} (byte {at}) is damaged or not a record of a journal")
        if start > len(data):
            return None
        _, kind, length = HEAD.unpack_from(data, at)
        if CRC.unpack_from(data, at + HEAD.size)[0] != zlib.crc32(data[at : at + HEAD.size]):
            raise JournalError(f"{self.path}: the header of record {index} (byte {at}) is damaged; restore the file")
        end = start + length + DIGEST
        if end > len(data):
            return None
        if data[end - DIGEST : end] != self._digest(data[at : end - DIGEST]):
            raise JournalError(f"{self.path}: record {index} (byte {at}) is damaged; restore the file")
        self._chain = data[end - DIGEST : end]
        return kind, data[start : end - DIGEST], end

    def _digest(self, record: bytes) -> bytes:
        return blake2b(self._chain + record, digest_size=DIGEST).digest()

    def append(self, records: Sequence[tuple[int, Sequence[bytes]]]) -> None:
        """Write records ``(kind, parts)`` and fsync the file."""
        with named(self.path, "written"):
            if self._file is None:
                self._file = opened_for_appending(self.path)
                _sync_folder(self.path.parent)
            for kind, parts in records:
                payload = joined(parts)
                head = HEAD.pack(MARK, kind, len(payload))
                record = head + CRC.pack(zlib.crc32(head)) + payload
                self._chain = self._digest(record)
                self._file.write(record + self._chain)
            self._file.flush()
            os.fsync(self._file.fileno())

    def restart(self) -> None:
        """Empty the file."""
        self.close()
        with named(self.path, "written"), opened_for_appending(self.path) as file:
            file.truncate(0)
        self._chain = SEED

    def close(self) -> None:
        """Close the file; what could not be written before is not written now."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def opened_for_appending(path: Path) -> BinaryIO:
    """Open a file for appending, readable and writable by its owner alone, also if it exists already."""

    def opener(name: str, flags: int) -> int:
        handle = os.open(name, flags, OWNER_ONLY)
        if hasattr(os, "fchmod"):
            os.fchmod(handle, OWNER_ONLY)
        return handle

    return open(path, "ab", opener=opener)


@contextmanager
def named(path: Path, done: str) -> Iterator[None]:
    """Raise a :class:`~consilience.errors.JournalError` with the system's reason instead of an ``OSError``."""
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"{path} could not be {done} ({error.strerror or error}): check the disk and its permissions, or give "
            "another path; rounds that were written are kept"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Fsync the directory (POSIX)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
