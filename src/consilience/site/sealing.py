"""The envelope of a release: time, place in the ledger and signature; and what envelopes say about the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from consilience.errors import InvalidInputError
from consilience.files.json_text import read_text
from consilience.files.site_file import SiteFile
from consilience.site import ledger
from consilience.site.folder import LEDGER, SiteFolder


def sealed(folder: SiteFolder, file: SiteFile, now: datetime | None = None) -> SiteFile:
    """Return a file with its envelope: the time, the last entry of the ledger, and the signature of the content.

    Without a key the signature is null: the file is marked as unsigned.

    Examples
    --------
    >>> import tempfile
    >>> from consilience.messages.questions import LocalFit
    >>> from consilience.model.summary import ColumnSummary
    >>> folder = SiteFolder.init("north", "", tempfile.mkdtemp())
    >>> nothing = LocalFit(ColumnSummary.unit(1, 1), None, None)
    >>> file = SiteFile("sha256:" + 64 * "0", "north", ("(intercept)", "age"), nothing)
    >>> sealed(folder, file).envelope["ledger"]["entry"]
    1
    """
    if file.site != folder.name:
        raise InvalidInputError(f"the file is of site {file.site!a} and the folder of {folder.name!a}")
    return replace(file, envelope=envelope_of(folder, file.hash, now))


def envelope_of(folder: SiteFolder, content_hash: str, now: datetime | None = None) -> dict[str, Any]:
    """Return the envelope of a content: the time, the last entry of the ledger, and the signature of the content."""
    last = folder.entries[-1]
    identity = folder.identity
    moment = (datetime.now(UTC) if now is None else now).astimezone(UTC)
    return {
        "time": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "ledger": {"entry": last.number, "hash": last.hash},
        "signature": None if identity is None else identity.sign(content_hash),
    }


def verified_ledger(folder: SiteFolder, files: Iterable[SiteFile] = ()) -> ledger.Verdict:
    """Verify the ledger of a site, also against what its releases say about it.

    Parameters
    ----------
    folder : SiteFolder
        The releases that it stores are read.
    files : iterable of SiteFile
        Files that left the site, from elsewhere: the folder may have been changed as a whole.
    """
    known: dict[int, str] = {}
    copies = [SiteFile.from_text(read_text(path)) for path in sorted((folder.path / "releases").glob("*.json"))]
    for number, hashed in _positions(folder.name, [*copies, *files]):
        if known.setdefault(number, hashed) != hashed:
            return ledger.Verdict((), number, "two files state different hashes of this entry: a fork")
    return ledger.verify(folder.path / LEDGER, known)


def _positions(name: str, files: Iterable[SiteFile]) -> Iterator[tuple[int, str]]:
    """Yield number and hash of the entries that the files of a site state."""
    for file in files:
        stated = file.envelope.get("ledger")
        if file.site == name and isinstance(stated, dict):
            number, hashed = stated.get("entry"), stated.get("hash")
            if type(number) is int and number > 0 and isinstance(hashed, str):
                yield number, hashed
