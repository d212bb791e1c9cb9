"""Names of sites as names of files and folders."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from consilience.messages.site_names import site_names

LONGEST = 60
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}
"""Names that Windows keeps for devices."""


def slug(name: str) -> str:
    """Return a site's name for files and folders: letters a to z, digits and hyphens, valid on every system.

    Examples
    --------
    >>> slug("Hospital Nörd 2"), slug("CON"), slug("../../etc"), slug("a.")
    ('hospital-nord-2', 'site-con', 'etc', 'a')
    """
    (normal,) = site_names([name])
    plain = unicodedata.normalize("NFKD", normal).encode("ascii", "ignore").decode().lower()
    found = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    mark = hashlib.sha256(normal.encode()).hexdigest()[:8]
    if not found:
        return f"site-{mark}"
    if len(found) > LONGEST:
        return f"{found[:LONGEST].strip('-')}-{mark}"
    return f"site-{found}" if found in RESERVED else found
