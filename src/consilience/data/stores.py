"""Addresses of files, local or in a store of objects, and the translation of their errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
from pyarrow import fs

from consilience.errors import InvalidInputError
from consilience.messages import FailureCode, SiteError

REMOTE = ("s3://", "gs://", "abfs://", "abfss://")
"""Beginnings of addresses in stores: of Amazon and others that speak its S3 API, of Google, and of Azure."""
# pyarrow's messages when a store denies access: a HEAD request has no body, so an expired token is a bare 400.
REFUSED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE|INVALID_CLIENT_TOKEN_ID|MISSING_AUTHENTICATION_TOKEN"
    r"|UNRECOGNIZED_CLIENT|REQUEST_EXPIRED|REQUEST_TIME_TOO_SKEWED|HTTP status 40[013]"
    r"|PERMISSION_DENIED|UNAUTHENTICATED|OAuth2 access token"  # of Google
    r"|Authori[sz]ation|AuthenticationFailed|AuthenticationException"  # of Azure
)
UNREACHABLE = re.compile(r"NETWORK_CONNECTION|curlCode|UNAVAILABLE|DEADLINE_EXCEEDED|Fail to get a new connection")
ABSENT = re.compile(r"NO_SUCH_BUCKET|NO_SUCH_KEY|RESOURCE_NOT_FOUND|HTTP status 404")
# Position of a CSV error and the expected type; never the value, which comes after.
PLACE = re.compile(
    r"(?:In |CSV parse error: )?(?:CSV column #(\d+): )?(?:Row #(\d+))?(?:: CSV conversion error to (\w+))?"
)


def expand(pattern: str | Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of the files that match a pattern, sorted; a list of addresses is returned unchanged.

    Parameters
    ----------
    pattern : str or sequence of str
        A path or address with ``*`` in any part of it: ``data/*/part-*.parquet``, ``s3://bucket/2024/*.parquet``,
        ``gs://bucket/*.parquet``, ``abfs://container@account.dfs.core.windows.net/*.parquet``.
        ``**`` stands for any depth in local paths only.

    Returns
    -------
    tuple of str
        Absolute paths of local files, so that they are valid on every worker with access to the disk.

    Raises
    ------
    InvalidInputError
        If nothing matches, or if the files are those of a Delta table.
    """
    if not isinstance(pattern, str):
        found = tuple(pattern)
    else:
        found = tuple(sorted(_stored(pattern) if is_remote(pattern) else _local(pattern)))
    if not found:
        said = repr(show_address(pattern)) if isinstance(pattern, str) else "an empty list"
        raise InvalidInputError(
            f"no file matches {said}: check the path; name the files of a directory as directory/*.parquet"
        )
    return found


@contextmanager
def translate_errors(uri: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Translate pyarrow's errors to failure codes; those of CSV quote values and are not passed on.

    Parameters
    ----------
    uri : str
    columns : sequence of str
        Names of the columns of a CSV file, if they are known when the error occurs.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise SiteError(FailureCode.DATA_NOT_FOUND, show_address(uri)) from error
    except PermissionError as error:
        raise SiteError(FailureCode.NO_CREDENTIALS, show_address(uri)) from error
    except OSError as error:
        raise SiteError(_code(str(error)), show_address(uri)) from error
    except pa.ArrowException as error:
        if is_remote(uri) and REFUSED.search(str(error)):
            raise SiteError(FailureCode.NO_CREDENTIALS, show_address(uri)) from error
        column, row, kind = PLACE.match(str(error)).groups()  # type: ignore[union-attr]
        code = FailureCode.DATA_UNREADABLE if kind in (None, "string") else FailureCode.NOT_NUMBERS
        raise SiteError(code, ", ".join([show_address(uri), *_place(uri, columns, column, row)])) from None


def _place(uri: str, columns: Sequence[str], column: str | None, row: str | None) -> Iterator[str]:
    """Yield the place of an error in a file: its column and its row; or that the file is empty."""
    if column is not None:
        known = int(column) < len(columns)
        yield f"column {columns[int(column)]!r}" if known else f"column number {column}"
    if row is not None:
        yield f"line {row}"
    elif column is None and not is_remote(uri) and Path(_local_path(uri)).stat().st_size == 0:
        yield "which is empty (0 bytes)"


def _code(text: str) -> FailureCode:
    """Return the failure code of an operating system's or a store's error message."""
    if REFUSED.search(text):
        return FailureCode.NO_CREDENTIALS
    if ABSENT.search(text):
        return FailureCode.DATA_NOT_FOUND
    return FailureCode.NO_STORE if UNREACHABLE.search(text) else FailureCode.DATA_UNREADABLE


def is_remote(uri: str) -> bool:
    """Whether an address is in a store of objects."""
    return uri.startswith(REMOTE)


def is_parquet(uri: str) -> bool:
    """Whether an address names a Parquet file; otherwise it must name a CSV file."""
    path = urlsplit(uri).path if is_remote(uri) else uri
    if path.endswith((".parquet", ".pq")):
        return True
    if path.endswith((".csv", ".csv.gz")):
        return False
    raise SiteError(FailureCode.DATA_UNREADABLE, f"{show_address(uri)}: expected .parquet, .pq, .csv or .csv.gz")


def show_address(uri: str) -> str:
    """Return an address for display, without any credentials in it."""
    if not is_remote(uri):
        return uri
    parts = urlsplit(uri)
    owner, _, host = parts.netloc.rpartition("@")
    container = f"{owner.partition(':')[0]}@" if owner and parts.scheme.startswith("abfs") else ""
    return f"{parts.scheme}://{container}{host}{parts.path}"


def absolute_uri(uri: str) -> str:
    """Return an address that names the same file in any working directory."""
    return uri if "://" in uri else str(Path(uri).absolute())


def open_store(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of an address and the path in it."""
    if not is_remote(uri):
        return fs.LocalFileSystem(), _local_path(uri)
    parts = urlsplit(uri)
    open_scheme = {"s3": _s3, "gs": _google}.get(parts.scheme, _azure)
    owner = parts.netloc.rpartition("@")[0]
    if owner if open_scheme is not _azure else ":" in owner:
        raise SiteError(
            FailureCode.NO_CREDENTIALS, f"{show_address(uri)}: keys belong in the environment, not in an address"
        )
    options = dict(parse_qsl(parts.query))
    known = {"endpoint_override", "scheme"} | ({"region"} if parts.scheme == "s3" else set())
    if unknown := options.keys() - known:
        raise SiteError(FailureCode.DATA_NOT_FOUND, f"{show_address(uri)} has options {', '.join(sorted(unknown))}")
    return open_scheme(parts, options)


def move_file(files: fs.FileSystem, source: str, target: str) -> None:
    """Give a file in a store another name."""
    try:
        files.move(source, target)
    except pa.ArrowNotImplementedError:  # Azure without a hierarchical namespace
        files.copy_file(source, target)
        files.delete_file(source)


def _endpoint(options: dict[str, str], *variables: str) -> str | None:
    """Return the endpoint that the options or one of the variables state; its scheme is put among the options."""
    stated = [options.pop("endpoint_override", None), *map(os.environ.get, variables)]
    endpoint = next(filter(None, stated), None)
    if endpoint is not None and "://" in endpoint:
        options["scheme"], _, endpoint = endpoint.rstrip("/").partition("://")
    return endpoint


def _s3(parts: SplitResult, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    """Return an S3 file system and the path in it; pyarrow's own parser of the address sets no timeouts."""
    endpoint = _endpoint(options, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    if endpoint is None and "region" not in options:
        options["region"] = fs.resolve_s3_region(parts.netloc)
    retry = fs.AwsStandardS3RetryStrategy(max_attempts=4)
    store = fs.S3FileSystem(
        endpoint_override=endpoint, connect_timeout=5, request_timeout=10, retry_strategy=retry, **options
    )
    return store, unquote(parts.netloc + parts.path)


def _google(parts: SplitResult, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    """Return a file system of Google and the path in it; what is not encrypted is an emulator, which has no keys."""
    endpoint = _endpoint(options, "STORAGE_EMULATOR_HOST")
    anonymous = options.get("scheme") == "http"
    limit = timedelta(seconds=10)
    store = fs.GcsFileSystem(anonymous=anonymous, endpoint_override=endpoint, retry_time_limit=limit, **options)
    return store, unquote(parts.netloc + parts.path)


AZURE_KEYS = {"account_key": "AZURE_STORAGE_ACCOUNT_KEY", "sas_token": "AZURE_STORAGE_SAS_TOKEN"}
"""Variables with keys of an account; without them, Azure's default credential is used."""


def _azure(parts: SplitResult, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    """Return a file system of an account at Azure and the path in it, which begins with the container."""
    container, _, host = parts.netloc.rpartition("@")
    account = host.partition(".")[0] if container else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    container = unquote(container or host)
    if not account:
        raise SiteError(
            FailureCode.DATA_NOT_FOUND,
            f"{show_address(parts.geturl())} names no account: write abfs://container@account.dfs.core.windows.net, or "
            "set AZURE_STORAGE_ACCOUNT_NAME",
        )
    if not hasattr(fs, "AzureFileSystem"):
        raise SiteError(
            FailureCode.NO_STORE, f"{show_address(parts.geturl())}: this pyarrow has no Azure; install a newer"
        )
    given = {name: os.environ[variable] for name, variable in AZURE_KEYS.items() if os.environ.get(variable)}
    if (endpoint := _endpoint(options)) is not None:
        given |= {f"{service}_storage_authority": endpoint for service in ("blob", "dfs")}
    if options.get("scheme") == "http" and not given.keys() & AZURE_KEYS.keys():  # or the process would abort
        raise SiteError(FailureCode.NO_CREDENTIALS, f"{show_address(parts.geturl())}: an unencrypted store needs a key")
    if "scheme" in options:
        given |= {f"{service}_storage_scheme": options["scheme"] for service in ("blob", "dfs")}
    return fs.AzureFileSystem(account, **given), container + unquote(parts.path)


def _local_path(uri: str) -> str:
    if uri.startswith("file://"):
        return url2pathname(urlsplit(uri).path)
    if "://" in uri:
        raise SiteError(FailureCode.DATA_NOT_FOUND, f"{uri}: expected a local path, file://, s3://, gs:// or abfs://")
    return uri


def _local(pattern: str) -> list[str]:
    path = Path(_local_path(pattern)).absolute()
    root = Path(path.anchor)
    matched = [path] if path.is_file() else root.glob(str(path.relative_to(root)))
    files = [found for found in matched if found.is_file()]
    for folder in {parent for file in files for parent in file.parents}:
        if (folder / DELTA_LOG).is_dir():
            raise InvalidInputError(_say_delta(str(folder)))
    return list(map(str, files))


DELTA_LOG = "_delta_log"
"""Folder beside the Parquet files of a Delta table that says which of them hold its rows."""


def _say_delta(folder: str) -> str:
    return (
        f"{folder} is a Delta table, whose files also have rows that were deleted or replaced: pass the list of the "
        f"files of one version, DeltaTable({folder!r}).file_uris() of the package deltalake, instead of a pattern"
    )


def _stored(pattern: str) -> list[str]:
    """Return the addresses in a store that match a pattern, part by part."""
    with translate_errors(pattern):
        store, path = open_store(pattern)
        parts = path.split("/")
        fixed = next((i for i, part in enumerate(parts) if set(part) & set("*[")), len(parts))
        if fixed == len(parts):
            infos = store.get_file_info([path])
        else:
            base = fs.FileSelector("/".join(parts[:fixed]), allow_not_found=True, recursive=fixed < len(parts) - 1)
            infos = store.get_file_info(base)
        logs = store.get_file_info([f"{'/'.join(parts[:i])}/{DELTA_LOG}" for i in range(1, fixed)])
    places = [info.path for info in (*infos, *logs) if info.type != fs.FileType.NotFound]
    for folder, log, _ in (path.partition(f"/{DELTA_LOG}") for path in places):
        if log:
            raise InvalidInputError(_say_delta(show_address(_address(pattern, folder))))
    keys = [info.path for info in infos if info.type == fs.FileType.File and _matches(info.path.split("/"), parts)]
    return [_address(pattern, key) for key in keys]


def _address(pattern: str, key: str) -> str:
    """Return the address of a path in the store of a pattern."""
    parts, (bucket, _, path) = urlsplit(pattern), key.partition("/")
    account = "@" + parts.netloc.rpartition("@")[2] if "@" in parts.netloc else ""
    found = f"{parts.scheme}://{quote(bucket)}{account}" + (f"/{quote(path, safe='/=')}" if path else "")
    return f"{found}?{parts.query}" if parts.query else found


def _matches(key: list[str], parts: list[str]) -> bool:
    return len(key) == len(parts) and all(fnmatchcase(a, b) for a, b in zip(key, parts, strict=True))
