"""Checks of an installation: versions, extras, and whether files can be written where the command runs."""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from consilience._version import __version__
from consilience.errors import ConsilienceError
from consilience.files.file_names import slug
from consilience.site.folder import SiteFolder
from consilience.site.policy import Policy
from consilience.site.sealing import verified_ledger

PACKAGES = ("numpy", "scipy", "scikit-learn", "pyarrow", "narwhals", "pydantic", "typer", "rich")
EXTRAS = {"secure": "cryptography", "dask": "distributed", "plot": "matplotlib"}


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Parameters
    ----------
    what, said : str
    is_problem : bool
        Whether something does not work that a site needs.
    """

    what: str
    said: str
    is_problem: bool = False


def findings(where: Path, site: str | None = None) -> Iterator[Finding]:
    """Yield the result of each check.

    Examples
    --------
    >>> [found.what for found in findings(Path())][:2]
    ['consilience', 'python']
    """
    yield Finding("consilience", __version__)
    yield Finding("python", f"{platform.python_version()} on {platform.system()}", sys.version_info < (3, 11))
    for name in PACKAGES:
        found = _version(name)
        yield Finding(name, found or "missing: run 'pip install consilience' again", found is None)
    for extra, name in EXTRAS.items():
        yield Finding(name, _version(name) or f"not installed: pip install 'consilience[{extra}]' if you need it")
    yield _encoding()
    yield _writable(where)
    if site is not None:
        yield from _site(site, where)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _encoding() -> Finding:
    found = sys.getfilesystemencoding()
    said = found if found == "utf-8" else f"{found}: set PYTHONUTF8=1, so that names of files are UTF-8"
    return Finding("names of files", said, found != "utf-8")


def _writable(where: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=where) as file:
            file.write(bytes(1024))
    except OSError as error:
        return Finding("folder", f"{where.resolve()} cannot be written: {error.strerror}", True)
    return Finding("folder", f"{where.resolve()} can be written")


def _site(name: str, where: Path) -> Iterator[Finding]:
    """Check the folder, the policy and the ledger of a site."""
    try:
        folder = SiteFolder.open(where / slug(name))
        yield Finding("site", f"the folder of {folder.name} is complete")
        yield Finding("policy", f"profile {Policy.from_text(folder.policy).profile_text}")
        verdict = verified_ledger(folder)
        yield Finding("ledger", str(verdict), not verdict.is_whole)
        yield Finding("key", folder.public_key or "none: files are unsigned")
    except ConsilienceError as error:
        yield Finding("site", str(error), True)
