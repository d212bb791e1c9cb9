"""Stores of letters: where whole files lie between a coordinator and its sites.

``to/SITE/`` has what a site reads, ``from/SITE/`` what it writes. A store lists a folder, reads a file and writes one;
each of the three may be repeated at any time, and what it reads is not trusted: the letters prove themselves.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from consilience.errors import InvalidInputError, StoreError
from consilience.files.json_text import parse_json, read_capped, replace_file

MOST_LETTER = 64 * 2**20
"""Maximum size of a letter in bytes."""
MOST_LISTED = 16 * 2**20
"""Maximum size of the list of a folder in bytes, and a bound on the number of its files."""
SECONDS, MOST_SECONDS = 20.0, 300.0
"""Longest silence of a server, and longest time for the body of one answer."""
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""Names of files that a store lists; what has another name is passed over."""
OBJECTS = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Schemes of addresses of object stores."""


class LetterStore(Protocol):
    """What couriers need of a transport.

    An :class:`~consilience.errors.InvalidInputError` says that a file is not fit to be read, a
    :class:`~consilience.errors.StoreError` that the store cannot be used now: the same call may succeed later.
    """

    def names(self, folder: str) -> dict[str, str]:
        """Return the names of the files in a folder, each with a mark that changes when the file does.

        A folder that does not exist is empty.
        """
        ...

    def read(self, folder: str, name: str) -> bytes:
        """Return the bytes of a file."""
        ...

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write a whole file or nothing; a file of that name is replaced."""
        ...

    def close(self) -> None:
        """Close what is open; the next call opens it again."""
        ...


def store_at(
    address: str,
    *,
    authority: str = "",
    certificate: Path | None = None,
    key: Path | None = None,
    password: str = "",
    proxy: str = "",
) -> LetterStore:
    """Return the store at an address.

    Parameters
    ----------
    address : str
        ``https://host[:port][/path]``, an object store such as ``s3://bucket/run?region=eu-west-1``, or the path of a
        folder.
    authority, certificate, key, password, proxy
        As in :class:`WebStore`; other stores take their credentials from the environment.

    Raises
    ------
    InvalidInputError
        If the address is of none of these forms, or a file with a certificate cannot be used.
    StoreError
        If an object store cannot be opened.
    """
    scheme, mark, _ = address.partition("://")
    if not mark:
        return FolderStore(Path(address))
    if scheme == "https":
        return WebStore(address, authority, certificate, key, password, proxy)
    if scheme not in OBJECTS:
        raise InvalidInputError(f"{scheme!a} is no store of letters: expected https, {', '.join(OBJECTS)}, or a path")
    return ObjectStore(address)


def _plain(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return names with their marks; those of no plain form are left out, and too many are an error."""
    found = {name: mark for name, mark in names if PLAIN.fullmatch(name)}
    if sum(map(len, found)) > MOST_LISTED:
        raise StoreError(f"a folder of the store has {len(found):,} files, more than are read")
    return found


def _check_size(data: bytes, name: str) -> bytes:
    if len(data) > MOST_LETTER:
        raise InvalidInputError(f"{name} has more than {MOST_LETTER:,} bytes, the most of a letter")
    return data


# ---------------------------------------------------------------- folder


@dataclass(frozen=True)
class FolderStore:
    """A folder of this machine or of a network drive, or what rsync or a sync service carries.

    Parameters
    ----------
    root : Path
    """

    root: Path

    def names(self, folder: str) -> dict[str, str]:
        """Return the names of the files in a folder, each with its size and time."""
        try:
            with os.scandir(self.root / folder) as entries:
                return _plain((each.name, _mark(each)) for each in entries if each.is_file(follow_symlinks=False))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{folder} of the store cannot be listed: {error.strerror}") from error

    def read(self, folder: str, name: str) -> bytes:
        """Return the bytes of a file; no link is followed."""
        path = self.root / folder / name
        if not path.exists():
            raise StoreError(f"{name} is not in {folder} of the store")
        return read_capped(path, MOST_LETTER, follow=False)

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write a file beside its place and rename it."""
        _check_size(data, name)
        try:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            replace_file(self.root / folder / name, data)
        except OSError as error:
            raise StoreError(f"{name} cannot be written to {folder} of the store: {error.strerror}") from error

    def close(self) -> None:
        """Do nothing: a file is closed when it was read or written."""


def _mark(entry: os.DirEntry[str]) -> str:
    state = entry.stat(follow_symlinks=False)
    return f"{state.st_size}-{state.st_mtime_ns}"


# ---------------------------------------------------------------- objects


class ObjectStore:
    """An object store, by the file systems of pyarrow; an object is whole or not there.

    Parameters
    ----------
    address : str
        ``s3://bucket/path?region=...``, ``gs://``, ``abfss://`` or ``hdfs://``, with the parameters that
        ``pyarrow.fs.FileSystem.from_uri`` knows. Credentials come from the environment.
    """

    def __init__(self, address: str) -> None:
        from pyarrow import fs

        if address.startswith("s3:") and "@" in urlsplit(address).netloc:
            raise InvalidInputError("keys of a store belong in the environment, not in its address")
        try:
            self._store, root = fs.FileSystem.from_uri(address)
        except (OSError, ValueError, NotImplementedError) as error:
            raise StoreError(f"the store cannot be opened: {_said(error)}") from error
        self._root, self._selector, self._file = root.rstrip("/"), fs.FileSelector, fs.FileType.File

    def names(self, folder: str) -> dict[str, str]:
        """Return the names of the objects in a folder, each with its size and time.

        The time of an S3 object has whole seconds: one of equal size within the same second has the same mark.
        """
        try:
            found = self._store.get_file_info(self._selector(f"{self._root}/{folder}", allow_not_found=True))
        except OSError as error:
            raise StoreError(f"{folder} of the store cannot be listed: {_said(error)}") from error
        files = (each for each in found if each.type == self._file)
        return _plain((each.base_name, f"{each.size}-{each.mtime_ns}") for each in files)

    def read(self, folder: str, name: str) -> bytes:
        """Return the bytes of an object."""
        try:
            with self._store.open_input_stream(f"{self._root}/{folder}/{name}") as file:
                return _check_size(file.read(MOST_LETTER + 1), name)
        except OSError as error:
            raise StoreError(f"{name} in {folder} of the store cannot be read: {_said(error)}") from error

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Write an object."""
        _check_size(data, name)
        try:
            with self._store.open_output_stream(f"{self._root}/{folder}/{name}") as file:
                file.write(data)
        except OSError as error:
            raise StoreError(f"{name} cannot be written to {folder} of the store: {_said(error)}") from error

    def close(self) -> None:
        """Do nothing: pyarrow closes its connections."""


def _said(error: Exception) -> str:
    """Return the beginning of an error's text, with control characters escaped: a server may have written it."""
    return ascii(str(error))[1:201]


# ---------------------------------------------------------------- web

REASONS = {
    HTTPStatus.UNAUTHORIZED: "the server does not know who asks: the certificate is not of this run's authority, or a "
    "proxy that reads the traffic has removed it, and the password of the enrolment is needed",
    HTTPStatus.FORBIDDEN: "it belongs to another site, or may not be written",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "it is larger than the server allows",
}
"""What a refusal of the server means, by its status."""


@dataclass
class WebStore:
    """A server of files over HTTPS, such as nginx; one object serves one thread.

    No redirect is followed. A connection is kept, and opened again if the server has closed it.

    Parameters
    ----------
    address : str
        ``https://host[:port][/path]``.
    authority : str
        Certificates in PEM of who signed the server's, or a proxy's that reads the traffic; those of the system if
        empty.
    certificate, key : Path, optional
        Certificate and private key of the site, as files in PEM.
    password : str
        ``SITE:PASSWORD``, where a proxy reads the traffic and certificates do not pass.
    proxy : str
        ``[http://[user:password@]]host[:port]`` of a proxy with CONNECT, ``none`` for none; the one that the system
        states if empty.
    """

    address: str
    authority: str = ""
    certificate: Path | None = None
    key: Path | None = None
    password: str = field(default="", repr=False)
    proxy: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self._open: http.client.HTTPSConnection | None = None
        self._headers = {"Authorization": _basic(self.password)} if self.password else {}
        try:
            goal = urlsplit(self.address)
            self._host, self._port, self._path = goal.hostname or "", goal.port or 443, goal.path.rstrip("/")
            if goal.scheme != "https" or not self._host or goal.query or goal.username is not None:
                raise ValueError
            self._tls = ssl.create_default_context(cadata=self.authority or None)
            if self.certificate is not None:
                self._tls.load_cert_chain(self.certificate, self.key)
        except ValueError as error:
            raise InvalidInputError("expected https://host[:port][/path]") from error
        except OSError as error:  # of ssl, too
            raise InvalidInputError(f"a certificate or key cannot be used: {_said(error)}") from error
        self._through = _proxy_of(self.proxy, self._host)

    def names(self, folder: str) -> dict[str, str]:
        """Return the names of the files in a folder, each with its size and time, as nginx lists them in JSON."""
        status, body = self._asked("GET", f"{folder}/", most=MOST_LISTED)
        if status == HTTPStatus.NOT_FOUND:
            return {}
        self._check(status, folder)
        try:
            listed = parse_json(body.decode(), "the list of a folder")
            files = [each for each in listed if each["type"] == "file"]
            return _plain((str(each["name"]), f"{each['size']}-{each['mtime']}") for each in files)
        except (InvalidInputError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise StoreError(f"the server's list of {folder} is none: {type(error).__name__}") from error

    def read(self, folder: str, name: str) -> bytes:
        """Return the bytes of a file."""
        status, body = self._asked("GET", f"{folder}/{name}", most=MOST_LETTER)
        self._check(status, f"{folder}/{name}")
        return _check_size(body, name)

    def write(self, folder: str, name: str, data: bytes) -> None:
        """Put a file."""
        status, _ = self._asked("PUT", f"{folder}/{name}", _check_size(data, name), most=MOST_LISTED)
        self._check(status, f"{folder}/{name}")

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            with suppress(OSError):
                self._open.close()
        self._open = None

    def _check(self, status: int, what: str) -> None:
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            reason = REASONS.get(HTTPStatus(status)) if status in REASONS else None
            raise StoreError(f"{self._host} answers {what} with status {status}{f': {reason}' if reason else ''}")

    def _asked(self, method: str, place: str, data: bytes | None = None, *, most: int) -> tuple[int, bytes]:
        """Return status and body of an answer, of which at most one byte more than ``most`` is read.

        A kept connection may have been closed by the server: the same is then asked once more, over a new one.
        """
        for is_kept in (self._open is not None, False):
            try:
                connection = self._connect()
                connection.request(method, quote(f"{self._path}/{place}"), data, self._headers)
                answer = connection.getresponse()
                return answer.status, self._body(answer, most)
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if not is_kept:
                    raise StoreError(f"{self._host} cannot be reached: {_said(error)}") from error
        raise AssertionError

    def _connect(self) -> http.client.HTTPSConnection:
        if self._open is None:
            host, port, headers = self._through or (self._host, self._port, None)
            self._open = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=self._tls)
            if headers is not None:
                self._open.set_tunnel(self._host, self._port, headers)
        return self._open

    def _body(self, answer: http.client.HTTPResponse, most: int) -> bytes:
        """Return the body of an answer; raise an error if it ends too early, or takes too long."""
        parts, size, stated, until = [], 0, answer.length, time.monotonic() + MOST_SECONDS
        while size <= most and (part := answer.read(min(2**16, most + 1 - size))):
            parts.append(part)
            size += len(part)
            if time.monotonic() > until:
                raise TimeoutError(f"the answer takes more than {MOST_SECONDS:.0f} s")
        if size > most:
            self.close()  # the rest stays unread
        elif stated is not None and size < stated:
            raise http.client.IncompleteRead(b"", stated - size)
        return b"".join(parts)


def _basic(password: str) -> str:
    return f"Basic {b64encode(password.encode()).decode()}"


def _proxy_of(stated: str, host: str) -> tuple[str, int, dict[str, str]] | None:
    """Return host, port and headers of the proxy for a host; None if there is none."""
    if not stated and not proxy_bypass(host):
        stated = getproxies().get("https", "")
    if stated in ("", "none"):
        return None
    try:
        parts: Any = urlsplit(stated if "://" in stated else f"http://{stated}")
        name, port = parts.hostname, parts.port or 3128
        if parts.scheme != "http" or not name:
            raise ValueError
    except ValueError as error:
        raise InvalidInputError("the proxy: expected [http://[user:password@]]host[:port]") from error
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return name, port, {"Proxy-Authorization": _basic(user)} if parts.username else {}
