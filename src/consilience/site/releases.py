"""What left a site, in its folder: the bytes of each release and the tags of the rows that it used.

Files are written before the entry of the ledger that names them, and carry their hash as a name: after a crash in
between there is a file that no entry names, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from consilience.errors import InvalidInputError
from consilience.site import ledger
from consilience.site.differencing import Decision, Earlier, decided
from consilience.site.folder import LEDGER, SiteFolder
from consilience.site.private_files import read_capped, write_once
from consilience.site.row_tags import RowTags
from consilience.site.used_rows import UsedRows

MOST_BYTES = 2**28
"""Maximum size of a release."""


def earlier_of(folder: SiteFolder) -> list[Earlier]:
    """Return all releases and runs that the ledger of a site names, of any study."""
    found = []
    for entry in folder.entries:
        if entry.kind in ("release", "run"):
            details = entry.details
            try:
                columns, rows = tuple(details["columns"]), int(details["rows"])
                load = partial(kept_tags, folder, str(details["tags"]))
                found.append(Earlier(entry.number, details["study"], columns, rows, load, entry.kind == "release"))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInputError(
                    f"entry {entry.number} of the ledger does not say which rows it used: it was written by another "
                    "program, and nothing can be compared with it"
                ) from error
    return found


def decided_for(
    folder: SiteFolder, study: str, used: UsedRows, min_rows: int, *, other_people: bool = False
) -> Decision:
    """Decide by the ledger of a site whether a release or run over these rows is allowed.

    ``other_people`` is a statement of the people at the site, as in :func:`~consilience.site.differencing.decided`.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> folder = SiteFolder.init("north", "", tempfile.mkdtemp())
    >>> rows = pa.table({"age": list(range(100))})
    >>> used, fewer = (UsedRows(rows.slice(n), ("age",), folder.secret) for n in (0, 1))
    >>> decided_for(folder, "sha256:a", used, 10).outcome
    'allowed'
    >>> entry = record(folder, "release", "sha256:a", used.tags, b"the file")
    >>> decided_for(folder, "sha256:b", fewer, 10).outcome
    'refused'
    >>> stored(folder, decided_for(folder, "sha256:a", used, 10).entry)
    b'the file'
    """
    return decided(study, used, earlier_of(folder), min_rows, other_people=other_people)


def record(
    folder: SiteFolder,
    kind: Literal["release", "run"],
    study: str,
    tags: RowTags,
    data: bytes | None = None,
    *,
    details: Mapping[str, Any] | None = None,
    head: str | None = None,
    now: datetime | None = None,
) -> ledger.Entry:
    """Keep the tags of the rows used and the bytes of a release, and add the entry to the ledger.

    Parameters
    ----------
    folder : SiteFolder
    kind : {"release", "run"}
    study : str
        Identity of the study, ``sha256:...``.
    tags : RowTags
        Tags of the rows used.
    data : bytes, optional
        What leaves; a release has them.
    details : mapping, optional
        More details of the entry, such as who approved.
    head : str, optional
        Hash of the last entry when this was decided: if the ledger has grown since, nothing is recorded.
    now : datetime, optional
    """
    if (kind == "release") != (data is not None):
        raise InvalidInputError("a release, and no run, has bytes that are kept")
    found: dict[str, Any] = {
        **(details or {}),
        "study": study,
        "columns": list(tags.columns),
        "rows": tags.n,
        "tags": keep_tags(folder, tags),
    }
    if data is not None:
        found["file"] = kept(folder.path / "releases", data)
    return ledger.append(folder.path / LEDGER, kind, found, head=head, now=now)


def release_of(folder: SiteFolder, study: str, tags: str) -> ledger.Entry | None:
    """Return the entry by which rows with tags of this hash were released for a study; None if there is none."""
    for entry in folder.entries:
        if entry.kind == "release" and (entry.details.get("study"), entry.details.get("tags")) == (study, tags):
            return entry
    return None


def stored(folder: SiteFolder, entry: int | None) -> bytes:
    """Return the bytes of the release that an entry of the ledger names; raise an error if they were changed."""
    named = [each.details.get("file") for each in folder.entries if each.number == entry and each.kind == "release"]
    if not named or not isinstance(named[0], str):
        raise InvalidInputError(f"entry {entry} of the ledger is not a release")
    return kept_bytes(folder.path / "releases", named[0], MOST_BYTES)


def keep_tags(folder: SiteFolder, tags: RowTags) -> str:
    """Store the tags of rows in the folder, unless they are there; return their hash."""
    return kept(folder.path / "tags", tags.data, ".tags")


def kept_tags(folder: SiteFolder, named: str) -> RowTags:
    """Return the stored tags with this hash; raise an error if the file was changed."""
    path = _path(folder.path / "tags", named, ".tags")
    tags = RowTags.read(path)
    if tags.hash != named:
        raise InvalidInputError(f"{path.name} does not have the hash that the ledger states: restore the file")
    return tags


def kept(folder: Path, data: bytes, suffix: str = ".json") -> str:
    """Write bytes to a file that is named by their hash, unless it is there; return the hash."""
    named = f"sha256:{hashlib.sha256(data).hexdigest()}"
    path = _path(folder, named, suffix)
    if path.exists():
        kept_bytes(folder, named, len(data), suffix)
    else:
        write_once(path, data)
    return named


def kept_bytes(folder: Path, named: str, most: int, suffix: str = ".json") -> bytes:
    """Return the bytes of the file with this hash; raise an error if it was changed."""
    path = _path(folder, named, suffix)
    data = read_capped(path, most)
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != named:
        raise InvalidInputError(f"{path.name} does not have the hash that the ledger states: restore the file")
    return data


def _path(folder: Path, named: str, suffix: str) -> Path:
    """Return the path of a file; its name has hexadecimal digits only, whatever the ledger says."""
    digits = named.removeprefix("sha256:")
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise InvalidInputError("the ledger names a file by something else than its hash")
    return folder / f"{digits}{suffix}"
